"""Calls of agents that another orchestrator serves: what each may use is set aside before, and settled after.

The agent is told its share and keeps to it. What it says that it used joins the totals of this tree. A call that is
made again, after a park or a crash, has the key and the share of the first time, and what comes back is the total.
Whoever goes away without a word may come again, so a run that is cancelled for good says so to those it has called.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import anyio

from orchestrator.events import Share
from orchestrator.messages import Cost, Usage
from orchestrator.runtime import wire
from orchestrator.runtime.calls import Ready
from orchestrator.runtime.ledger import Amount, Grant, Ledger, Refusal, amount_of
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.runstate import CallState, Reservation, RunState
from orchestrator.tools.toolset import Offer, Reply, Toolset

logger = logging.getLogger(__name__)

DEEPEST = 3
"""Levels of agents below the top one."""


TELL_WITHIN = 2.0
"""Seconds for telling remote agents that nobody waits for them any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What an agent has used in all, by its own word; `lost`: it said nothing, so its share counts as used.

    `stopped` is the limit that left a partial result.
    """

    run: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    lost: bool = False
    stopped: str = ""

    @classmethod
    def of(cls, said: wire.Spent) -> "Used":
        stopped = said.stop_reason if said.status == "stopped" else ""
        return cls(run=said.run, usage=said.usage, cost=said.cost, stopped=stopped)


NO_USE = Used()


class Remote:
    """The remote agents that one run calls."""

    def __init__(self, recorder: Recorder, ledger: Ledger) -> None:
        self._recorder = recorder
        self._ledger = ledger
        self._grants: dict[str, Grant] = {}
        self._told: set[str] = set()

    async def reserve(self, calls: Sequence[Ready]) -> Refusal | None:
        """Sets aside what the remote agents among the calls of a turn may use; a refusal is of all new ones."""
        remote = [self._found(each.call) for each in calls if each.wish.offer.remote]
        new = [each.call.id for each in remote if each.share is None]
        grants: list[Grant] | Refusal = []
        if new:  # before the others hold theirs again: nobody waits for what is given back only later
            agents = sum(each.wish.offer.effect == "agent" for each in calls)
            grants = await self._ledger.share(len(new), agents)
        for each in remote:
            if each.share is not None:
                self._again(each)
        if isinstance(grants, Refusal):
            return grants
        self._grants |= dict(zip(new, grants, strict=True))
        return None

    def share(self, call: str) -> Share | None:
        """What a call may use, for its intent; None for one that is no remote agent's."""
        return grant.share if (grant := self._grants.get(call)) is not None else None

    def limits(self, call: str) -> dict[str, Any]:
        """The same as the agent is told it, with the time that is left now. What is not limited is left out."""
        share, seconds = self.share(call) or Share(), self._ledger.remaining
        said = {
            "tokens": share.tokens,
            "cost": None if share.cost is None else float(share.cost),
            "seconds": None if seconds == float("inf") else max(0.001, round(seconds, 3)),
            "depth": DEEPEST - self._recorder.state.run.depth,
        }
        return {wire.LIMITS: {key: value for key, value in said.items() if value is not None}}

    def settle(self, call: str, reply: Reply) -> Used:
        """Counts what came of a call that is no other than a remote agent's, answered or waiting."""
        grant, found = self._grants.pop(call), self._found(call)
        said = wire.spent(reply.meta)
        begun = reply.sent and reply.meta.get(wire.UNBEGUN) is not True
        if said is None and not begun and found.attempt == 1:
            self._ledger.settle(grant, None, None)
            return NO_USE
        if said is None:
            self._ledger.charge(grant)
            if reply.asked is None:
                self._warn(found.call.name, "does not say what it used, so its whole share counts")
            return Used(lost=reply.asked is None)
        more, paid = said.usage.beyond(found.usage), said.cost.beyond(found.cost)
        self._ledger.settle(grant, more, paid)
        left = grant.amount - amount_of(more, paid)
        if reply.asked is not None:
            self._ledger.set_aside(Amount(tokens=max(0, left.tokens), cost=max(Decimal(0), left.cost)))
        share = grant.share or Share()
        if (share.tokens is not None and left.tokens < 0) or (share.cost is not None and left.cost < 0):
            self._warn(found.call.name, "used more than its share")
        return Used.of(said)

    def _warn(self, agent: str, problem: str) -> None:
        """Once a run for each agent: one that errs does so in every call."""
        if agent not in self._told:
            self._told.add(agent)
            logger.warning("%s %s", agent, problem)

    def _again(self, call: CallState) -> None:
        left = call.at_stake or Reservation(tokens=0, cost=Cost(), calls=0)
        grant = Grant(output=0, amount=amount_of(Usage(input_tokens=left.tokens), left.cost), share=call.share)
        self._ledger.again(grant)
        self._grants[call.call.id] = grant

    def _found(self, call: str) -> CallState:
        found = self._recorder.state.find(call)
        assert found is not None, "a call that is sent is in the state"
        return found


async def called_off(toolset: Toolset, states: Mapping[str, RunState]) -> None:
    """Tells the remote agents that these runs have called and not heard of. Who cannot be reached in time parks."""

    async def tell(run: str, call: CallState, offer: Offer) -> None:
        meta = {wire.KEY: f"{run}/{call.call.id}", wire.CANCEL: True}
        reply = await toolset.call(offer, dict(call.arguments or {}), timeout=TELL_WITHIN, meta=meta)
        logger.debug("%s was told that its call was cancelled: %s", offer.name, reply.text)

    with anyio.move_on_after(TELL_WITHIN):
        async with anyio.create_task_group() as group:
            for run, state in states.items():
                for call in state.calls:
                    if call.share is not None and call.phase != "answered" and call.arguments is not None:
                        offer = toolset.get(call.call.name)
                        if offer is not None and offer.remote:
                            group.start_soon(tell, run, call, offer)
