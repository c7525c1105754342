"""One call of an agent by a caller from outside: begun or found again, waited for, asked about, answered."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orchestrator.cards import AgentCard
from orchestrator.errors import ConfigurationError, RunBusy, UnknownRun
from orchestrator.events import PublicEvent
from orchestrator.runtime import wire
from orchestrator.runtime.approvals import give_verdict
from orchestrator.runtime.delegation import answer_of, result_of
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.result import ApprovalRequest, pending
from orchestrator.runtime.runstate import RunState
from orchestrator.serving.guests import Guest
from orchestrator.serving.meter import Meter
from orchestrator.serving.questions import can_ask, digests, request_for, told, verdict_of
from orchestrator.serving.runs import Live, Order, Runs
from orchestrator.serving.sealed import Seals, Unsealable, Waiting
from orchestrator.serving.tasks import has_tasks, task
from orchestrator.tasks import background

logger = logging.getLogger(__name__)

RUN_RESULT = "run_result"
LINES = 100
"""Lines of progress that wait for a slow reader; newer ones are dropped."""

Context = ServerRequestContext[Any, Any]
Reply = CallToolResult | InputRequiredResult | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call on its way. `patience` is how many seconds it waits before it says that the run goes on."""

    ctx: Context
    guest: Guest
    card: AgentCard
    patience: float
    order: Order | None = None

    @property
    def modern(self) -> bool:
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Calls:
    """Answers calls of agents."""

    def __init__(self, runs: Runs, journal: Journal, seals: Seals) -> None:
        self._runs = runs
        self._journal = journal
        self._seals = seals

    async def make(self, call: Call, params: CallToolRequestParams) -> Reply:
        """Begins the run of a call, or goes on with the one that waits for its answer, and says what came of it."""
        assert call.order is not None
        if params.request_state is None:
            return await self._follow(call, self._runs.start(call.order, call.guest.runs), frozenset())
        run, dismissed = await self._decide(call, call.order, params)
        return await self._follow(call, self._runs.go_on(run, call.guest.name), dismissed)

    async def call_off(self, call: Call) -> Reply:
        """Ends the run of a call's key for good, and all below it. Raises `UnknownRun` where none was begun."""
        assert call.order is not None
        await self._runs.cancel(call.order.run)
        return await self._settle(call, call.order.run, frozenset())

    async def collect(self, call: Call, run: str) -> Reply:
        """What became of a run that was begun by an earlier call."""
        live = self._runs.live(run)
        if live is None:
            return await self._settle(call, run, frozenset())
        live.detached = True
        return await self._follow(call, live, frozenset())

    async def _follow(self, call: Call, live: Live, dismissed: frozenset[str]) -> Reply:
        while True:
            if not await self._wait(call, live):
                live.detached = True
                return await self._later(call, live)
            if not await self._ask_now(call, live.run):
                return await self._settle(call, live.run, dismissed)
            live = self._runs.go_on(live.run, live.by)

    async def _later(self, call: Call, live: Live) -> Reply:
        """The reply while the run goes on: a task, where the caller has those, or how to collect the answer."""
        if call.order is None or not has_tasks(call.ctx):
            return _still_running(call, live.run)
        await self._runs.written(live)
        row = await self._journal.row(live.run)
        if row is None:
            raise UnknownRun(f"run {live.run} did not begin; call again")
        return {"resultType": "task", **task(row)}

    async def _wait(self, call: Call, live: Live) -> bool:
        """Waits for the run, and tells the caller how it goes. False: it takes longer than the caller waits.

        A caller that leaves meanwhile ends the run.
        """
        live.callers += 1
        left = False
        try:
            with anyio.move_on_after(call.patience):
                await _told(call.ctx, live)
                return True
        except anyio.get_cancelled_exc_class():
            left = True
            raise
        finally:
            live.callers -= 1
            if left:
                with anyio.CancelScope(shield=True):
                    await self._runs.leave(live)
        return False

    async def _settle(self, call: Call, run: str, dismissed: frozenset[str]) -> Reply:
        """The reply for a run that nobody drives: its answer, what it asks, or what it waits for."""
        states = await self._runs.states(run)
        if call.order is not None:
            call.order.check(states[run])
        waiting = list(pending(states))
        answer = answer_of(call.card, run, states)
        if states[run].end is not None:
            return result_of(answer)
        meta: dict[str, Any] = {wire.SPENT: answer.spent.model_dump(mode="json")}
        if not waiting:
            problem = f"run {run} was interrupted and can go on; make the same call again"
            return _plain(call, problem, run, meta, error=True)
        if call.modern and dismissed.isdisjoint(each.call for each in waiting) and answerable(call.ctx, waiting):
            state = self._seals.seal(Waiting(run=run, by=call.guest.name, asked=digests(states)))
            return InputRequiredResult(
                input_requests={each.call: request_for(each) for each in waiting}, request_state=state, _meta=meta
            )
        return _plain(call, how_to_decide(run, waiting), run, meta)

    async def _ask_now(self, call: Call, run: str) -> bool:
        """Asks a caller of the older protocol in the middle of its call; True when something was decided."""
        if call.modern or not call.ctx.session.can_send_request:
            return False
        states = await self._runs.states(run)
        decided = False
        for waiting in pending(states):
            if answerable(call.ctx, [waiting]):
                answer = await _elicited(call.ctx, waiting)
                decided = await self.verdict(run, waiting, answer, call.guest.name) or decided
        return decided

    async def _decide(self, call: Call, order: Order, params: CallToolRequestParams) -> tuple[str, frozenset[str]]:
        """Takes the answers that came with a call. Returns its run, and the calls that nobody wanted to judge."""
        try:
            sealed = self._seals.open(params.request_state or "")
        except Unsealable as error:
            raise MCPError(INVALID_PARAMS, "the request state is not one of this server's, or was altered") from error
        states = await self._runs.states(sealed.run)
        state, now = states[sealed.run], digests(states)
        if (sealed.by, order.agent, order.task) != (call.guest.name, state.run.agent, state.run.task):
            raise MCPError(INVALID_PARAMS, "the request state belongs to another call, or to another caller")
        answers = {path: each for path, each in (params.input_responses or {}).items() if path in sealed.asked}
        open_now = {path for path in answers if now.get(path) == sealed.asked[path]}
        if not open_now and answers and not order.key:
            raise MCPError(INVALID_PARAMS, f"that was answered already; run {sealed.run} tells what came of it")
        dismissed: set[str] = set()
        for waiting in pending(states):
            answer = answers.get(waiting.call)
            if waiting.call in open_now and isinstance(answer, ElicitResult):
                await self.verdict(sealed.run, waiting, answer, call.guest.name)
                if answer.action == "cancel":
                    dismissed.add(waiting.call)
        return sealed.run, frozenset(dismissed)

    async def verdict(self, run: str, waiting: ApprovalRequest, answer: ElicitResult, by: str) -> bool:
        """Writes down what a person said. False: it does not count, and the call waits on."""
        if (verdict := verdict_of(answer, waiting, by)) is None:
            return False
        try:
            await give_verdict(self._journal, run, verdict, call=waiting.call)
        except (ConfigurationError, RunBusy) as error:  # it does not fit, or somebody else was faster
            logger.warning("the answer to call %s of run %s does not count: %s", waiting.call, run, error)
            return False
        return True


