"""What is served, as the files say it now. An orchestrator that was replaced stays open for what it still runs.

It costs nothing while nobody calls: the files are looked at when a request comes, and by the clock only while somebody
listens for changes.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.abc
from mcp.server.subscriptions import ToolsListChanged

from orchestrator.config import Settings
from orchestrator.errors import OrchestratorError
from orchestrator.files import Files
from orchestrator.options import Options
from orchestrator.orchestrator import DEFAULT_AGENT, Orchestrator
from orchestrator.runtime.journal import Journal
from orchestrator.serving.listeners import Listeners
from orchestrator.serving.offered import Offered
from orchestrator.tasks import background

logger = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds in which files are looked at once, however many requests come."""

POLL = 1.0
"""Seconds between looks while somebody listens."""


@dataclass(slots=True, eq=False)
class Edition:
    """An orchestrator and those of its agents that are served. `users` need it open: runs, and requests under way."""

    orchestrator: Orchestrator
    offered: Offered
    users: int = 0
    replaced: bool = False
    over: anyio.Event = field(default_factory=anyio.Event)

    def settle(self) -> None:
        if self.replaced and not self.users:
            self.over.set()


class Editions:
    """`now` is the edition that is served, `journal` that of all of them. `checks` may refuse new settings."""

    now: Edition

    def __init__(self, files: Files, only: Sequence[str], journal: Journal) -> None:
        self.journal = journal
        self.listeners = Listeners()
        self.checks: list[Callable[[Settings], None]] = []
        self._files = files
        self._only = only
        self._open: list[Edition] = []
        self._looked = 0.0
        self._wanted, self._wishes = anyio.create_memory_object_stream[anyio.Event](float("inf"))

    @contextmanager
    def used(self) -> Generator[Orchestrator]:
        """The orchestrator of now, which stays open while the block runs."""
        edition = self.now
        edition.users += 1
        try:
            yield edition.orchestrator
        finally:
            edition.users -= 1
            edition.settle()

    async def look(self) -> None:
        """Takes in what the files say, where they were touched. What is wrong is said, and stays as it was."""
        if (now := anyio.current_time()) < self._looked + LOOK:
            return
        self._looked = now
        if self._files.touched:
            done = anyio.Event()
            await self._wanted.send(done)
            await done.wait()

    async def poll(self) -> None:
        """Looks by the clock while somebody listens."""
        while True:
            await self.listeners.anyone()
            await anyio.sleep(POLL)
            await self.look()

    @asynccontextmanager
    async def running(self, first: Edition) -> AsyncGenerator[None]:
        """Opens the first edition, and closes all on leaving."""
        async with background() as group:
            await group.start(self._keep, group, first)
            try:
                yield
            finally:
                self._wanted.close()

    def edition(self, options: Options, names: Sequence[str]) -> Edition:
        """An edition of these files, not yet open. Raises `ConfigurationError` for what is wrong with the agents."""
        agent = next(iter([*names, *options.load_cards().cards]), DEFAULT_AGENT)
        orchestrator = Orchestrator(replace(options, journal=self.journal), agent=agent, also=names)
        return Edition(orchestrator=orchestrator, offered=Offered(orchestrator, names))

    async def _keep(
        self, group: anyio.abc.TaskGroup, first: Edition, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        """Opens editions: one after the other, and not in the task of a request, whose context they would inherit."""
        try:
            await self._serve(group, first)
            task_status.started()
            with self._wishes:
                async for done in self._wishes:
                    try:
                        await self._renew(group)
                    finally:
                        done.set()
        finally:
            for edition in self._open:
                edition.over.set()

    async def _renew(self, group: anyio.abc.TaskGroup) -> None:
        if (made := self._files.look(self._made)) is None:
            return
        before = self.now
        try:
            await self._serve(group, made)
        except (OrchestratorError, OSError) as error:
            logger.error("what the files say now cannot be served: %s", error)
            return
        before.replaced = True
        before.settle()
        await self.listeners.publish(ToolsListChanged())

    def _made(self, options: Options) -> Edition:
        cards = options.load_cards()
        names = [name for name in self._only if name in cards.cards] if self._only else [*cards.cards]
        made = self.edition(options, names)
        for check in self.checks:
            check(made.orchestrator.settings)
        return made

    async def _serve(self, group: anyio.abc.TaskGroup, edition: Edition) -> None:
        await group.start(self._hold, edition)
        self.now = edition

    async def _hold(self, edition: Edition, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """One task opens an orchestrator and closes it, even while everything around it is cancelled."""
        with anyio.CancelScope(shield=True):
            async with edition.orchestrator:
                self._open.append(edition)
                task_status.started()
                await edition.over.wait()
                self._open.remove(edition)
