"""Events of what the model is shown: pins, summaries and cuts of the window."""

from typing import Literal

from orchestrator.events.base import Event
from orchestrator.messages import Cost, Usage


class MemoryPinned(Event):
    """What must hold for the whole run is restated whenever the window is cut. `source` is who said it;
    `earlier` is the user in an earlier run of the conversation.

    `about` are the things it bounds; of what was pinned before about the same, only the newest holds. `replaces` are
    the texts of those.
    """

    type: Literal["memory.pinned"] = "memory.pinned"
    text: str
    source: Literal["user", "earlier", "model", "caller"]
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

    `apart`: it is a request apart from the transcript that was too large. The window stays; what such requests are made
    from is cut to the `budget` from now on.
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
    apart: bool = False


MemoryEvent = MemoryPinned | MemoryIntent | MemoryCompacted | WindowCut
