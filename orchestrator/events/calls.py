"""Events of calls: sent, answered, planned, and what can be called at all."""

from decimal import Decimal
from typing import Any, Literal

from orchestrator.events.base import Data, Effect, Event
from orchestrator.messages import Cost, Usage


class Share(Data):
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


class Kept(Data):
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


class PlanStep(Data):
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


CallEvent = ToolIntent | ToolResult | ToolInDoubt | ToolRetried | PlanMade | ToolsChanged
