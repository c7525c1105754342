"""What happened: the journal's events, and the public events that are derived from them.

`JournalEvent` is the closed union that a run is folded from; each has a version `v`, so that a later release can read
what an earlier one wrote. `RunEvent` is what `Orchestrator.stream` yields. Times are seconds since the epoch.
"""

from orchestrator.events.base import Effect, Event, Limits, PlanMode, StateName, Status, StopReason
from orchestrator.events.calls import (
    CallEvent,
    Kept,
    PlanMade,
    PlanStep,
    Share,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
    ToolsChanged,
)
from orchestrator.events.checks import AnswerReviewed, CheckEvent, HookApplied, OutputChecked, ReviewAsked
from orchestrator.events.journal import JournalEvent, dump, load
from orchestrator.events.memory import MemoryCompacted, MemoryEvent, MemoryIntent, MemoryPinned, WindowCut
from orchestrator.events.models import ModelChanged, ModelEvent, ModelFailed, ModelIntent, ModelResult
from orchestrator.events.persons import ApprovalAsked, ApprovalDecided, InputAsked, PersonEvent, Question
from orchestrator.events.public import (
    ApprovalEvent,
    ErrorEvent,
    FinalAnswerEvent,
    PublicEvent,
    RunEvent,
    StateEvent,
    TextDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from orchestrator.events.runs import (
    LifeEvent,
    LimitReached,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunForked,
    RunParked,
    RunResumed,
    RunStarted,
)

__all__ = [
    "AnswerReviewed",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalEvent",
    "CallEvent",
    "CheckEvent",
    "Effect",
    "ErrorEvent",
    "Event",
    "FinalAnswerEvent",
    "HookApplied",
    "InputAsked",
    "JournalEvent",
    "Kept",
    "LifeEvent",
    "LimitReached",
    "Limits",
    "MemoryCompacted",
    "MemoryEvent",
    "MemoryIntent",
    "MemoryPinned",
    "ModelChanged",
    "ModelEvent",
    "ModelFailed",
    "ModelIntent",
    "ModelResult",
    "OutputChecked",
    "PersonEvent",
    "PlanMade",
    "PlanMode",
    "PlanStep",
    "PublicEvent",
    "Question",
    "ReviewAsked",
    "RunCancelled",
    "RunEvent",
    "RunFailed",
    "RunFinished",
    "RunForked",
    "RunParked",
    "RunResumed",
    "RunStarted",
    "Share",
    "StateEvent",
    "StateName",
    "Status",
    "StopReason",
    "TextDeltaEvent",
    "ToolCallEvent",
    "ToolInDoubt",
    "ToolIntent",
    "ToolResult",
    "ToolResultEvent",
    "ToolRetried",
    "ToolsChanged",
    "UsageEvent",
    "WindowCut",
    "dump",
    "load",
]
