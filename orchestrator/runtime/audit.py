"""The audit: a record of each model request, tool call, approval, limit and run, made from the journal's own events.

There is no second file that could say something else: what a run did is what its journal holds, and the journal chains
its events by hash (see `runtime.journal`).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.events import (
    ApprovalAsked,
    ApprovalDecided,
    InputAsked,
    JournalEvent,
    LimitReached,
    MemoryCompacted,
    MemoryIntent,
    ModelChanged,
    ModelFailed,
    ModelIntent,
    ModelResult,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunParked,
    RunResumed,
    RunStarted,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
)
from orchestrator.masking import mask
from orchestrator.messages import Cost, Usage

Kind = Literal["run", "model", "tool", "approval", "limit"]
LONGEST = 500
"""Characters of a detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who did what, when, and what came of it; masked.

    `at` is when it was over, in seconds since the epoch. `by` is the user whose run it is, or who decided. `what` is
    the model, the tool or the limit. `outcome` is `ok` or a short word for what happened instead.
    """

    at: float
    run: str
    kind: Kind
    by: str
    role: str | None
    agent: str
    what: str
    outcome: str
    call: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    detail: str = ""


@dataclass(slots=True)
class _Run:
    """What is known of a run while its events are read."""

    by: str = ""
    role: str | None = None
    model: str = ""
    asked: ModelIntent | None = None
    summary: MemoryIntent | None = None
    calls: dict[str, ToolIntent] = field(default_factory=dict[str, ToolIntent])
    waiting: dict[str, str] = field(default_factory=dict[str, str])


def records(events: Iterable[JournalEvent]) -> Iterator[Record]:
    """The records that events stand for, which may be of many runs, each run's in order.

    What was begun and has no answer yet, or never got one since its process died, has the outcome `unknown`.
    """
    runs: dict[str, _Run] = {}
    for event in events:
        yield from _records(event, runs.setdefault(event.run, _Run()))
    for run in runs.values():
        if run.asked is not None:
            yield _record(run.asked, run, "model", run.model, "unknown")
        if run.summary is not None:
            yield _record(run.summary, run, "model", run.model, "unknown", detail="summary")
        for intent in run.calls.values():
            yield _record(intent, run, "tool", intent.tool, "unknown", call=intent.call, detail=_json(intent.arguments))


def _records(event: JournalEvent, run: _Run) -> Iterator[Record]:
    match event:
        case RunStarted():
            run.by, run.role, run.model = event.by, event.role, event.model
            yield _record(event, run, "run", event.agent, "started", detail=event.task)
        case ModelIntent():
            if run.asked is not None:
                yield _record(run.asked, run, "model", run.model, "unknown")
            run.asked = event
        case ModelResult() | ModelFailed():
            yield _model(event, run)
            run.asked = None
        case MemoryIntent():
            run.summary = event
        case MemoryCompacted():
            yield _summary(event, run)
            run.summary = None
        case ModelChanged():
            run.model = event.model
            yield _record(event, run, "model", event.model, "changed", detail=f"{event.previous}: {event.reason}")
        case ToolIntent():
            run.calls[event.call] = event
        case ToolResult() | ToolInDoubt():
            yield _tool(event, run, run.calls.pop(event.call, None))
        case ApprovalAsked():
            run.waiting[event.call] = event.tool
            detail = _json(event.arguments)
            yield _record(event, run, "approval", event.tool, "asked", call=event.call, detail=detail)
        case InputAsked():
            run.waiting[event.call] = event.tool
            detail = event.open.message if event.open is not None else ""
            yield _record(event, run, "approval", event.tool, "asked by the server", call=event.call, detail=detail)
        case ApprovalDecided():
            tool = run.waiting.get(event.call, "")
            outcome = "dismissed" if event.dismissed else "approved" if event.approved else "denied"
            detail = _json(event.arguments) if event.arguments is not None else event.note
            yield _record(event, run, "approval", tool, outcome, by=event.by, call=event.call, detail=detail)
        case LimitReached():
            yield _record(event, run, "limit", event.limit, "reached", detail=event.detail)
        case RunResumed() | RunParked() | RunFinished() | RunFailed() | RunCancelled():
            yield _record(event, run, "run", event.agent, *_turn(event))
        case _:
            return


def _model(event: ModelResult | ModelFailed, run: _Run) -> Record:
    seconds = event.at - run.asked.at if run.asked is not None else None
    if isinstance(event, ModelFailed):
        return _record(event, run, "model", run.model, event.kind, seconds=seconds, detail=event.error)
    return _record(
        event, run, "model", event.model or run.model, "ok", seconds=seconds, usage=event.usage, cost=event.cost
    )


def _summary(event: MemoryCompacted, run: _Run) -> Record:
    seconds = event.at - run.summary.at if run.summary is not None else None
    facts: dict[str, Any] = {"seconds": seconds, "usage": event.usage, "cost": event.cost, "detail": "summary"}
    return _record(event, run, "model", event.model or run.model, event.error or "ok", **facts)


def _tool(event: ToolResult | ToolInDoubt, run: _Run, intent: ToolIntent | None) -> Record:
    detail = _json(intent.arguments) if intent is not None else event.observation
    if isinstance(event, ToolInDoubt):
        return _record(event, run, "tool", event.tool, "in_doubt", call=event.call, detail=detail)
    return _record(
        event,
        run,
        "tool",
        event.tool,
        event.error or "ok",
        call=event.call,
        seconds=event.seconds,
        usage=event.usage,
        cost=event.cost,
        detail=detail,
    )


def _turn(event: RunResumed | RunParked | RunFinished | RunFailed | RunCancelled) -> tuple[str, str]:
    """What a run came to, and why."""
    match event:
        case RunResumed():
            return "resumed", ""
        case RunParked():
            return "parked", event.reason
        case RunFinished():
            return event.status, event.stop_reason
        case RunFailed():
            return "failed", event.error
        case RunCancelled():
            return "cancelled", event.reason


def _record(
    event: JournalEvent,
    run: _Run,
    kind: Kind,
    what: str,
    outcome: str,
    detail: str = "",
    *,
    by: str | None = None,
    call: str | None = None,
    seconds: float | None = None,
    usage: Usage | None = None,
    cost: Cost | None = None,
) -> Record:
    masked = mask(detail)
    return Record(
        at=event.at,
        run=event.run,
        kind=kind,
        by=run.by if by is None else by,
        role=run.role,
        agent=event.agent,
        what=mask(what),
        outcome=outcome,
        call=call,
        seconds=None if seconds is None else round(seconds, 3),
        tokens=None if usage is None else usage.tokens,
        cost=float(cost.amount) if cost is not None and cost.known else None,
        detail=masked if len(masked) <= LONGEST else masked[: LONGEST - 1] + "…",
    )


def _json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
