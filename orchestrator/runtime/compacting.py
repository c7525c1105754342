"""Keeps a run's window within its budget: prepares a summary in the background, and cuts when there is no room left.

What is decided here depends on a setting and on estimates, so it is an event: `window.cut` holds the very text that the
window begins with from then on. Between two cuts the prefix of the requests does not change by a byte.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from contextvars import copy_context
from typing import Any, Literal

import anyio
import anyio.abc

from orchestrator.errors import ModelError
from orchestrator.events import MemoryCompacted, MemoryIntent, WindowCut
from orchestrator.memory.prompt import Draft, Prompt, draft_apart
from orchestrator.memory.tokens import estimate
from orchestrator.memory.window import NEARLY, Head, account, faulty, instructions, summary_limit
from orchestrator.messages import AssistantMessage, Cost, Message, Usage
from orchestrator.models.base import ModelReply, ModelRequest
from orchestrator.models.choice import Choice
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.ledger import Grant, Ledger, Refusal, Request
from orchestrator.runtime.plans import PLAN
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.result import totals
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.tree import Tree
from orchestrator.tracing.port import ChatFacts, ChatOutcome, Scope

UNKNOWN_WINDOW = 128_000
"""Tokens of the window of a model that nobody knows the window of: what most have today. A smaller one says so itself,
by refusing a request."""

WORTH = 8
"""A summary is asked for only of what takes at least 1/n of the budget: else the next one would be due at once."""

OVERFLOWED = 0.75
"""Of the estimate of a request that was too large for its server: what requests may have from then on."""


class Compacting:
    """Prepares summaries of one run and cuts its window."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._ledger = ledger
        self._done: anyio.Event | None = None
        self._spawn: Callable[..., object] = lambda *_: None

    def open(self, group: anyio.abc.TaskGroup) -> None:
        """Where summaries are written. Their spans belong to the agent, not to a thought."""
        context = copy_context()
        self._spawn = lambda *work: context.run(group.start_soon, *work)

    @property
    def _state(self) -> RunState:
        return self._recorder.state

    @property
    def budget(self) -> int:
        """Tokens that a request of this run may have."""
        known: int | None = getattr(self._agent.model, "window", None)  # not a protocol: that takes 1 % of a turn
        budget = self._tree.window_tokens or (known or UNKNOWN_WINDOW) - self._agent.max_output_tokens
        return min(budget, self._state.ceiling or budget)

    async def fit(self, prompt: Prompt, draft: Draft, *, closing: bool) -> bool:
        """Prepares a summary when the window is nearly full, and cuts the window when it is. True: it was cut."""
        budget, tokens = self.budget, draft.input_tokens
        if draft.apart:
            return tokens > budget and self._bound("full", budget)
        if self._state.cut:  # an answer goes on where its last piece ended
            return False
        if tokens > NEARLY * budget and not closing:
            await self._prepare(prompt, budget, wait=tokens > budget)
        return tokens > budget and await self._cut(prompt, "full", budget)

    async def overflowed(self, prompt: Prompt, draft: Draft) -> bool:
        """Cuts the window when its server has just refused a request as too large; once for a turn."""
        state = self._state
        if state.failure is None or state.failure.kind != "context_overflow":
            return False
        if state.window is not None and state.window.reason == "overflow" and state.window.turn == state.turn:
            return False
        budget = min(self.budget, int(draft.input_tokens * OVERFLOWED))
        if draft.apart:
            return self._bound("overflow", budget)
        if state.stop is None:
            await self._prepare(prompt, budget, wait=True)
        return await self._cut(prompt, "overflow", budget)

    def _bound(self, reason: Literal["full", "overflow"], budget: int) -> bool:
        """Bounds what requests apart from the transcript are made from; for an overflow once for a turn. False: they
        are bounded like this already."""
        if (before := self._state.apart) is not None:
            again = reason == "overflow" and (before.reason, before.turn) == (reason, self._state.turn)
            if again or before.budget <= budget:
                return False
        self._recorder.note(WindowCut, reason=reason, first=0, through=0, text="", budget=budget, apart=True)
        return True

    async def _prepare(self, prompt: Prompt, budget: int, *, wait: bool) -> None:
        """Has a summary written while the run goes on. `wait`: for room in the ledger, since it is needed now.

        One that a process has left behind is written anew, of the same messages.
        """
        state = self._state
        if state.summary is not None or self._done is not None:
            return
        pending = state.summarising
        through = pending.through if pending is not None else prompt.leaving(state.messages, budget, state.weights)
        if through is None or (pending is None and prompt.weight(through, state.weights) * WORTH < budget):
            return
        choice, limit = self._agent.choice, summary_limit(budget)
        told = account(self._head(through, "", budget))
        draft = draft_apart(choice.model.codec, instructions(budget), told, state.weights)
        room = Request(input=draft.input_tokens, output=limit * 2, prices=choice.model.prices)
        if not wait and self._ledger.must_wait(room):
            return
        grant = await self._ledger.reserve(room)
        if isinstance(grant, Refusal):
            self._note(through, error=grant.limit)
            return
        cost = Cost(amount=grant.amount.cost, known=choice.model.prices is not None)
        self._recorder.note(MemoryIntent, through=through, reserved=grant.amount.tokens, reserved_cost=cost)
        self._done = anyio.Event()
        await self._recorder.save(durable=True)
        self._spawn(self._summarise, choice, draft, through, grant, limit)

    async def _cut(self, prompt: Prompt, reason: str, budget: int) -> bool:
        """Puts the summary, or the word that there is none, in the place of the oldest turns. False: none can leave."""
        if self._done is not None:
            await self._recorder.save()
            with anyio.CancelScope(deadline=self._ledger.deadline):
                await self._done.wait()
        state, summary = self._state, ""
        if state.summary is not None and not state.summary.error:
            through, summary = state.summary.through, state.summary.summary
        else:
            through = prompt.leaving(state.messages, budget, state.weights)
        if through is None:
            return False
        first = state.window.through if state.window is not None else 0
        head = self._head(through, summary, budget)
        self._recorder.note(WindowCut, reason=reason, first=first, through=through, budget=budget, **head.event())
        self._done = None
        return True

    def _head(self, through: int, summary: str, budget: int) -> Head:
        state = self._state
        first = state.window.through if state.window is not None else 1
        return Head(
            task=state.opening,
            pins=state.pins,
            before=state.window,
            leaving=state.messages[first:through],
            summary=summary,
            plan=current_plan(state.messages[:through]) if state.plans else "",
            budget=budget,
        )

    async def _summarise(self, choice: Choice, draft: Draft, through: int, grant: Grant, limit: int) -> None:
        """One request in its own span. Whatever comes of it is noted, and the reservation is settled."""
        spent: tuple[Usage, Cost] | None = None
        charged, done = True, self._done
        try:
            with (
                self._tree.tracer.chat(self._facts(choice, grant)) as scope,
                anyio.CancelScope(deadline=self._ledger.deadline) as time,
                await choice.pace.enter(draft.input_tokens + grant.output),
            ):
                try:
                    reply = await self._asked(choice, draft, grant)
                except ModelError as error:
                    charged = error.kind == "broken_stream"
                    self._note(through, error=error.kind, charged=charged)
                    scope.settle(ChatOutcome(error=error.kind, message=str(error)))
                else:
                    spent = self._replied(reply, choice, draft, through, limit, scope)
            if time.cancelled_caught:
                self._note(through, error="timeout", charged=True)
        finally:
            if spent is None and charged:
                self._ledger.charge(grant)
            else:
                self._ledger.settle(grant, *(spent or (None, None)))
            assert done is not None, "a summary is written for somebody"
            done.set()

    async def _asked(self, choice: Choice, draft: Draft, grant: Grant) -> ModelReply:
        body = choice.model.codec.body(draft.encoded, draft.encoded_tools, grant.output)
        request = ModelRequest(
            agent=self._agent.name,
            turn=self._state.turn,
            messages=draft.messages,
            tools=(),
            max_output_tokens=grant.output,
            body=body,
            summary=True,
        )
        async with aclosing(choice.model.stream(request)) as parts:
            async for part in parts:
                if isinstance(part, ModelReply):
                    return part
        raise ModelError("broken_stream", f"the stream of {choice.model.name} ended without a reply")

    def _replied(
        self, reply: ModelReply, choice: Choice, draft: Draft, through: int, limit: int, scope: Scope
    ) -> tuple[Usage, Cost]:
        text = reply.message.text.strip()
        usage = Usage(model_calls=1) + (
            reply.usage or Usage(input_tokens=draft.input_tokens, output_tokens=estimate(text.encode()))
        )
        cost = choice.model.prices.cost(usage) if choice.model.prices is not None else Cost(known=False)
        error = "not_text" if reply.message.calls else "cut_off" if reply.finish != "stop" else faulty(text, limit)
        summary = "" if error else text
        self._note(through, summary=summary, error=error, usage=usage, cost=cost, model=reply.model)
        scope.settle(
            ChatOutcome(
                usage=usage,
                cost=cost,
                tree_cost=totals(self._tree.states.values())[1],
                reply=reply.message,
                finish=reply.finish,
                model=reply.model,
                response_id=reply.response_id,
            )
        )
        return usage, cost

    def _note(self, through: int, **facts: Any) -> None:
        self._recorder.note(MemoryCompacted, through=through, **facts)

    def _facts(self, choice: Choice, grant: Grant) -> ChatFacts:
        return ChatFacts(
            run_id=self._state.run.run,
            agent=self._agent.name,
            step=self._state.turn,
            model=choice.model.name,
            provider=choice.model.provider,
            max_output_tokens=grant.output,
            summary=True,
        )


def current_plan(messages: Sequence[Message]) -> str:
    """The newest plan among these messages as the model made it; empty where there is none."""
    calls = (call for message in reversed(messages) if isinstance(message, AssistantMessage) for call in message.calls)
    return next((call.arguments for call in calls if call.name == PLAN), "")
