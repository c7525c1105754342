"""One process driving one run, from claim to release: a sitting. A run may take several."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from orchestrator.cards import AgentCard
from orchestrator.errors import Fenced, JournalError, UnknownRun
from orchestrator.events import Limits, PublicEvent, RunCancelled
from orchestrator.runtime.hooks import Hook
from orchestrator.runtime.journal import Claim, Journal
from orchestrator.runtime.result import RunResult, run_result
from orchestrator.runtime.runner import Launch, Runner, outcome_of
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import fold
from orchestrator.runtime.tree import Approver, Tree
from orchestrator.tools.policy import Mode, Policy
from orchestrator.tracing.port import RunFacts, TraceContext, Tracer

logger = logging.getLogger(__name__)

HEARTBEATS_A_LEASE = 3

Publish = Callable[[PublicEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where runs are driven: what outlives them. `parallel` is calls at once, `tool_timeout` in seconds.

    `result_tokens` are what is shown at once of a result, `window_tokens` what a request may have. `log` takes a line a
    step, and never waits or fails.
    """

    journal: Journal
    tracer: Tracer
    log: Callable[[Mapping[str, Any]], None]
    runner: Runner
    policy: Policy
    parallel: int
    tool_timeout: float
    result_tokens: int
    window_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What holds for one run. `role` limits what it may call; `approver` is who can be asked while it runs. `by` is
    whose run it is, for the journal; without a name it is the user of this process.

    `earlier` is what was said before in the conversation that a new run is part of; its model reads it above the task.
    `said` are the user's own words in it, the oldest first: constraints that they hold are pinned, as far as no newer
    words say something else about the same.

    `approve`: `ask` a person, who may not be there, so that the run parks; `all` goes ahead, `none` is refused at once.
    `pins` are sentences that the agent is reminded of however long the run gets; a specialist has its own task.

    A new run gets the id `run`, unless that is empty. What its caller allows it is `within`, beside all other limits,
    and `depth` levels of agents stand above it already. Its trace goes on below `parent`.
    """

    approve: Mode = "ask"
    approver: Approver | None = None
    hooks: Sequence[Hook] = ()
    role: str | None = None
    by: str = ""
    run: str = ""
    within: Limits | None = None
    depth: int = 0
    parent: TraceContext | None = None
    pins: Sequence[str] = ()
    earlier: str = ""
    said: Sequence[str] = ()


class Sittings:
    """All runs that this process drives now, kept alive by one heartbeat."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._live: dict[str, tuple[Tree, anyio.CancelScope]] = {}

    async def beat(self) -> None:
        """Renews every claim in time; a run that was taken over by another process is dropped at once."""
        while True:
            await anyio.sleep(self._seat.journal.lease / HEARTBEATS_A_LEASE)
            for tree, scope in list(self._live.values()):
                try:
                    await tree.hold(at_once=True)
                except Fenced:
                    scope.cancel()
                except JournalError as error:  # the run finds out itself, when it has something to write
                    logger.warning("the claim of run %s could not be renewed: %s", tree.claim.root, error)

    def park(self, only: str | None = None) -> bool:
        """Ends the driving of every run at once, or of one; each says so in its journal and can be resumed.

        False: none runs.
        """
        begun = [live for run, live in self._live.items() if run in live[0].states and only in (None, run)]
        for tree, scope in begun:
            if tree.states[tree.claim.root].started is not None:
                tree.parking = True
                scope.cancel()
        return any(tree.parking for tree, _ in begun)

    async def begin(self, card: AgentCard, launch: Launch, options: RunOptions, publish: Publish) -> RunResult:
        """Drives a new run to its end."""
        return await self._sit(card, launch, options, publish, {})

    async def resume(self, card: AgentCard, root: str, options: RunOptions, publish: Publish) -> RunResult:
        """Goes on with a run; one that has ended meanwhile gives its result again."""
        states = await self.history(root)
        started = states[root].run
        if states[root].end is not None:
            return run_result(root, states)
        launch = Launch(run=root, task=started.task, limits=started.limits, depth=started.depth)
        return await self._sit(card, launch, replace(options, role=started.role), publish, None)

    @property
    def journal(self) -> Journal:
        return self._seat.journal

    async def history(self, root: str) -> dict[str, RunState]:
        """Every run of a tree as its journal tells it. Raises `UnknownRun`."""
        return await history(self._seat.journal, root)

    async def _sit(
        self,
        card: AgentCard,
        launch: Launch,
        options: RunOptions,
        publish: Publish,
        states: dict[str, RunState] | None,
    ) -> RunResult:
        seat, held = self._seat, time.time()
        claim = await seat.journal.claim(launch.run)
        try:
            if states is None:  # read under the claim: nobody else can add to it now
                states = await self.history(launch.run)
            tree = Tree(
                claim=claim,
                held=held,
                journal=seat.journal,
                tracer=seat.tracer,
                trace=TraceContext(trace_id="", span_id=""),
                publish=_harmless(publish),
                log=seat.log,
                slots=anyio.CapacityLimiter(seat.parallel),
                tool_timeout=seat.tool_timeout,
                result_tokens=seat.result_tokens,
                window_tokens=seat.window_tokens,
                policy=seat.policy,
                approve=options.approve,
                approver=options.approver,
                hooks=options.hooks,
                role=options.role,
                by=options.by,
                states=states,
            )
            return await self._drive(card, launch, tree, options.parent)
        finally:
            self._live.pop(launch.run, None)
            with anyio.CancelScope(shield=True):
                await _release(seat.journal, claim)

    async def _drive(self, card: AgentCard, launch: Launch, tree: Tree, parent: TraceContext | None) -> RunResult:
        run = launch.run
        earlier = tree.states[run].run if run in tree.states else None
        first = TraceContext(trace_id=earlier.trace_id, span_id=earlier.span_id) if earlier is not None else None
        with (
            anyio.CancelScope() as ending,
            self._seat.tracer.workflow(RunFacts(run_id=run, agent=card.name), first or parent) as scope,
        ):
            tree.trace = first or scope.context
            self._live[run] = (tree, ending)
            try:
                await self._seat.runner.top(tree, card, launch)
            finally:
                if run in tree.states and tree.states[run].started is not None:
                    scope.settle(outcome_of(run, tree.states))
        if ending.cancelled_caught and not tree.parking:
            raise Fenced(f"run {run} was taken over by another process")
        return run_result(run, tree.states)


