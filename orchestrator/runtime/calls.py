"""A call on its way from what the model asked for to its answer."""

from dataclasses import dataclass
from typing import Any

import anyio

from orchestrator.tools.arguments import canonical
from orchestrator.tools.toolset import Offer, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A call that could be sent: what was asked for exists and its arguments are right."""

    offer: Offer
    arguments: dict[str, Any]

    @property
    def key(self) -> str:
        """The same for calls that ask for the same."""
        return f"{self.offer.name} {canonical(self.arguments)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A call that cannot be sent."""

    error: str
    observation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A call that is about to be sent, for the `attempt`th time.

    `changed`: a person or a hook sent other arguments than the model asked for. `aware` is the change of the tool, by
    its server, that the decision took into account.
    """

    call: str
    wish: Wish
    attempt: int = 1
    changed: bool = False
    aware: str = ""


@dataclass(slots=True)
class Outcome:
    """What came of a call, once `done`."""

    done: anyio.Event
    aware: str = ""
    reply: Reply | None = None
    seconds: float = 0.0
