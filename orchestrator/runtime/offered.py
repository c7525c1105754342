"""What one run can call, and what of it its model is shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.cards import AgentCard
from orchestrator.models.base import ToolSpec
from orchestrator.runtime.retrieving import RETRIEVE_RESULT
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.team import LATER, Kit, Team, digest, tools_body
from orchestrator.tools.catalogue import Catalogue
from orchestrator.tools.toolset import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Tools that joined the list, by name: `chosen` by the model, `joined` because there are more than there were."""

    chosen: tuple[str, ...]
    joined: tuple[str, ...]
    digest: str
    body: bytes


class Offered:
    """The tools of one run. Both what can be called and what is shown may change between turns.

    What is shown only grows, at its end: names never move, and the prompt's beginning stays as it was.
    """

    def __init__(self, team: Team, card: AgentCard, kit: Kit, specs: Sequence[ToolSpec] | None = None) -> None:
        """`specs` is what the model of a run that goes on was shown before."""
        self._team = team
        self._card = card
        self._kit = kit
        self._compared: Kit | None = kit if specs is None else None
        self.specs = tuple(kit.specs if specs is None else specs)
        self._names = {spec.name for spec in self.specs}

    @property
    def offers(self) -> Mapping[str, Offer]:
        return self._kit.offers

    @property
    def reviewer(self) -> Offer | None:
        return self._kit.reviewer

    @property
    def catalogue(self) -> Catalogue:
        return self._kit.catalogue

    def change(self, state: RunState) -> Change | None:
        """Takes in what joins the list before the next turn: a pure function of the state and of what is there now."""
        kit = self._kit = self._team.latest(
            self._card, agents=self._kit.agents, most=self._kit.most, weak=self._kit.weak
        )
        actions = state.steps[-1].actions if state.steps else ()
        asked = [name for action in actions for name in (*action.chosen, action.call.name)]
        if state.window is not None:  # its prefix is another in any case
            asked += LATER if kit.most is None else (RETRIEVE_RESULT,)
        chosen = [kit.offers[name].spec for name in dict.fromkeys(asked) if name in kit.offers]
        chosen = [spec for spec in chosen if spec.name not in self._names]
        self._names.update(spec.name for spec in chosen)
        joined = [spec for spec in kit.specs if spec.name not in self._names] if kit is not self._compared else []
        self._compared = kit
        self._names.update(spec.name for spec in joined)
        if not chosen and not joined:
            return None
        self.specs = (*self.specs, *chosen, *joined)
        body = tools_body(self.specs)
        return Change(
            chosen=tuple(spec.name for spec in chosen),
            joined=tuple(spec.name for spec in joined),
            digest=digest(body),
            body=body,
        )


def specs_of(body: bytes) -> tuple[ToolSpec, ...]:
    """A tool list as the journal keeps it."""
    return tuple(ToolSpec(**spec) for spec in json.loads(body))
