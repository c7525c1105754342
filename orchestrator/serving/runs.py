"""Runs that outlive the call that began them.

A run is a task of the server's own. Who waits for it may leave and come back. Nothing is kept here that the journal
does not know: a key gives the run its id, so the same key finds the same run after a restart as well.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

import anyio
import anyio.abc

from orchestrator.assembly import new_run_id
from orchestrator.errors import ConfigurationError, OrchestratorError, UnknownRun
from orchestrator.events import PublicEvent
from orchestrator.orchestrator import Orchestrator
from orchestrator.runtime.result import pending, status_of
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.sittings import RunOptions, cancel_run, history
from orchestrator.serving.editions import Editions
from orchestrator.tasks import background

LOOK = 0.05
"""Seconds between looks for a run that was begun just now."""

Watch = Callable[[PublicEvent], None]

LAST_WORD = 1.0
"""Seconds that a run goes on when its caller has left without saying whether it comes again."""


class NotTaken(OrchestratorError):
    """A call for which nothing was begun."""


class Stopping(NotTaken):
    """The server is about to end and takes no more calls."""


class Busy(NotTaken):
    """A caller has as many runs under way as it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run, for whom (`options.by`). The same `key` of the same caller means the same run."""

    agent: str
    task: str
    options: RunOptions
    key: str = ""

    @property
    def run(self) -> str:
        """The id of its run: a new one, or the one that its key stands for."""
        if not self.key:
            return new_run_id()
        named = sha256(repr((self.options.by, self.key)).encode()).hexdigest()
        return f"k-{named[:24]}"

    def check(self, state: RunState) -> None:
        """Raises `ConfigurationError` when the run of its key is of another call."""
        if (self.agent, self.task) != (state.run.agent, state.run.task):
            raise ConfigurationError(
                f"the key {self.key!r} was used for another call, of agent {state.run.agent}; a key stands for one "
                f"agent with the same arguments"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class Live:
    """A run that is driven here at this moment. `callers` is how many wait for it.

    `keyed`: they can come back with the same call. `detached`: it was said that the run goes on without them.
    `agent` is whose run was begun here, "" for one that goes on: its journal tells.
    `parking`: they are gone, and it ends for now; who comes back goes on with it after that.
    """

    run: str
    by: str
    agent: str = ""
    keyed: bool = False
    detached: bool = False
    parking: bool = False
    callers: int = 0
    orchestrator: Orchestrator | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None
    _watches: list[Watch] = field(default_factory=list[Watch])

    @contextmanager
    def watched(self, watch: Watch) -> Generator[None]:
        """Tells `watch` what happens in the run from now on; it must neither wait nor raise."""
        self._watches.append(watch)
        try:
            yield
        finally:
            self._watches.remove(watch)

    def tell(self, event: PublicEvent) -> None:
        for watch in tuple(self._watches):
            watch(event)

    def park(self) -> bool:
        """Ends the driving of it, so that it can be resumed. False: it has not begun."""
        return self.orchestrator is not None and self.orchestrator.park(self.run)

    async def wait(self) -> None:
        """Until it has ended or parked. Raises what kept it from being run at all."""
        await self.ended.wait()
        if self.error is not None:
            raise self.error


class Runs:
    """All runs of a server."""

    def __init__(self, editions: Editions, group: anyio.abc.TaskGroup) -> None:
        self._editions = editions
        self._journal = editions.journal
        self._group = group
        self._live: dict[str, Live] = {}
        self._held_up: dict[str, Exception] = {}
        self._stopping = False

    def start(self, order: Order, most: int | None = None) -> Live:
        """Begins a run, or finds the one of the same key: it goes on, unless it has ended or waits for a person.

        Raises:
            Stopping: no more runs are taken.
            Busy: `most` runs of this caller are under way already.
        """
        under_way = [live for live in self._live.values() if live.by == order.options.by]
        if most is not None and len(under_way) >= most and self.live(order.run) is None:
            raise Busy(
                f"{len(under_way)} runs of {order.options.by} are under way, and no more may be; call again later"
            )
        return self._begin(order.run, order.options.by, order)

    def go_on(self, run: str, by: str) -> Live:
        """Goes on with `by`'s run that waited or was interrupted; for one that is driven here already, that one."""
        return self._begin(run, by)

    @property
    def stopping(self) -> bool:
        """Whether no more runs are taken."""
        return self._stopping

    def live(self, run: str) -> Live | None:
        """The run, if it is driven here now."""
        return self._live.get(run)

    def held_up(self, run: str) -> Exception | None:
        """What kept a run from going on when that was last tried, if anything did."""
        return self._held_up.get(run)

    async def states(self, run: str) -> dict[str, RunState]:
        """A run and all below it as they stand. Raises `UnknownRun`."""
        return await history(self._journal, run)

    async def written(self, live: Live) -> None:
        """Until the journal has the run. Raises what keeps it from being run."""
        while await self._journal.row(live.run) is None:
            with anyio.move_on_after(LOOK):  # watchers hear of an event before it is written, so the journal is asked
                await live.wait()
                break

    async def leave(self, live: Live) -> None:
        """A caller will wait no more. The last one ends the run, down to the deepest agent.

        One that has a key may come again: its run is parked, and goes on then. If it was cancelled it says so by its
        key in a moment, which `cancel` is for.
        """
        if live.keyed:
            with anyio.move_on_after(LAST_WORD):
                await live.ended.wait()
        if live.callers or live.detached or live.ended.is_set():
            return
        live.parking = live.keyed and live.park()
        if not live.parking:
            live.scope.cancel()
        await live.ended.wait()

    async def cancel(self, run: str) -> None:
        """Ends a run, whether it is driven here or waits, and those of other orchestrators that it has called.

        Raises:
            UnknownRun: there is no such run.
            RunBusy: another process drives it.
        """
        if (live := self._live.get(run)) is not None:
            live.scope.cancel()
            await live.ended.wait()
        before = await self.states(run)
        await cancel_run(self._journal, run)
        if before[run].end is None and any(call.share for state in before.values() for call in state.calls):
            with self._editions.used() as orchestrator:
                await orchestrator.call_off(before)

    async def drain(self, grace: float) -> None:
        """Takes no more runs, gives those under way `grace` seconds, and parks the rest."""
        self._stopping = True
        with anyio.move_on_after(grace):
            await self._all_ended()
        for live in tuple(self._live.values()):
            if not live.park():
                live.scope.cancel()  # it has not begun
        await self._all_ended()

    async def _all_ended(self) -> None:
        for live in tuple(self._live.values()):
            await live.ended.wait()

    def _begin(self, run: str, by: str, order: Order | None = None) -> Live:
        if (earlier := self._live.get(run)) is not None and not earlier.parking:
            return earlier
        self._take()
        live = Live(run=run, by=by)
        if order is not None:
            live.agent, live.keyed = order.agent, bool(order.key)
        self._live[run] = live
        self._group.start_soon(partial(self._drive, live, order, earlier), name=f"run {run}")
        return live

    def _take(self) -> None:
        if self._stopping:
            raise Stopping("this server is about to stop and takes no more calls; call again in a moment")

    async def _drive(self, live: Live, order: Order | None, earlier: Live | None) -> None:
        try:
            with live.scope:
                if earlier is not None:
                    await earlier.ended.wait()
                    self._take()
                with self._editions.used() as live.orchestrator:
                    if order is not None and not (order.key and await self._known(live.run, order)):
                        options = replace(order.options, run=live.run)
                        await live.orchestrator.run(order.task, agent=order.agent, options=options, on_event=live.tell)
                    elif order is None or not await self._rests(live.run):
                        await live.orchestrator.resume(live.run, on_event=live.tell)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits for the run
            live.error = error
        finally:
            self._held_up.pop(live.run, None)
            if live.error is not None and order is None:
                self._held_up[live.run] = live.error
            if self._live.get(live.run) is live:
                del self._live[live.run]
            live.ended.set()

    async def _known(self, run: str, order: Order) -> bool:
        """Whether the run of a key is there. Raises `ConfigurationError` when it is of another call."""
        try:
            state = (await self.states(run))[run]
        except UnknownRun:
            return False
        order.check(state)
        return True

    async def _rests(self, run: str) -> bool:
        """Whether a run has ended, or waits for a person who has not answered."""
        states = await self.states(run)
        status, reason, _ = status_of(states[run])
        waits = status == "parked" and reason == "approval" and any(pending(states))
        return waits or states[run].end is not None


@asynccontextmanager
async def running(editions: Editions) -> AsyncGenerator[Runs]:
    """Runs on what is served. Leaving parks what still runs, unless `drain` was called before."""
    async with background() as group:
        runs = Runs(editions, group)
        try:
            yield runs
        finally:
            with anyio.CancelScope(shield=True):
                await runs.drain(0)
