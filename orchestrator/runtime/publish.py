"""The public events that a journal event stands for."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from orchestrator.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalEvent,
    ErrorEvent,
    FinalAnswerEvent,
    InputAsked,
    JournalEvent,
    MemoryCompacted,
    ModelChanged,
    ModelFailed,
    ModelResult,
    PublicEvent,
    RunCancelled,
    RunFailed,
    RunFinished,
    StateEvent,
    ToolCallEvent,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolResultEvent,
    UsageEvent,
)
from orchestrator.runtime.runstate import CallState, RunState


def call_path(run: str, call: str) -> str:
    """A call's name over the whole tree: `t1.1` in the top run, `t1.1/t2.1` in the run of the agent that it called."""
    return f"{run}/{call}".partition("/")[2]


def wanted(call: CallState) -> tuple[str, dict[str, Any] | None]:
    """Why a call waits, and what its server asks for, if it is the server that asks."""
    if call.input is None or (question := call.input.open) is None:
        return call.reason, None
    asked: dict[str, Any] = {"server": call.input.server, "message": question.message}
    if question.url is not None:
        asked |= {"url": question.url, "host": urlsplit(question.url).hostname or ""}
    else:
        asked["schema"] = question.requested or {}
    return f"server {call.input.server} asks: {question.message}", asked


def public(event: JournalEvent, before: RunState, after: RunState) -> Iterator[PublicEvent]:
    """What watchers are told when `event` takes a run from one state to the next."""
    place: dict[str, Any] = {
        "run_id": event.run,
        "agent": event.agent,
        "step": after.turn,
        "trace_id": after.run.trace_id,
    }
    if before.name != after.name or before.started is None:
        previous = before.name if before.started is not None else None
        yield StateEvent(**place, state=after.name, previous=previous, at=event.at)
    if after.remote != before.remote:
        more, paid = after.remote.beyond(before.remote), after.remote_cost.beyond(before.remote_cost)
        yield UsageEvent(**place, usage=more, cost=paid)
    match event:
        case ModelResult() | MemoryCompacted():
            yield UsageEvent(**place, usage=event.usage, cost=event.cost)
        case ToolIntent():
            yield ToolCallEvent(**place, call=event.call, tool=event.tool, arguments=event.arguments)
        case ToolResult() | ToolInDoubt():
            yield ToolResultEvent(
                **place,
                call=event.call,
                tool=event.tool,
                observation=event.observation,
                is_error=isinstance(event, ToolInDoubt) or event.error is not None,
                seconds=event.seconds if isinstance(event, ToolResult) else 0.0,
            )
        case ApprovalAsked() | InputAsked() | ApprovalDecided():
            call = after.find(event.call)
            if call is not None and call.phase == "waiting" and not _waited(before.find(event.call), call):
                reason, asked = wanted(call)
                yield ApprovalEvent(
                    **place,
                    call=call_path(event.run, event.call),
                    tool=call.call.name,
                    arguments=dict(call.arguments or {}),
                    reason=reason,
                    input=asked,
                )
        case ModelFailed():
            yield ErrorEvent(**place, error=event.error)
        case ModelChanged():
            told = f"goes on with model {event.model} in place of {event.previous} ({event.reason})"
            yield ErrorEvent(**place, error=told)
        case RunFinished():
            yield FinalAnswerEvent(**place, answer=event.answer, status=event.status, stop_reason=event.stop_reason)
        case RunFailed() | RunCancelled():
            error = event.error if isinstance(event, RunFailed) else event.reason
            yield ErrorEvent(**place, error=error)
        case _:
            return


def _waited(before: CallState | None, now: CallState) -> bool:
    """Whether a call that waits did so before, for the same."""
    return before is not None and before.phase == "waiting" and before.digest == now.digest
