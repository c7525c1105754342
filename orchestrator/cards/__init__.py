"""Agent cards: one Markdown file an agent, YAML front matter above its instructions.

Cards written for Claude Code and VS Code load unchanged. Stands on `orchestrator.config`; starts nothing.
"""

from orchestrator.cards.card import AgentCard, Place, PlanMode, Source, tool_name
from orchestrator.cards.models import model_specs
from orchestrator.cards.reader import load_card
from orchestrator.cards.registry import Cards, Findings, load_cards
from orchestrator.cards.tools import Known, Offer, check_tools, select

__all__ = [
    "AgentCard",
    "Cards",
    "Findings",
    "Known",
    "Offer",
    "Place",
    "PlanMode",
    "Source",
    "check_tools",
    "load_card",
    "load_cards",
    "model_specs",
    "select",
    "tool_name",
]
