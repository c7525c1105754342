"""The agents that are served, as tools."""

import logging
from collections.abc import Iterable, Sequence

from mcp_types import Tool, ToolAnnotations

from orchestrator.cards import AgentCard
from orchestrator.errors import ConfigurationError
from orchestrator.orchestrator import Orchestrator
from orchestrator.runtime.delegation import agent_tool
from orchestrator.serving.guests import Guest
from orchestrator.tools.toolset import BUILTIN, Offer

logger = logging.getLogger(__name__)


class Offered:
    """Agents of an orchestrator that callers from outside see. One that cannot run is told of once, and left out."""

    def __init__(self, orchestrator: Orchestrator, names: Sequence[str]) -> None:
        self._orchestrator = orchestrator
        self._names = names
        self._told: set[str] = set()

    def card(self, tool: str, guest: Guest) -> AgentCard | None:
        """The card of a tool's name, if it is served to this caller."""
        cards = (self._orchestrator.cards.cards[name] for name in self._names)
        return next((card for card in cards if card.tool_name == tool and _may(guest, card)), None)

    async def tools(self, guest: Guest) -> list[Tool]:
        """Every agent that this caller may call. Waits for the servers that they need."""
        found = [await self._tool(name) for name in self._names if _may(guest, self._orchestrator.cards.get(name))]
        return [tool for tool in found if tool is not None]

    async def _tool(self, name: str) -> Tool | None:
        try:
            await self._orchestrator.check(name)
        except ConfigurationError as error:
            if name not in self._told:
                self._told.add(name)
                logger.warning("agent %s is not served: %s", name, error)
            return None
        self._told.discard(name)
        return agent_tool(self._orchestrator.cards.get(name), await self._promises(name))

    async def _promises(self, name: str) -> ToolAnnotations:
        team = self._orchestrator.team
        kits = [await team.kit(card, agents=True) for card in self._orchestrator.cards.reachable(name)]
        return promises(offer for kit in kits for offer in kit.offers.values())


def promises(offers: Iterable[Offer]) -> ToolAnnotations:
    """What holds for an agent because it holds for every tool that it may come to use; agents count by their tools."""
    used = [offer for offer in offers if offer.effect != "agent" and offer.server.name != BUILTIN]
    hints = [offer.tool.annotations or ToolAnnotations() for offer in used]
    changing = [each for each in hints if not each.read_only_hint]
    return ToolAnnotations(
        read_only_hint=not changing,
        destructive_hint=any(each.destructive_hint is not False for each in changing),
        open_world_hint=any(each.open_world_hint is not False for each in hints),
    )


def _may(guest: Guest, card: AgentCard) -> bool:
    return guest.may_call(card.name, card.tool_name)
