"""Events of a run as a whole: where it began, where it goes on, and how it ended."""

from typing import Literal

from orchestrator.events.base import Event, Limits, PlanMode, StopReason


class RunStarted(Event):
    """`system` and `tools` name bodies in the journal by hash; a resume uses those very bytes. `by` is whose it is.

    `weights` are how its model counts tokens, as far as that was known then; empty for what nobody knew.
    `plan` is the card's, `never` where no plan can be made; `led`: a weak model's team, which code leads by a plan.
    `part`: it is a step of such a plan, whose answer is what a weak model found, without words of its own.
    `earlier` is what was said before it in the conversation that it is part of, as its model reads it.
    """

    type: Literal["run.started"] = "run.started"
    task: str
    parent: str | None = None
    call: str | None = None
    depth: int = 0
    role: str | None = None
    limits: Limits
    model: str
    trace_id: str
    span_id: str
    system: str
    tools: str
    max_output_tokens: int
    settings: str | None = None
    by: str = ""
    weights: tuple[float, ...] = ()
    plan: PlanMode | Literal["led"] = "never"
    part: bool = False
    earlier: str = ""


class RunResumed(Event):
    """A new process goes on; calls that were under way are in doubt until they are settled."""

    type: Literal["run.resumed"] = "run.resumed"
    fence: int


class RunForked(Event):
    """Everything before is taken over from another run: what it did is not done again, and what it cost is that run's.

    `source` is that run, and `step` the turn that is thought anew.
    """

    type: Literal["run.forked"] = "run.forked"
    source: str
    step: int


class LimitReached(Event):
    type: Literal["limit.reached"] = "limit.reached"
    limit: StopReason
    detail: str
    closing: bool


class RunParked(Event):
    """Nothing is held open: the run goes on when it is resumed."""

    type: Literal["run.parked"] = "run.parked"
    reason: Literal["approval", "interrupted"]


class RunFinished(Event):
    type: Literal["run.finished"] = "run.finished"
    status: Literal["finished", "stopped"]
    stop_reason: StopReason
    answer: str


class RunFailed(Event):
    type: Literal["run.failed"] = "run.failed"
    error: str
    kind: str = "error"


class RunCancelled(Event):
    type: Literal["run.cancelled"] = "run.cancelled"
    reason: str


LifeEvent = RunStarted | RunResumed | RunForked | LimitReached | RunParked | RunFinished | RunFailed | RunCancelled
