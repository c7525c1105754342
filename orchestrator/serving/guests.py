"""Who calls from outside, and what they may."""

from contextvars import ContextVar
from dataclasses import dataclass

from orchestrator.events import Limits
from orchestrator.runtime.who import os_user


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A caller from outside. `agents` are those that they may call, None for all that are served.

    `role` and `limits` hold for each of their runs, beside those of the agent and the configuration.
    """

    name: str
    role: str | None = None
    limits: Limits | None = None
    agents: tuple[str, ...] | None = None


GUEST: ContextVar[Guest | None] = ContextVar("orchestrator_guest", default=None)
"""Set by whoever let the caller in, around what is done for them."""


def current_guest() -> Guest:
    """Who calls now; the user of this process where nobody was asked for a name."""
    return GUEST.get() or Guest(name=os_user())
