"""Wrongly typed arguments to what the schema wants, where what was meant is certain.

Led by the schema: a value that its part of the schema accepts is never touched; any other is read as what that part
wants, and then its members by theirs. `anyOf` and `oneOf` take the first branch that validates after coercion, branches
of the value's own type before others. What cannot be mended stays as it was. Work is bounded by a count, not by a
clock, so that the same text always gives the same arguments.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, Final

from orchestrator.models import repair
from orchestrator.models.repair import is_list, is_object
from orchestrator.tools import dates
from orchestrator.tools.validation import Compiled, Pointer, at, resolve, target

_BUDGET: Final = 40_000
"""Parts of values looked at. A call with a thousand wrong values needs a few thousand."""
_GUESS: Final = 8
"""What a character of broken JSON within a string costs of the budget."""
_MAX_DEPTH: Final = 100

_NUMBER = re.compile(
    r"(?!0\d\d$)[+-]?(?:\d{1,300}|\d{1,3}(?:,\d{3}){1,100}|(?=\.\d))(?:\.\d{0,300})?(?:[eE][+-]?\d{1,3})?"
)
"""`000` rather is a code, or what a comma has cut off from `1,000`, than a number."""
_WORD_GAP = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")
_NOTHING: Final = frozenset({"", "null", "none"})
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_KINDS: Final = {
    "null": NoneType,
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "object": dict,
    "array": list,
    "string": str,
}
"""Those that can wrap another value last."""


def coerce(value: Any, compiled: Compiled) -> Any:
    """A copy of `value` as near to valid as is certain. Nothing is filled in, nothing of what was said is lost."""
    return _Coercion(compiled).mend(value, ())


class _Coercion:
    def __init__(self, compiled: Compiled) -> None:
        self._accepts = compiled.accepts
        self._root = compiled.root
        self._budget = _BUDGET
        self._depth = 0

    def mend(self, value: Any, pointer: Pointer) -> Any:
        """The first reading of `value` that the part at `pointer` accepts, with its members mended; else the first."""
        node = at(self._root, pointer)
        self._budget -= 1
        if self._budget < 0 or self._depth > _MAX_DEPTH or not is_object(node) or self._accepts(pointer, value):
            return value
        self._depth += 1
        nearest = value
        for reading in self._readings(value, node):
            mended = self._within(reading, pointer, node)
            if self._accepts(pointer, mended):
                nearest = mended
                break
            # Text is no nearer to valid than the list that it was made of, and a worse thing to be told of.
            if nearest is value and not (isinstance(reading, str) and (is_list(value) or is_object(value))):
                nearest = mended
        self._depth -= 1
        return nearest

    def _within(self, value: Any, pointer: Pointer, node: Mapping[str, Any]) -> Any:
        """`value` with what other parts of the schema say of it, and of its members, applied."""
        for part in self._also(value, pointer, node):
            value = self.mend(value, part)
        for union in ("anyOf", "oneOf"):
            if union in node:
                value = self._branch(value, [(*pointer, union, index) for index in range(len(node[union]))])
        if is_object(value):
            return self._members(value, pointer, node)
        if is_list(value):
            return [self.mend(item, (*pointer, *_item(node, index))) for index, item in enumerate(value)]
        return value

    def _also(self, value: Any, pointer: Pointer, node: Mapping[str, Any]) -> Iterator[Pointer]:
        if isinstance(reference := node.get("$ref"), str):
            yield target(reference, self._root)
        for index in range(len(node.get("allOf", ()))):
            yield (*pointer, "allOf", index)
        if "if" in node:
            yield (*pointer, "then" if self._accepts((*pointer, "if"), value) else "else")

    def _branch(self, value: Any, branches: list[Pointer]) -> Any:
        if any(self._accepts(branch, value) for branch in branches):
            return value
        for branch in sorted(branches, key=lambda branch: not self._is_of_type(value, branch)):
            mended = self.mend(value, branch)
            if self._accepts(branch, mended):
                return mended
        return value

    def _is_of_type(self, value: Any, branch: Pointer) -> bool:
        node = resolve(at(self._root, branch), self._root)
        return not is_object(node) or not (kinds := _kinds(node)) or any(_is(value, kind) for kind in kinds)

    def _members(self, value: dict[str, Any], pointer: Pointer, node: Mapping[str, Any]) -> dict[str, Any]:
        """Its members mended, without those that say nothing where nothing may be said but not so."""
        properties, required = node.get("properties", {}), node.get("required", ())
        made: dict[str, Any] = {}
        for name, item in _renamed(value, node).items():
            part = (*pointer, "properties", name) if name in properties else (*pointer, "additionalProperties")
            mended = self.mend(item, part)
            optional = name in properties and name not in required
            if not (optional and _is_nothing(mended) and not self._accepts(part, mended)):
                made[name] = mended
        return made

    def _readings(self, value: Any, node: Mapping[str, Any]) -> Iterator[Any]:
        """What `value` may mean for the keywords of `node` itself, likeliest first."""
        kinds = _kinds(node)
        if "const" in node or "enum" in node:
            yield from _options(value, [node["const"]] if "const" in node else node["enum"])
        elif isinstance(value, str) and node.get("format") in dates.FORMATS:
            try:
                yield dates.FORMATS[node["format"]](value)
            except dates.NoDate:
                return
        elif not kinds or any(_is(value, kind) for kind in kinds):
            yield value
        else:
            for kind in kinds:
                yield from self._as(kind, value)

    def _as(self, kind: str, value: Any) -> Iterator[Any]:
        """What `value` may mean as a `kind`."""
        if kind == "array":
            yield from self._lists(value)
        elif kind == "object":
            if is_object(container := self._container(value)):
                yield container
        elif kind == "string":
            if not isinstance(value, str) and value is not None:
                yield json.dumps(value, ensure_ascii=False)
        elif kind == "null":
            if _is_nothing(value):
                yield None
        elif kind == "boolean":
            word = str(value).strip().lower() if isinstance(value, str | int) else ""
            if word in _BOOLEANS:
                yield _BOOLEANS[word]
        elif (number := _number(value)) is not None and (kind == "number" or number == int(number)):
            yield number if kind == "number" else int(number)

    def _lists(self, value: Any) -> Iterator[Any]:
        """JSON first, then commas, then the one value wrapped."""
        if value is None:
            return
        if isinstance(value, str) and not value.strip():
            yield []
            return
        if is_list(container := self._container(value)):
            yield container
        elif container is None and isinstance(value, str) and len(parts := re.split("[,，、]", value)) > 1:
            yield [part.strip() for part in parts if part.strip()]
        yield [value]

    def _container(self, value: Any) -> Any:
        """The list or object that a string holds as JSON, or None."""
        if not isinstance(value, str) or not value.lstrip().startswith(("[", "{", "［", "｛")):
            return None
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            self._budget -= _GUESS * min(len(value), repair.MAX_GUESSED)
        try:
            found = repair.repair(value) if self._budget > 0 else None
        except ValueError:
            return None
        return found if is_list(found) or is_object(found) else None


def _kinds(node: Mapping[str, Any]) -> list[str]:
    """The types that `node` allows, those that wrap another value last."""
    kinds = node.get("type", ())
    return sorted([kinds] if isinstance(kinds, str) else kinds, key=list(_KINDS).index)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    whole = isinstance(value, float) and value.is_integer()
    return isinstance(value, _KINDS[kind]) or (kind == "integer" and whole)


def _item(node: Mapping[str, Any], index: int) -> Pointer:
    """The way to the schema of a list's item; drafts before 2020-12 have tuples in `items`."""
    keyword = "prefixItems" if "prefixItems" in node else "items"
    prefix = node.get(keyword)
    return (keyword, index) if is_list(prefix) and index < len(prefix) else ("items",)


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)


