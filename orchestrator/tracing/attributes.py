"""From the loop's terms to attributes of spans: what a scope says when it opens, and what its outcome adds.

Names come from OpenTelemetry's GenAI semantic conventions (v1.41 with the corrections of semantic-conventions-genai
v0.1.0) and its MCP conventions, all of status Development; the constants of `opentelemetry.semconv` are deprecated and
lack the newer ones. `gen_ai.usage.cost.*` is an open proposal (semantic-conventions-genai#443). What has no convention
begins with `orchestrator.`; roll-ups do too, so that nobody who sums `gen_ai.usage.` counts a token twice.

An attribute costs about 2 µs in the SDK and as much again when it is sent, so a thought or a call does not repeat what
the agent's span above it says.
"""

import re
from typing import NamedTuple, assert_never

from orchestrator.messages import Usage
from orchestrator.tracing.content import capped_json, capped_result, clean
from orchestrator.tracing.port import ChatFacts, ChatOutcome, Outcome, RunFacts, RunOutcome, ToolFacts, ToolOutcome

Attributes = dict[str, str | bool | int | float | list[str]]

CANCELLED = "cancelled"
OTHER = "_OTHER"

_CURRENCY = "USD"
_KIND = re.compile(r"[\w.:-]{1,64}")


class Failure(NamedTuple):
    """`kind` is of low cardinality; `message` is for people."""

    kind: str
    message: str


def of_run(facts: RunFacts, operation: str) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": facts.agent,
        "gen_ai.conversation.id": _conversation(facts.run_id),
        "orchestrator.run.id": facts.run_id,
    }
    if operation == "invoke_workflow":
        attributes["gen_ai.workflow.name"] = facts.agent
        return attributes
    if facts.description:
        attributes["gen_ai.agent.description"] = clean(facts.description)
    if facts.model:
        attributes["gen_ai.request.model"] = facts.model
    if facts.provider:
        attributes["gen_ai.provider.name"] = facts.provider
    return attributes


def of_chat(facts: ChatFacts) -> Attributes:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": facts.provider,
        "gen_ai.request.model": facts.model,
        "gen_ai.request.max_tokens": facts.max_output_tokens,
        "gen_ai.agent.name": facts.agent,
        "gen_ai.conversation.id": _conversation(facts.run_id),
        "orchestrator.step": facts.step,
    }


def of_tool(facts: ToolFacts, capture: bool) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": clean(facts.tool),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": facts.call,
        "gen_ai.agent.name": facts.agent,
    }
    if facts.server:
        attributes["mcp.method.name"] = "tools/call"
        attributes["orchestrator.server"] = facts.server
    if facts.transport:
        attributes["network.transport"] = facts.transport
    if capture:
        attributes["gen_ai.tool.call.arguments"] = capped_json(dict(facts.arguments))
    return attributes


def of_outcome(outcome: Outcome, capture: bool) -> Attributes:
    match outcome:
        case ChatOutcome():
            return _of_chat_outcome(outcome)
        case ToolOutcome():
            return {"gen_ai.tool.call.result": capped_result(outcome.text)} if capture else {}
        case RunOutcome():
            return {
                "orchestrator.run.status": outcome.status,
                "orchestrator.run.stop_reason": outcome.stop_reason,
                **_rolled_up("orchestrator.own.", outcome.own_usage),
                **_rolled_up("orchestrator.tree.", outcome.usage),
                "orchestrator.cost.amount": float(outcome.cost.amount),
                "orchestrator.cost.currency": _CURRENCY,
                "orchestrator.cost.known": outcome.cost.known,
            }
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
            return Failure(CANCELLED, clean(outcome.error or CANCELLED))
        case RunOutcome(error=str(error)):
            return _failure(error, "")
        case RunOutcome(status="failed"):
            return _failure(outcome.stop_reason, "")
        case _:
            return None


def cost_event(outcome: ChatOutcome) -> Attributes | None:
    """What a model call cost, so that the events of a trace are its ledger; None when nothing was spent."""
    if outcome.error is not None and not outcome.usage.tokens:
        return None
    event: Attributes = {
        "amount": float(outcome.cost.amount),
        "run_total": float(outcome.tree_cost.amount),
        "tokens": outcome.usage.tokens,
    }
    if not (outcome.cost.known and outcome.tree_cost.known):
        event["orchestrator.cost.known"] = False
    return event


def _of_chat_outcome(outcome: ChatOutcome) -> Attributes:
    attributes: Attributes = {}
    usage = outcome.usage
    if usage.tokens or outcome.error is None:
        attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        if usage.cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.cache_write_tokens:
            attributes["gen_ai.usage.cache_write.input_tokens"] = usage.cache_write_tokens
            # Its name before v0.1.0, which Jaeger still reads.
            attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
        if usage.reasoning_tokens:
            attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        if outcome.cost.known:
            attributes["gen_ai.usage.cost.amount"] = float(outcome.cost.amount)
            attributes["gen_ai.usage.cost.currency"] = _CURRENCY
        else:
            attributes["orchestrator.cost.known"] = False
    if outcome.finish:
        attributes["gen_ai.response.finish_reasons"] = [clean(outcome.finish)]
    if outcome.model:
        attributes["gen_ai.response.model"] = clean(outcome.model)
    if outcome.response_id:
        attributes["gen_ai.response.id"] = clean(outcome.response_id)
    return attributes


def _rolled_up(prefix: str, usage: Usage) -> Attributes:
    return {
        prefix + "input_tokens": usage.input_tokens,
        prefix + "output_tokens": usage.output_tokens,
        prefix + "cached_tokens": usage.cached_tokens,
        prefix + "model_calls": usage.model_calls,
        prefix + "tool_calls": usage.tool_calls,
    }


def _failure(error: str, message: str) -> Failure:
    """`error` is a short kind; where a whole sentence was given, it becomes the message, to keep kinds few."""
    kind = error if _KIND.fullmatch(error) else OTHER
    return Failure(kind, clean(message or error))


def _conversation(run_id: str) -> str:
    """The top-level run: a child's id is `<run>/<call>`."""
    return run_id.partition("/")[0]
