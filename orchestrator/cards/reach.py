"""Which servers a card may come to need, judged before any of them has said what it offers."""

from orchestrator.cards.card import AgentCard
from orchestrator.config.names import sanitise


def may_use(card: AgentCard, server: str, *, bundled: bool) -> bool:
    """Whether the card's patterns can mean a tool of this server; `*` never means a bundled one's."""
    if card.tools is not None:
        return any(may_mean(glob, server, bundled=bundled) for glob in card.tools)
    if card.mcp_servers:
        return sanitise(server) in {sanitise(name) for name in card.mcp_servers}
    return not card.agents and not bundled


def may_mean(glob: str, server: str, *, bundled: bool) -> bool:
    """Whether a pattern spells out this server's name, or has a pattern in its place that may mean it."""
    spelled = glob.startswith((f"{server}__", f"{sanitise(server)}__"))
    return spelled or (not bundled and any(char in glob.partition("__")[0] for char in "*?["))
