"""What happened: the journal's events, and the public events that are derived from them.

`JournalEvent` is the closed union that a run is folded from; each has a version `v`, so that a later release can read
what an earlier one wrote. `RunEvent` is what `Orchestrator.stream` yields. Times are seconds since the epoch.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.errors import JournalError, UnknownEvent
from orchestrator.messages import AssistantMessage, Cost, FinishReason, ToolCall, Usage

StateName = Literal["PLANNING", "THINKING", "ACTING", "OBSERVING", "WAITING", "FINISHED", "FAILED"]
Status = Literal["running", "finished", "stopped", "parked", "failed", "cancelled"]
StopReason = Literal[
    "answered",
    "max_steps",
    "max_tokens",
    "max_cost",
    "timeout",
    "repeated_failure",
    "consecutive_failures",
    "unparseable_output",
    "no_progress",
    "approval",
    "cancelled",
    "error",
]
Effect = Literal["read", "idempotent", "write", "agent"]
PlanMode = Literal["auto", "always", "never"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Event(_Model):
    """What every event of the journal carries. `seq` counts from 1 within a run."""

    v: Literal[1] = 1
    seq: int
    at: float
    run: str
    agent: str
    turn: int = 0


class Limits(_Model):
    """Firm limits; None means no limit of that kind. `steps` is of one agent, the others of it and all below it."""

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    model_calls: int | None = None


class RunStarted(Event):
    """`system` and `tools` name bodies in the journal by hash; a resume uses those very bytes. `by` is whose it is.

    `weights` are how its model counts tokens, as far as that was known then; empty for what nobody knew.
    `plan` is the card's, `never` where no plan can be made; `led`: a weak model's team, which code leads by a plan.
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


class ModelIntent(Event):
    """Written before the request is sent. Until it is settled, the reservation counts as spent.

    `output` is the output limit, in tokens.
    `planning`: nothing but a plan can come of it.
    """

    type: Literal["model.intent"] = "model.intent"
    attempt: int
    request: str
    messages: int
    closing: bool = False
    planning: bool = False
    reserved: int
    output: int = 0
    reserved_cost: Cost = Cost()


class ModelResult(Event):
    """`problem` is what the model is told of a reply that is neither a call nor an answer. `final`: it is done, and the
    answer is asked for next. `weights` are how the model counts, where that was learned from this reply.
    """

    type: Literal["model.result"] = "model.result"
    message: AssistantMessage
    finish: FinishReason
    usage: Usage
    cost: Cost
    model: str = ""
    estimated: bool = False
    problem: str = ""
    final: bool = False
    weights: tuple[float, ...] = ()


class ModelFailed(Event):
    """`retry_in` is in seconds; None means that it is not tried again.

    `charged`: tokens may have been spent before it failed, so the reservation counts as spent.
    """

    type: Literal["model.failed"] = "model.failed"
    attempt: int
    kind: str
    error: str
    retry_in: float | None = None
    charged: bool = False


class ModelChanged(Event):
    """The run goes on with another model, of this name at its vendor; `spec` is its name in the configuration.

    `reason` is the kind of error with which the one before failed for good, or `configuration`: a resumed run finds
    that its agent has another model now. `weights` are how the other one counts tokens, as far as that is known.
    """

    type: Literal["model.changed"] = "model.changed"
    spec: str
    model: str
    previous: str
    reason: str
    weights: tuple[float, ...] = ()


class Share(_Model):
    """What an agent of another orchestrator may use, with all below it; None means no limit of that kind."""

    tokens: int | None = None
    cost: Decimal | None = None


class ToolIntent(Event):
    """Written before a call is sent. `key` is the idempotency key that goes with it.

    `share` is there for an agent of another orchestrator. Until the call is answered, it counts as spent.
    """

    type: Literal["tool.intent"] = "tool.intent"
    call: str
    tool: str
    arguments: dict[str, Any]
    effect: Effect
    attempt: int = 1
    key: str = ""
    share: Share | None = None


class Kept(_Model):
    """What is kept of a result beside the journal, whole: `id` names it to the model, `body` is its hash.

    `size` is in bytes. An image that is `shown` follows the turn's results, for models that see.
    """

    id: str
    body: str
    kind: Literal["text", "image", "audio", "file"]
    mime_type: str
    size: int
    shown: bool = False


class ToolResult(Event):
    """The one answer to a call. `usage` and `cost` are a child run's, over its whole tree; `child` is its run id.
    `lost`: an agent of another orchestrator did not say what it used, so its share counts as spent.

    `error` is None when it worked, else a short kind: `tool_error`, `timeout`, `unavailable`, `invalid_arguments`,
    `unknown_tool`, `input_required` (the server asks for what nobody can give), `denied`, `withheld`, or a protocol
    error's code. A `denied` call is no failure: it was never sent, or a person declined what its server asked for. A
    `withheld` one is a weak model's that came from nowhere: it was not sent, and leaves the transcript.
    `chosen` are tools that join the model's list because of it. `short` says what a result that is no error lacks: it
    is an agent's partial one, or does not hold what its step of a plan must.
    """

    type: Literal["tool.result"] = "tool.result"
    call: str
    tool: str
    observation: str
    kept: tuple[Kept, ...] = ()
    error: str | None = None
    seconds: float = 0.0
    child: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    lost: bool = False
    chosen: tuple[str, ...] = ()
    short: str = ""


