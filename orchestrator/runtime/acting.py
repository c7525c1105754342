"""Answers the calls of a turn: each gets exactly one answer, whatever happens to it or to the others."""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import anyio
import anyio.abc

from orchestrator.events import (
    ApprovalAsked,
    Effect,
    HookApplied,
    PlanMade,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
)
from orchestrator.models.base import CallReady
from orchestrator.models.lenient import is_object
from orchestrator.runtime import plans, wire, words
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.asking import Asking
from orchestrator.runtime.calls import Outcome, Ready, Refused, Wish
from orchestrator.runtime.grounding import WITHHELD, grounded
from orchestrator.runtime.hooks import Moment, Redirect, Replace, Veto
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.observing import observe
from orchestrator.runtime.pinning import pin
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.remote import NO_USE, Remote, Used
from orchestrator.runtime.runstate import CallState
from orchestrator.runtime.tree import CALLER, Caller, Tree
from orchestrator.tools import results
from orchestrator.tools.arguments import InvalidArguments, canonical
from orchestrator.tools.calling import ROUNDS
from orchestrator.tools.policy import Decision
from orchestrator.tools.toolset import BUILTIN, REPEATABLE, Offer, Reply, instead, nearest
from orchestrator.tracing.port import ToolFacts, ToolOutcome

logger = logging.getLogger(__name__)

EARLY: Effect = "read"
"""Calls that may start while the reply is still coming in: what changes anything waits until its intent is durable."""


