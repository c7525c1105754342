"""What is known of a run, and the steps that it can take: data only, for `state.py` to fold and to decide."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from orchestrator.events import (
    Effect,
    InputAsked,
    Kept,
    LimitReached,
    MemoryCompacted,
    MemoryIntent,
    ModelFailed,
    PlanStep,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunParked,
    RunStarted,
    Share,
    StateName,
    StopReason,
    WindowCut,
)
from orchestrator.memory.conversation import opening
from orchestrator.memory.pins import Pin
from orchestrator.messages import AssistantMessage, Cost, FinishReason, Message, ToolCall, Usage
from orchestrator.models.counting import FRESH, Weights
from orchestrator.runtime.breakers import Breakers


class CallState(NamedTuple):
    """One call of the current turn. `interrupted` says that a process died while it was under way.

    `asked`: the model wants it; `waiting`: for a person; `approved` or `denied` by one; `sent`; `answered`. `input`: it
    was sent, and its server asked a person for more.

    `planned`: it is the `step` of a plan that waits for others, or the call of `plan` while its steps (`plan`) are
    carried out. `short` says what a good result lacks. `review`: it asks for a verdict on the final answer. `share` is
    what an agent of another orchestrator may use, `usage` and `cost` what it has used, by its last word.
    """

    call: ToolCall
    phase: Literal["asked", "planned", "waiting", "approved", "denied", "sent", "answered"] = "asked"
    interrupted: bool = False
    attempt: int = 0
    effect: Effect = "write"
    arguments: Mapping[str, Any] | None = None
    observation: str = ""
    kept: tuple[Kept, ...] = ()
    error: str | None = None
    child: str | None = None
    chosen: tuple[str, ...] = ()
    reason: str = ""
    digest: str = ""
    note: str = ""
    input: InputAsked | None = None
    short: str = ""
    step: PlanStep | None = None
    plan: tuple[PlanStep, ...] = ()
    reused: tuple[str, ...] = ()
    began: float = 0.0
    review: bool = False
    share: Share | None = None
    usage: Usage = Usage()
    cost: Cost = Cost()

    @property
    def at_stake(self) -> "Reservation | None":
        """What the agent of another orchestrator may still use of its share; None for any other call."""
        if self.share is None:
            return None
        cost = max(Decimal(0), (self.share.cost or Decimal(0)) - self.cost.amount)
        return Reservation(tokens=max(0, (self.share.tokens or 0) - self.usage.tokens), cost=Cost(amount=cost), calls=0)

    @property
    def is_error(self) -> bool:
        return self.error is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A turn that is over: what the model said and what came of its calls."""

    n: int
    thought: str
    actions: tuple[CallState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a model request, or an agent of another orchestrator, may cost at worst; it is not settled."""

    tokens: int
    cost: Cost
    calls: int = 1


class RunState(NamedTuple):
    """Everything that is known of a run. `messages` is the whole transcript after the system prompt.

    `tools` is the body of the tool list in force, by hash. `model` is the name of the one in use, `spec` what it is
    called in the configuration, empty for the one that the run began with. `children` is what agents of this process
    used, `remote` those of other orchestrators. `checked`: the answer is what the card's `output` asks for;
    `sent_back`: an earlier one was not. `cut` are the pieces of an answer that is not whole yet: each ended at its
    output limit. `ready`: a weak model is done, and its answer is asked for. `plans` is how many were made; `planning`:
    the turn can only make one. `review` is what the reviewer said to the answer, `reviewed`: it is judged; `reviews` is
    how many were sent back.

    `window` is where that begins. `summarising` is asked for, at the worst price `held`; `summary` is ready and
    waits for the next cut. `apart` is how requests apart from the transcript are bounded. `ceiling`: more tokens than
    this are refused by the model's server; 0: not known.

    A named tuple and not a dataclass, because the fold makes a new one for every event: `_replace` takes a tenth of
    the time that `dataclasses.replace` does.
    """

    started: RunStarted | None = None
    tools: str = ""
    model: str = ""
    spec: str = ""
    seq: int = 0
    name: StateName = "PLANNING"
    turn: int = 0
    messages: tuple[Message, ...] = ()
    calls: tuple[CallState, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    own: Usage = Usage()
    own_cost: Cost = Cost()
    children: Usage = Usage()
    children_cost: Cost = Cost()
    remote: Usage = Usage()
    remote_cost: Cost = Cost()
    breakers: Breakers = Breakers()
    outstanding: Reservation | None = None
    lost: tuple[Reservation, ...] = ()
    attempts: int = 0
    failures: int = 0
    failure: ModelFailed | None = None
    answer: str | None = None
    cut: tuple[str, ...] = ()
    ready: bool = False
    planning: bool = False
    plans: int = 0
    decided: tuple[tuple[str, str], ...] = ()
    checked: bool = False
    sent_back: bool = False
    review: CallState | None = None
    reviewed: bool = False
    reviews: int = 0
    stop: LimitReached | None = None
    closed: bool = False
    parked: RunParked | None = None
    end: RunFinished | RunFailed | RunCancelled | None = None
    finish: FinishReason | None = None
    input_tokens: int = 0
    asked: int = 0
    measured: int = 0
    weights: Weights = FRESH
    pins: tuple[Pin, ...] = ()
    summarising: MemoryIntent | None = None
    held: Reservation | None = None
    summary: MemoryCompacted | None = None
    window: WindowCut | None = None
    apart: WindowCut | None = None
    ceiling: int = 0
    active: float = 0.0
    last_at: float = 0.0

    @property
    def usage(self) -> Usage:
        """The agent's own and that of all agents below it."""
        return self.own + self.children + self.remote

    @property
    def cost(self) -> Cost:
        return self.own_cost + self.children_cost + self.remote_cost

    @property
    def unsettled(self) -> tuple[Reservation, ...]:
        """What requests without a reply may have cost, those under way included."""
        return (*self.lost, *(each for each in (self.outstanding, self.held) if each is not None))

    @property
    def run(self) -> RunStarted:
        """The first event. Raises AssertionError before a run has started."""
        assert self.started is not None, "the run has not started"
        return self.started

    def find(self, call: str) -> CallState | None:
        """A call of the current turn, by its id."""
        return next((each for each in self.calls if each.call.id == call), None)

    def update(self, call: str, **changes: Any) -> "RunState":
        """The state with changes to one call of the current turn."""
        calls = tuple(each._replace(**changes) if each.call.id == call else each for each in self.calls)
        return self._replace(calls=calls)

    @property
    def opening(self) -> str:
        """What the run begins with: its task, below what was said before in its conversation."""
        return opening(self.run.earlier, self.run.task)

    @property
    def last_thought(self) -> str:
        """The newest text of the model's that is not blank."""
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage) and message.text.strip():
                return message.text
        return ""


@dataclass(frozen=True, slots=True)
class Think:
    """Ask the model. `closing` asks for a last answer without tools, `planning` for nothing but a plan."""

    turn: int
    attempt: int
    closing: bool = False
    delay: float = 0.0
    planning: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """Answer these calls of the turn; those that were interrupted are settled first."""

    calls: tuple[CallState, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Every call that is left waits for a person, here or in the run of an agent that was called."""

    calls: tuple[CallState, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """A limit or breaker ends the run."""

    limit: StopReason
    detail: str


@dataclass(frozen=True, slots=True)
class Finish:
    status: Literal["finished", "stopped"]
    stop_reason: StopReason
    answer: str


@dataclass(frozen=True, slots=True)
class Fail:
    kind: str
    error: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


Step = Think | Act | Wait | Stop | Finish | Fail | Done
