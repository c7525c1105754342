"""Runs agents: the top one for a person, the others for their callers. All of them are the same loop."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio

from orchestrator.cards import AgentCard
from orchestrator.errors import JournalError
from orchestrator.events import Limits, ModelChanged, RunCancelled, RunFailed, RunParked, RunResumed, RunStarted
from orchestrator.models.choice import Choice, Choices
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.delegation import Answer, answer_of
from orchestrator.runtime.forking import Fork
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.ledger import Amount, Ledger, amount_of
from orchestrator.runtime.loop import Loop
from orchestrator.runtime.offered import Offered, specs_of
from orchestrator.runtime.pinning import pin, pin_words
from orchestrator.runtime.plans import findings, has_found, is_led
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.remote import DEEPEST, called_off
from orchestrator.runtime.result import status_of, totals
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import fold
from orchestrator.runtime.team import Kit, Team, digest
from orchestrator.runtime.tree import Caller, Tree
from orchestrator.runtime.who import os_user
from orchestrator.tools.servers import leaf
from orchestrator.tools.toolset import Toolset
from orchestrator.tracing.logs import about
from orchestrator.tracing.port import RunFacts, RunOutcome

logger = logging.getLogger(__name__)

ModelsFor = Callable[[AgentCard], Sequence[Choice]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a run is started with. `limits` are the agent's own; those of its callers hold as well.

    `fork` is what another run did, for one that goes on from there. `pins` must hold all the time. `part`: it is one
    of a job that code leads. `earlier` was said before in its conversation; `said` are the user's own words of it.
    """

    run: str
    task: str
    limits: Limits
    parent: str | None = None
    call: str | None = None
    depth: int = 0
    settings: bytes | None = None
    fork: Fork | None = None
    pins: Sequence[str] = ()
    part: bool = False
    earlier: str = ""
    said: Sequence[str] = ()


class Runner:
    """Makes agents ready and drives their runs. Holds nothing of any run."""

    def __init__(self, team: Team, models_for: ModelsFor, steps: int | None) -> None:
        self._team = team
        self._models_for = models_for
        self._steps = steps

    async def top(self, tree: Tree, card: AgentCard, launch: Launch) -> RunState:
        """Runs the agent that a person asked, or goes on where an earlier sitting of the same run stopped."""
        with about(launch.run, tree.trace.trace_id):
            return await self._run(tree, card, launch, None, (tree.role,) if tree.role else ())

    async def child(self, card: AgentCard, task: str, caller: Caller) -> Answer:
        """Runs an agent for another one; its run is found again by its id when the call is repeated."""
        tree = caller.tree
        run = f"{caller.run}/{caller.call}"
        limits = card.limits.model_copy(update={"steps": card.limits.steps or self._steps})
        launch = Launch(
            run=run,
            task=task,
            limits=limits,
            parent=caller.run,
            call=caller.call,
            depth=caller.depth + 1,
            part=card.output is None and is_led(tree.states[caller.run]) and self._models_for(card)[0].model.codec.weak,
        )
        with about(run, tree.trace.trace_id):
            await self._run(tree, card, launch, caller.ledger, caller.roles)
        answer = answer_of(card, run, tree.below(run))
        state = tree.states[run]
        if has_found(state) is False and state.answer == findings(state):  # and not what a hook put in its place
            return replace(answer, text=f"agent {card.name} {state.answer}", is_error=True)
        return answer

    async def _run(
        self, tree: Tree, card: AgentCard, launch: Launch, outer: Ledger | None, roles: tuple[str, ...]
    ) -> RunState:
        state = tree.states.get(launch.run, RunState())
        if state.end is not None:
            return state
        if launch.fork is not None:
            state = await self._take_over(tree, card, launch, launch.fork)
        limits = launch.limits if state.started is None else state.started.limits
        left = None if limits.seconds is None else limits.seconds - state.active
        ledger = Ledger(limits, outer, spent=_spent(tree.below(launch.run).values()), seconds=left)
        # As the run began: a model that it goes on with is shown the same tools.
        codec = self._models_for(card)[0].model.codec
        kit = await self._team.kit(card, agents=launch.depth < DEEPEST, most=codec.most_tools, weak=codec.weak)
        agent = await self._ready(tree.journal, card, state, kit, roles)
        facts = RunFacts(
            run_id=launch.run,
            agent=card.name,
            description=card.description,
            model=agent.model.name,
            provider=agent.model.provider,
            task=launch.task,
        )
        with tree.tracer.agent(facts) as scope:
            recorder = Recorder(tree, launch.run, card.name, state, scope)
            if state.started is None:
                await self._start(tree, agent, kit, recorder, launch)
            elif launch.fork is None:
                recorder.note(RunResumed, fence=tree.claim.fence)
                _tell_other_model(agent, recorder)
            with ledger.at_work():
                await _drive(Loop(tree, agent, recorder, ledger), recorder, tree, self._team.toolset)
            scope.settle(outcome_of(launch.run, tree.states))
        return recorder.state

    async def _ready(
        self, journal: Journal, card: AgentCard, state: RunState, kit: Kit, roles: tuple[str, ...]
    ) -> Agent:
        """The agent as it is now; for a run that goes on, the model is shown what it was shown before."""
        specs, system = None, kit.system
        if state.started is not None:
            specs = kit.specs
            if state.tools != kit.tools_digest:
                specs = specs_of(await journal.body(state.tools))
            system = (await journal.body(state.started.system)).decode()
        return Agent(
            card=card,
            choices=Choices(self._models_for(card), state.spec),
            toolset=self._team.toolset,
            offered=Offered(self._team, card, kit, specs),
            system=system,
            output=kit.output,
            roles=(*roles, card.role) if card.role and card.role not in roles else roles,
        )

    async def _take_over(self, tree: Tree, card: AgentCard, launch: Launch, fork: Fork) -> RunState:
        """Begins a run with what another one did. Its model is shown the same prompt and tools."""
        settings = launch.settings or b"{}"
        await tree.journal.keep({**fork.bodies, digest(settings): settings})
        events = fork.events(
            launch.run,
            tree.now(),
            model=self._models_for(card)[0].model.name,
            trace_id=tree.trace.trace_id,
            span_id=tree.trace.span_id,
            settings=digest(settings),
        )
        await tree.journal.append(tree.claim, events, durable=True)
        return fold(events)

    async def _start(self, tree: Tree, agent: Agent, kit: Kit, recorder: Recorder, launch: Launch) -> None:
        settings = launch.settings
        bodies = kit.bodies if settings is None else {**kit.bodies, digest(settings): settings}
        await tree.journal.keep(bodies)
        recorder.note(  # it is written with the first intent: nothing happens before that
            RunStarted,
            task=launch.task,
            parent=launch.parent,
            call=launch.call,
            depth=launch.depth,
            role=tree.role,
            by=tree.by or os_user(),
            part=launch.part,
            earlier=launch.earlier,
            limits=launch.limits,
            model=agent.model.name,
            trace_id=tree.trace.trace_id,
            span_id=tree.trace.span_id,
            system=kit.system_digest,
            tools=kit.tools_digest,
            max_output_tokens=agent.max_output_tokens,
            settings=None if settings is None else digest(settings),
            weights=agent.choice.tally.weights,
            plan=kit.plan,
        )
        pin_words(recorder, launch.task, launch.said)
        for text in launch.pins:
            pin(recorder, text, "caller")


