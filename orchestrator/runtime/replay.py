"""A run as its journal tells it, in order: thoughts, calls and what came of them, with agents under their calls."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.events import (
    AnswerReviewed,
    ApprovalAsked,
    ApprovalDecided,
    HookApplied,
    InputAsked,
    JournalEvent,
    LimitReached,
    MemoryCompacted,
    MemoryPinned,
    ModelChanged,
    ModelFailed,
    ModelIntent,
    ModelResult,
    OutputChecked,
    PlanMade,
    Question,
    ReviewAsked,
    RunForked,
    RunParked,
    RunResumed,
    Status,
    StopReason,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
    ToolsChanged,
    WindowCut,
)
from orchestrator.messages import ToolCall
from orchestrator.runtime.plans import PLAN
from orchestrator.runtime.result import CostResult, UsageResult, cost_result, run_result, usage_result
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import fold


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReplayedCall(_Model):
    """Times are seconds since the epoch. `observation` is None while there is no answer.

    `at_once`: it was under way together with another call of its turn. `waited_for`: why a person was asked; `verdict`
    is then what was said, with `note`. `questions` are what its server asked of a person. `run` is what the agent did
    that was called. `step` is its name in a plan that made it.
    """

    call: str
    tool: str
    arguments: Mapping[str, Any] | str
    began_at: float | None = None
    ended_at: float | None = None
    seconds: float = 0.0
    observation: str | None = None
    error: str | None = None
    attempts: int = 0
    at_once: bool = False
    waited_for: str | None = None
    verdict: str | None = None
    note: str = ""
    questions: tuple[Question, ...] = ()
    step: str = ""
    run_id: str | None = None
    run: "ReplayedRun | None" = None


class ReplayedTurn(_Model):
    """One thought and the calls it asked for. `seconds` is None while the model has not answered.

    `failures` are requests that were tried again. `request` is the whole last request, as text, when it was asked for;
    `request_checked`: its messages and tools are, byte for byte, those whose digest the journal holds.
    """

    n: int
    at: float
    seconds: float | None = None
    thought: str = ""
    model: str = ""
    finish: str | None = None
    usage: UsageResult | None = None
    cost: CostResult | None = None
    closing: bool = False
    failures: list[str] = []
    calls: list[ReplayedCall] = []
    request: str | None = None
    request_checked: bool | None = None


class ReplayedNote(_Model):
    """Something else that happened: a limit, a hook, a pause, a new process. `before` is the turn it came before."""

    at: float
    before: int
    text: str


class ReplayedRun(_Model):
    """`usage` and `cost` are of the run and all below it. A run whose process was killed says `running` as well."""

    run_id: str
    agent: str
    model: str
    task: str
    status: Status
    stop_reason: StopReason
    answer: str
    trace_id: str
    started_at: float
    seconds: float
    usage: UsageResult
    own_usage: UsageResult
    cost: CostResult
    turns: list[ReplayedTurn]
    notes: list[ReplayedNote]


def replay(run: str, tree: Mapping[str, Sequence[JournalEvent]]) -> ReplayedRun:
    """The run `run`; `tree` holds its events and those of all runs below it."""
    return _replay(run, tree, {each: fold(events) for each, events in tree.items()})


def _replay(run: str, tree: Mapping[str, Sequence[JournalEvent]], states: Mapping[str, RunState]) -> ReplayedRun:
    reader = _Reader()
    for event in tree[run]:
        reader.read(event)
    for call in reader.calls.values():
        if (child := f"{run}/{call.call}") in tree:  # the run of another orchestrator's agent is not here
            call.run_id, call.run = child, _replay(child, tree, states)
    result, started = run_result(run, states), states[run].run
    return ReplayedRun(
        run_id=run,
        agent=result.agent,
        model=started.model,
        task=started.task,
        status=result.status,
        stop_reason=result.stop_reason,
        answer=result.answer,
        trace_id=result.trace_id,
        started_at=started.at,
        seconds=result.duration_s,
        usage=result.usage,
        own_usage=result.own_usage,
        cost=result.cost,
        turns=reader.turns,
        notes=reader.notes,
    )


class _Reader:
    """Puts one run's turns together."""

    def __init__(self) -> None:
        self.turns: list[ReplayedTurn] = []
        self.notes: list[ReplayedNote] = []
        self.calls: dict[str, ReplayedCall] = {}

    def read(self, event: JournalEvent) -> None:
        match event:
            case ModelIntent() | ModelResult() | ModelFailed():
                self._model(event)
            case ApprovalAsked() | InputAsked() | ApprovalDecided():
                _asked_a_person(event, self.calls[event.call])
            case ToolIntent() | ToolResult() | ToolInDoubt():
                self._tool(event, self.calls[event.call])
            case PlanMade():
                self._plan(event)
            case ReviewAsked():
                review = ReplayedCall(call=event.call, tool=event.tool, arguments=event.arguments)
                self.turns[-1].calls.append(review)
                self.calls[event.call] = review
            case _:
                if text := _told(event):
                    self.notes.append(ReplayedNote(at=event.at, before=len(self.turns) + 1, text=text))

    def _model(self, event: ModelIntent | ModelResult | ModelFailed) -> None:
        match event:
            case ModelIntent(turn=n):
                if not self.turns or self.turns[-1].n != n:
                    self.turns.append(ReplayedTurn(n=n, at=event.at, closing=event.closing))
            case ModelFailed(kind=kind, error=error):
                self.turns[-1].failures.append(f"{kind}: {error}")
            case ModelResult():
                turn = self.turns[-1]
                turn.seconds = max(0.0, round(event.at - turn.at, 3))
                turn.thought, turn.model, turn.finish = event.message.text, event.model, event.finish
                turn.usage, turn.cost = usage_result(event.usage), cost_result(event.cost)
                turn.calls = [_asked(call) for call in event.message.calls]
                self.calls |= {call.call: call for call in turn.calls}

    def _tool(self, event: ToolIntent | ToolResult | ToolInDoubt, call: ReplayedCall) -> None:
        match event:
            case ToolIntent():
                call.began_at = event.at if call.began_at is None else call.began_at
                call.attempts, call.arguments = event.attempt, event.arguments
            case ToolInDoubt():
                call.observation, call.error, call.ended_at = event.observation, "in_doubt", event.at
            case ToolResult():
                call.observation, call.error, call.ended_at = event.observation, event.error, event.at
                call.seconds, call.run_id = event.seconds, event.child
                self._mark_those_at_once(call)

    def _plan(self, event: PlanMade) -> None:
        """Its steps stand after the call that made it."""
        calls, plan = self.turns[-1].calls, self.calls[event.call]
        steps = [
            ReplayedCall(call=f"{event.call}.s{n}", tool=step.tool, arguments=step.arguments, step=step.id)
            for n, step in enumerate(event.steps, 1)
        ]
        place = calls.index(plan) + 1
        calls[place:place] = steps
        self.calls |= {step.call: step for step in steps}

    def _mark_those_at_once(self, call: ReplayedCall) -> None:
        """Two calls of a turn are at once when one began before the other had ended."""
        for other in self.turns[-1].calls:
            under_way = other.began_at is not None and (other.ended_at is None or other.ended_at > (call.began_at or 0))
            plan = PLAN in (call.tool, other.tool)  # which is under way as long as its steps are
            if other is not call and under_way and call.began_at is not None and not plan:
                call.at_once = other.at_once = True


