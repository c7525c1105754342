"""From the loop's terms to attributes of spans: what a scope says when it opens, and what its outcome adds.

Names come from OpenTelemetry's GenAI semantic conventions (v1.41 with the corrections of semantic-conventions-genai
v0.1.0) and its MCP conventions, all of status Development; the constants of `opentelemetry.semconv` are deprecated and
lack the newer ones. `gen_ai.usage.cost.*` is an open proposal (semantic-conventions-genai#443). What has no convention
begins with `orchestrator.`; roll-ups do too, so that nobody who sums `gen_ai.usage.` counts a token twice.

An attribute costs about 2 µs in the SDK and as much again when it is sent, so a thought or a call does not repeat what
the agent's span above it says.
"""

import re
from typing import Any, assert_never

from orchestrator.messages import AssistantMessage
from orchestrator.tracing.content import capped_json, capped_result, clean, parsed
from orchestrator.tracing.port import (
    ChatFacts,
    ChatOutcome,
    Outcome,
    PlanFacts,
    PlanOutcome,
    RunFacts,
    RunOutcome,
    ToolFacts,
    ToolOutcome,
)

Attributes = dict[str, str | bool | int | float | list[str]]

_KIND = re.compile(r"[\w.:-]{1,64}")
_TOTALS = ("input_tokens", "output_tokens", "cached_tokens", "model_calls", "tool_calls")


def of_run(facts: RunFacts, operation: str, capture: bool) -> Attributes:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": facts.agent,
        "gen_ai.conversation.id": facts.run_id.partition("/")[0],  # the top-level run's: a child's is `<run>/<call>`
        "orchestrator.run.id": facts.run_id,
    } | _known(
        {
            "gen_ai.workflow.name": facts.agent if operation == "invoke_workflow" else "",
            "gen_ai.agent.description": clean(facts.description),
            "gen_ai.request.model": facts.model,
            "gen_ai.provider.name": facts.provider,
            "gen_ai.input.messages": _said("user", facts.task) if capture and facts.task else "",
        }
    )


def of_plan(facts: PlanFacts) -> Attributes:
    return {
        "gen_ai.operation.name": "plan",
        "gen_ai.agent.name": facts.agent,
        "gen_ai.conversation.id": facts.run_id.partition("/")[0],
    }


def of_chat(facts: ChatFacts) -> Attributes:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": facts.provider,
        "gen_ai.request.model": facts.model,
        "gen_ai.request.max_tokens": facts.max_output_tokens,
        "gen_ai.agent.name": facts.agent,
        "gen_ai.conversation.id": facts.run_id.partition("/")[0],
        "orchestrator.step": facts.step,
    } | _known({"orchestrator.chat.purpose": "summary" if facts.summary else ""})


def of_tool(facts: ToolFacts, capture: bool) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": clean(facts.tool),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": facts.call,
        "gen_ai.agent.name": facts.agent,
    } | _known(
        {
            "mcp.method.name": "tools/call" if facts.server else "",
            "orchestrator.server": facts.server,
            "network.transport": facts.transport,
            "gen_ai.tool.call.arguments": capped_json(dict(facts.arguments)) if capture else "",
        }
    )


def of_outcome(outcome: Outcome, capture: bool) -> Attributes:
    match outcome:
        case ChatOutcome():
            return _of_chat_outcome(outcome, capture)
        case ToolOutcome():
            return {"gen_ai.tool.call.result": capped_result(outcome.text)} if capture else {}
        case PlanOutcome():
            return {}
        case RunOutcome():
            return {
                "orchestrator.run.status": outcome.status,
                "orchestrator.run.stop_reason": outcome.stop_reason,
                **{f"orchestrator.own.{name}": getattr(outcome.own_usage, name) for name in _TOTALS},
                **{f"orchestrator.tree.{name}": getattr(outcome.usage, name) for name in _TOTALS},
                "orchestrator.cost.amount": float(outcome.cost.amount),
                "orchestrator.cost.currency": "USD",
                "orchestrator.cost.known": outcome.cost.known,
            }
        case _:
            assert_never(outcome)


def cost_event(outcome: ChatOutcome) -> Attributes:
    """What a model call cost, so that the events of a trace are its ledger; empty when nothing was spent."""
    if outcome.error is not None and not outcome.usage.tokens:
        return {}
    event: Attributes = {
        "amount": float(outcome.cost.amount),
        "run_total": float(outcome.tree_cost.amount),
        "tokens": outcome.usage.tokens,
    }
    if outcome.tokens_left is not None:
        event["tokens_left"] = outcome.tokens_left
    if outcome.cost_left is not None:
        event["amount_left"] = float(outcome.cost_left)
    if not (outcome.cost.known and outcome.tree_cost.known):
        event["orchestrator.cost.known"] = False
    return event


def failure(outcome: Outcome, capture: bool) -> tuple[str, str] | None:
    """Kind, of low cardinality, and message, for people; None when it went well.

    A run that a limit stopped or that waits for a person went well too.
    """
    match outcome:
        case ChatOutcome(error=str(error)):
            return _failure(error, outcome.message)
        case ToolOutcome(error=str(error)):
            return _failure(error, outcome.text if capture else "")
        case PlanOutcome(error=str(error)):
            return _failure(error, "")
        case RunOutcome(status="cancelled"):
            return _failure("cancelled", outcome.message)
        case RunOutcome(status="failed"):
            return _failure(outcome.error or outcome.stop_reason, outcome.message)
        case _:
            return None


def _of_chat_outcome(outcome: ChatOutcome, capture: bool) -> Attributes:
    usage, cost = outcome.usage, outcome.cost
    attributes = _known(
        {
            "gen_ai.response.finish_reasons": [clean(outcome.finish)] if outcome.finish else [],
            "gen_ai.response.model": clean(outcome.model),
            "gen_ai.response.id": clean(outcome.response_id),
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens,
            # Its name before v0.1.0, which Jaeger still reads.
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "gen_ai.output.messages": _written(outcome.reply) if capture and outcome.reply else "",
        }
    )
    if usage.tokens or outcome.error is None:
        attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
        if cost.known:
            attributes["gen_ai.usage.cost.amount"] = float(cost.amount)
            attributes["gen_ai.usage.cost.currency"] = "USD"
        else:
            attributes["orchestrator.cost.known"] = False
    return attributes


def _said(role: str, text: str) -> str:
    return capped_json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _written(reply: AssistantMessage) -> str:
    """A thought in the convention's shape. What it answers is not repeated: that is on the spans before it."""
    parts: list[Any] = [{"type": "text", "content": reply.text}] if reply.text else []
    parts += [{"type": "tool_call", "id": c.id, "name": c.name, "arguments": parsed(c.arguments)} for c in reply.calls]
    return capped_json([{"role": "assistant", "parts": parts}])


def _failure(error: str, message: str) -> tuple[str, str]:
    """`error` is a short kind; where a whole sentence was given, it becomes the message, to keep kinds few."""
    return error if _KIND.fullmatch(error) else "_OTHER", clean(message or error)


def _known(attributes: Attributes) -> Attributes:
    """Those that say something: no empty placeholders in a span."""
    return {name: value for name, value in attributes.items() if value}