def _tell_other_model(agent: Agent, recorder: Recorder) -> None:
    """A resumed run whose agent is configured to have another model now."""
    state, now = recorder.state, agent.choice
    if now.model.name != state.model or (state.spec and now.spec != state.spec):
        logger.warning("run %s was asking model %s and goes on with %s", state.run.run, state.model, now.model.name)
        recorder.note(
            ModelChanged,
            spec=now.spec,
            model=now.model.name,
            previous=state.model,
            reason="configuration",
            weights=now.tally.weights,
        )
    else:
        now.tally.recall(state.weights)


async def _drive(loop: Loop, recorder: Recorder, tree: Tree, toolset: Toolset) -> None:
    """Drives a run to its end. A cancelled one says so in its journal before the cancellation goes on.

    Whatever ends the driving, what happened until then is written. An error ends no run: it can be resumed, and so can
    those below it, which are cancelled only together with the top one.
    """
    try:
        await loop.drive()
    except anyio.get_cancelled_exc_class():
        parks = tree.parking and recorder.state.end is None
        with anyio.CancelScope(shield=True):
            if parks:
                recorder.note(RunParked, reason="interrupted")
            await recorder.save()
            if not tree.parking and recorder.state.run.parent is None:
                await _cancel(tree)
                await called_off(toolset, tree.states)
        raise
    except ExceptionGroup as group:
        error = leaf(group)
        if not isinstance(error, JournalError):
            with anyio.CancelScope(shield=True):
                await recorder.save()
        raise error from group


async def _cancel(tree: Tree) -> None:
    """Ends every run of a tree that has not ended, the top one last."""
    for run, state in reversed(list(tree.states.items())):
        if state.end is None and state.started is not None:
            recorder = Recorder(tree, run, state.run.agent, state)
            recorder.note(RunCancelled, reason="cancelled by its caller")
            await recorder.save()


def outcome_of(run: str, states: Mapping[str, RunState]) -> RunOutcome:
    """How a run ended, or stands, for its span."""
    status, reason, _ = status_of(states[run])
    end = states[run].end
    usage, cost = totals(state for key, state in states.items() if key == run or key.startswith(f"{run}/"))
    return RunOutcome(
        status=status,
        stop_reason=reason,
        usage=usage,
        own_usage=states[run].own,
        cost=cost,
        error=end.kind if isinstance(end, RunFailed) else None,
        message=end.error if isinstance(end, RunFailed) else "",
    )


def _spent(states: Iterable[RunState]) -> Amount:
    """What earlier sittings cost, requests whose reply was lost at their worst."""
    amount = Amount()
    for state in states:
        amount += amount_of(state.own, state.own_cost) + amount_of(state.remote, state.remote_cost)
        away = [call.at_stake for call in state.calls if call.phase != "answered" and call.at_stake is not None]
        for reservation in (*state.unsettled, *away):
            amount += Amount(tokens=reservation.tokens, cost=reservation.cost.amount, calls=reservation.calls)
    return amount
