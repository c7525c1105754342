"""What a journal event says in the log: the step that was done, in one flat line."""

from collections.abc import Mapping
from typing import Any

from orchestrator.events import (
    InputAsked,
    JournalEvent,
    LimitReached,
    ModelChanged,
    ModelFailed,
    ModelIntent,
    ModelResult,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunForked,
    RunStarted,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolsChanged,
)
from orchestrator.messages import Cost, Usage
from orchestrator.runtime.noted import noted
from orchestrator.runtime.runstate import RunState


def logged(event: JournalEvent, before: RunState, after: RunState) -> dict[str, Any]:
    """The line of an event that takes a run from one state to the next: `previous` was left, `state` is entered."""
    failed = isinstance(event, ModelFailed | ModelChanged | ToolInDoubt | LimitReached | RunFailed)
    return {
        "at": event.at,
        "level": "warning" if failed or (isinstance(event, ToolResult) and event.error is not None) else "info",
        "event": event.type,
        "run_id": event.run,
        "trace_id": after.run.trace_id,
        "agent": event.agent,
        "step": after.turn,
        "previous": before.name if before.started is not None else None,
        "state": after.name,
        **_facts(event, before, after),
    }


def _facts(event: JournalEvent, before: RunState, after: RunState) -> Mapping[str, Any]:
    match event:
        case RunStarted():
            return {"task": event.task, "model": event.model, "role": event.role, "by": event.by}
        case RunForked():
            return {"source": event.source, "from_step": event.step}
        case ModelIntent():
            return {"attempt": event.attempt}
        case ModelResult():
            seconds = event.at - before.last_at
            return {"model": event.model, "text": event.message.text, **_spent(event.usage, event.cost, seconds)}
        case ModelFailed():
            return {"attempt": event.attempt, "kind": event.kind, "error": event.error, "retry_in": event.retry_in}
        case ToolIntent():
            return {"call": event.call, "tool": event.tool, "arguments": event.arguments}
        case ToolResult() | ToolInDoubt():
            return _result(event, before)
        case ToolsChanged():
            return {"chosen": " ".join(event.chosen), "joined": " ".join(event.joined)}
        case InputAsked():
            return {"call": event.call, "tool": event.tool, "server": event.server}
        case RunFinished():
            end = {"status": event.status, "stop_reason": event.stop_reason, "answer": event.answer}
            return {**end, **_spent(after.usage, after.cost, after.active)}
        case RunFailed():
            return {"kind": event.kind, "error": event.error, **_spent(after.usage, after.cost, after.active)}
        case RunCancelled():
            return {"reason": event.reason, **_spent(after.usage, after.cost, after.active)}
        case _:
            note = noted(event)
            return {} if note is None else note[1]


def _result(event: ToolResult | ToolInDoubt, before: RunState) -> Mapping[str, Any]:
    call = before.find(event.call)
    arguments = None if call is None else call.call.arguments if call.arguments is None else call.arguments
    line = {"call": event.call, "tool": event.tool, "arguments": arguments, "result": event.observation}
    if isinstance(event, ToolInDoubt):
        return {**line, "error": "in_doubt"}
    if event.usage is None or event.cost is None:
        return {**line, "error": event.error, "seconds": event.seconds}
    return {**line, "error": event.error, **_spent(event.usage, event.cost, event.seconds)}


def _spent(usage: Usage, cost: Cost, seconds: float) -> Mapping[str, Any]:
    """US dollars, None where a price is unknown; seconds are of what the line is about."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost": float(cost.amount) if cost.known else None,
        "seconds": seconds,
    }
