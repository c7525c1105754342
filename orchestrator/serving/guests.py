"""Who calls from outside, and what they may."""

from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.events import Limits
from orchestrator.runtime.who import os_user


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A caller from outside. `agents` are globs over those that they may call, None for all that are served.

    `role` and `limits` hold for each of their runs, beside those of the agent and the configuration; `runs` of them may
    be under way at once.
    """

    name: str
    role: str | None = None
    limits: Limits | None = None
    agents: tuple[str, ...] | None = None
    runs: int | None = None

    def may_call(self, *names: str) -> bool:
        """Whether they may call the agent that has these names."""
        return self.agents is None or any(fnmatchcase(name, glob) for name in names for glob in self.agents)


GUEST: ContextVar[Guest | None] = ContextVar("orchestrator_guest", default=None)
"""Set by whoever let the caller in, around what is done for them."""


def current_guest() -> Guest:
    """Who calls now; the user of this process where nobody was asked for a name."""
    return GUEST.get() or Guest(name=os_user())
