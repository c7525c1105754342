"""What a model would miss in the descriptions of tools: cheap rules over words and schemas, with few false alarms.

The rules were tuned on the lists of public servers. They look for words that tell something, in English and Chinese;
a description that tells it in other words is not worth a person's time, so when in doubt nothing is said.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.config.report import mapping, sequence

SHORT = 4  # words
LONG = 1_000  # tokens of one tool

_WHEN = re.compile(
    r"\b(?:us(?:e|ed|eful|ing)|call|when(?:ever)?|helps?|helpful|before|after|first|if you|prefer|suitable|ideal)\b"
    r"|\bfor \w+ing\b"
    r"|用于|使用|适用|适合|时[，,。]|先|以便",
    re.IGNORECASE,
)
_WHEN_NOT = re.compile(
    r"\b(?:not|no|cannot|never|instead|rather than|only|unless|except|avoid|without)\b|n't\b|不|勿|仅|只|除非|而非",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(
    r"\be\.?g\b|\bexamples?\b|\bfor instance\b|\bsuch as\b|[`'\"“‘][^`'\"”’\n]{1,60}[`'\"”’]|例如|比如|示例|如：",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?:^|_)(?:date|time|datetime|timestamp|since|until|deadline|due)(?:_|$)", re.IGNORECASE)
_FORM = re.compile(r"\d|YYYY|ISO|RFC|format|e\.g\.|zone|same|格式", re.IGNORECASE)
_SAYS_ITS_FORM = ("enum", "const", "format", "pattern", "examples", "default")
_PLAIN = ("integer", "number", "boolean", "null")


@dataclass(frozen=True, slots=True)
class Rule:
    """`says` completes “… of … tools”; `fix` is what to write."""

    says: str
    fix: str
    serious: bool = False


RULES: Mapping[str, Rule] = {
    "no_description": Rule(
        "have no description", "describe it: what it does, what comes back, when to use it and when not", serious=True
    ),
    "same_description": Rule(
        "are described in the same words as another", "say how they differ, and which one is for what", serious=True
    ),
    "short_description": Rule(
        f"are described in fewer than {SHORT} words", "say in a sentence what it does and what comes back"
    ),
    "when": Rule("do not say when to use them", "add a sentence that begins “Use it to …” or “Use it when …”"),
    "when_not": Rule(
        "do not say when not to use them", "add “Not for …: use <other tool>”, or what it does not do or return"
    ),
    "argument": Rule(
        "have arguments that nobody described", "describe each argument: what it is, and its form or unit"
    ),
    "date_format": Rule(
        "take times without saying in which form", "give the form in the description: 2026-03-10T09:30Z"
    ),
    "example": Rule(
        "show no example of what they take",
        "put one into the description of each free-form argument: “…, e.g. docs/report.md”",
    ),
    "long": Rule(
        f"cost over {LONG:,} tokens in each request", "cut the description, or deny the tool where nobody needs it"
    ),
}


@dataclass(frozen=True, slots=True)
class Described:
    """What of a tool its description is judged by. `tokens` is what it costs."""

    name: str
    description: str
    schema: Mapping[str, Any]
    tokens: int


Remarks = Mapping[str, tuple[str, ...]]
"""By the name of a rule the arguments concerned; none where it is about the tool."""


def lint(tools: Sequence[Described]) -> list[Remarks]:
    """What should be said of each of a server's tools."""
    same = Counter(_plain(tool.description) for tool in tools)
    names = {tool.name for tool in tools}
    return [dict(_remarks(tool, names - {tool.name}, same)) for tool in tools]


def _remarks(tool: Described, others: set[str], same: Counter[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    text = tool.description
    if tool.tokens > LONG:
        yield "long", ()
    if not text.strip():
        yield "no_description", ()
    elif len(re.findall(r"\w+", text)) < SHORT and text.isascii():  # Chinese has no blanks to count words by
        yield "short_description", ()
    else:
        if same[_plain(text)] > 1:
            yield "same_description", ()
        if not _WHEN.search(text):
            yield "when", ()
        if (
            others
            and not _WHEN_NOT.search(text)
            and not any(re.search(rf"\b{re.escape(name)}\b", text) for name in others)
        ):
            yield "when_not", ()
    arguments = {name: mapping(schema) or {} for name, schema in (mapping(tool.schema.get("properties")) or {}).items()}
    if dark := tuple(name for name, schema in arguments.items() if _is_dark(schema)):
        yield "argument", dark
    if times := tuple(name for name, schema in arguments.items() if name not in dark and _is_vague_time(name, schema)):
        yield "date_format", times
    free = [name for name in sequence(tool.schema.get("required")) or () if _is_free(arguments.get(str(name), {}))]
    texts = [text, *(str(schema.get("description", "")) for schema in arguments.values())]
    if free and not any(map(_EXAMPLE.search, texts)) and not any("examples" in schema for schema in arguments.values()):
        yield "example", ()


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types a schema allows, those of its branches included; empty when it does not say."""
    kinds = schema.get("type")
    found = {str(kind) for kind in sequence(kinds) or ([kinds] if kinds else [])}
    for key in ("anyOf", "oneOf"):
        for branch in sequence(schema.get(key)) or ():
            found |= _kinds(mapping(branch) or {})
    return found


def _branches(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in sequence(schema.get(key)) or ():
            yield from _branches(mapping(branch) or {})


def _is_free(schema: Mapping[str, Any]) -> bool:
    """Whether any text, list or object may stand here."""
    plain = _kinds(schema) and _kinds(schema) <= set(_PLAIN)
    return not plain and not any({"enum", "const", "examples"} & branch.keys() for branch in _branches(schema))


def _is_dark(schema: Mapping[str, Any]) -> bool:
    """Whether nothing says what an argument should look like."""
    branches = list(_branches(schema))
    said = any(str(branch.get("description", "")).strip() or "$ref" in branch for branch in branches)
    return not said and _is_free(schema) and not any(key in branch for branch in branches for key in _SAYS_ITS_FORM)


def _is_vague_time(name: str, schema: Mapping[str, Any]) -> bool:
    branches = list(_branches(schema))
    if "string" not in _kinds(schema) or not _DATE.search(name):
        return False
    shown = any(branch.get(key) is not None for branch in branches for key in _SAYS_ITS_FORM)
    return not shown and not any(_FORM.search(str(branch.get("description", ""))) for branch in branches)