def _number(value: Any) -> int | float | None:
    if isinstance(value, float):
        return value
    if not isinstance(value, str) or len(value) > 400:
        return None
    text = unicodedata.normalize("NFKC", value).replace("−", "-").strip()
    if not _NUMBER.fullmatch(text):
        return None
    text = text.replace(",", "")
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def _options(value: Any, options: list[Any]) -> list[Any]:
    """The one option that differs from `value` in case, spacing, `_` for `-`, or only in being text."""
    written = _folded(value if isinstance(value, str) else json.dumps(value))
    texts = [option for option in options if isinstance(option, str)]
    matches: list[Any] = []
    if isinstance(value, bool | int | float):
        matches = [text for text in texts if text == written]
    elif isinstance(value, str):
        matches = [text for text in texts if _folded(text) == written]
        matches = matches or [text for text in texts if _loose(text) == _loose(value)]
        matches = matches or [option for option in options if option not in texts and json.dumps(option) == written]
    return matches if len(matches) == 1 else []


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


def _loose(name: str) -> str:
    """A name without what spellings differ in: `maxResults`, `max_results` and `Max-Results` are one."""
    return _WORD_GAP.sub("", _folded(name))


def _renamed(value: dict[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """`value` with misspelt names that cannot stay, or of required properties, replaced; only what is unambiguous."""
    properties, required = node.get("properties", {}), node.get("required", ())
    closed = False in (node.get("additionalProperties"), node.get("unevaluatedProperties"))
    known = _alike([*properties, *required])
    names: dict[str, str] = {}
    for likeness, strays in _alike([name for name in value if name not in properties and name not in required]).items():
        meant = known.get(likeness, [])
        if len(meant) == len(strays) == 1 and meant[0] not in value and (closed or meant[0] in required):
            names[strays[0]] = meant[0]
    return {names.get(name, name): item for name, item in value.items()}


def _alike(names: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(_loose(name), []).append(name)
    return groups