class Acting:
    """Prepares, sends and records the calls of one run."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger, asking: Asking) -> None:
        self._asking = asking
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._ledger = ledger
        self._preparing = anyio.Lock()
        self._remote = Remote(recorder, ledger)
        self._early: dict[str, list[Outcome]] = {}
        self._started: dict[str, int] = {}
        self._spawn: Callable[..., object] = lambda *_: None

    def open(self, group: anyio.abc.TaskGroup) -> None:
        """Where calls run that start early. Their spans belong to the agent, not to the model call they start in."""
        context = copy_context()
        self._spawn = lambda *work: context.run(group.start_soon, *work)

    def asking(self) -> None:
        """A request goes out: what it starts is counted anew, so that a second try reuses what the first began."""
        self._started.clear()

    def ready(self, part: CallReady, turn: int) -> None:
        """A call is complete while the reply still comes in: it starts if it may, only reads, and nothing watches."""
        wish = self._wish(part.name, part.arguments)
        watched = self._tree.hooks or self._agent.model.codec.weak or self._recorder.state.planning
        if isinstance(wish, Refused) or wish.offer.effect != EARLY or wish.offer.name == plans.PLAN or watched:
            return
        if self._judge(wish).verdict != "allow":
            return
        key = _key(wish)
        number = self._started[key] = self._started.get(key, 0) + 1
        begun = self._early.setdefault(key, [])
        if len(begun) < number:
            begun.append(Outcome(anyio.Event(), wish.offer.change))
            self._spawn(self._execute, wish, f"t{turn}.{part.position}", begun[-1])

    async def answer(self, calls: Sequence[CallState]) -> None:
        """Answers those of `calls` that can be; they run at once, and their results are recorded as they come."""
        if self._tree.hooks:
            await self._recorder.save()
        ready = await self._prepared(calls)
        if len(ready) == 1:
            await self._perform(ready[0])
        elif ready:
            async with anyio.create_task_group() as group:
                for item in ready:
                    group.start_soon(self._perform_and_go_on, item, group)
        self._early.clear()

    async def _prepared(self, calls: Sequence[CallState]) -> list[Ready]:
        """What is to be sent of `calls`, and of the steps of a plan that can act because of what became of those."""
        ready: list[Ready] = []
        if not calls:
            return ready
        while calls:
            found = [await self._prepare(call) for call in calls]
            ready += await self._intended([item for item in found if item is not None])
            calls = plans.due(self._recorder.state)
        await self._recorder.save(durable=True)
        return ready

    async def _prepare(self, call: CallState) -> Ready | None:
        """Notes what becomes of a call; None when it is answered, or waits, already."""
        if call.interrupted:
            return self._settle(call)
        if call.plan:
            self._report(call)
            return None
        if call.phase == "denied":
            self._refuse(call, Refused(error="denied", observation=words.refused(call)))
            return None
        if call.phase == "approved":
            wish = self._checked(call)
        elif call.step is not None or call.review:
            wish = await self._hooked(call, self._wish(call.call.name, self._written(call)))
        elif self._cut_off(call):
            wish = Refused(error="invalid_arguments", observation=results.failure(call.call.name, words.CUT_OFF))
        elif self._recorder.state.planning and call.call.name != plans.PLAN:
            wish = Refused(error="unplanned", observation=results.failure(call.call.name, plans.PLAN_FIRST))
        else:
            wish = await self._hooked(call, self._wish(call.call.name, call.call.arguments))
            wish = self._grounded(wish)
        if isinstance(wish, Refused):
            self._refuse(call, wish)
            return None
        decision = self._judge(wish, approved=call.phase == "approved")
        if decision.verdict == "deny":
            self._refuse(call, Refused(error="denied", observation=words.denied(wish.offer.name, decision.reason)))
            return None
        if decision.verdict == "ask":
            self._ask(call, wish, decision.reason)
            return None
        if call.phase == "approved" and wish.offer.change:
            if call.reason != wish.offer.change:  # the tool changed while the person thought about it, so once more
                self._ask(call, wish, wish.offer.change)
                return None
            self._agent.toolset.accept(wish.offer)
        return self._ready(call, wish)

    async def _intended(self, calls: Sequence[Ready]) -> list[Ready]:
        """Notes that calls will be sent, once there is room for what other orchestrators' agents may use."""
        short = await self._remote.reserve(calls)
        intended: list[Ready] = []
        for item in calls:
            share = self._remote.share(item.call)
            if short is not None and item.wish.offer.remote and share is None:
                told = results.failure(item.wish.offer.name, f"it was not called: {short.detail}")
                self._answer(item.call, item.wish.offer.name, Refused(error=short.limit, observation=told))
                continue
            self._recorder.note(
                self._recorder.make(
                    ToolIntent,
                    call=item.call,
                    tool=item.wish.offer.name,
                    arguments=item.wish.arguments,
                    effect=item.wish.offer.effect,
                    attempt=item.attempt,
                    key=self._path(item.call),
                    share=share,
                )
            )
            intended.append(item)
        return intended

    def _cut_off(self, call: CallState) -> bool:
        """Whether a reply ended at its output limit inside this call; what is missing must not be guessed."""
        state = self._recorder.state
        return state.finish == "length" and call.call == state.calls[-1].call and not is_object(call.call.arguments)

    def _wish(self, name: str, arguments: str) -> Wish | Refused:
        """Arguments repaired, coerced and validated."""
        offer = self._offer(name)
        if offer is None:
            return self._absent(name)
        try:
            return Wish(offer=offer, arguments=offer.schema.prepare(arguments))
        except InvalidArguments as error:
            return Refused(error="invalid_arguments", observation=results.failure(name, str(error)))

    def _written(self, call: CallState) -> str:
        """A call's arguments as they were asked for; an agent's step of a plan has what it needs besides."""
        offer = self._offer(call.call.name)
        if call.step is None or offer is None or offer.effect != "agent":
            return call.call.arguments
        if "context" not in offer.tool.input_schema.get("properties", {}):
            return call.call.arguments
        return json.dumps(plans.arguments(self._recorder.state, call), ensure_ascii=False)

    def _offer(self, name: str) -> Offer | None:
        """What is offered under a name; a built-in tool is understood by its full name as well."""
        reviewer = self._agent.offered.reviewer
        if reviewer is not None and name == reviewer.name:
            return reviewer
        return self._agent.offers.get(name) or self._agent.offers.get(name.removeprefix(f"{BUILTIN}__"))

    def _absent(self, name: str) -> Refused:
        """A call of what is not there: never was, or was shown to the model before its server went away."""
        if any(spec.name == name for spec in self._agent.specs):
            problem = "it is no longer offered: its server has taken it off its list or is not available at the moment"
            return Refused(error="unavailable", observation=results.failure(name, problem))
        return Refused(error="unknown_tool", observation=results.unknown(name, nearest(name, self._agent.offers)))

    def _checked(self, call: CallState) -> Wish | Refused:
        """The arguments that a person approved, which they may have written themselves."""
        name = call.call.name
        offer = self._offer(name)
        if offer is None:
            return self._absent(name)
        try:
            return Wish(offer=offer, arguments=offer.schema.check(dict(call.arguments or {})))
        except InvalidArguments as error:
            return Refused(error="invalid_arguments", observation=results.failure(name, str(error)))

    async def _hooked(self, call: CallState, wish: Wish | Refused) -> Wish | Refused:
        """What the hooks make of a call before anybody else judges it."""
        for hook in self._tree.hooks:
            if isinstance(wish, Refused):
                break
            moment = Moment(
                run_id=self._recorder.state.run.run,
                agent=self._agent.name,
                step=self._recorder.state.turn,
                kind="acting",
                tool=wish.offer.name,
                arguments=wish.arguments,
            )
            match await hook(moment):
                case Veto(reason) | Redirect(reason):
                    self._note_hook(hook, call, "veto", text=reason)
                    wish = Refused(error="denied", observation=words.denied(wish.offer.name, reason))
                case Replace(arguments=dict() as arguments):
                    self._note_hook(hook, call, "replace", arguments=arguments)
                    wish = Wish(offer=wish.offer, arguments=arguments)
                case _:
                    continue
        return wish

    def _grounded(self, wish: Wish | Refused) -> Wish | Refused:
        """A weak model's call with what it was told, or none."""
        if not self._agent.model.codec.weak or isinstance(wish, Refused) or wish.offer.server.name == BUILTIN:
            return wish
        offer = wish.offer
        sent = grounded(self._recorder.state, offer.name, wish.arguments, offer.tool.input_schema, offer.effect)
        if isinstance(sent, str):
            return Refused(error=WITHHELD, observation=results.failure(offer.name, sent))
        return Wish(offer=offer, arguments=sent)

    def _note_hook(self, hook: Any, call: CallState, decision: str, **facts: Any) -> None:
        name = getattr(hook, "__name__", type(hook).__name__)
        self._recorder.note(
            self._recorder.make(HookApplied, hook=name, moment="acting", decision=decision, call=call.call.id, **facts)
        )

    def _judge(self, wish: Wish, *, approved: bool = False) -> Decision:
        """What the policy says now; what a person approved may have been forbidden since."""
        mode = "all" if approved else self._tree.approve
        return self._tree.policy.decide(
            wish.offer, roles=self._agent.roles, approve=self._agent.card.approve, mode=mode
        )

    def _settle(self, call: CallState) -> Ready | None:
        """A call that was under way when a process died: sent again only if that is safe, else in doubt."""
        name = call.call.name
        if call.effect not in REPEATABLE:
            text = results.failure(name, words.IN_DOUBT)
            self._recorder.note(self._recorder.make(ToolInDoubt, call=call.call.id, tool=name, observation=text))
            return None
        offer = self._offer(name)
        if offer is None:
            self._refuse(call, self._absent(name))
            return None
        wish = Wish(offer=offer, arguments=dict(call.arguments or {}))
        if (decision := self._judge(wish, approved=True)).verdict == "deny":  # it may have been forbidden since
            self._refuse(call, Refused(error="denied", observation=words.denied(name, decision.reason)))
            return None
        if not (offer.inside and call.effect == "agent"):  # the run of an agent of ours goes on where it stopped
            retried = self._recorder.make(ToolRetried, call=call.call.id, tool=name, attempt=call.attempt + 1)
            self._recorder.note(retried)
        return self._ready(call, wish)

    def _ready(self, call: CallState, wish: Wish) -> Ready:
        return Ready(
            call=call.call.id,
            wish=wish,
            attempt=call.attempt + 1,
            changed=self._changed(call, wish),
            aware=wish.offer.change,
        )

    def _changed(self, call: CallState, wish: Wish) -> bool:
        if call.phase in ("asked", "planned") and not self._tree.hooks:
            return False
        asked = self._wish(call.call.name, self._written(call))
        return isinstance(asked, Refused) or _key(asked) != _key(wish)

    def _ask(self, call: CallState, wish: Wish, reason: str) -> None:
        self._recorder.note(
            self._recorder.make(
                ApprovalAsked,
                call=call.call.id,
                tool=wish.offer.name,
                arguments=wish.arguments,
                reason=reason,
                digest=wire.digest_of_call(wish.offer.name, wish.arguments),
            )
        )

    def _refuse(self, call: CallState, refused: Refused) -> None:
        lost = call.share is not None  # nobody comes back for what a remote agent may have used until now
        self._answer(call.call.id, call.call.name, refused, lost=lost)

    def _answer(self, call: str, tool: str, refused: Refused, *, lost: bool = False) -> None:
        """Answers a call that is not sent. Its span says why, so that the trace shows every call of the model."""
        with self._tree.tracer.tool(self._facts(call, tool)) as scope:
            scope.settle(ToolOutcome(text=refused.observation, error=refused.error))
        self._recorder.note(
            self._recorder.make(
                ToolResult,
                call=call,
                tool=tool,
                observation=refused.observation,
                error=refused.error,
                lost=lost,
            )
        )

    def _report(self, call: CallState) -> None:
        """Answers the call of `plan`, whose steps are done or cannot be."""
        text, error = plans.report(self._recorder.state, call)
        seconds = round(max(0.0, self._tree.now() - call.began), 3)
        self._recorder.note(
            self._recorder.make(
                ToolResult, call=call.call.id, tool=call.call.name, observation=text, error=error, seconds=seconds
            )
        )

    def _path(self, call: str) -> str:
        """Names a call over the whole tree, and the run of the agent that it calls."""
        return f"{self._recorder.state.run.run}/{call}"

    async def _perform_and_go_on(self, ready: Ready, group: anyio.abc.TaskGroup) -> None:
        """Sends one call among others, and then the steps of a plan that waited for it alone."""
        await self._perform(ready)
        if not self._recorder.state.calls:  # the last answer of a turn is written with what comes next
            return
        await self._recorder.flush()
        async with self._preparing:
            following = await self._prepared(plans.due(self._recorder.state))
        for item in following:
            group.start_soon(self._perform_and_go_on, item, group)

    async def _perform(self, ready: Ready) -> None:
        """Sends one call and notes its answer, unless it is an agent's that waits for a person."""
        begun = self._early.get(_key(ready.wish)) if self._early else None
        if begun:
            outcome = begun.pop(0)
            await outcome.done.wait()
        else:
            outcome = Outcome(anyio.Event(), ready.aware)
            await self._execute(ready.wish, ready.call, outcome)
        reply = outcome.reply
        assert reply is not None, "an execution that is done has a reply"
        if reply.waiting:
            return
        offer = ready.wish.offer
        used = self._used(ready, reply)
        if reply.asked is not None:
            rounds = None if offer.remote else ROUNDS
            if self._asking.note(ready.call, offer.server.name, reply.asked, used, rounds=rounds):
                return
            problem = f"its server asked a person for more input {ROUNDS} times"
            reply = Reply(parts=(results.failure(ready.wish.offer.name, problem),), error="input_required", meta={})
        if wire.PLAN in reply.meta and ready.wish.offer.server.name == BUILTIN:
            made, revision = reply.meta[wire.PLAN], self._recorder.state.plans
            self._recorder.note(self._recorder.make(PlanMade, call=ready.call, revision=revision, **made))
            return
        call = self._asking.find(ready.call)
        refused = call is not None and call.input is not None and call.input.refused
        before = words.remarks(call, ready.wish.arguments if ready.changed else None)
        observed = await observe(self._tree, self._agent, ready.wish.offer, self._path(ready.call), reply, before)
        self._recorder.note(
            self._recorder.make(
                ToolResult,
                call=ready.call,
                tool=ready.wish.offer.name,
                observation=observed.text,
                kept=observed.kept,
                error="denied" if refused and reply.error == "tool_error" else reply.error,
                seconds=outcome.seconds,
                child=used.run,
                usage=used.usage,
                cost=used.cost,
                lost=used.lost,
                chosen=wire.chosen(reply.meta) if ready.wish.offer.server.name == BUILTIN else (),
                short=_short(call, used.stopped, reply),
            )
        )
        if ready.wish.offer.server.name == BUILTIN and (text := reply.meta.get(wire.PINNED)):
            pin(self._recorder, str(text), "model")

    def _used(self, ready: Ready, reply: Reply) -> Used:
        """What an agent that was called says it used."""
        if ready.wish.offer.remote:
            return self._remote.settle(ready.call, reply)
        spent = wire.spent(reply.meta) if ready.wish.offer.effect == "agent" else None
        return NO_USE if spent is None else Used.of(spent)

    async def _execute(self, wish: Wish, call: str, outcome: Outcome) -> None:
        """One call inside its span."""
        began = anyio.current_time()
        with self._tree.tracer.tool(self._facts(call, wish.offer.name, wish)) as scope:
            outcome.reply = await self._send(wish, call, outcome.aware)
            scope.settle(ToolOutcome(text=outcome.reply.text, error=outcome.reply.error))
        outcome.seconds = round(anyio.current_time() - began, 3)
        outcome.done.set()

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
        meta = {wire.KEY: self._path(call)} | (self._remote.limits(call) if offer.remote else {})
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
                wish.offer, wish.arguments, timeout=None, meta={wire.KEY: self._path(call)}
            )
        finally:
            CALLER.reset(token)
        if caller.errors:
            raise caller.errors[0]
        return reply


def _short(call: CallState | None, stopped: str, reply: Reply) -> str:
    """What a result that is no error lacks."""
    if reply.error is not None:
        return ""
    if stopped:
        return f"a partial result: {stopped}"
    check = call.step.check if call is not None and call.step is not None else ""
    return "" if check.casefold() in reply.text.casefold() else f"it does not hold {check!r}"


def _key(wish: Wish) -> str:
    return f"{wish.offer.name} {canonical(wish.arguments)}"