def _asked(call: ToolCall) -> ReplayedCall:
    return ReplayedCall(call=call.id, tool=call.name, arguments=call.arguments)


def _asked_a_person(event: ApprovalAsked | InputAsked | ApprovalDecided, call: ReplayedCall) -> None:
    """A call waits for a verdict on itself, or for answers to its server's questions."""
    match event:
        case ApprovalAsked():
            call.waited_for, call.arguments = event.reason, event.arguments
        case InputAsked():
            call.questions = event.questions
        case ApprovalDecided() if any(each.digest == event.digest for each in call.questions):
            action = "accept" if event.approved else "cancel" if event.dismissed else "decline"
            answer = {"action": action, "content": event.arguments}
            call.questions = tuple(
                each.model_copy(update=answer) if each.digest == event.digest else each for each in call.questions
            )
        case ApprovalDecided():
            call.verdict, call.note = "approved" if event.approved else "denied", event.note


def _told(event: JournalEvent) -> str:
    """What else is worth a line."""
    match event:
        case LimitReached():
            return f"limit reached: {event.limit} ({event.detail})"
        case ModelChanged():
            return f"goes on with model {event.model} in place of {event.previous} ({event.reason})"
        case HookApplied():
            return f"hook {event.hook} at {event.moment}: {event.decision} {event.text}".rstrip()
        case MemoryPinned():
            newer = f" (in place of: {'; '.join(event.replaces)})" if event.replaces else ""
            return f"pinned by the {event.source}: {event.text}{newer}"
        case MemoryCompacted():
            return f"no summary ({event.error})" if event.error else "the turns so far are summarised"
        case WindowCut(apart=True):
            return f"what the next request is made from is cut to {event.budget:,} tokens ({event.reason})"
        case WindowCut():
            return f"the window is cut ({event.reason}): messages {event.first} to {event.through - 1} left it"
        case OutputChecked(valid=False):
            return f"the answer is sent back: {event.text}"
        case AnswerReviewed(accepted=True):
            return f"the answer is accepted by {event.by.removeprefix('agents__')}. {event.text}".rstrip()
        case AnswerReviewed():
            return f"{event.by.removeprefix('agents__')}: {event.text}"
        case RunParked():
            return "parked: " + ("waits for approval" if event.reason == "approval" else "interrupted")
        case RunResumed():
            return "resumed by a new process"
        case RunForked():
            return f"runs on from step {event.step} of run {event.source}; what stands above happened there"
        case ToolsChanged():
            return f"join the tools: {', '.join((*event.chosen, *event.joined))}"
        case ToolRetried():
            return f"{event.tool} ({event.call}) is sent again: its process ended while it was under way"
        case _:
            return ""
