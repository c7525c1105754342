"""What all agents of one run share: the journal's claim, the ledger, the clock, the trace, and the way events go up."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from orchestrator.events import PublicEvent
from orchestrator.runtime.hooks import Hook
from orchestrator.runtime.journal import Claim, Journal
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.result import ApprovalRequest
from orchestrator.runtime.runstate import RunState
from orchestrator.tools.catalogue import Catalogue
from orchestrator.tools.policy import Mode, Policy
from orchestrator.tools.toolset import Offer
from orchestrator.tracing.port import TraceContext, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a person said to a call. `arguments` are to be sent in the place of the asked ones.

    To what a server asks (`ApprovalRequest.input`), `arguments` are a form's content; without them, its defaults are.
    `dismissed`: neither approved nor declined.
    `by` is who said it, for the journal; without a name it is the user of this process.
    """

    approved: bool
    note: str = ""
    arguments: dict[str, Any] | None = None
    dismissed: bool = False
    by: str = ""


class Approver(Protocol):
    """Someone who can be asked now. None means that nobody is there, and the run parks."""

    async def __call__(self, request: ApprovalRequest, /) -> Verdict | None: ...


LEAST_TOKENS = 200
"""Tokens of a result that are shown in any case."""


@dataclass(slots=True, kw_only=True)
class Tree:
    """One run with everything below it, in one sitting.

    `parking` is set when the process is about to end: what is cancelled then goes on later. `states` holds every run
    of the tree as it stands, those of earlier sittings included. `held` is when the claim was last sure to be ours.
    """

    claim: Claim
    journal: Journal
    tracer: Tracer
    trace: TraceContext
    publish: Callable[[PublicEvent], None]
    log: Callable[[Mapping[str, Any]], None]
    slots: anyio.CapacityLimiter
    tool_timeout: float
    result_tokens: int
    window_tokens: int | None = None
    policy: Policy
    approve: Mode = "ask"
    approver: Approver | None = None
    hooks: Sequence[Hook] = ()
    role: str | None = None
    by: str = ""
    parking: bool = False
    states: dict[str, RunState] = field(default_factory=dict[str, RunState])
    now: Callable[[], float] = time.time
    held: float = 0.0

    async def hold(self, *, at_once: bool = False) -> None:
        """Renews the claim when it may have run out meanwhile, so that no effect begins in a run that another drives.

        Raises:
            Fenced: another process has taken over.
        """
        now = self.now()
        if at_once or now - self.held >= self.journal.lease:
            await self.journal.renew(self.claim)
            self.held = now

    def shown_at_once(self, tokens: int, *, together: int = 1) -> int:
        """Tokens that may be shown of a result when so many come together: a turn leaves room for others."""
        if self.window_tokens is None:
            return tokens
        return min(tokens, max(LEAST_TOKENS, self.window_tokens // (4 * max(1, together))))

    def below(self, run: str) -> Mapping[str, RunState]:
        """A run and all runs below it."""
        return {key: state for key, state in self.states.items() if key == run or key.startswith(f"{run}/")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling a tool right now: an agent of this process, in this very task.

    `errors` is where the callee leaves what went wrong in driving it, since a server can only answer.
    """

    tree: Tree
    run: str
    call: str
    depth: int
    ledger: Ledger
    catalogue: Catalogue
    offers: Mapping[str, Offer]
    roles: tuple[str, ...] = ()
    errors: list[Exception] = field(default_factory=list[Exception])


CALLER: ContextVar[Caller] = ContextVar("orchestrator_caller")
"""Set around each call of an agent or a built-in tool. A server of this process is called in the caller's own task, so
the callee sees it; a caller from outside cannot set it, whatever it writes into a request."""
