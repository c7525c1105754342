"""What a journal promises.

A tree of runs is driven by one process at a time. `claim` hands out a fence for the tree, a number that only grows;
every append carries it, and one with an older fence raises `Fenced` before anything is written. An append is durable
when it returns. Bodies that events name by hash (prompts, tool lists, settings) are kept once, beside the events.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.errors import JournalError
from orchestrator.events import (
    JournalEvent,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunParked,
    RunResumed,
    RunStarted,
    Status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to drive a tree of runs. `root` is the top run's id."""

    root: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A line of `orchestrator runs`. Times are seconds since the epoch; `running` may also mean that it was killed.

    `ended_at` is None for a run that goes on, or can: one that is parked has not ended.
    """

    run_id: str
    parent: str | None
    agent: str
    task: str
    status: Status
    started_at: float
    ended_at: float | None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The events of a journal in the order they were written, and whether the chain that binds them is whole.

    Each event is chained to the one before it, over all runs. `broken` says where an event was changed or removed, and
    is empty when none was. Whoever can write the file could also make the whole chain anew; `head`, noted elsewhere,
    shows that: an event's link never changes.
    """

    events: Sequence[JournalEvent]
    count: int
    head: str
    broken: str


class Journal(Protocol):
    @property
    def lease(self) -> float:
        """Seconds after which a claim that was not renewed may be taken over."""
        ...

    async def claim(self, root: str) -> Claim:
        """Takes over the tree of `root`, whether it exists yet or not.

        Raises:
            RunBusy: another live process holds it.
        """
        ...

    async def renew(self, claim: Claim) -> None:
        """Keeps the claim. Raises `Fenced` when another process has taken over."""
        ...

    async def release(self, claim: Claim) -> None:
        """Gives the claim back; the next one gets a higher fence."""
        ...

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        """Writes all of `events` or none. `durable` survives loss of power, and not only of the process.

        Within a run each event follows the one before: a number that is there already, or one left out, is refused.

        Who stops waiting for it has not taken it back: it is written all the same.
        With the event that parks or ends the top run the claim is given back, in the same step.

        Raises:
            Fenced: the claim is no longer the newest; nothing was written.
            JournalError: the store failed, or an event does not follow the last one; nothing was written.
        """
        ...

    async def read(self, run: str) -> list[JournalEvent]:
        """A run's events in order; empty for an unknown run."""
        ...

    async def tree(self, root: str) -> dict[str, list[JournalEvent]]:
        """The events of a run and of all runs below it."""
        ...

    async def since(self, root: str, place: int = 0) -> list[tuple[int, JournalEvent]]:
        """The events of a run and of all below it in the order they were written, after `place`; each with its own."""
        ...

    async def keep(self, bodies: Mapping[str, bytes]) -> None:
        """Stores bodies under their hashes; known ones are left as they are."""
        ...

    async def body(self, digest: str) -> bytes:
        """A stored body. Raises `JournalError` when it is missing."""
        ...

    async def runs(self, *, top: bool = True, limit: int = 100, by: str | None = None) -> list[RunRow]:
        """Runs, newest first, of all or `by` one; `top` leaves out the runs of agents called by agents."""
        ...

    async def row(self, run: str) -> RunRow | None: ...

    async def audit(self, root: str | None = None) -> Audit:
        """Checks the whole chain; the events are those of one run and all below it, or all."""
        ...

    async def aclose(self) -> None: ...


def within(run: str, root: str | None) -> bool:
    """Whether a run is `root` or below it; every run is when there is none."""
    return root is None or run == root or run.startswith(f"{root}/")


def root_of(run: str) -> str:
    """The top run of a tree: `r/t1.1/t2.1` belongs to `r`."""
    return run.partition("/")[0]


def numbered(events: Sequence[JournalEvent], last: Callable[[str], int]) -> None:
    """Raises `JournalError` unless `events` go on from the `last` number of each run."""
    seen: dict[str, int] = {}
    for event in events:
        before = seen[event.run] if event.run in seen else last(event.run)
        if event.seq != before + 1:
            raise JournalError(f"event {event.seq} of run {event.run} does not follow the last one, {before}")
        seen[event.run] = event.seq


def ended_at(event: JournalEvent) -> float | None:
    """When the run ended, for the event that ends it."""
    return event.at if isinstance(event, RunFinished | RunFailed | RunCancelled) else None


def leaves(claim: Claim, events: Sequence[JournalEvent]) -> bool:
    """Whether nobody drives the tree any more after these events."""
    return any(event.run == claim.root and status_of(event) not in (None, "running") for event in events)


def status_of(event: JournalEvent) -> Status | None:
    """The status that a run has from this event on; None when it stays what it was."""
    match event:
        case RunStarted() | RunResumed():
            return "running"
        case RunParked():
            return "parked"
        case RunFinished():
            return event.status
        case RunFailed():
            return "failed"
        case RunCancelled():
            return "cancelled"
        case _:
            return None