async def history(journal: Journal, root: str) -> dict[str, RunState]:
    """Every run of a tree as its journal tells it. Raises `UnknownRun`."""
    states = {run: fold(events) for run, events in (await journal.tree(root)).items()}
    if root not in states and "/" in root:
        raise UnknownRun(f"run {root!r} is part of another and goes on with that one: {root.partition('/')[0]}")
    if root not in states:
        raise UnknownRun(f"there is no run {root!r}; `orchestrator runs` lists them")
    return states


async def cancel_run(journal: Journal, root: str) -> None:
    """Ends a run that nobody drives, and all below it, the top one last; one that has ended stays as it is.

    Raises:
        UnknownRun: there is no such run.
        RunBusy: a live process drives it.
    """
    await history(journal, root)  # before a claim is written for a run that is not there
    claim = await journal.claim(root)
    try:
        for run, state in reversed((await history(journal, root)).items()):
            if state.end is None and state.started is not None:
                event = RunCancelled(
                    seq=state.seq + 1,
                    at=time.time(),
                    run=run,
                    agent=state.run.agent,
                    turn=state.turn,
                    reason="cancelled by its caller",
                )
                await journal.append(claim, [event], durable=True)
    finally:
        await _release(journal, claim)


def _harmless(publish: Publish) -> Publish:
    """Watchers only watch: one that fails is told about once, and the run goes on without it."""
    failed = False

    def tell(event: PublicEvent) -> None:
        nonlocal failed
        if failed:
            return
        try:
            publish(event)
        except Exception:
            failed = True
            logger.exception("a watcher of run %s failed and sees nothing more", event.run_id)

    return tell


async def _release(journal: Journal, claim: Claim) -> None:
    try:
        await journal.release(claim)
    except Fenced:
        return  # somebody else holds it already: there is nothing to give back
    except JournalError as error:  # what the run came to is not lost with it; the claim runs out by itself
        logger.warning("the claim of run %s could not be given back: %s", claim.root, error)
