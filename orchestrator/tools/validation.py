"""One JSON Schema, compiled: is a value valid, and if not, what is to be told of it.

The only module that knows `jsonschema_rs`. Nothing is ever fetched: a `$ref` leads into the schema itself.

Faults are looked for with a second validator in which `anyOf` and `oneOf` only say that they failed. The engine's own
would list the faults of every branch of every branch, which takes two minutes for 18 levels of a recursive schema; here
a union's only branch that is not null is entered instead, and no other.
"""

import copy
import difflib
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from orchestrator.models.repair import is_list, is_object
from orchestrator.tools import dates

if TYPE_CHECKING:
    import jsonschema_rs

Pointer = tuple[str | int, ...]
"""Steps into a value or a schema."""

_VALUE: Final = "\0"
"""Stands for the offending value in the engine's messages, so that none of them repeats a megabyte."""
_UNIONS: Final = {
    "anyOf": f"{_VALUE} has none of the allowed forms",
    "oneOf": f"{_VALUE} must have exactly one of the allowed forms",
}
_MAX_PROBLEMS: Final = 50
_MAX_DEPTH: Final = 8
_URI: Final = "urn:tool"


_LARGEST_PATTERN: Final = 256 * 1024
"""Bytes of a compiled pattern of a model's: with it, a search takes a bounded time for each character."""


def searcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches somewhere, by an engine that is linear in the text whatever the pattern.

    Raises ValueError for a pattern that is wrong, too large, or needs look-around or back references.
    """
    import jsonschema_rs  # noqa: PLC0415 - 50 ms to import alone, 5 after mcp

    options = jsonschema_rs.RegexOptions(size_limit=_LARGEST_PATTERN, dfa_size_limit=_LARGEST_PATTERN)
    try:
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options).is_valid
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(f"{pattern[:80]!r} cannot be searched for") from error


class Compiled:
    """A schema, its validator, and those of its parts, made when first asked for.

    Raises ValueError that names what is wrong with a schema by which no arguments could ever be judged.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs  # noqa: PLC0415 - 50 ms to import alone, 5 after mcp

        self._engine = jsonschema_rs
        self.root = dict(schema)
        self.is_valid = self._compile().is_valid
        if "object" not in (kinds := self.root.get("type", "object")):
            raise ValueError(f'the schema\'s "type" is {kinds!r}; arguments are an "object"')
        self._parts: dict[Pointer, Callable[[Any], bool]] = {(): self.is_valid}
        self._registry: jsonschema_rs.Registry | None = None

    def accepts(self, pointer: Pointer, value: Any) -> bool:
        """Whether `value` is valid against the part of the schema at `pointer`."""
        if pointer not in self._parts:
            validator = self._part(pointer)
            self._parts[pointer] = validator.is_valid if validator else lambda _: False
        return self._parts[pointer](value)

    def problems(
        self, value: Any, pointer: Pointer = (), path: Pointer = (), depth: int = 0
    ) -> Iterator[tuple[set[str], str]]:
        """The first problems of `value` with the part at `pointer`: the arguments concerned, and a line for each."""
        finder = self._part(pointer, _union_keywords(self))
        for error in islice(finder.iter_errors(value), _MAX_PROBLEMS) if finder else ():
            there, wrong = (*path, *error.instance_path), at(value, tuple(error.instance_path))
            branch = self._only_branch(tuple(error.schema_path)) if depth < _MAX_DEPTH else None
            inner = list(self.problems(wrong, branch, there, depth + 1)) if branch else []
            yield from inner or [self._told(error, there, wrong)]

    def _only_branch(self, pointer: Pointer) -> Pointer | None:
        if not pointer or pointer[-1] not in _UNIONS:
            return None
        branches: list[Pointer] = [(*pointer, index) for index in range(len(at(self.root, pointer)))]
        real = [branch for branch in branches if not self.accepts(branch, None)]
        return real[0] if len(real) == 1 else None

    def _told(self, error: "jsonschema_rs.ValidationError", path: Pointer, wrong: Any) -> tuple[set[str], str]:
        """One problem as a line for the model, with the place and a bounded piece of the value."""
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        kind: Any = error.kind
        if kind.name == "required":
            names, line = [kind.property], f"{_joined(place, kind.property)} is required but missing"
        elif names := [str(name) for name in getattr(kind, "unexpected", ())]:
            known: list[str] = list(at(self.root, (*error.schema_path[:-1], "properties")) or ())
            line = "; ".join(_unknown(name[:100], place, known) for name in names[:5])
        else:
            shown = bounded(json.dumps(wrong, ensure_ascii=False, default=str), 120)
            line = bounded(error.message, 300).replace(_VALUE, shown)
            line = f"{place}: {line}" if place else line
            if kind.name == "format":
                line += dates.problem(wrong, kind.format)
        return set(map(str, path[:1] or names)), line

    def _compile(self) -> "jsonschema_rs.Validator":
        """Patterns that the engine cannot compile (another dialect's) are left out: the server checks them itself."""
        if "json-schema.org" not in str(self.root.get("$schema")):  # draft 2020-12 is MCP's default
            self.root.pop("$schema", None)
        while True:
            try:
                return self._engine.validator_for(self.root, validate_formats=True, offline=True)
            except ValueError as error:
                place: Pointer = tuple(getattr(error, "instance_path", ()))
                if ' is not a "regex"' not in str(error) or not place:
                    where = "".join(f"/{step}" for step in place)
                    raise ValueError(f"#{where}: {error}".partition("\n")[0][:300]) from None
                self.root = copy.deepcopy(self.root)
                del at(self.root, place[:-1])[place[-1]]

    def _part(self, pointer: Pointer, keywords: Any = None) -> "jsonschema_rs.Validator | None":
        try:
            self._registry = self._registry or self._engine.Registry([(_URI, self.root)])
            return self._engine.validator_for(
                {"$ref": _URI + "#" + "".join("/" + _escaped(step) for step in pointer)},
                registry=self._registry,
                validate_formats=True,
                offline=True,
                mask=_VALUE,
                keywords=keywords,
            )
        except (ValueError, self._engine.ReferencingError):
            return None  # a part of an embedded `$id` resource: its pointers do not start at the root


