"""One process driving one run, from claim to release: a sitting. A run may take several."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio

from orchestrator.cards import AgentCard
from orchestrator.errors import Fenced, UnknownRun
from orchestrator.events import PublicEvent
from orchestrator.runtime.journal import Claim, Journal
from orchestrator.runtime.result import RunResult, run_result, status_of
from orchestrator.runtime.runner import Launch, Runner, totals
from orchestrator.runtime.state import RunState, fold
from orchestrator.runtime.tree import Tree
from orchestrator.tracing.port import RunFacts, RunOutcome, TraceContext, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a run is driven: what outlives it. `parallel` is calls at once, `tool_timeout` in seconds."""

    journal: Journal
    tracer: Tracer
    runner: Runner
    parallel: int
    tool_timeout: float


class Sittings:
    """All runs that this process drives now, kept alive by one heartbeat."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._live: dict[str, tuple[Claim, anyio.CancelScope]] = {}

    async def beat(self, seconds: float) -> None:
        """Renews every claim in time; a run that was taken over by another process is dropped at once."""
        while True:
            await anyio.sleep(seconds)
            for claim, scope in list(self._live.values()):
                try:
                    await self._seat.journal.renew(claim)
                except Fenced:
                    scope.cancel()

    async def begin(self, card: AgentCard, launch: Launch, publish: Callable[[PublicEvent], None]) -> RunResult:
        """Drives a new run to its end."""
        return await self._sit(card, launch, publish, {})

    async def history(self, root: str) -> Mapping[str, RunState]:
        """Every run of a tree as its journal tells it. Raises `UnknownRun`."""
        states = {run: fold(events) for run, events in (await self._seat.journal.tree(root)).items()}
        if root not in states:
            raise UnknownRun(f"there is no run {root!r}; `orchestrator runs` lists them")
        return states

    async def resume(self, card: AgentCard, root: str, publish: Callable[[PublicEvent], None]) -> RunResult:
        """Goes on with a run; one that has ended gives its result again."""
        states = await self.history(root)
        started = states[root].run
        if states[root].end is not None:
            return run_result(states[root], *totals(states.values()))
        launch = Launch(run=root, task=started.task, limits=started.limits)
        return await self._sit(card, launch, publish, None)

    async def _sit(
        self,
        card: AgentCard,
        launch: Launch,
        publish: Callable[[PublicEvent], None],
        states: Mapping[str, RunState] | None,
    ) -> RunResult:
        seat = self._seat
        claim = await seat.journal.claim(launch.run)
        try:
            if states is None:  # read under the claim: nobody else can add to it now
                states = await self.history(launch.run)
            return await self._drive(card, launch, publish, dict(states), claim)
        finally:
            self._live.pop(launch.run, None)
            with anyio.CancelScope(shield=True):
                await _release(seat.journal, claim)

    async def _drive(
        self,
        card: AgentCard,
        launch: Launch,
        publish: Callable[[PublicEvent], None],
        states: dict[str, RunState],
        claim: Claim,
    ) -> RunResult:
        seat = self._seat
        earlier = states.get(launch.run)
        first = (
            TraceContext(trace_id=earlier.run.trace_id, span_id=earlier.run.span_id) if earlier is not None else None
        )
        with seat.tracer.workflow(RunFacts(run_id=launch.run, agent=card.name), first) as scope:
            tree = Tree(
                claim=claim,
                journal=seat.journal,
                tracer=seat.tracer,
                trace=first or scope.context,
                publish=publish,
                slots=anyio.CapacityLimiter(seat.parallel),
                tool_timeout=seat.tool_timeout,
                states=states,
            )
            with anyio.CancelScope() as taken_over:
                self._live[launch.run] = (claim, taken_over)
                state = await seat.runner.top(tree, card, launch)
                status, reason, text = status_of(state)
                usage, cost = totals(tree.states.values())
                scope.settle(
                    RunOutcome(
                        status=status,
                        stop_reason=reason,
                        usage=usage,
                        own_usage=state.own,
                        cost=cost,
                        error=text if status == "failed" else None,
                    )
                )
                return run_result(state, usage, cost)
        raise Fenced(f"run {launch.run} was taken over by another process")


async def _release(journal: Journal, claim: Claim) -> None:
    try:
        await journal.release(claim)
    except Fenced:
        return  # somebody else holds it already: there is nothing to give back
