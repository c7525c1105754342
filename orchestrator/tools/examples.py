"""A correct example of a tool's arguments, built from its schema: for the model that wrote them wrongly.

Deterministic, bounded, best effort: the schema's own examples first, then the smallest value of each type. Required
properties only, besides those asked for. The caller validates, and asks for another `attempt` when it must.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.models.repair import is_list, is_object
from orchestrator.tools.validation import resolve

ATTEMPTS: Final = 12
_MAX_NODES: Final = 400
_MAX_DEPTH: Final = 12
_MAX_ITEMS: Final = 50
_FORMATS: Final = {
    "date": "2025-03-09",
    "date-time": "2025-03-09T14:30:00Z",
    "time": "14:30:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def example(schema: Mapping[str, Any], also: Collection[str] = (), attempt: int = 0) -> Any:
    """A value that should validate against `schema`. `also` names optional properties of the top level to show.

    Attempt 0 trusts `examples`, `default` and the first branch of each union; each later one differs in the branch,
    and the odd ones do not trust.
    """
    return _Builder(schema, attempt).value(schema, also=also)


class _Builder:
    def __init__(self, root: Mapping[str, Any], attempt: int) -> None:
        self._root = root
        self._trusting = attempt % 2 == 0
        self._turn = attempt // 2
        self._nodes = _MAX_NODES
        self._open: list[str] = []

    def value(self, node: Any, depth: int = 0, also: Collection[str] = ()) -> Any:
        self._nodes -= 1
        if not is_object(node) or depth > _MAX_DEPTH or self._nodes < 0:
            return None
        outside = len(self._open)
        built = self._built(self._merged(node), depth, also)
        del self._open[outside:]
        return built

    def _merged(self, schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        """One flat schema: `$ref` followed, `allOf` joined, the branch of a union that this attempt takes joined."""
        if isinstance(reference := schema.get("$ref"), str):
            self._open.append(reference)
        flat: dict[str, Any] = dict(resolve(schema, self._root))
        parts: list[Any] = flat.pop("allOf", [])
        parts = parts + [self._branch(flat.pop(union)) for union in ("anyOf", "oneOf") if union in flat]
        for part in parts if depth < _MAX_DEPTH else ():
            inner = self._merged(part, depth + 1) if is_object(part) else {}
            properties = {**flat.get("properties", {}), **inner.get("properties", {})}
            required = [*flat.get("required", ()), *inner.get("required", ())]
            flat = {**flat, **inner, **({"properties": properties} if properties else {}), "required": required}
        return flat

    def _branch(self, branches: list[Any]) -> Any:
        """The one whose turn it is; those last that repeat a schema within itself or are null."""

        def rank(branch: Any) -> tuple[bool, bool]:
            target = resolve(branch, self._root)
            return is_object(branch) and branch.get("$ref") in self._open, target == {"type": "null"}

        return sorted(branches, key=rank)[self._turn % len(branches)]

    def _built(self, schema: dict[str, Any], depth: int, also: Collection[str]) -> Any:
        if "const" in schema:
            return schema["const"]
        examples = schema.get("examples")
        given = [*(examples if is_list(examples) else ()), schema.get("example"), schema.get("default")]
        if self._trusting and not also and (known := [one for one in given if one is not None and one != ""]):
            return known[0]
        if options := schema.get("enum"):
            return options[self._turn % len(options)]
        match self._kind(schema):
            case "object":
                return self._object(schema, depth, also)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as kind:
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return _string(schema)

    def _kind(self, schema: dict[str, Any]) -> str:
        kinds = schema.get("type")
        if is_list(kinds):
            kinds = sorted(kinds, key="null".__eq__)[self._turn % len(kinds)]
        if isinstance(kinds, str):
            return kinds
        if schema.keys() & {"properties", "additionalProperties"} or schema.get("required"):
            return "object"
        if schema.keys() & {"items", "prefixItems"}:
            return "array"
        return "number" if schema.keys() & {"minimum", "maximum", "multipleOf", "exclusiveMinimum"} else "string"

    def _object(self, schema: dict[str, Any], depth: int, also: Collection[str]) -> dict[str, Any]:
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        wanted = {*schema.get("required", ()), *(name for name in also if name in properties)}
        names = [*(name for name in properties if name in wanted), *sorted(wanted - properties.keys())]
        if depth == 0 and not names:
            names = list(properties)[:1]
        return {name: self.value(properties.get(name, rest), depth + 1) for name in names}

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        prefix, items = schema.get("prefixItems", []), schema.get("items", {})
        if is_list(items):  # before draft 2020-12
            prefix, items = items, schema.get("additionalItems", {})
        parts = [*prefix, *[items] * (min(int(schema.get("minItems", 0)), _MAX_ITEMS) - len(prefix))]
        repeats = is_object(items) and items.get("$ref") in self._open
        if not parts and items is not False and not repeats and schema.get("maxItems") != 0:
            parts = [items]
        made = [self.value(part, depth + 1) for part in parts]
        return [_distinct(item, index) for index, item in enumerate(made)] if schema.get("uniqueItems") else made


def _distinct(item: Any, index: int) -> Any:
    if index and isinstance(item, str):
        return f"{item}{index + 1}"
    return bool(index) if isinstance(item, bool) else item + index if isinstance(item, int | float) else item


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """The first plain number within the bounds; else one at or near a bound."""
    low, over = schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf)
    high, under = schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf)
    step = schema.get("multipleOf") or (1 if whole else 0)

    def fits(number: float) -> bool:
        return low <= number <= high and over < number < under and (not step or number % step == 0)

    candidates: list[float] = [10, 1, 5, 0, 100]
    edges = [edge for edge in (max(low, over), min(high, under)) if math.isfinite(edge)]
    for edge in edges:
        multiple = math.ceil(edge / (step or 1)) * (step or 1)
        candidates += [edge, multiple, multiple + step, multiple - step, edge + 0.5, edge - 0.5]
    found = next((number for number in (*candidates, sum(edges) / 2) if fits(number)), 10)
    return int(found) if found == int(found) else found


def _string(schema: Mapping[str, Any]) -> str:
    kind = str(schema.get("format")).removeprefix("idn-").replace("iri", "uri").partition("-reference")[0]
    text = _FORMATS.get(kind, "text")
    if isinstance(pattern := schema.get("pattern"), str):
        text = _matching(pattern) or text
    least, most = min(int(schema.get("minLength", 0)), 1_000), schema.get("maxLength")
    text = text.ljust(least, (text or "x")[-1])
    return text if most is None else text[: int(most)]


_ATOM = re.compile(r"""\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?:)?|[^\\\[(]""", re.DOTALL)
_COUNT = re.compile(r"(?:\{(\d+)(?:,\d*)?\}|([*+?]))\??")
_EMPTY: Final = ("^", "$", r"\b", r"\A", r"\Z")


def _matching(pattern: str) -> str | None:
    """A short text that matches a plain pattern (classes, groups, counts, alternatives), or None."""
    if len(pattern) > 300 or re.search(r"\(\?[^:]", pattern):
        return None
    try:
        text, _ = _alternatives(pattern, 0)
        return text if re.search(pattern, text) else None
    except (re.error, StopIteration, RecursionError):
        return None


def _alternatives(pattern: str, at: int) -> tuple[str, int]:
    """The first alternative of the group that starts at `at`, and where the group ends."""
    texts = [""]
    while (atom := _ATOM.match(pattern, at)) and atom.group() != ")":
        token, at = atom.group(), atom.end()
        if token == "|":
            texts.append("")
            continue
        if token.startswith("("):
            piece, at = _alternatives(pattern, at)
            at += 1
        else:
            piece = (
                ""
                if token in _EMPTY
                else next(char for char in "a1A0-_. /x9Zé" + token[-1] if re.fullmatch(token, char))
            )
        if count := _COUNT.match(pattern, at):
            at = count.end()
            piece *= min(int(count.group(1)), 200) if count.group(1) else count.group(2) != "?"
        texts[-1] += piece
    return texts[0], at
