"""What an agent is: its instructions, its model, what it may call, and where it must stop."""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import Problem
from orchestrator.events import Limits

PlanMode = Literal["auto", "always", "never"]
Source = Literal["user", "bundled"]

_LONGEST = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something in a card stands, and how it is written there. `foreign`: in another host's spelling."""

    line: int | None = None
    text: str = ""
    foreign: bool = False


class AgentCard(BaseModel):
    """A specialist. `name` and `title` are as written; `tool_name` is what models and other agents call it by.

    `model` are specs in order of preference, empty for the default. `tools` and `approve` are globs over
    `server__tool`: `tools` None means all tools of the configured servers (none where `agents` are given), empty means
    none. `agents` are names of other cards (globs allowed). `input` and `output` are JSON Schemas. `limits` are the
    agent's own, inside those of its run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    tool_name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    title: str
    description: str = ""
    instructions: str = ""
    model: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    mcp_servers: tuple[str, ...] = ()
    role: str | None = None
    approve: tuple[str, ...] = ()
    plan: PlanMode = "auto"
    limits: Limits = Limits()
    temperature: float | None = None
    input: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None
    file: Path | None = None
    source: Source = "user"
    places: Mapping[str, Place] = Field(default_factory=dict[str, Place], repr=False, exclude=True)

    def place(self, key: str, value: str = "") -> Place:
        """Where `value` of `key` stands, or where `key` does."""
        return self.places.get(f"{key}:{value}") or self.places.get(key) or Place()

    def problem(self, message: str, key: str, value: str = "") -> Problem:
        """A problem with `value` of `key`, with this card's file and line."""
        return Problem(message, self.file, self.place(key, value).line)


def tool_name(name: str) -> str:
    """The stable name of an agent in `[A-Za-z0-9_-]`: itself where it can be, else a part of it with a hash."""
    if re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_LONGEST}}}", name):
        return name
    letters = unicodedata.normalize("NFKD", name)
    plain = "".join(char for char in letters if not unicodedata.combining(char))
    lost = any(char.isalnum() and not char.isascii() for char in plain)
    slug = re.sub(r"[^A-Za-z0-9_]+", "-", plain).strip("-")
    if slug and not lost and len(slug) <= _LONGEST:
        return slug
    digest = hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug[: _LONGEST - 9].strip('-') or 'agent'}-{digest}"
