"""What all agents of one run share: the journal's claim, the ledger, the clock, the trace, and the way events go up."""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio

from orchestrator.events import PublicEvent
from orchestrator.messages import Cost, Usage
from orchestrator.runtime.journal import Claim, Journal
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.state import RunState
from orchestrator.tracing.port import TraceContext, Tracer


@dataclass(slots=True, kw_only=True)
class Tree:
    """One run with everything below it, in one sitting.

    `states` holds every run of the tree as it stands, those of earlier sittings included.
    """

    claim: Claim
    journal: Journal
    tracer: Tracer
    trace: TraceContext
    publish: Callable[[PublicEvent], None]
    slots: anyio.CapacityLimiter
    tool_timeout: float
    role: str | None = None
    states: dict[str, RunState] = field(default_factory=dict[str, RunState])
    now: Callable[[], float] = time.time

    def below(self, run: str) -> Mapping[str, RunState]:
        """A run and all runs below it."""
        return {key: state for key, state in self.states.items() if key == run or key.startswith(f"{run}/")}

    def usage(self) -> Usage:
        """The sum of all model replies and tool calls of the tree, once each."""
        return sum((state.own for state in self.states.values()), Usage())

    def cost(self) -> Cost:
        return sum((state.own_cost for state in self.states.values()), Cost())


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling a tool right now: an agent of this process, in this very task."""

    tree: Tree
    run: str
    call: str
    depth: int
    ledger: Ledger


CALLER: ContextVar[Caller] = ContextVar("orchestrator_caller")
"""Set around each call of an agent. A server of this process is called in the caller's own task, so the callee sees it;
a caller from outside cannot set it, whatever it writes into a request."""
