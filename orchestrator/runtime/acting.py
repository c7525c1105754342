"""Answers the calls of a turn: each gets exactly one answer, whatever happens to it or to the others."""

from collections.abc import Callable, Sequence
from contextvars import copy_context

import anyio
import anyio.abc

from orchestrator.events import (
    ApprovalAsked,
    Effect,
    PlanMade,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
)
from orchestrator.models.base import CallReady
from orchestrator.runtime import plans, wire, words
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.asking import Asking
from orchestrator.runtime.calls import Outcome, Ready, Refused, Wish
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.observing import observe
from orchestrator.runtime.pinning import pin
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.remote import NO_USE, Remote, Used
from orchestrator.runtime.runstate import CallState
from orchestrator.runtime.sending import Sending
from orchestrator.runtime.tree import Tree
from orchestrator.runtime.wishing import Wishing
from orchestrator.tools import results
from orchestrator.tools.calling import ROUNDS
from orchestrator.tools.toolset import BUILTIN, REPEATABLE, Reply

EARLY: Effect = "read"
"""Calls that may start while the reply is still coming in: what changes anything waits until its intent is durable."""


class Acting:
    """Prepares, sends and records the calls of one run."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger, asking: Asking) -> None:
        self._asking = asking
        self._tree = tree
        self._agent = agent
        self._recorder = recorder
        self._remote = Remote(recorder, ledger)
        self._wishing = Wishing(tree, agent, recorder)
        self._sending = Sending(tree, agent, recorder, ledger=ledger, asking=asking, remote=self._remote)
        self._preparing = anyio.Lock()
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
        wish = self._wishing.wish(part.name, part.arguments)
        watched = self._tree.hooks or self._agent.model.codec.weak or self._recorder.state.planning
        if isinstance(wish, Refused) or wish.offer.effect != EARLY or wish.offer.name == plans.PLAN or watched:
            return
        if self._wishing.judge(wish).verdict != "allow":
            return
        number = self._started[wish.key] = self._started.get(wish.key, 0) + 1
        begun = self._early.setdefault(wish.key, [])
        if len(begun) < number:
            begun.append(Outcome(anyio.Event(), wish.offer.change))
            self._spawn(self._sending.execute, wish, f"t{turn}.{part.position}", begun[-1])

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
        wish = await self._wishing.read(call)
        if isinstance(wish, Refused):
            self._refuse(call, wish)
            return None
        decision = self._wishing.judge(wish, approved=call.phase == "approved")
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
                ToolIntent,
                call=item.call,
                tool=item.wish.offer.name,
                arguments=item.wish.arguments,
                effect=item.wish.offer.effect,
                attempt=item.attempt,
                key=self._sending.path(item.call),
                share=share,
            )
            intended.append(item)
        return intended

    def _settle(self, call: CallState) -> Ready | None:
        """A call that was under way when a process died: sent again only if that is safe, else in doubt."""
        name = call.call.name
        if call.effect not in REPEATABLE:
            text = results.failure(name, words.IN_DOUBT)
            self._recorder.note(ToolInDoubt, call=call.call.id, tool=name, observation=text)
            return None
        offer = self._wishing.offer(name)
        if offer is None:
            self._refuse(call, self._wishing.absent(name))
            return None
        wish = Wish(offer=offer, arguments=dict(call.arguments or {}))
        if (decision := self._wishing.judge(wish, approved=True)).verdict == "deny":  # it may have been forbidden since
            self._refuse(call, Refused(error="denied", observation=words.denied(name, decision.reason)))
            return None
        if call.share is not None and not offer.remote:  # what is in the agent's place now knows no keys
            self._refuse(call, Refused(error="in_doubt", observation=results.failure(name, words.IN_DOUBT)))
            return None
        if not (offer.inside and call.effect == "agent"):  # the run of an agent of ours goes on where it stopped
            self._recorder.note(ToolRetried, call=call.call.id, tool=name, attempt=call.attempt + 1)
        return self._ready(call, wish)

    def _ready(self, call: CallState, wish: Wish) -> Ready:
        return Ready(
            call=call.call.id,
            wish=wish,
            attempt=call.attempt + 1,
            changed=self._wishing.changed(call, wish),
            aware=wish.offer.change,
        )

    def _ask(self, call: CallState, wish: Wish, reason: str) -> None:
        self._recorder.note(
            ApprovalAsked,
            call=call.call.id,
            tool=wish.offer.name,
            arguments=wish.arguments,
            reason=reason,
            digest=wire.digest_of_call(wish.offer.name, wish.arguments),
        )

    def _refuse(self, call: CallState, refused: Refused) -> None:
        lost = call.share is not None  # nobody comes back for what a remote agent may have used until now
        self._answer(call.call.id, call.call.name, refused, lost=lost)

    def _answer(self, call: str, tool: str, refused: Refused, *, lost: bool = False) -> None:
        """Answers a call that is not sent."""
        self._sending.refuse(call, tool, refused)
        self._recorder.note(
            ToolResult, call=call, tool=tool, observation=refused.observation, error=refused.error, lost=lost
        )

    def _report(self, call: CallState) -> None:
        """Answers the call of `plan`, whose steps are done or cannot be."""
        text, error = plans.report(self._recorder.state, call)
        seconds = round(max(0.0, self._tree.now() - call.began), 3)
        self._recorder.note(
            ToolResult, call=call.call.id, tool=call.call.name, observation=text, error=error, seconds=seconds
        )

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
        begun = self._early.get(ready.wish.key) if self._early else None
        if begun:
            outcome = begun.pop(0)
            await outcome.done.wait()
        else:
            outcome = Outcome(anyio.Event(), ready.aware)
            await self._sending.execute(ready.wish, ready.call, outcome)
        reply, offer = outcome.reply, ready.wish.offer
        assert reply is not None, "an execution that is done has a reply"
        if reply.waiting:
            return
        used = self._used(ready, reply)
        if reply.asked is not None:
            rounds = None if offer.remote else ROUNDS
            if self._asking.note(ready.call, offer.server.name, reply.asked, used, rounds=rounds):
                return
            problem = f"its server asked a person for more input {ROUNDS} times"
            reply = Reply(parts=(results.failure(offer.name, problem),), error="input_required", meta={})
        if wire.PLAN in reply.meta and offer.server.name == BUILTIN:
            made, revision = reply.meta[wire.PLAN], self._recorder.state.plans
            self._recorder.note(PlanMade, call=ready.call, revision=revision, **made)
            return
        await self._observe(ready, reply, used, outcome.seconds)

    async def _observe(self, ready: Ready, reply: Reply, used: Used, seconds: float) -> None:
        """Notes the answer to a call that was sent, and what its model pinned by it."""
        offer, call = ready.wish.offer, self._asking.find(ready.call)
        refused = call is not None and call.input is not None and call.input.refused
        before = words.remarks(call, ready.wish.arguments if ready.changed else None)
        observed = await observe(self._tree, self._agent, offer, self._sending.path(ready.call), reply, before)
        self._recorder.note(
            ToolResult,
            call=ready.call,
            tool=offer.name,
            observation=observed.text,
            kept=observed.kept,
            error="denied" if refused and reply.error == "tool_error" else reply.error,
            seconds=seconds,
            child=used.run,
            usage=used.usage,
            cost=used.cost,
            lost=used.lost,
            chosen=wire.chosen(reply.meta) if offer.server.name == BUILTIN else (),
            short=_short(call, used.stopped, reply),
        )
        if offer.server.name == BUILTIN and (text := reply.meta.get(wire.PINNED)):
            pin(self._recorder, str(text), "model")

    def _used(self, ready: Ready, reply: Reply) -> Used:
        """What an agent that was called says it used."""
        if ready.wish.offer.remote:
            return self._remote.settle(ready.call, reply)
        call = self._asking.find(ready.call)
        if call is not None and call.share is not None:  # its server is no orchestrator any more
            return Used(lost=True)
        spent = wire.spent(reply.meta) if ready.wish.offer.effect == "agent" else None
        return NO_USE if spent is None else Used.of(spent)


def _short(call: CallState | None, stopped: str, reply: Reply) -> str:
    """What a result that is no error lacks."""
    if reply.error is not None:
        return ""
    if stopped:
        return f"a partial result: {stopped}"
    check = call.step.check if call is not None and call.step is not None else ""
    return "" if check.casefold() in reply.text.casefold() else f"it does not hold {check!r}"
