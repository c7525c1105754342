"""Turns the text under a card's key into what the card holds, or says in what form it should have been written."""

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.cards.frontmatter import Value
from orchestrator.cards.hosts import split_list
from orchestrator.config.names import did_you_mean, listed
from orchestrator.config.report import mapping, sequence

_NUMBER = re.compile(r"(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE]\+?\d+)?\Z")
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "k": 1000}
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\Z", re.IGNORECASE)
LIMITS: Mapping[str, tuple[type[int] | type[float], str]] = {
    "steps": (int, "12"),
    "tokens": (int, "100000"),
    "cost": (float, "0.50 (US dollars)"),
    "seconds": (float, "120"),
    "model_calls": (int, "20"),
}
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


class Wrong(Exception):
    """A value cannot be used; the message says how to write it. `line` is of the part inside, if it has one."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message)


def text(value: Value) -> str:
    """One text."""
    if isinstance(value.data, str):
        return value.data.strip()
    raise Wrong("text is expected")


def prose(value: Value) -> str:
    """A text that may look like YAML of another kind (`[WIP] reviews code`, `Note: ...`)."""
    return value.data.strip() if isinstance(value.data, str) else value.raw


def names(value: Value) -> list[tuple[str, int]]:
    """A list of names with their lines: a YAML list, or a comma-separated text."""
    if isinstance(value.data, str):
        if value.broken and value.data.startswith("["):
            raise Wrong(_quote_items(value))
        return [(_bare(part), value.line) for part in split_list(value.data)]
    items = sequence(value.data)
    if items is None or not all(isinstance(item, str) for item in items):
        raise Wrong("a list of names is expected, like [first, second]")
    return [(item.strip(), value.lines.get((at,), value.line)) for at, item in enumerate(items) if item.strip()]


def choice(value: Value, choices: tuple[str, ...]) -> str:
    """One of some words."""
    if isinstance(value.data, str) and value.data.strip().lower() in choices:
        return value.data.strip().lower()
    hint = did_you_mean(value.data, choices) if isinstance(value.data, str) else ""
    raise Wrong(f"one of {listed(choices)} is expected.{hint}")


def number(value: Value, example: str) -> float:
    """A number that is not negative."""
    return _number(value.data, example, value.line)


def limits(value: Value) -> dict[str, int | float]:
    """The limits that are right, after a `Wrong` with all that are not."""
    table = mapping(value.data)
    if table is None:
        why = f" ({value.broken})" if value.broken else ""
        raise Wrong(f"limits are written like {{steps: 12, cost: 0.50, seconds: 120}}{why}")
    found: dict[str, int | float] = {}
    wrong: list[Wrong] = []
    for key, item in table.items():
        line = value.lines.get((key,), value.line)
        if key not in LIMITS:
            wrong.append(Wrong(f"unknown limit `{key}`.{did_you_mean(key, LIMITS)} Known: {listed(LIMITS)}", line))
            continue
        if item is None:
            continue
        try:
            found[key] = limit(key, item, line)
        except Wrong as error:
            wrong.append(Wrong(f"{key}: {error}", line))
    if wrong:
        raise ExceptionGroup("limits", wrong)
    return found


def limit(key: str, written: object, line: int) -> int | float:
    """The value of one limit."""
    kind, example = LIMITS[key]
    result = _number(written, example, line)
    if kind is int and result != int(result):
        raise Wrong(f"a whole number is expected, like {example}", line)
    if not result and key != "cost":
        raise Wrong("a number above 0 is expected; leave it out for no limit of the agent's own", line)
    return kind(result)


def schema(value: Value) -> dict[str, Any]:
    """A JSON Schema, of which no more is judged here than that it is one."""
    found = mapping(value.typed)
    if found is None:
        why = f" ({value.broken})" if value.broken else ""
        raise Wrong(f"a JSON Schema is expected, like {{type: object, properties: {{path: {{type: string}}}}}}{why}")
    kind = found.get("type")
    if isinstance(kind, str) and kind not in _TYPES:
        raise Wrong(f"`type: {kind}` is none of JSON Schema's types: {listed(_TYPES)}", value.lines.get(("type",)))
    if not {"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"} & set(found):
        raise Wrong("a JSON Schema is expected: put these names under `properties:`, beside `type: object`")
    if "properties" in found and not isinstance(found["properties"], dict):
        raise Wrong("`properties` must hold one schema a name", value.lines.get(("properties",)))
    return found


def _number(written: object, example: str, line: int) -> float:
    plain = written.strip() if isinstance(written, str) else ""
    if _NUMBER.match(plain) and len(plain) < 40 and (result := float(plain)) < 1e15:
        return result
    raise Wrong(f"`{str(written)[:40]}` is no number here; write {_suggested(plain) or f'one like {example}'}", line)


def _suggested(plain: str) -> str:
    """The number that was probably meant, in the form that is read."""
    stripped = plain.strip("$€£ ").removesuffix("USD").strip()
    if _NUMBER.match(stripped):
        return stripped
    if re.fullmatch(r"\d{1,3}(?:[,.' ]\d{3})+", stripped):
        return re.sub(r"\D", "", stripped)
    if re.fullmatch(r"\d+,\d+", stripped):
        return stripped.replace(",", ".")
    if (match := _WITH_UNIT.match(stripped)) and match[2].lower() in _UNITS:
        return f"{float(match[1]) * _UNITS[match[2].lower()]:.15g}"
    return ""


def _quote_items(value: Value) -> str:
    inner = value.data.strip().strip("[]")
    items = ", ".join(f'"{_bare(item)}"' for item in split_list(inner))
    return f"`{value.data[:60]}` is not YAML: put the items in quotes, like [{items[:80]}]"


def _bare(part: str) -> str:
    return part[1:-1] if len(part) > 1 and part[0] == part[-1] and part[0] in "\"'" else part
