"""Answers the calls of a turn: each gets exactly one answer, whatever happens to it or to the others."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from orchestrator.events import Effect, JournalEvent, ToolInDoubt, ToolIntent, ToolResult, ToolRetried
from orchestrator.runtime import wire
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.state import CallState
from orchestrator.runtime.tree import CALLER, Caller, Tree
from orchestrator.tools import results
from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.toolset import Offer, Reply, nearest
from orchestrator.tracing.port import ToolFacts, ToolOutcome

logger = logging.getLogger(__name__)

REPEATABLE: frozenset[Effect] = frozenset({"read", "idempotent", "agent"})
"""Calls that are sent again when a process died while they were under way. An agent's goes on in its own journal."""

IN_DOUBT = (
    "This call was under way when the process that ran it was killed. It may or may not have taken effect, and it was "
    "not repeated. Find out with another tool whether it did before you go on."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A call that may be sent."""

    state: CallState
    offer: Offer
    arguments: dict[str, Any]
    attempt: int


class Acting:
    """Prepares, sends and records calls."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._ledger = ledger

    async def answer(self, calls: Sequence[CallState]) -> None:
        """Answers all of `calls`; they run at once, and their results are recorded as they come."""
        ready: list[Ready] = []
        events: list[JournalEvent] = []
        for call in calls:
            outcome = self._settle(call) if call.interrupted else self._prepare(call)
            if isinstance(outcome, Ready):
                ready.append(outcome)
                events += self._intents(outcome)
            else:
                events.append(outcome)
        await self._recorder.save(events, durable=True)
        if len(ready) == 1:
            await self._perform(ready[0])
            return
        async with anyio.create_task_group() as group:
            for item in ready:
                group.start_soon(self._perform_and_save, item)

    def _prepare(self, call: CallState) -> Ready | ToolResult:
        """Arguments repaired, coerced and validated; what cannot be sent is answered here."""
        name = call.call.name
        offer = self._agent.offers.get(name)
        if offer is None:
            return self._refuse(call, results.unknown(name, nearest(name, self._agent.offers)))
        try:
            arguments = offer.schema.prepare(call.call.arguments)
        except InvalidArguments as error:
            return self._refuse(call, results.failure(name, str(error)))
        return Ready(state=call, offer=offer, arguments=arguments, attempt=1)

    def _settle(self, call: CallState) -> Ready | ToolResult | ToolInDoubt:
        """A call that was under way when a process died: sent again only if that is safe, else in doubt."""
        if call.effect not in REPEATABLE:
            return self._recorder.make(
                ToolInDoubt,
                call=call.call.id,
                tool=call.call.name,
                observation=results.failure(call.call.name, IN_DOUBT),
            )
        offer = self._agent.offers.get(call.call.name)
        if offer is None:
            return self._refuse(call, results.unknown(call.call.name, nearest(call.call.name, self._agent.offers)))
        return Ready(state=call, offer=offer, arguments=dict(call.arguments or {}), attempt=call.attempt + 1)

    def _refuse(self, call: CallState, observation: str) -> ToolResult:
        return self._recorder.make(
            ToolResult,
            call=call.call.id,
            tool=call.call.name,
            observation=observation,
            is_error=True,
            sent=False,
        )

    def _intents(self, ready: Ready) -> list[JournalEvent]:
        call, name = ready.state.call.id, ready.offer.name
        events: list[JournalEvent] = []
        if ready.attempt > 1:
            events.append(self._recorder.make(ToolRetried, call=call, tool=name, attempt=ready.attempt))
        intent = self._recorder.make(
            ToolIntent,
            call=call,
            tool=name,
            arguments=ready.arguments,
            effect=ready.offer.effect,
            attempt=ready.attempt,
            key=self._path(call),
        )
        return [*events, intent]

    def _path(self, call: str) -> str:
        """Names a call over the whole tree, and the run of the agent that it calls."""
        return f"{self._recorder.state.run.run}/{call}"

    async def _perform_and_save(self, ready: Ready) -> None:
        await self._perform(ready)
        await self._recorder.save()

    async def _perform(self, ready: Ready) -> None:
        """Sends one call and notes its answer."""
        call, offer = ready.state.call.id, ready.offer
        began = anyio.current_time()
        facts = ToolFacts(
            run_id=self._recorder.state.run.run,
            agent=self._agent.name,
            call=call,
            tool=offer.name,
            server=offer.server.name,
            transport=offer.server.transport,
            arguments=ready.arguments,
        )
        with self._tree.tracer.tool(facts) as scope:
            reply = await self._send(ready)
            scope.settle(ToolOutcome(text=reply.text, error=reply.error))
        spent = wire.spent(reply.meta) if offer.effect == "agent" else None
        self._recorder.note(
            self._recorder.make(
                ToolResult,
                call=call,
                tool=offer.name,
                observation=results.cut(reply.text),
                is_error=reply.error is not None,
                seconds=round(anyio.current_time() - began, 3),
                child=spent.run if spent is not None else None,
                usage=spent.usage if spent is not None else None,
                cost=spent.cost if spent is not None else None,
            )
        )

    async def _send(self, ready: Ready) -> Reply:
        """A call of an agent holds no slot, so that nesting cannot deadlock; its time is the tree's."""
        offer, toolset = ready.offer, self._agent.toolset
        key = self._path(ready.state.call.id)
        if offer.effect == "agent":
            state = self._recorder.state.run
            caller = Caller(
                tree=self._tree, run=state.run, call=ready.state.call.id, depth=state.depth, ledger=self._ledger
            )
            token = CALLER.set(caller)
            try:
                return await toolset.call(offer, ready.arguments, timeout=None, meta={wire.KEY: key})
            finally:
                CALLER.reset(token)
        async with self._tree.slots:
            timeout = max(0.001, min(self._tree.tool_timeout, self._ledger.remaining))
            return await toolset.call(offer, ready.arguments, timeout=timeout, meta={wire.KEY: key})
