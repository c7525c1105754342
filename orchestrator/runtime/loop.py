"""The shell around the fold: it performs what `decide` says and appends what happened.

Nothing is remembered here but the state; the prompt's bytes and the journal's unsaved tail are memos of it. An intent
is durable before its effect begins. What came of an effect is written with the next intent, in one transaction.
"""

import random
from collections.abc import Generator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import replace
from typing import assert_never

import anyio

from orchestrator.errors import ModelError
from orchestrator.events import (
    ModelChanged,
    ModelFailed,
    ModelIntent,
    ModelResult,
    RunFailed,
    RunParked,
    TextDeltaEvent,
    ToolsChanged,
)
from orchestrator.memory.prompt import Draft, Prompt
from orchestrator.memory.tokens import estimate
from orchestrator.messages import Cost, Usage
from orchestrator.models.base import CallReady, ModelReply, ModelRequest, TextDelta
from orchestrator.models.counting import Weights
from orchestrator.models.pace import Turn
from orchestrator.runtime.acting import Acting
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.asking import Asking
from orchestrator.runtime.compacting import Compacting
from orchestrator.runtime.ending import Ending
from orchestrator.runtime.ledger import Grant, Ledger, Refusal, Request
from orchestrator.runtime.pinning import pin_notes
from orchestrator.runtime.plans import PLAN
from orchestrator.runtime.reading import is_final, read
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.requests import Closed, draft_of
from orchestrator.runtime.result import totals
from orchestrator.runtime.runstate import Act, CallState, Done, Fail, Finish, RunState, Stop, Think, Wait
from orchestrator.runtime.state import decide
from orchestrator.runtime.tree import Tree
from orchestrator.tracing.port import ChatFacts, ChatOutcome, PlanFacts, PlanOutcome, Scope

ATTEMPTS = 3
"""Requests to one model for one turn before it has failed for good."""

FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0


