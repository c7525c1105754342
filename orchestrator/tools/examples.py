"""A correct example of a tool's arguments, built from its schema: for the model that wrote them wrongly.

Deterministic, bounded, best effort: the schema's own examples first, then the smallest value of each type. Required
properties only, besides those asked for. The caller validates, and asks for another `attempt` when it must.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.tools.repair import is_list, is_object
from orchestrator.tools.validation import resolve

ATTEMPTS: Final = 12
_MAX_NODES: Final = 400
_MAX_DEPTH: Final = 12
_FORMATS: Final = {
    "date": "2025-03-09",
    "date-time": "2025-03-09T14:30:00Z",
    "time": "14:30:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "idn-email": "someone@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "iri": "https://example.com/",
    "iri-reference": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "json-pointer": "/a/b",
    "relative-json-pointer": "1/a",
    "uri-template": "https://example.com/{id}",
    "regex": "^a+$",
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
        self._attempt = attempt
        self._nodes = _MAX_NODES
        self._open: list[str] = []

    def value(self, node: Any, depth: int = 0, also: Collection[str] = ()) -> Any:
        self._nodes -= 1
        if not is_object(node) or depth > _MAX_DEPTH or self._nodes < 0:
            return None
        schema: Mapping[str, Any] = node
        outside = len(self._open)
        try:
            return self._built(self._merged(schema), depth, also)
        finally:
            del self._open[outside:]

    def _merged(self, schema: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        """One flat schema: `$ref` followed, `allOf` joined, the branch of a union that this attempt takes joined."""
        if isinstance(reference := schema.get("$ref"), str):
            self._open.append(reference)
        flat: dict[str, Any] = dict(resolve(schema, self._root))
        if depth > _MAX_DEPTH:
            return flat
        parts: list[Any] = flat.pop("allOf", [])
        for union in ("anyOf", "oneOf"):
            if branches := flat.pop(union, []):
                parts = [*parts, self._chosen(branches)]
        for part in parts:
            if is_object(part):
                flat = _joined(flat, self._merged(part, depth + 1))
        return flat

    def _chosen(self, branches: list[Any]) -> Any:
        def rank(branch: Any) -> tuple[bool, bool]:
            target = resolve(branch, self._root)
            null = is_object(target) and target.get("type") == "null"
            return is_object(branch) and branch.get("$ref") in self._open, null

        ranked = sorted(branches, key=rank)
        return ranked[self._attempt // 2 % len(ranked)]

    def _built(self, schema: dict[str, Any], depth: int, also: Collection[str]) -> Any:
        if "const" in schema:
            return schema["const"]
        if self._attempt % 2 == 0 and not also:
            examples = schema.get("examples")
            for given in (
                *(examples if is_list(examples) else ()),
                schema.get("example"),
                schema.get("default"),
            ):
                if given is not None and given != "":
                    return given
        if options := schema.get("enum"):
            return options[self._attempt // 2 % len(options)] if is_list(options) else None
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
            known = [kind for kind in kinds if kind != "null"] or ["null"]
            kinds = known[self._attempt // 2 % len(known)]
        if isinstance(kinds, str):
            return kinds
        if "properties" in schema or "required" in schema or "additionalProperties" in schema:
            return "object"
        if "items" in schema or "prefixItems" in schema:
            return "array"
        return "number" if schema.keys() & {"minimum", "maximum", "multipleOf", "exclusiveMinimum"} else "string"

    def _object(self, schema: dict[str, Any], depth: int, also: Collection[str]) -> dict[str, Any]:
        properties: dict[str, Any] = schema.get("properties", {})
        wanted = set(schema.get("required", ())) | {name for name in also if name in properties}
        least = _size(schema, "minProperties")
        names = [name for name in properties if name in wanted] + sorted(wanted - properties.keys())
        for optional in properties:
            if len(names) < max(least, 1 if depth == 0 else 0) and optional not in names:
                names.append(optional)
        rest = schema.get("additionalProperties", {})
        made = {name: self.value(properties.get(name, rest), depth + 1) for name in names}
        for number in range(1, min(least, 50) + 1 - len(made)):
            made[f"key{number}"] = self.value(rest, depth + 1)
        return made

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        prefix: list[Any] = schema.get("prefixItems", [])
        items: Any = schema.get("items", {})
        if is_list(items):
            prefix, items = items, schema.get("additionalItems", {})
        least = max(_size(schema, "minItems"), len(prefix))
        repeats = is_object(items) and items.get("$ref") in self._open
        if not least and items is not False and not repeats and schema.get("maxItems") != 0:
            least = 1
        made = [self.value(part, depth + 1) for part in prefix]
        while len(made) < min(least, 50):
            made.append(self.value(items, depth + 1))
        if schema.get("uniqueItems"):
            options: list[Any] = resolve(items, self._root).get("enum", []) if is_object(items) else []
            made = [_distinct(item, index, options) for index, item in enumerate(made)]
        return made


def _joined(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    joined = {**base, **part}
    if "properties" in base and "properties" in part:
        joined["properties"] = {**base["properties"], **part["properties"]}
    if "required" in base and "required" in part:
        joined["required"] = [*base["required"], *part["required"]]
    return joined


def _distinct(item: Any, index: int, options: list[Any]) -> Any:
    if index == 0:
        return item
    if index < len(options):
        return options[index]
    if isinstance(item, bool):
        return item if index == 1 else not item
    if isinstance(item, int | float):
        return item + index
    return f"{item}{index + 1}" if isinstance(item, str) else item


def _size(schema: Mapping[str, Any], keyword: str) -> int:
    size = schema.get(keyword, 0)
    return int(size) if isinstance(size, int | float) else 0


def _bound(schema: Mapping[str, Any], keyword: str) -> float | None:
    bound = schema.get(keyword)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """The first plain number within the bounds; else one at or near a bound."""
    low, over = _bound(schema, "minimum"), _bound(schema, "exclusiveMinimum")
    high, under = _bound(schema, "maximum"), _bound(schema, "exclusiveMaximum")
    step = _bound(schema, "multipleOf") or 0

    def fits(number: float) -> bool:
        within = (low is None or number >= low) and (over is None or number > over)
        within = within and (high is None or number <= high) and (under is None or number < under)
        return within and (not step or number % step == 0) and (not whole or number == int(number))

    near = [edge for edge in (low, over, high, under) if edge is not None]
    candidates: list[int | float] = [10, 1, 5, 0, 100, step, *near]
    for edge in near:
        candidates += [int(edge), int(edge) + 1, int(edge) - 1, edge + 0.5, edge - 0.5]
        if step:
            candidates += [edge // step * step, edge // step * step + step]
    if low is not None and high is not None:
        candidates.append((low + high) / 2)
    if over is not None and under is not None:
        candidates.append((over + under) / 2)
    found = next((number for number in candidates if fits(number)), 10)
    return int(found) if found == int(found) else found


def _string(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), "text")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        text = _matching(pattern) or text
    least, most = _size(schema, "minLength"), schema.get("maxLength")
    if len(text) < least:
        text += (text or "x")[-1] * min(least - len(text), 1000)
    return text[: int(most)] if isinstance(most, int | float) and len(text) > most else text


_ATOM = re.compile(r"""\\[dDwWsS]|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?:)?|[).|]|[^\\\[\]().|]""", re.DOTALL)
_COUNT = re.compile(r"\{(\d+)(?:,\d*)?\}\??|[*+?]\??")
_CLASSES: Final = {r"\d": "1", r"\w": "a", r"\s": " ", r"\D": "a", r"\W": "-", r"\S": "a", ".": "a"}


def _matching(pattern: str) -> str | None:
    """A short text that matches a plain pattern (classes, groups, counts, alternatives), or None."""
    if len(pattern) > 300 or re.search(r"\(\?[^:]", pattern):
        return None
    try:
        text, _ = _alternatives(pattern, 0)
        return text if re.search(pattern, text) else None
    except (re.error, ValueError, IndexError, RecursionError):
        return None


def _alternatives(pattern: str, at: int) -> tuple[str, int]:
    """The first alternative of the group that starts at `at`, and where the group ends."""
    text, first = "", None
    while at < len(pattern):
        atom = _ATOM.match(pattern, at)
        if atom is None or atom.group() == ")":
            break
        token, at = atom.group(), atom.end()
        if token == "|":
            first, text = text if first is None else first, ""
            continue
        if token.startswith("("):
            piece, at = _alternatives(pattern, at)
            at += 1
        else:
            piece = "" if token in "^$" or token in {r"\b", r"\Z", r"\A"} else _piece(token)
        count = _COUNT.match(pattern, at)
        if count:
            at = count.end()
            piece *= min(int(count.group(1)), 200) if count.group(1) else (0 if count.group()[0] == "?" else 1)
        text += piece
    return (text if first is None else first), at


def _piece(token: str) -> str:
    if token in _CLASSES:
        return _CLASSES[token]
    if token.startswith("["):
        return next(char for char in "a1A0-_. /x9Zé" + token if re.fullmatch(token, char))
    return token[1:] if token.startswith("\\") else token
