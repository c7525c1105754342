"""What an agent is: its instructions, its model, what it may call, and where it must stop.

The errors of the types here say in what form a value of a card should have been written.
"""

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.cards.words import split_list
from orchestrator.config.report import mapping, plain_text, sequence
from orchestrator.errors import Problem
from orchestrator.events import Limits, PlanMode

Source = Literal["user", "bundled"]

_LONGEST = 48
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "k": 1000}
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\Z", re.IGNORECASE)
_KEYWORDS = frozenset(("type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"))


def _names(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = [part.removeprefix("- ").strip("\"'") for part in split_list(value.strip("[]"))]
    if value.startswith("["):
        quoted = ", ".join(f'"{part}"' for part in parts)
        raise ValueError(f"is not YAML: put the items in quotes, like [{quoted[:80]}]")
    return parts


def _servers(value: object) -> object:
    """Of servers that are defined in a card the names."""
    parts = sequence(value) or [value]
    if not any(mapping(part) for part in parts):
        return value
    return [name for part in parts for name in (mapping(part) or (part,))]


def _filled(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a number")
    try:
        return float(value)
    except ValueError:
        suggested = _suggested(str(value))
        hint = f"; write {suggested}" if suggested else ""
        raise ValueError(f"must be a number, which `{str(value)[:40]}` is not here{hint}") from None


def _suggested(written: str) -> str:
    """The number that was probably meant, in the form that is read."""
    plain = written.strip("$€£ ").removesuffix("USD").strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", plain):
        return plain
    if re.fullmatch(r"\d{1,3}(?:[,.' ]\d{3})+", plain):
        return re.sub(r"\D", "", plain)
    if re.fullmatch(r"\d+,\d+", plain):
        return plain.replace(",", ".")
    match = _WITH_UNIT.match(plain)
    unit = _UNITS.get(match[2].lower()) if match else None
    return f"{float(match[1]) * unit:.15g}" if match and unit else ""


def _schema(value: object) -> object:
    from jsonschema_rs import meta  # noqa: PLC0415 - only a card with a schema needs it

    found = mapping(value)
    if found is None or not _KEYWORDS & found.keys() or not meta.is_valid(found):
        raise ValueError("must be a JSON Schema, like {type: object, properties: {path: {type: string}}}")
    return found


def _printable(name: str) -> str:
    if name.isprintable() and len(name) <= 100:
        return name
    raise ValueError("must be at most 100 printable characters")


Text = Annotated[str, BeforeValidator(plain_text), AfterValidator(str.strip)]
Name = Annotated[Text, AfterValidator(_printable)]
Number = Annotated[float, BeforeValidator(_number), Field(ge=0, lt=1e15)]
Names = Annotated[tuple[Text, ...], BeforeValidator(_names), AfterValidator(_filled)]
Servers = Annotated[Names, BeforeValidator(_servers)]
Schema = Annotated[Mapping[str, Any], BeforeValidator(_schema)]
_Whole = Annotated[int, BeforeValidator(_number), Field(gt=0, lt=1e15)]


class CardLimits(Limits):
    """`limits` as they may stand in a card."""

    model_config = ConfigDict(defer_build=True)

    steps: _Whole | None = None
    tokens: _Whole | None = None
    cost: Number | None = None
    seconds: Annotated[Number, Field(gt=0)] | None = None
    model_calls: _Whole | None = None


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
    none. `agents` are names of other cards (globs allowed). `review` names the one that judges its
    answers. `input` and `output` are JSON Schemas. `limits` are the
    agent's own, inside those of its run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: Name
    tool_name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    title: str
    description: Text = ""
    instructions: str = ""
    model: Names = ()
    tools: Names | None = None
    without: Names = ()
    agents: Names = ()
    mcp_servers: Servers = ()
    role: Text | None = None
    approve: Names = ()
    plan: PlanMode = "auto"
    review: Text | None = None
    limits: Limits = Limits()
    temperature: Annotated[Number, Field(le=2)] | None = None
    input: Schema | None = None
    output: Schema | None = None
    file: Path | None = None
    source: Source = "user"
    places: Mapping[str, Place] = Field(default_factory=dict[str, Place], repr=False, exclude=True)

    def place(self, key: str, value: str = "") -> Place:
        """Where `value` of `key` stands, or where `key` does."""
        return self.places.get(f"{key}:{value}") or self.places.get(key) or Place()

    def problem(self, message: str, key: str, value: str = "") -> Problem:
        """A problem with `value` of `key`, with this card's file and line."""
        return Problem(message, self.file, self.place(key, value).line)


VERDICT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"accept": {"type": "boolean"}, "reasons": {"type": "string", "description": "What must be mended"}},
    "required": ["accept"],
}
"""The `output` of a reviewer whose card says none."""


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