class PlanStep(_Model):
    """A call that a plan makes once the steps that it `needs`, by id, are done. `tool` is as models call it.

    `expect` is told to an agent; `check` is a text that a good result holds.
    """

    id: str
    tool: str
    arguments: dict[str, Any]
    needs: tuple[str, ...] = ()
    expect: str = ""
    check: str = ""


class PlanMade(Event):
    """What the call of `plan` came to: its steps are calls from now on, `<call>.s1`, `<call>.s2` and so on.

    `revision` counts the plans that the run made before. `reused` are finished steps of those that it builds on.
    """

    type: Literal["plan.made"] = "plan.made"
    call: str
    revision: int
    steps: tuple[PlanStep, ...]
    reused: tuple[str, ...] = ()


class ToolsChanged(Event):
    """More tools join the end of the model's list before its next turn; `tools` is the new list's body by hash.

    `chosen` were asked for by the model, `joined` are there only now. They add `tokens` to the input, by estimate.
    """

    type: Literal["tools.changed"] = "tools.changed"
    tools: str
    chosen: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    tokens: int


class ToolInDoubt(Event):
    """A call that may or may not have happened and must not be repeated; the model is told so."""

    type: Literal["tool.in_doubt"] = "tool.in_doubt"
    call: str
    tool: str
    observation: str


class ToolRetried(Event):
    """A call that is safe to repeat was under way when a process died, and is sent again with its first key."""

    type: Literal["tool.retried"] = "tool.retried"
    call: str
    tool: str
    attempt: int


class ApprovalAsked(Event):
    """A call waits for a person. `digest` stands for the tool and these very arguments: a verdict must name it."""

    type: Literal["approval.asked"] = "approval.asked"
    call: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    digest: str


class Question(_Model):
    """What a server asks of a person in the middle of a call: a form of the `requested` schema, or a visit of `url`.

    `key` is its name for the server, `round` counts from 1 within the call, `digest` is what a verdict must name.
    `action` is None until it is answered; `content` is a form's.
    """

    key: str
    round: int = 1
    message: str
    requested: dict[str, Any] | None = None
    url: str | None = None
    digest: str = ""
    action: Literal["accept", "decline", "cancel"] | None = None
    content: dict[str, Any] | None = None


class InputAsked(Event):
    """A server needs a person before it goes on with a call: the questions of all rounds, those answered included.

    `state` goes back to the server with the answers to `round`. `restarts`: the server asks within the running call, so
    an answer that comes when that has ended makes the call again from its beginning. `usage` and `cost` are what an
    agent of another orchestrator has used until then.
    """

    type: Literal["input.asked"] = "input.asked"
    call: str
    tool: str
    server: str
    arguments: dict[str, Any]
    questions: tuple[Question, ...]
    round: int = 1
    state: str | None = None
    restarts: bool = False
    usage: Usage | None = None
    cost: Cost | None = None

    @property
    def open(self) -> Question | None:
        """The first question without an answer."""
        return next((question for question in self.questions if question.action is None), None)

    @property
    def refused(self) -> bool:
        """Whether an answer to the last round was no, or none."""
        return any(each.action in ("decline", "cancel") for each in self.questions if each.round == self.round)


class ApprovalDecided(Event):
    """The first verdict on a call, or on what a server asks. `arguments` go in the place of the asked ones, or are a
    form's content. `dismissed`: neither yes nor no to a server's question. `held`: the running call has the answer.
    `by` is whose verdict it is.
    """

    type: Literal["approval.decided"] = "approval.decided"
    call: str
    approved: bool
    digest: str
    note: str = ""
    arguments: dict[str, Any] | None = None
    dismissed: bool = False
    held: bool = False
    by: str = ""


class HookApplied(Event):
    """A hook stepped in. `text` is a redirection's message, a veto's reason, or the answer in the answer's place."""

    type: Literal["hook.applied"] = "hook.applied"
    hook: str
    moment: Literal["thinking", "acting", "finishing"]
    decision: Literal["veto", "replace", "redirect"]
    call: str | None = None
    text: str = ""
    arguments: dict[str, Any] | None = None


class OutputChecked(Event):
    """A final answer against its card's `output` schema. `text` is the answer as JSON, or what the model is told."""

    type: Literal["output.checked"] = "output.checked"
    valid: bool
    text: str


class ReviewAsked(Event):
    """A reviewer is called with the final answer, as any agent is; the call is one of the turn."""

    type: Literal["review.asked"] = "review.asked"
    call: str
    tool: str
    arguments: dict[str, Any]


class AnswerReviewed(Event):
    """The verdict on a final answer, `by` the rules or by a reviewer. `text` is what the model is told of one that is
    not accepted, or why it goes out without a verdict.
    """

    type: Literal["answer.reviewed"] = "answer.reviewed"
    accepted: bool
    by: str
    text: str = ""


