"""A tool's schema as models are shown it: a copy that stands by itself, of a bounded size. The original validates.

`$ref` is inlined, once more within itself where it is recursive; `allOf` is joined; what only validators read is gone.
The schema is walked breadth first, so that what does not fit is what lies deepest: there, a short form says so.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchestrator.models.lenient import dump
from orchestrator.models.repair import is_list, is_object
from orchestrator.tools.validation import resolve

ROOM: Final = 20_000
"""Bytes of JSON that one tool's schema may take, near enough: some 5,000 tokens."""

_REPEATS: Final = 2  # how often one `$ref` may lie within itself
_LONGEST: Final = 1_000  # characters of a text or bytes of an example or default within a schema
_MOST_VALUES: Final = 100  # of an enum, and parts of an `allOf`
_CHILD: Final = 40  # bytes that an inner schema takes at least, beside its name
_DEEPER: Final = "(what is inside is not shown here)"
_AGAIN: Final = "(the same form again)"

_DROPPED: Final = frozenset(
    {"$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$schema", "definitions", "title"}
)
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "prefixItems"})
_ONES: Final = frozenset({"items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else"})
_NEVER: Final[tuple[Any, ...]] = (False, {"not": {}})  # the latter is how zod writes that it may be left out

Json = dict[str, Any]
Refs = tuple[str, ...]


def shown(schema: Mapping[str, Any]) -> Json:
    """The copy, with an object at its top."""
    copy: Json = {"type": "object", "properties": {}, **_Copy(schema).made}
    return copy | {"type": "object"}


class _Copy:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.made: Json = {}
        self._root = root
        self._room = ROOM
        self._waiting: deque[tuple[Json, Json, Refs]] = deque()
        self._wait(dict(root), self.made, ())
        while self._waiting:
            self._expand(*self._waiting.popleft())

    def _wait(self, source: Json, copy: Json, refs: Refs) -> None:
        self._waiting.append((source, copy, refs))

    def _expand(self, source: Json, copy: Json, refs: Refs) -> None:
        """Fills `copy` with what `source` says of itself; its inner schemas wait for their turn."""
        source, refs = self._flat(source, refs)
        if self._room < 0 or any(refs.count(ref) > _REPEATS for ref in set(refs)):
            copy.update(_stub(source, _DEEPER if self._room < 0 else _AGAIN))
            return
        for key, value in sorted(source.items(), key=lambda item: item[0] != "description"):
            if key in _MAPS and is_object(value):
                copy[key] = self._children(value, source, copy, refs)
            elif key in _LISTS and is_list(value):
                if branches := list(self._branches(value, refs)):
                    copy[key] = branches
            elif key in _ONES and is_object(value):
                copy[key] = self._child(value, refs)
            elif key not in _DROPPED and not key.startswith("x-") and (kept := _bounded(key, value)) is not None:
                copy[key] = kept
                self._room -= len(key) + len(dump(kept)) + 4
        if "type" not in copy and (kind := _kind(copy)):
            copy["type"] = kind

    def _child(self, source: Json, refs: Refs) -> Json:
        self._room -= _CHILD
        child: Json = {}
        self._wait(source, child, refs)
        return child

    def _branches(self, branches: list[Any], refs: Refs) -> Iterator[Json]:
        for branch in branches:
            if branch is True or is_object(branch):
                if self._room < 0:
                    return
                yield self._child({} if branch is True else branch, refs)

    def _children(self, named: Json, source: Json, copy: Json, refs: Refs) -> Json:
        """Inner schemas by name; of too many, the required ones and the first others."""
        required = source.get("required", ())
        inner = {name: {} if one is True else one for name, one in named.items() if one is True or is_object(one)}
        made: Json = {}
        left_out: list[str] = []
        for name, one in inner.items():
            if self._room < 0 and name not in required:
                left_out.append(name)
                continue
            self._room -= len(name)
            made[name] = self._child(one, refs)
        if left_out:
            some = ", ".join(left_out[:20])
            note = f"({len(left_out)} more are not shown here: {some}{'…' if len(left_out) > 20 else ''})"
            copy["description"] = f"{copy.get('description', '')} {note}".strip()
        return made

    def _flat(self, source: Json, refs: Refs) -> tuple[Json, Refs]:
        """`$ref` followed, `allOf` joined, and a union of one branch taken for that branch."""
        for _ in range(16):
            if isinstance(reference := source.get("$ref"), str):
                refs, source = (*refs, reference), resolve(source, self._root)
                continue
            unions = {key: _possible(source[key]) for key in ("anyOf", "oneOf") if is_list(source.get(key))}
            single = next((key for key, branches in unions.items() if len(branches) == 1), None)
            parts: list[Any] = source["allOf"][:_MOST_VALUES] if is_list(source.get("allOf")) else []
            if not parts and single is None:
                return {**source, **unions}, refs
            key = "allOf" if parts else str(single)
            rest = {name: value for name, value in source.items() if name != key}
            for part in parts or unions[key]:
                if is_object(part):
                    if isinstance(part.get("$ref"), str):
                        refs = (*refs, part["$ref"])
                        part = resolve(part, self._root)
                    rest = _joined(rest, part)
            source = rest
        return {key: value for key, value in source.items() if key not in ("$ref", "allOf")}, refs


def _joined(one: Json, other: Json) -> Json:
    """Both at once, as `allOf` means it; what both say is taken from the first."""
    joined = {**other, **one}
    for key in ("properties", "patternProperties"):
        if is_object(one.get(key)) and is_object(other.get(key)):
            joined[key] = {**one[key], **other[key]}
    if is_list(one.get("required")) and is_list(other.get("required")):
        joined["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    if is_list(one.get("allOf")) and is_list(other.get("allOf")):
        joined["allOf"] = [*one["allOf"], *other["allOf"]]
    return joined


def _possible(branches: list[Any]) -> list[Any]:
    return [branch for branch in branches if branch not in _NEVER]


def _stub(source: Json, note: str) -> Json:
    """A schema's kind, and that there would be more inside."""
    kind = source.get("type") or _kind(source)
    kinds: Json = {"type": kind} if kind else {}
    return kinds if kind in ("string", "integer", "number", "boolean", "null") else {**kinds, "description": note}


def _bounded(key: str, value: Any) -> Any:
    """A keyword's value within bounds; None when it is left out."""
    if isinstance(value, str) and len(value) > _LONGEST and key == "description":
        return value[:_LONGEST] + "…"
    if key == "enum" and is_list(value):
        return value[:_MOST_VALUES]
    if key in ("default", "examples", "example", "const") and len(dump(value)) > _LONGEST:
        return None
    return value


def _kind(schema: Json) -> str | None:
    """The type of a schema that does not say it, where that is plain."""
    if "properties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    values: Any = schema.get("enum")
    return "string" if is_list(values) and values and all(isinstance(one, str) for one in values) else None
