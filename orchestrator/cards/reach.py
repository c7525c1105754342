"""Which servers a card may come to need, judged before any of them has said what it offers."""

from orchestrator.cards.card import AgentCard
from orchestrator.config.names import sanitise


def may_use(card: AgentCard, server: str, *, bundled: bool) -> bool:
    """Whether the card's patterns can mean a tool of this server; `*` never means a bundled one's."""
    if card.tools is not None:
        spelled = (f"{server}__", f"{sanitise(server)}__")
        return any(glob.startswith(spelled) or (not bundled and _open(glob)) for glob in card.tools)
    if card.mcp_servers:
        return sanitise(server) in {sanitise(name) for name in card.mcp_servers}
    return not card.agents and not bundled


def _open(glob: str) -> bool:
    """Whether the server's part of a pattern is a pattern itself."""
    return any(char in glob.partition("__")[0] for char in "*?[")
