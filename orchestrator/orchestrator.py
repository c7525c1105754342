"""The top object: it owns every lifetime, and wires the parts together.

async with Orchestrator(Options(model="openai:gpt-5")) as orchestrator:
    result = await orchestrator.run("Total each month's sales in sales.csv")
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from orchestrator.cards import AgentCard
from orchestrator.events import Limits, PublicEvent
from orchestrator.lifetimes import Models, Servers
from orchestrator.options import Options
from orchestrator.tasks import background

if TYPE_CHECKING:
    from orchestrator.runtime.journal import Journal
    from orchestrator.runtime.result import RunResult
    from orchestrator.runtime.runstate import RunState
    from orchestrator.runtime.sittings import RunOptions
    from orchestrator.runtime.team import Team

DEFAULT_AGENT = "supervisor"


class Orchestrator:
    """Runs tasks. One instance serves many runs at once; nothing of one is seen in another."""

    def __init__(self, options: Options | None = None, *, agent: str = DEFAULT_AGENT, also: Sequence[str] = ()) -> None:
        """`agent` is who runs are for unless they say otherwise. The servers that it and `also` need start on entering.

        Raises:
            ConfigurationError: with everything that is wrong in the files.
        """
        self.options = options or Options()
        self.agent = agent
        self.settings = self.options.load_settings()
        self.cards = self.options.load_cards()
        self._models = Models(self.options.model, self.settings)
        self._agents = tuple(dict.fromkeys((agent, *also)))
        for card in self._reachable():
            self._models.specs(card)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            servers = Servers(self.settings, self.options.folder, self.options.ask, self.options.store(), remember=True)
            stack.push_async_callback(servers.close)
            servers.start_early(servers.needed(self._reachable()))
            # The MCP package takes half a second to import; the servers' processes come up meanwhile.
            from orchestrator.assembly import assemble  # noqa: PLC0415

            opened = assemble(self.options, self.settings, servers, self.cards, self._models)
            self._parts, self._sittings = await stack.enter_async_context(opened)
            self._runs = await stack.enter_async_context(background())
            stack.callback(self._runs.cancel_scope.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    def _reachable(self) -> list[AgentCard]:
        return [card for agent in self._agents for card in self.cards.reachable(agent)]

    async def run(
        self,
        task: str,
        *,
        agent: str | None = None,
        limits: Limits | None = None,
        options: "RunOptions | None" = None,
        on_event: Callable[[PublicEvent], None] | None = None,
    ) -> "RunResult":
        """Runs a task until it ends or parks. `limits` go before the card's and the configuration's.

        Raises:
            ConfigurationError: the agent, its model or a role cannot be used.
            JournalError: the journal cannot be written.
        """
        card, launch, chosen = await self._parts.launch(task, agent or self.agent, limits, options)
        return await self._sittings.begin(card, launch, chosen, on_event or _nobody)

    async def stream(
        self,
        task: str,
        *,
        agent: str | None = None,
        limits: Limits | None = None,
        options: "RunOptions | None" = None,
    ) -> AsyncGenerator[PublicEvent]:
        """The events of a run as they happen. Leaving early cancels the run, and returns when it has ended."""
        card, launch, chosen = await self._parts.launch(task, agent or self.agent, limits, options)
        send, receive = anyio.create_memory_object_stream[PublicEvent](float("inf"))
        ended, scope = anyio.Event(), anyio.CancelScope()
        failures: list[Exception] = []

        async def drive() -> None:
            try:
                with scope:
                    await self._sittings.begin(card, launch, chosen, send.send_nowait)
            except Exception as error:  # noqa: BLE001 - it is raised where the stream is read
                failures.append(error)
            finally:
                send.close()
                ended.set()

        self._runs.start_soon(drive, name=f"run {launch.run}")
        try:
            async for event in receive:
                yield event
            if failures:
                raise failures[0]
        finally:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await ended.wait()
            receive.close()

    async def resume(
        self,
        run_id: str,
        *,
        options: "RunOptions | None" = None,
        on_event: Callable[[PublicEvent], None] | None = None,
    ) -> "RunResult":
        """Goes on with a run that is parked or whose process ended; for one that has ended, its result.

        Raises:
            UnknownRun: the journal does not have it.
            RunBusy: another live process drives it.
        """
        from orchestrator.runtime.result import run_result  # noqa: PLC0415 - the core is imported on entering

        states = await self._sittings.history(run_id)
        if states[run_id].end is not None:  # whether or not its agent and its servers are still there
            return run_result(run_id, states)
        card = self.cards.get(states[run_id].run.agent)
        chosen = await self._parts.resuming(card, options)
        return await self._sittings.resume(card, run_id, chosen, on_event or _nobody)

    async def rerun(
        self,
        run_id: str,
        step: int,
        *,
        source: "Journal | None" = None,
        options: "RunOptions | None" = None,
        on_event: Callable[[PublicEvent], None] | None = None,
    ) -> "RunResult":
        """A new run that goes on from turn `step` of another one, perhaps with another model.

        What came before is taken over as it was, answers of tools and agents included; nothing of it is done again, and
        nothing that came after is undone. Usage and cost are of the new run alone. `source` is where the other run is
        read, if that is not this orchestrator's own journal.

        Raises:
            UnknownRun: the journal does not have it.
            ConfigurationError: the run has no such step, or its agent cannot run here.
        """
        from orchestrator.runtime.forking import fork_of  # noqa: PLC0415 - the core is imported on entering

        fork = await fork_of(source or self._sittings.journal, run_id, step)
        card, launch, chosen = await self._parts.forking(fork, options)
        return await self._sittings.begin(card, launch, chosen, on_event or _nobody)

    async def call_off(self, states: "Mapping[str, RunState]") -> None:
        """Tells the agents of other orchestrators that these runs, which have ended meanwhile, waited for: they end as
        well. Who cannot be reached in time is left as it is."""
        from orchestrator.runtime.remote import called_off  # noqa: PLC0415 - the core is imported on entering

        cards = [self.cards.get(name) for name in {each.run.agent for each in states.values()} & set(self.cards.cards)]
        await self.team.toolset.ready({name for card in cards for name in self.team.servers_of(card)})
        await called_off(self.team.toolset, states)

    def park(self, run_id: str | None = None) -> bool:
        """Ends every run that is driven here, or one; each is journalled as parked and can be resumed.

        False: none runs.
        """
        return self._sittings.park(run_id)

    @property
    def journal(self) -> "Journal":
        """Where its runs are written, while it is open."""
        return self._sittings.journal

    @property
    def team(self) -> "Team":
        """Who may call what, while it is open."""
        return self._parts.team

    async def check(self, agent: str) -> None:
        """Waits for the servers that an agent may need. Raises `ConfigurationError` when it cannot run."""
        await self._parts.check(agent)


def _nobody(event: PublicEvent) -> None:
    del event
