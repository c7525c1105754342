"""Small teams over the effects server, for tests of behaviour."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.cards import AgentCard, Cards
from orchestrator.config import PolicySettings, ServerSettings, Settings

EFFECTS = Path(__file__).with_name("effects_server.py")


def card(name: str, **more: Any) -> AgentCard:
    fields = {"tool_name": name, "title": name, "description": f"The {name}.", "instructions": f"You are {name}."}
    return AgentCard(name=name, **{**fields, **more})


def effects(ledger: Path, **more: Any) -> ServerSettings:
    command = {"command": sys.executable, "args": ("-S", str(EFFECTS), str(ledger))}
    return ServerSettings(name="fx", **{**command, **more})


def settings(ledger: Path, **more: Any) -> Settings:
    return Settings(**{"servers": {"fx": effects(ledger)}, "policy": PolicySettings(allow=("fx__*",)), **more})


def cards(*several: AgentCard) -> Cards:
    return Cards.of(several)


def ledger_lines(ledger: Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