def bounded(text: str, most: int) -> str:
    """At most so many characters of it."""
    return text if len(text) <= most else text[: most - 1] + "…"


def at(value: Any, path: Pointer) -> Any:
    """What is at `path` in `value`; None where there is nothing."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def target(reference: str, root: Mapping[str, Any]) -> Pointer:
    """Where a `$ref` leads within `root`; nowhere for one that is not a pointer."""
    head, *steps = unquote(reference.removeprefix(str(root.get("$id", "")))).removeprefix("#").split("/")
    pointer: Pointer = (reference,) if head else ()
    for step in steps:
        step = step.replace("~1", "/").replace("~0", "~")
        pointer = (*pointer, int(step) if is_list(at(root, pointer)) and step.isdecimal() else step)
    return pointer


def resolve(node: Any, root: Mapping[str, Any]) -> Any:
    """`node`, or what its local `$ref` leads to, with the keywords beside the `$ref` added."""
    for _ in range(16):
        if not is_object(node) or not isinstance(node.get("$ref"), str):
            return node
        found = at(root, target(node["$ref"], root))
        beside = {key: value for key, value in node.items() if key != "$ref"}
        node = {**found, **beside} if is_object(found) else beside
    return {}


def _escaped(step: str | int) -> str:
    return quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~")


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _unknown(name: str, place: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are: {bounded(', '.join(known), 200) or 'none'}"
    return f"there is no argument {_joined(place, name)}; {hint}"


def _union_keywords(compiled: Compiled) -> dict[str, type]:
    """`anyOf` and `oneOf` that do not look into their branches' faults."""
    owner = weakref.ref(compiled)  # the engine holds these classes, and a cycle through it would never be collected

    class Union:
        def __init__(self, parent_schema: Any, value: Any, schema_path: list[str | int]) -> None:
            self._branches = [(*schema_path, index) for index in range(len(value))]

        def validate(self, instance: Any) -> None:
            whole, keyword = owner(), str(self._branches[0][-2])
            fitting = sum(whole.accepts(branch, instance) for branch in self._branches) if whole else 0
            if fitting == 0 or (fitting > 1 and keyword == "oneOf"):
                raise ValueError(_UNIONS[keyword])

    return dict.fromkeys(_UNIONS, Union)