class Loop:
    """Drives one agent's run to its end."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._ledger = ledger
        self._prompt = Prompt(agent.model.codec, agent.system, agent.specs)
        self._asking = Asking(tree, recorder, ledger)
        self._ending = Ending(tree, agent, recorder, ledger)
        self._acting = Acting(tree, agent, recorder, ledger, self._asking)
        self._compacting = Compacting(tree, agent, recorder, ledger)

    @property
    def state(self) -> RunState:
        return self._recorder.state

    async def drive(self) -> RunState:
        """Performs steps until none is left. Calls that start early end with the run at the latest."""
        async with anyio.create_task_group() as group:
            self._acting.open(group)
            self._compacting.open(group)
            while not isinstance(step := decide(self.state), Done):
                await self._perform(step)
            await self._recorder.save(durable=True)
            group.cancel_scope.cancel()
        return self.state

    async def _perform(self, step: Think | Act | Wait | Stop | Finish | Fail) -> None:
        match step:
            case Think():
                await self._think(step)
            case Act(calls):
                await self._acting.answer(calls)
            case Wait(calls):
                await self._wait(calls)
            case Stop(limit, detail):
                # An answer that has begun is better than another, shorter one.
                closing = not self.state.cut and self._ledger.exhausted() is None and self._ledger.remaining > 0
                self._ending.limit(limit, detail, closing=closing)
            case Finish():
                await self._ending.finish(step)
            case Fail(kind, error):
                self._recorder.note(RunFailed, kind=kind, error=error)
            case _:
                assert_never(step)

    async def _wait(self, calls: Sequence[CallState]) -> None:
        """Asks whoever can be asked now, one call after the other; when nobody is there, the run parks."""
        await self._recorder.save(durable=True)
        for each in calls:
            call: CallState | None = each
            while call is not None and call.phase == "waiting" and await self._asking.put(call):
                call = self._asking.find(call.call.id)  # a server may have asked several things at once
        if isinstance(decide(self.state), Wait):
            self._recorder.note(RunParked, reason="approval")

    async def _think(self, step: Think) -> None:
        """One thought: a request, and its retries, in one span."""
        if self._tree.hooks and not step.closing and step.attempt == 1 and await self._ending.hooked("thinking"):
            return
        with self._plan(step), ExitStack() as stack:
            scope: Scope | None = None
            outcome = ChatOutcome()
            while (draft := await self._drafted(step)) is not None and (turn := await self._turn(draft)) is not None:
                with turn:
                    if (admitted := await self._admitted(step, draft)) is None:
                        break
                    request, grant = admitted
                    if scope is None:
                        scope = stack.enter_context(self._tree.tracer.chat(self._facts(request)))
                    if turn.waited:
                        scope.note("rate_limited", {"seconds": turn.waited})
                    scope.note("budget.reserved", {"tokens": grant.amount.tokens, "amount": float(grant.amount.cost)})
                    outcome = await self._ask(request, draft, grant)
                    if outcome.error is None:
                        turn.used(outcome.usage.tokens)
                if not await self._compacting.overflowed(self._prompt, draft):
                    self._change_model()
                again = decide(self.state)
                if self.state.failure is None or not isinstance(again, Think):
                    break
                scope.note("retry", {"attempt": step.attempt, "error.type": outcome.error or "", "delay": again.delay})
                step = again
            if scope is not None:
                tokens, cost = self._ledger.left()
                scope.settle(replace(outcome, tokens_left=tokens, cost_left=cost))

    def _change_model(self) -> None:
        """Goes on with the next model when the one in use has failed for good. Both are written in one transaction."""
        failure = self.state.failure
        if failure is None or failure.retry_in is not None:
            return
        if (other := self._agent.choices.after(failure.kind)) is None:
            return
        before, name = self._agent.model.name, other.model.name
        weights = other.tally.weights
        self._recorder.note(
            ModelChanged, spec=other.spec, model=name, previous=before, reason=failure.kind, weights=weights
        )
        self._agent.choices.use(other)
        self._prompt = Prompt(other.model.codec, self._agent.system, self._agent.specs)

    @contextmanager
    def _plan(self, step: Think) -> Generator[None]:
        """The span of a thought that can only be a plan."""
        if not step.planning:
            yield
            return
        with self._tree.tracer.plan(PlanFacts(run_id=self.state.run.run, agent=self._agent.name)) as scope:
            yield
            made = any(call.call.name == PLAN for call in self.state.calls)
            scope.settle(PlanOutcome(error=None if made else "unplanned"))

    async def _drafted(self, step: Think) -> Draft | None:
        """The next request; None when there is no time for it."""
        if step.delay:
            await anyio.sleep(min(step.delay, max(0.0, self._ledger.remaining)))
        if self._ledger.remaining <= 0:
            self._time_is_up()
            return None
        if step.attempt == 1 and not step.closing:
            pin_notes(self._recorder)
            await self._take_in_tools()
        draft = await self._draft(step)
        while await self._compacting.fit(self._prompt, draft, closing=step.closing):
            if not step.closing:
                await self._take_in_tools()
            draft = await self._draft(step)
        return draft

    async def _draft(self, step: Think) -> Draft:
        state, seen = self.state, self._agent.model.vision
        shown = self._prompt.unseen(state.messages, state.window) if seen else []
        images = {body: await self._tree.journal.body(body) for body in shown}
        return draft_of(self._prompt, state, closing=step.closing, images=images)

    async def _turn(self, draft: Draft) -> Turn | None:
        """Waits until the model may be asked; None when the time is up before."""
        pace, tokens = self._agent.choice.pace, draft.input_tokens + self._agent.max_output_tokens
        if pace.must_wait(tokens):
            await self._recorder.save()
        with anyio.CancelScope(deadline=self._ledger.deadline):
            return await pace.enter(tokens)
        self._time_is_up()
        return None

    async def _admitted(self, step: Think, draft: Draft) -> tuple[ModelRequest, Grant] | None:
        """A request with room for it in the ledger and its intent on disk; None when a limit forbids it."""
        room = Request(input=draft.input_tokens, output=self._agent.max_output_tokens, prices=self._agent.model.prices)
        if self._ledger.must_wait(room):
            await self._recorder.save()
        grant = await self._ledger.reserve(room)
        if isinstance(grant, Refusal):
            self._ending.limit(grant.limit, grant.detail, closing=False)
            return None
        request = self._request(step, draft, grant)
        self._note_intent(step, draft, grant)
        await self._recorder.save(durable=True)
        return request, grant

    async def _take_in_tools(self) -> None:
        """Between turns, tools that the model has chosen, and those that are there only now, join its list."""
        if (change := self._agent.offered.change(self.state)) is None:
            return
        await self._tree.journal.keep({change.digest: change.body})
        tokens = self._prompt.show(self._agent.specs, self.state.weights)
        self._recorder.note(
            ToolsChanged, tools=change.digest, chosen=change.chosen, joined=change.joined, tokens=tokens
        )

    def _time_is_up(self) -> None:
        limit = self.state.run.limits.seconds
        detail = f"{limit:g} seconds" if limit is not None else "the caller's time"
        self._ending.limit("timeout", detail, closing=False)

    def _request(self, step: Think, draft: Draft, grant: Grant) -> ModelRequest:
        shut = Closed(draft, self.state, step.turn, self._agent.model.codec.weak)
        body = self._agent.model.codec.body(draft.encoded, draft.encoded_tools, grant.output, shut)
        return ModelRequest(
            agent=self._agent.name,
            turn=step.turn,
            messages=draft.messages,
            tools=draft.tools,
            max_output_tokens=grant.output,
            body=body,
            attempt=step.attempt,
            shut=shut,
        )

    def _note_intent(self, step: Think, draft: Draft, grant: Grant) -> None:
        self._recorder.note(
            ModelIntent,
            turn=step.turn,
            attempt=step.attempt,
            request=draft.digest,
            messages=len(self.state.messages),
            closing=step.closing,
            planning=step.planning,
            reserved=grant.amount.tokens,
            output=grant.output,
            reserved_cost=Cost(amount=grant.amount.cost, known=self._agent.model.prices is not None),
        )

    def _facts(self, request: ModelRequest) -> ChatFacts:
        return ChatFacts(
            run_id=self.state.run.run,
            agent=self._agent.name,
            step=request.turn,
            model=self._agent.model.name,
            provider=self._agent.model.provider,
            max_output_tokens=request.max_output_tokens,
        )

    async def _ask(self, request: ModelRequest, draft: Draft, grant: Grant) -> ChatOutcome:
        """Sends one request and notes what came back; the reservation is settled whatever happens."""
        settled: tuple[Usage, Cost] | None = None
        try:
            with anyio.CancelScope(deadline=self._ledger.deadline):
                try:
                    reply = await self._stream(request)
                except ModelError as error:
                    return self._failed(error, request.attempt)
                event = self._replied(reply, draft)
                settled = event.usage, event.cost
                return self._outcome(reply, event)
            return self._timed_out(request.attempt)
        finally:
            failure = self.state.failure
            if settled is None and failure is not None and failure.charged:
                self._ledger.charge(grant)
            else:
                self._ledger.settle(grant, *(settled or (None, None)))

    async def _stream(self, request: ModelRequest) -> ModelReply:
        run = self.state.run
        self._acting.asking()
        async with aclosing(self._agent.model.stream(request)) as parts:
            async for part in parts:
                match part:
                    case ModelReply():
                        return part
                    case CallReady() if request.tools:
                        self._acting.ready(part, request.turn)
                    case TextDelta(text=text):
                        event = TextDeltaEvent(
                            run_id=run.run, agent=run.agent, step=request.turn, trace_id=run.trace_id, text=text
                        )
                        self._tree.publish(event)
                    case _:
                        continue
        raise ModelError("broken_stream", f"the stream of {self._agent.model.name} ended without a reply")

    def _timed_out(self, attempt: int) -> ChatOutcome:
        told = "the run's time is up"
        self._recorder.note(ModelFailed, attempt=attempt, kind="timeout", error=told, retry_in=0, charged=True)
        return ChatOutcome(error="timeout", message=told)

    def _failed(self, error: ModelError, attempt: int) -> ChatOutcome:
        retry_in, failures = None, self.state.failures  # requests that were lost with a process are not failures
        if error.retryable and failures + 1 < ATTEMPTS:
            # Spread, so that many runs that were refused together do not come back together.
            backoff = FIRST_DELAY * 2**failures * random.uniform(1.0, 1.5)
            retry_in = min(LONGEST_DELAY, error.retry_after if error.retry_after is not None else backoff)
        if error.retry_after is not None:
            self._agent.choice.pace.hold(min(LONGEST_DELAY, error.retry_after))
        charged = error.kind == "broken_stream"  # what came before it broke was written, and is paid for
        self._recorder.note(
            ModelFailed, attempt=attempt, kind=error.kind, error=str(error), retry_in=retry_in, charged=charged
        )
        return ChatOutcome(error=error.kind, message=str(error))

    def _replied(self, reply: ModelReply, draft: Draft) -> ModelResult:
        turn = self.state.turn
        closing = not draft.tools and bool(self._agent.specs)
        reply, problem = read(reply, self._agent, self.state, closing=closing)
        if (usage := reply.usage) is None:
            written = estimate(_written(reply).encode("utf-8", "replace"), self.state.weights)
            usage = Usage(input_tokens=draft.input_tokens, output_tokens=written)
        usage = Usage(model_calls=1) + usage
        prices = self._agent.model.prices
        cost = prices.cost(usage) if prices is not None else Cost(known=False)
        message = reply.message
        calls = tuple(replace(call, id=f"t{turn}.{n}") for n, call in enumerate(message.calls, 1))
        return self._recorder.note(
            ModelResult,
            message=replace(message, calls=calls),
            finish=reply.finish,
            usage=usage,
            cost=cost,
            model=reply.model,
            estimated=reply.usage is None,
            problem=problem,
            final=not closing and is_final(reply, self._agent, problem),
            weights=self._learned(reply.usage, draft),
        )

    def _learned(self, usage: Usage | None, draft: Draft) -> Weights:
        """How the model counts, where that is known better now."""
        if usage is None:
            return ()
        weights = self._agent.choice.tally.learn(draft.telling, usage.input_tokens - draft.base)
        return weights if weights != self.state.weights else ()

    def _outcome(self, reply: ModelReply, event: ModelResult) -> ChatOutcome:
        return ChatOutcome(
            usage=event.usage,
            cost=event.cost,
            tree_cost=totals(self._tree.states.values())[1],
            reply=event.message,
            finish=reply.finish,
            model=reply.model,
            response_id=reply.response_id,
        )


def _written(reply: ModelReply) -> str:
    return reply.message.text + "".join(call.name + call.arguments for call in reply.message.calls)
