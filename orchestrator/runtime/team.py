"""Who may call what: an agent's tools and agents, found among the servers that are up."""

from collections.abc import Mapping, Sequence

from orchestrator.cards import AgentCard, Cards, select
from orchestrator.cards import Offer as CardOffer
from orchestrator.cards.reach import may_use
from orchestrator.config import ServerSettings
from orchestrator.tools.toolset import AGENTS, Offer, Toolset


class Team:
    """The cards, the servers and who reaches which of them."""

    def __init__(self, cards: Cards, servers: Mapping[str, ServerSettings], toolset: Toolset) -> None:
        self.cards = cards
        self.toolset = toolset
        self.bundled: frozenset[str] = frozenset(name for name, server in servers.items() if server.bundled)
        self._configured = [name for name in toolset.servers if name not in (AGENTS, *self.bundled)]

    def servers_of(self, card: AgentCard) -> list[str]:
        """The servers whose tools a card may use, in the order of the configuration."""
        names = [name for name in self.toolset.servers if name != AGENTS]
        return [name for name in names if may_use(card, name, bundled=name in self.bundled)]

    def servers_below(self, card: AgentCard) -> list[str]:
        """The servers that a run of this agent may come to need."""
        names = [name for each in self.cards.reachable(card.name) for name in self.servers_of(each)]
        return list(dict.fromkeys(names))

    async def offers(self, card: AgentCard, *, agents: bool) -> Sequence[Offer]:
        """What a card may call, agents first, in an order that stays the same. Waits for the servers that it needs."""
        servers = self.servers_of(card)
        called = self._agents_of(card) if agents else []
        await self.toolset.ready([*([AGENTS] if called else []), *servers])
        by_tool = {offer.tool.name: offer for offer in self.toolset.offers([AGENTS])}
        found = [by_tool[each.tool_name] for each in called]
        offers = {offer.name: offer for offer in self.toolset.offers(servers)}
        chosen = select(card, [_card_offer(offer) for offer in offers.values()], self.bundled)
        return [*found, *(offers[each.name] for each in chosen)]

    @staticmethod
    def system(card: AgentCard) -> str:
        """The system prompt of an agent."""
        return card.instructions.strip() or f"You are {card.title}. {card.description}"

    def _agents_of(self, card: AgentCard) -> list[AgentCard]:
        """The agents that a card names; one that would have no tools for want of any configured server is left out."""
        return [each for each in self.cards.agents_of(card) if self._useful(each)]

    def _useful(self, card: AgentCard) -> bool:
        generalist = card.tools is None and not card.agents and card.source == "bundled"
        return not generalist or bool(self._configured)


def _card_offer(offer: Offer) -> CardOffer:
    return CardOffer(offer.server.name, offer.tool.name, offer.name)
