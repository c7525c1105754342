"""Fakes that behave, for tests of agents and of this package: no mocks, no network, no key.

`ScriptedModel` plays a model; `MemoryJournal` keeps a run without a file; `CrashPoint` ends the process at one exact
event, as a power cut would; `Watcher` remembers the events of a run.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

from orchestrator.events import JournalEvent, PublicEvent
from orchestrator.models.scripted import RecordedModel, ScriptedModel, call, reply
from orchestrator.runtime.journal import Claim, Journal, MemoryJournal, RunRow, SqliteJournal
from orchestrator.tracing.port import NullTracer

__all__ = [
    "CrashPoint",
    "MemoryJournal",
    "NullTracer",
    "RecordedModel",
    "ScriptedModel",
    "SqliteJournal",
    "Watcher",
    "call",
    "reply",
]


def kill_this_process() -> None:
    """SIGKILL: no handler runs, nothing is flushed, no child is told."""
    os.kill(os.getpid(), signal.SIGKILL)


class CrashPoint:
    """A journal that dies at one event, counted from 1 over the whole tree.

    `after` dies when that event is durable and nothing of what it announces has been done; `before` dies in its place,
    when what it tells has been done already. A batch is split there: what came before is written.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        after: int | None = None,
        before: int | None = None,
        die: Callable[[], None] = kill_this_process,
    ) -> None:
        self._journal = journal
        self._last = after if after is not None else (before or 0) - 1
        self._at_once = after is not None
        self._die = die
        self._written = 0

    @property
    def lease(self) -> float:
        return self._journal.lease

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        room = self._last - self._written
        if len(events) > room or (self._at_once and len(events) == room):
            if room > 0:
                await self._journal.append(claim, events[:room], durable=durable)
            self._die()
        self._written += len(events)
        await self._journal.append(claim, events, durable=durable)

    async def claim(self, root: str) -> Claim:
        return await self._journal.claim(root)

    async def renew(self, claim: Claim) -> None:
        await self._journal.renew(claim)

    async def release(self, claim: Claim) -> None:
        await self._journal.release(claim)

    async def read(self, run: str) -> list[JournalEvent]:
        return await self._journal.read(run)

    async def tree(self, root: str) -> dict[str, list[JournalEvent]]:
        return await self._journal.tree(root)

    async def since(self, root: str, place: int = 0) -> list[tuple[int, JournalEvent]]:
        return await self._journal.since(root, place)

    async def keep(self, bodies: Mapping[str, bytes]) -> None:
        await self._journal.keep(bodies)

    async def body(self, digest: str) -> bytes:
        return await self._journal.body(digest)

    async def runs(self, *, top: bool = True, limit: int = 100, by: str | None = None) -> list[RunRow]:
        return await self._journal.runs(top=top, limit=limit, by=by)

    async def row(self, run: str) -> RunRow | None:
        return await self._journal.row(run)

    async def aclose(self) -> None:
        await self._journal.aclose()


class Watcher:
    """Remembers every event of a run: pass it as `on_event`."""

    def __init__(self) -> None:
        self.events: list[PublicEvent] = []

    def __call__(self, event: PublicEvent) -> None:
        self.events.append(event)

    def of(self, kind: str, agent: str | None = None) -> list[PublicEvent]:
        """The events of one kind, of one agent or of all."""
        return [event for event in self.events if event.type == kind and agent in (None, event.agent)]
