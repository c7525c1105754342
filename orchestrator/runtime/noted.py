"""What a journal event adds to the span of its agent, in a line of the trace viewer's log."""

from collections.abc import Mapping

from orchestrator.events import (
    AnswerReviewed,
    ApprovalAsked,
    ApprovalDecided,
    HookApplied,
    JournalEvent,
    LimitReached,
    MemoryCompacted,
    MemoryPinned,
    ModelChanged,
    PlanMade,
    RunParked,
    RunResumed,
    ToolInDoubt,
    ToolResult,
    ToolRetried,
    WindowCut,
)
from orchestrator.runtime.plans import FAILED

Note = tuple[str, Mapping[str, str | int | float | bool]]


def noted(event: JournalEvent) -> Note | None:
    """The note's name and facts; None for what has a span of its own, or nothing to say beside it."""
    match event:
        case ApprovalAsked():
            return "approval.requested", {"call": event.call, "tool": event.tool, "reason": event.reason}
        case ApprovalDecided():
            return ("approval.granted" if event.approved else "approval.denied"), {"call": event.call}
        case PlanMade():
            steps = ", ".join(step.id for step in event.steps)
            return "plan.made", {"call": event.call, "revision": event.revision, "steps": steps}
        case ToolResult(error=error) if error == FAILED:
            return "plan.failed", {"call": event.call}
        case AnswerReviewed():
            return "answer.reviewed", {"by": event.by, "accepted": event.accepted}
        case ToolRetried():
            return "tool.retried", {"call": event.call, "tool": event.tool, "attempt": event.attempt}
        case ToolInDoubt():
            return "tool.in_doubt", {"call": event.call, "tool": event.tool}
        case LimitReached():
            return "limit.reached", {"limit": event.limit, "detail": event.detail}
        case ModelChanged():
            return "model.changed", {"model": event.model, "previous": event.previous, "reason": event.reason}
        case HookApplied():
            return "hook.applied", {"hook": event.hook, "moment": event.moment, "decision": event.decision}
        case MemoryPinned():
            return "memory.pinned", {"source": event.source, "about": " ".join(event.about)}
        case MemoryCompacted():
            failed = {"error.type": event.error} if event.error else {}
            return "memory.compacted", {"messages": event.through, "tokens": event.usage.tokens} | failed
        case WindowCut(apart=True):
            return "window.cut", {"reason": event.reason, "budget": event.budget}
        case WindowCut():
            return "window.cut", {"reason": event.reason, "first": event.first, "through": event.through}
        case RunParked():
            return "run.parked", {"reason": event.reason}
        case RunResumed():
            return "run.resumed", {}
        case _:
            return None