async def _told(ctx: Context, live: Live) -> None:
    """Waits for a run to end or park while its caller gets lines of progress. Raises what kept it from running."""
    send, receive = anyio.create_memory_object_stream[str](LINES)
    meter = Meter()

    def watch(event: PublicEvent) -> None:
        if (line := meter.line(event)) is not None:
            try:
                send.send_nowait(line)
            except anyio.WouldBlock:
                return

    async def report() -> None:
        number = 0
        async for line in receive:
            number += 1
            await ctx.session.report_progress(number, None, line)

    with send, receive:
        async with background() as group:
            group.start_soon(report)
            with live.watched(watch):
                try:
                    await live.wait()
                finally:
                    send.close()


async def _elicited(ctx: Context, waiting: ApprovalRequest) -> ElicitResult:
    params = request_for(waiting).params
    related = ctx.request_id
    if isinstance(params, ElicitRequestFormParams):
        return await ctx.session.elicit_form(params.message, params.requested_schema, related)
    assert isinstance(params, ElicitRequestURLParams)
    return await ctx.session.elicit_url(params.message, params.url, params.elicitation_id or waiting.call, related)


def answerable(ctx: Context, waiting: list[ApprovalRequest]) -> bool:
    """Whether this caller can put all of these to a person."""
    capabilities = ctx.session.client_capabilities
    kinds: set[Literal["form", "url"]] = {"url" if "url" in (each.input or {}) else "form" for each in waiting}
    return all(can_ask(capabilities, kind) for kind in kinds)


def _still_running(call: Call, run: str) -> CallToolResult:
    text = f'still running: run {run}. Call the tool {RUN_RESULT} with {{"run": "{run}"}} for its answer.'
    return _plain(call, text, run, {})


def how_to_decide(run: str, waiting: list[ApprovalRequest]) -> str:
    """What waits, and how a person decides where the caller cannot ask one."""
    lines = [f"  orchestrator approve {run} {each.call}        (or with --deny)" for each in waiting]
    waits = f"waiting for approval: run {run}; a person decides with"
    return "\n".join([*map(told, waiting), waits, *lines, f"then call {RUN_RESULT} for the answer."])


def _plain(call: Call, text: str, run: str, meta: Mapping[str, Any], *, error: bool = False) -> CallToolResult:
    """A reply that is not the agent's answer. An agent that promises structured content has no other way than an error
    to say something else.
    """
    promised = call.card.output is not None and call.order is not None
    said = {wire.RUN: run, **meta}
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=error or promised, _meta=said)


def unsettled(states: Mapping[str, RunState], run: str) -> bool:
    """Whether a run can go on by itself: it was interrupted, or all that it asked is answered."""
    return states[run].end is None and not any(pending(states))
