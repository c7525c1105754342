"""What a model asks for, as calls that could be sent: found, prepared, hooked, grounded, and judged."""

import json
from typing import Any

from orchestrator.events import HookApplied
from orchestrator.models.lenient import is_object
from orchestrator.runtime import plans, words
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.calls import Refused, Wish
from orchestrator.runtime.grounding import WITHHELD, Withheld, grounded
from orchestrator.runtime.hooks import Moment, Redirect, Replace, Veto
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.runstate import CallState
from orchestrator.runtime.tree import Tree
from orchestrator.tools import results
from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.policy import Decision
from orchestrator.tools.toolset import BUILTIN, Offer, nearest


class Wishing:
    """Reads and judges the calls of one run."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder

    async def read(self, call: CallState) -> Wish | Refused:
        """What a call of the turn asks for, or what its model is told in its place."""
        name = call.call.name
        if call.phase == "approved":
            return self._checked(call)
        if call.step is not None or call.review:
            return await self._hooked(call, self.wish(name, self._written(call)))
        if self._cut_off(call):
            return Refused(error="invalid_arguments", observation=results.failure(name, words.CUT_OFF))
        if self._recorder.state.planning and name != plans.PLAN:
            return Refused(error="unplanned", observation=results.failure(name, plans.PLAN_FIRST))
        return self._grounded(await self._hooked(call, self.wish(name, call.call.arguments)))

    def wish(self, name: str, arguments: str) -> Wish | Refused:
        """Arguments repaired, coerced and validated."""
        offer = self.offer(name)
        if offer is None:
            return self.absent(name)
        try:
            return Wish(offer=offer, arguments=offer.schema.prepare(arguments))
        except InvalidArguments as error:
            return Refused(error="invalid_arguments", observation=results.failure(name, str(error)))

    def offer(self, name: str) -> Offer | None:
        """What is offered under a name; a built-in tool is understood by its full name as well."""
        reviewer = self._agent.offered.reviewer
        if reviewer is not None and name == reviewer.name:
            return reviewer
        return self._agent.offers.get(name) or self._agent.offers.get(name.removeprefix(f"{BUILTIN}__"))

    def absent(self, name: str) -> Refused:
        """A call of what is not there: never was, or was shown to the model before its server went away."""
        if any(spec.name == name for spec in self._agent.specs):
            problem = "it is no longer offered: its server has taken it off its list or is not available at the moment"
            return Refused(error="unavailable", observation=results.failure(name, problem))
        return Refused(error="unknown_tool", observation=results.unknown(name, nearest(name, self._agent.offers)))

    def judge(self, wish: Wish, *, approved: bool = False) -> Decision:
        """What the policy says now; what a person approved may have been forbidden since."""
        mode = "all" if approved else self._tree.approve
        return self._tree.policy.decide(
            wish.offer, roles=self._agent.roles, approve=self._agent.card.approve, mode=mode
        )

    def changed(self, call: CallState, wish: Wish) -> bool:
        """Whether something else is sent than the model asked for."""
        if call.phase in ("asked", "planned") and not self._tree.hooks:
            return False
        asked = self.wish(call.call.name, self._written(call))
        return isinstance(asked, Refused) or asked.key != wish.key

    def _cut_off(self, call: CallState) -> bool:
        """Whether a reply ended at its output limit inside this call; what is missing must not be guessed."""
        state = self._recorder.state
        return state.finish == "length" and call.call == state.calls[-1].call and not is_object(call.call.arguments)

    def _written(self, call: CallState) -> str:
        """A call's arguments as they were asked for; an agent's step of a plan has what it needs besides."""
        offer = self.offer(call.call.name)
        if call.step is None or offer is None or offer.effect != "agent":
            return call.call.arguments
        if "context" not in offer.tool.input_schema.get("properties", {}):
            return call.call.arguments
        return json.dumps(plans.arguments(self._recorder.state, call), ensure_ascii=False)

    def _checked(self, call: CallState) -> Wish | Refused:
        """The arguments that a person approved, which they may have written themselves."""
        name = call.call.name
        offer = self.offer(name)
        if offer is None:
            return self.absent(name)
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

    def _note_hook(self, hook: Any, call: CallState, decision: str, **facts: Any) -> None:
        name = getattr(hook, "__name__", type(hook).__name__)
        self._recorder.note(HookApplied, hook=name, moment="acting", decision=decision, call=call.call.id, **facts)

    def _grounded(self, wish: Wish | Refused) -> Wish | Refused:
        """A weak model's call with what it was told, or none. A specialist, which nobody can ask, may mend its call."""
        if not self._agent.model.codec.weak or isinstance(wish, Refused) or wish.offer.server.name == BUILTIN:
            return wish
        offer = wish.offer
        state = self._recorder.state
        hints = offer.tool.annotations
        destroys = hints is not None and hints.destructive_hint is True
        sent = grounded(state, offer.name, wish.arguments, offer.tool.input_schema, offer.effect, destroys=destroys)
        if isinstance(sent, Withheld):
            mends = sent.mendable and state.run.parent is not None
            error = "invalid_arguments" if mends else WITHHELD
            return Refused(error=error, observation=results.failure(offer.name, sent.reason))
        return Wish(offer=offer, arguments=sent)
