"""Calls on their way to a server, each in its span: with the time it has, what it carries, and who may be asked."""

from contextlib import nullcontext
from dataclasses import replace

import anyio

from orchestrator.runtime import wire
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.asking import Asking
from orchestrator.runtime.calls import Outcome, Refused, Wish
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.remote import Remote
from orchestrator.runtime.tree import CALLER, Caller, Tree
from orchestrator.tools import results
from orchestrator.tools.toolset import Reply, instead
from orchestrator.tracing.port import ToolFacts, ToolOutcome


class Sending:
    """Sends the calls of one run."""

    def __init__(
        self, tree: Tree, agent: Agent, recorder: Recorder, *, ledger: Ledger, asking: Asking, remote: Remote
    ) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._ledger = ledger
        self._asking = asking
        self._remote = remote

    async def execute(self, wish: Wish, call: str, outcome: Outcome) -> None:
        """One call inside its span."""
        began = anyio.current_time()
        with self._tree.tracer.tool(self._facts(call, wish.offer.name, wish)) as scope:
            outcome.reply = await self._send(wish, call, outcome.aware)
            scope.settle(ToolOutcome(text=outcome.reply.text, error=outcome.reply.error))
        outcome.seconds = round(anyio.current_time() - began, 3)
        outcome.done.set()

    def refuse(self, call: str, tool: str, refused: Refused) -> None:
        """The span of a call that is not sent. It says why, so that the trace shows every call of the model."""
        with self._tree.tracer.tool(self._facts(call, tool)) as scope:
            scope.settle(ToolOutcome(text=refused.observation, error=refused.error))

    def path(self, call: str) -> str:
        """Names a call over the whole tree, and the run of the agent that it calls."""
        return f"{self._recorder.state.run.run}/{call}"

    def _facts(self, call: str, tool: str, wish: Wish | None = None) -> ToolFacts:
        server = wish.offer.server if wish is not None else None
        return ToolFacts(
            run_id=self._recorder.state.run.run,
            agent=self._agent.name,
            call=call,
            tool=tool,
            server=server.name if server is not None else "",
            transport=server.transport if server is not None else "",
            arguments=wish.arguments if wish is not None else {},
        )

    async def _send(self, wish: Wish, call: str, aware: str) -> Reply:
        """A call that stays inside holds no slot, so that nesting cannot deadlock; it minds the time itself. No agent's
        does, and another orchestrator's has the time that is left: its share bounds it, and it is told that time.
        """
        offer = wish.offer
        if offer.inside:
            return await self._call_inside(wish, call)
        meta = {wire.KEY: self.path(call)} | (self._remote.limits(call) if offer.remote else {})
        timeout = None if offer.remote else self._tree.tool_timeout
        with anyio.CancelScope(deadline=self._ledger.deadline) as scope:  # waiting for a turn takes of its time as well
            async with nullcontext() if offer.remote else self._tree.slots:
                await self._tree.hold()
                given = self._asking.given(call, offer.server.name, scope)
                reply = await self._agent.toolset.call(
                    offer, wish.arguments, timeout=timeout, meta=meta, given=given, aware=aware
                )
            if self._asking.errors:
                raise self._asking.errors[0]
            if reply.error == "unavailable":
                return replace(reply, parts=(reply.text + instead(offer, self._agent.offers.values()),))
            return reply
        problem = "the run's time was up before it answered; the call was stopped"
        return Reply(parts=(results.failure(offer.name, problem),), error="timeout", meta={})

    async def _call_inside(self, wish: Wish, call: str) -> Reply:
        """Calls an agent or a built-in tool, which see who calls. What ends an agent's driving ends its callers'."""
        state = self._recorder.state.run
        caller = Caller(
            tree=self._tree,
            run=state.run,
            call=call,
            depth=state.depth,
            ledger=self._ledger,
            catalogue=self._agent.offered.catalogue,
            offers=self._agent.offers,
            roles=self._agent.roles,
        )
        token = CALLER.set(caller)
        try:
            reply = await self._agent.toolset.call(
                wish.offer, wish.arguments, timeout=None, meta={wire.KEY: self.path(call)}
            )
        finally:
            CALLER.reset(token)
        if caller.errors:
            raise caller.errors[0]
        return reply