class MemoryPinned(Event):
    """What must hold for the whole run is restated whenever the window is cut. `source` is who said it.

    `about` are the things it bounds; of what was pinned before about the same, only the newest holds. `replaces` are
    the texts of those.
    """

    type: Literal["memory.pinned"] = "memory.pinned"
    text: str
    source: Literal["user", "model", "caller"]
    about: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class MemoryIntent(Event):
    """A summary of the messages before `through` is asked for. Until it is settled, the reservation counts as spent."""

    type: Literal["memory.intent"] = "memory.intent"
    through: int
    reserved: int
    reserved_cost: Cost = Cost()


class MemoryCompacted(Event):
    """A summary of the messages before `through` waits to be used. It is empty, and `error` says why, when it failed.

    `charged`: tokens may have been spent before it failed, so the reservation counts as spent.
    """

    type: Literal["memory.compacted"] = "memory.compacted"
    through: int
    summary: str = ""
    error: str = ""
    charged: bool = False
    usage: Usage = Usage()
    cost: Cost = Cost()
    model: str = ""


class WindowCut(Event):
    """From now on the window begins with `text`, in the place of all messages from `first` to before `through`.

    Messages are counted over the whole transcript, whose first is the task. `text` holds the `summary`, or says that
    there is none, and `results`: one line for each result that has left; `unlisted` older ones have none any more.
    `overflow`: the model's server found a request too large, so that none may have more than `budget` tokens.
    """

    type: Literal["window.cut"] = "window.cut"
    reason: Literal["full", "overflow"]
    first: int
    through: int
    text: str
    summary: str = ""
    results: tuple[str, ...] = ()
    unlisted: int = 0
    budget: int


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


JournalEvent = (
    RunStarted
    | RunResumed
    | RunForked
    | ModelIntent
    | ModelResult
    | ModelFailed
    | ModelChanged
    | ToolIntent
    | ToolResult
    | ToolInDoubt
    | ToolRetried
    | PlanMade
    | ToolsChanged
    | ApprovalAsked
    | InputAsked
    | ApprovalDecided
    | HookApplied
    | OutputChecked
    | ReviewAsked
    | AnswerReviewed
    | MemoryPinned
    | MemoryIntent
    | MemoryCompacted
    | WindowCut
    | LimitReached
    | RunParked
    | RunFinished
    | RunFailed
    | RunCancelled
)

_adapter: TypeAdapter[JournalEvent] = TypeAdapter(Annotated[JournalEvent, Field(discriminator="type")])


def dump(event: JournalEvent) -> bytes:
    """One journal line: JSON in UTF-8.

    Raises:
        JournalError: it holds half of a surrogate pair, which is no character and has no UTF-8.
    """
    try:
        return event.__pydantic_serializer__.to_json(event, exclude_defaults=False)
    except PydanticSerializationError as error:
        raise JournalError(f"an event ({event.type}) cannot be written: {error}") from error


def load(line: bytes | str) -> JournalEvent:
    """Reads one journal line.

    Raises:
        UnknownEvent: its type or version is not of this release.
    """
    try:
        return _adapter.validate_json(line)
    except ValidationError as error:
        raise UnknownEvent(
            f"the journal holds an event that this version of orchestrator cannot read ({error.errors()[0]['msg']}): "
            f"{bytes(line[:120], 'utf-8') if isinstance(line, str) else line[:120]!r}. Use the version that wrote it."
        ) from error


class RunEvent(_Model):
    """What every public event carries. `step` is the agent's turn."""

    run_id: str
    agent: str
    step: int
    trace_id: str


class TextDeltaEvent(RunEvent):
    type: Literal["text_delta"] = "text_delta"
    text: str


class ToolCallEvent(RunEvent):
    type: Literal["tool_call"] = "tool_call"
    call: str
    tool: str
    arguments: dict[str, Any]


class ToolResultEvent(RunEvent):
    type: Literal["tool_result"] = "tool_result"
    call: str
    tool: str
    observation: str
    is_error: bool
    seconds: float


class ApprovalEvent(RunEvent):
    """A call waits for a person. `call` is its path over the tree, which is what `approve` takes.

    `input`: the call was made, and its server asks for this before it goes on. Keys are `server`, `message`, and either
    `schema`, a JSON Schema, or `url` with its `host`.
    """

    type: Literal["approval"] = "approval"
    call: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    input: dict[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)


class UsageEvent(RunEvent):
    type: Literal["usage"] = "usage"
    usage: Usage
    cost: Cost


class StateEvent(RunEvent):
    """A transition of the state machine; `at` is its time."""

    type: Literal["state"] = "state"
    state: StateName
    previous: StateName | None
    at: float


class ErrorEvent(RunEvent):
    type: Literal["error"] = "error"
    error: str


class FinalAnswerEvent(RunEvent):
    type: Literal["final_answer"] = "final_answer"
    answer: str
    status: Status
    stop_reason: StopReason


PublicEvent = (
    TextDeltaEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalEvent
    | UsageEvent
    | StateEvent
    | ErrorEvent
    | FinalAnswerEvent
)

__all__ = ["JournalEvent", "PublicEvent", "RunEvent", "ToolCall", "dump", "load"]
