"""A journal that ends with the process: for tests, and for runs that need not outlive it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.errors import Fenced, JournalError, RunBusy
from orchestrator.events import JournalEvent, RunStarted, dump
from orchestrator.runtime.journal.base import (
    Audit,
    Claim,
    RunRow,
    ended_at,
    leaves,
    numbered,
    root_of,
    status_of,
    within,
)
from orchestrator.runtime.journal.chain import ANCHOR, link


class MemoryJournal:
    """Keeps events as objects, so it also shows what a run without any storage would cost."""

    lease = 3600.0

    def __init__(self) -> None:
        self._events: dict[str, list[JournalEvent]] = {}
        self._written: list[JournalEvent] = []
        self._rows: dict[str, RunRow] = {}
        self._bodies: dict[str, bytes] = {}
        self._fences: dict[str, int] = {}
        self._held: set[str] = set()

    async def claim(self, root: str) -> Claim:
        if root in self._held:
            raise RunBusy(f"run {root} is being driven already; wait for it or stop it first")
        self._held.add(root)
        self._fences[root] = self._fences.get(root, 0) + 1
        return Claim(root=root, fence=self._fences[root])

    async def renew(self, claim: Claim) -> None:
        self._check(claim)

    async def release(self, claim: Claim) -> None:
        self._check(claim)
        self._held.discard(claim.root)

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        del durable
        self._check(claim)
        numbered(events, lambda run: known[-1].seq if (known := self._events.get(run)) else 0)
        for event in events:
            self._events.setdefault(event.run, []).append(event)
            self._written.append(event)
            self._index(event)
        if leaves(claim, events):
            self._held.discard(claim.root)

    def _index(self, event: JournalEvent) -> None:
        if isinstance(event, RunStarted):
            self._rows[event.run] = RunRow(
                run_id=event.run,
                parent=event.parent,
                agent=event.agent,
                task=event.task,
                status="running",
                started_at=event.at,
                ended_at=None,
                by=event.by,
            )
        elif (status := status_of(event)) is not None:
            self._rows[event.run] = replace(self._rows[event.run], status=status, ended_at=ended_at(event))

    async def read(self, run: str) -> list[JournalEvent]:
        return list(self._events.get(run, ()))

    async def tree(self, root: str) -> dict[str, list[JournalEvent]]:
        return {run: list(events) for run, events in self._events.items() if root_of(run) == root}

    async def since(self, root: str, place: int = 0) -> list[tuple[int, JournalEvent]]:
        later = enumerate(self._written[place:], place + 1)
        return [(at, event) for at, event in later if root_of(event.run) == root]

    async def keep(self, bodies: Mapping[str, bytes]) -> None:
        for digest, body in bodies.items():
            self._bodies.setdefault(digest, body)

    async def body(self, digest: str) -> bytes:
        if digest not in self._bodies:
            raise JournalError(f"the journal has no body {digest}")
        return self._bodies[digest]

    async def runs(self, *, top: bool = True, limit: int = 100, by: str | None = None) -> list[RunRow]:
        rows = [row for row in self._rows.values() if not (top and row.parent) and by in (None, row.by)]
        return sorted(rows, key=lambda row: (row.started_at, row.run_id), reverse=True)[:limit]

    async def row(self, run: str) -> RunRow | None:
        return self._rows.get(run)

    async def audit(self, root: str | None = None) -> Audit:
        head = ANCHOR
        for event in self._written:
            head = link(head, event.run, event.seq, dump(event))
        events = [event for event in self._written if within(event.run, root)]
        return Audit(events=events, count=len(self._written), head=head.hex(), broken="")

    async def aclose(self) -> None:
        return None

    def _check(self, claim: Claim) -> None:
        if self._fences.get(claim.root) != claim.fence:
            raise Fenced(f"run {claim.root} is driven by someone else now")
