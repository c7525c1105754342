"""Who may call what: an agent's tools and agents, found among the servers that are up."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from orchestrator.cards import AgentCard, Cards, select
from orchestrator.cards import Offer as CardOffer
from orchestrator.cards.reach import may_use
from orchestrator.config import ServerSettings
from orchestrator.events import PlanMode
from orchestrator.models.base import FIND_TOOLS, ToolSpec
from orchestrator.runtime.pinning import PIN_TOOL
from orchestrator.runtime.planning import keyed
from orchestrator.runtime.plans import PLAN, PLAN_FIRST
from orchestrator.runtime.retrieving import RETRIEVE_RESULT
from orchestrator.runtime.words import output_wanted
from orchestrator.tools.arguments import ArgumentSchema
from orchestrator.tools.catalogue import Catalogue
from orchestrator.tools.toolset import AGENTS, BUILTIN, NOTES, Offer, Toolset

Plan = PlanMode | Literal["led"]
LATER = (RETRIEVE_RESULT, PIN_TOOL)
"""Built-in tools that everybody needs, who calls anything, when turns have left the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What an agent has: what it may call, what of that its model is shown at first, and its system prompt.

    `agents`, `most` and `weak` are what it was asked for with. `plan` is whether and how it plans; `reviewer` judges
    its answers. `output` is what its final answer must be. `catalogue` holds the tools of servers, which are shown in
    groups when there are many. Bodies are by digest.
    """

    agents: bool
    most: int | None
    weak: bool
    plan: Plan
    reviewer: Offer | None
    offers: Mapping[str, Offer]
    specs: Sequence[ToolSpec]
    catalogue: Catalogue
    system: str
    output: ArgumentSchema | None
    tools_digest: str
    system_digest: str
    bodies: Mapping[str, bytes]


class Team:
    """The cards, the servers and who reaches which of them. Above `most` tools, an agent is shown groups; 0: never."""

    def __init__(self, cards: Cards, servers: Mapping[str, ServerSettings], toolset: Toolset, most: int) -> None:
        self._most = most
        self.cards = cards
        self.toolset = toolset
        self.bundled: frozenset[str] = frozenset(name for name, server in servers.items() if server.bundled)
        self._configured = [name for name in toolset.servers if name not in (AGENTS, BUILTIN, *self.bundled)]
        self._kits: dict[tuple[str, bool, int | None, bool], tuple[int, Kit]] = {}

    async def kit(self, card: AgentCard, *, agents: bool, most: int | None = None, weak: bool = False) -> Kit:
        """What `card` has, with its agents or without; made anew when tools join. Waits for the servers it needs.

        `most` is how many tools its model can be shown, where that is fewer than are shown to others; `weak` says that
        it is an unreliable caller.
        """
        servers = self.servers_of(card)
        called = self._agents_of(card) if agents else []
        theirs = called or (agents and card.review)
        await self.toolset.ready([*([AGENTS] if theirs else []), BUILTIN, *servers])
        return self.latest(card, agents=agents, most=most, weak=weak)

    def latest(self, card: AgentCard, *, agents: bool, most: int | None = None, weak: bool = False) -> Kit:
        """The same, of the servers whose tools are known by now; waits for none."""
        key = card.name, agents, most, weak
        version, kit = self._kits.get(key, (-1, None))
        if kit is None or version != self.toolset.version:
            kit = self._make(card, agents=agents, most=most, weak=weak)
            self._kits[key] = (self.toolset.version, kit)
        return kit

    def servers_of(self, card: AgentCard) -> list[str]:
        """The servers whose tools a card may use, in the order of the configuration."""
        names = [name for name in self.toolset.servers if name not in (AGENTS, BUILTIN)]
        return [name for name in names if may_use(card, name, bundled=name in self.bundled)]

    def servers_below(self, card: AgentCard) -> list[str]:
        """The servers that a run of this agent may come to need."""
        names = [name for each in self.cards.reachable(card.name) for name in self.servers_of(each)]
        return list(dict.fromkeys(names))

    def _make(self, card: AgentCard, *, agents: bool, most: int | None, weak: bool) -> Kit:
        called = self._agents_of(card) if agents else []
        by_tool = {offer.tool.name: offer for offer in self.toolset.offers([AGENTS])}
        offers = self.toolset.offers(self.servers_of(card))
        there = {offer.name: offer for offer in offers if agents or not offer.remote}
        chosen = select(card, [CardOffer(o.server.name, o.tool.name, o.name) for o in there.values()], self.bundled)
        many = 0 < min(self._most, most or self._most) < len(chosen)
        theirs = [there[each.name] for each in chosen]
        team = [by_tool[each.tool_name] for each in called]
        judge = self.cards.reviewer_of(card)
        plan = _planning(card, team, theirs, weak=weak)
        always = [*team, *self._own(team, theirs, plan, many=many)]
        later = [each for each in self.toolset.offers([BUILTIN]) if each.name in LATER and always]
        catalogue = Catalogue(theirs)
        specs = tuple(_outlined(offer.spec, catalogue) for offer in (always if many else [*always, *theirs]))
        system = card.instructions.strip() or f"You are {card.title}. {card.description}"
        if card.output is not None:
            system = f"{system}\n\n{output_wanted(card.output)}"
        if plan == "always":
            system = f"{system}\n\n{PLAN_FIRST}"
        tools = tools_body(specs)
        return Kit(
            agents=agents,
            most=most,
            weak=weak,
            plan=plan,
            reviewer=by_tool.get(judge.tool_name) if agents and judge is not None else None,
            offers={offer.name: offer for offer in (*later, *always, *theirs)},
            specs=specs,
            catalogue=catalogue,
            system=system,
            output=None if card.output is None else ArgumentSchema(card.output),
            tools_digest=digest(tools),
            system_digest=digest(system.encode()),
            bodies={digest(body): body for body in (tools, system.encode())},
        )

    def _own(self, team: Sequence[Offer], theirs: Sequence[Offer], plan: Plan, *, many: bool) -> list[Offer]:
        """The built-in tools of an agent: notes and plans for who has anything to call, the others about its tools."""
        helped = {
            **dict.fromkeys(NOTES, bool(theirs or team)),
            FIND_TOOLS: bool(theirs and many),
            PLAN: plan != "never",
            PIN_TOOL: False,
        }
        own = [each for each in self.toolset.offers([BUILTIN]) if helped.get(each.name, bool(theirs))]
        return [_keyed(each, team) if each.name == PLAN and plan == "led" else each for each in own]

    def _agents_of(self, card: AgentCard) -> list[AgentCard]:
        """The agents that a card names; one that would have no tools for want of any configured server is left out."""
        return [each for each in self.cards.agents_of(card) if self._useful(each)]

    def _useful(self, card: AgentCard) -> bool:
        generalist = card.tools is None and not card.agents and card.source == "bundled"
        return not generalist or bool(self._configured)


def _planning(card: AgentCard, team: Sequence[Offer], theirs: Sequence[Offer], *, weak: bool) -> Plan:
    """Whether an agent with this team and these tools of its own can plan. A weak model's team is led by code."""
    if card.plan == "never" or not (team or theirs):
        return "never"
    if weak:
        led = team and not theirs and all("task" in offer.tool.input_schema.get("properties", {}) for offer in team)
        return "led" if led else "never"
    return card.plan if team or card.plan == "always" else "never"


def _keyed(offer: Offer, team: Sequence[Offer]) -> Offer:
    """`plan` with a field for each specialist."""
    tool = keyed(team)
    return replace(offer, tool=tool, schema=ArgumentSchema(tool.input_schema))


def _outlined(spec: ToolSpec, catalogue: Catalogue) -> ToolSpec:
    """`find_tools` tells which groups there are; every other tool stays as it is."""
    return replace(spec, description=f"{spec.description}\n{catalogue.outline}") if spec.name == FIND_TOOLS else spec


def tools_body(specs: Sequence[ToolSpec]) -> bytes:
    """A tool list as the journal keeps it."""
    listed = [{"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in specs]
    return json.dumps(listed, ensure_ascii=False).encode()


def digest(body: bytes) -> str:
    """The name of a body in the journal."""
    return sha256(body).hexdigest()
