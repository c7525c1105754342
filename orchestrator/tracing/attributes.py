"""From the loop's terms to attributes of spans: what a scope says when it opens, and what its outcome adds.

An attribute costs about 2 µs in the SDK and as much again when it is sent, so a thought or a call does not repeat what
the agent's span above it says.
"""

import re
from typing import NamedTuple, assert_never

from orchestrator.messages import Cost, Usage
from orchestrator.tracing import conventions as names
from orchestrator.tracing.content import capped_json, capped_result, clean
from orchestrator.tracing.port import ChatFacts, ChatOutcome, Outcome, RunFacts, RunOutcome, ToolFacts, ToolOutcome

Value = str | bool | int | float | list[str]
Attributes = dict[str, Value]

_KIND = re.compile(r"[\w.:-]{1,64}")


class Failure(NamedTuple):
    """`kind` is of low cardinality; `message` is for people."""

    kind: str
    message: str


def of_run(facts: RunFacts, operation: str) -> Attributes:
    attributes: Attributes = {
        names.OPERATION_NAME: operation,
        names.AGENT_NAME: facts.agent,
        names.CONVERSATION_ID: _conversation(facts.run_id),
        names.RUN_ID: facts.run_id,
    }
    if operation == names.INVOKE_WORKFLOW:
        attributes[names.WORKFLOW_NAME] = facts.agent
        return attributes
    if facts.description:
        attributes[names.AGENT_DESCRIPTION] = clean(facts.description)
    if facts.model:
        attributes[names.REQUEST_MODEL] = facts.model
    if facts.provider:
        attributes[names.PROVIDER_NAME] = facts.provider
    return attributes


def of_chat(facts: ChatFacts) -> Attributes:
    return {
        names.OPERATION_NAME: names.CHAT,
        names.PROVIDER_NAME: facts.provider,
        names.REQUEST_MODEL: facts.model,
        names.REQUEST_MAX_TOKENS: facts.max_output_tokens,
        names.AGENT_NAME: facts.agent,
        names.CONVERSATION_ID: _conversation(facts.run_id),
        names.STEP: facts.step,
    }


def of_tool(facts: ToolFacts, capture: bool) -> Attributes:
    attributes: Attributes = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_NAME: clean(facts.tool),
        names.TOOL_TYPE: "function",
        names.TOOL_CALL_ID: facts.call,
        names.AGENT_NAME: facts.agent,
    }
    if facts.server:
        attributes[names.MCP_METHOD_NAME] = names.MCP_TOOLS_CALL
        attributes[names.SERVER] = facts.server
    if facts.description:
        attributes[names.TOOL_DESCRIPTION] = clean(facts.description)
    if facts.transport:
        attributes[names.NETWORK_TRANSPORT] = facts.transport
    if capture:
        attributes[names.TOOL_CALL_ARGUMENTS] = capped_json(dict(facts.arguments))
    return attributes


def of_outcome(outcome: Outcome, capture: bool) -> Attributes:
    match outcome:
        case ChatOutcome():
            return _of_chat_outcome(outcome)
        case ToolOutcome():
            return {names.TOOL_CALL_RESULT: capped_result(outcome.text)} if capture else {}
        case RunOutcome():
            return _of_run_outcome(outcome)
        case _:
            assert_never(outcome)


def failure(outcome: Outcome, capture: bool) -> Failure | None:
    """None when it went well; a run that a limit stopped or that waits for a person went well too."""
    match outcome:
        case ChatOutcome(error=str(error)):
            return _failure(error, outcome.message)
        case ToolOutcome(error=str(error)):
            return _failure(error, outcome.text if capture else "")
        case RunOutcome(status="cancelled"):
            return Failure(kind=names.ERROR_CANCELLED, message=clean(outcome.error or names.ERROR_CANCELLED))
        case RunOutcome(error=str(error)):
            return _failure(error, "")
        case RunOutcome(status="failed"):
            return _failure(outcome.stop_reason, "")
        case _:
            return None


def cost_event(outcome: ChatOutcome) -> Attributes:
    event: Attributes = {
        names.EVENT_AMOUNT: float(outcome.cost.amount),
        names.EVENT_RUN_TOTAL: float(outcome.tree_cost.amount),
        names.EVENT_TOKENS: outcome.usage.tokens,
    }
    if not (outcome.cost.known and outcome.tree_cost.known):
        event[names.COST_KNOWN] = False
    return event


def _of_chat_outcome(outcome: ChatOutcome) -> Attributes:
    attributes: Attributes = {}
    usage = outcome.usage
    if usage.tokens or outcome.error is None:
        attributes[names.USAGE_INPUT_TOKENS] = usage.input_tokens
        attributes[names.USAGE_OUTPUT_TOKENS] = usage.output_tokens
        if usage.cached_tokens:
            attributes[names.USAGE_CACHE_READ] = usage.cached_tokens
        if usage.cache_write_tokens:
            attributes[names.USAGE_CACHE_WRITE] = attributes[names.USAGE_CACHE_CREATION] = usage.cache_write_tokens
        if usage.reasoning_tokens:
            attributes[names.USAGE_REASONING] = usage.reasoning_tokens
        if outcome.cost.known:
            attributes[names.USAGE_COST_AMOUNT] = float(outcome.cost.amount)
            attributes[names.USAGE_COST_CURRENCY] = names.CURRENCY
        else:
            attributes[names.COST_KNOWN] = False
    if outcome.finish:
        attributes[names.RESPONSE_FINISH_REASONS] = [outcome.finish]
    if outcome.model:
        attributes[names.RESPONSE_MODEL] = outcome.model
    if outcome.response_id:
        attributes[names.RESPONSE_ID] = outcome.response_id
    return attributes


def _of_run_outcome(outcome: RunOutcome) -> Attributes:
    return {
        names.RUN_STATUS: outcome.status,
        names.RUN_STOP_REASON: outcome.stop_reason,
        **_rolled_up(names.OWN, outcome.own_usage),
        **_rolled_up(names.TREE, outcome.usage),
        **_money(outcome.cost),
    }


def _rolled_up(prefix: str, usage: Usage) -> Attributes:
    return {
        prefix + "input_tokens": usage.input_tokens,
        prefix + "output_tokens": usage.output_tokens,
        prefix + "cached_tokens": usage.cached_tokens,
        prefix + "model_calls": usage.model_calls,
        prefix + "tool_calls": usage.tool_calls,
    }


def _money(cost: Cost) -> Attributes:
    return {
        names.COST_AMOUNT: float(cost.amount),
        names.COST_CURRENCY: names.CURRENCY,
        names.COST_KNOWN: cost.known,
    }


def _failure(error: str, message: str) -> Failure:
    """`error` is a short kind; where a whole sentence was given, it becomes the message, to keep kinds few."""
    if _KIND.fullmatch(error):
        return Failure(kind=error, message=clean(message or error))
    return Failure(kind=names.ERROR_OTHER, message=clean(message or error))


def _conversation(run_id: str) -> str:
    """The top-level run: a child's id is `<run>/<call>`."""
    return run_id.partition("/")[0]
