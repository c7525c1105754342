"""Agent cards: one Markdown file an agent, YAML front matter above its instructions.

Cards written for Claude Code and VS Code load unchanged. Stands on `orchestrator.config`; starts nothing.
"""

from orchestrator.cards.card import AgentCard, tool_name
from orchestrator.cards.models import model_specs
from orchestrator.cards.reader import load_card
from orchestrator.cards.registry import Cards, load_cards
from orchestrator.cards.tools import Offer, check_tools, select

__all__ = [
    "AgentCard",
    "Cards",
    "Offer",
    "check_tools",
    "load_card",
    "load_cards",
    "model_specs",
    "select",
    "tool_name",
]
