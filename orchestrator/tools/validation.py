"""One JSON Schema, compiled: is a value valid, and if not, where and why.

The only module that knows `jsonschema_rs`. Nothing is ever fetched: a `$ref` leads into the schema itself.

Faults are looked for with a second validator in which `anyOf`, `oneOf` and `allOf` only say that they failed. The
engine's own would list the faults of every branch of every branch, which takes two minutes for 18 levels of a recursive
schema; here the caller enters the branches it cares for, one by one.
"""

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from orchestrator.tools.repair import is_list, is_object

if TYPE_CHECKING:
    import jsonschema_rs

Pointer = tuple[str | int, ...]
"""Steps into a value or a schema."""

TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
VALUE: Final = "\0"
"""Stands for the offending value in a fault's message, so that a message never repeats a megabyte."""
_MAPPINGS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_UNIONS: Final = ("anyOf", "oneOf")
_FLOAT_FOR_INTEGER: Final = "a float for an integer"
_URI: Final = "urn:tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What one keyword has against the value at `path`. `pointer` leads to the keyword in the schema."""

    keyword: str
    path: Pointer
    pointer: Pointer
    message: str
    types: Sequence[str] = ()
    names: Sequence[str] = ()


class Compiled:
    """A schema, its validator, and those of its parts, made when first asked for. Raises ValueError if unusable."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs  # noqa: PLC0415 - 50 ms to import; a start that calls no tool does without

        self._engine = jsonschema_rs
        self.root = dict(schema)
        self.is_valid = self._compile().is_valid
        self._parts: dict[Pointer, Callable[[Any], bool]] = {(): self.is_valid}
        self._finders: dict[Pointer, jsonschema_rs.Validator | None] = {}
        self._float_finder: jsonschema_rs.Validator | None = None
        self._registry: jsonschema_rs.Registry | None = None

    def at(self, pointer: Pointer) -> Any:
        """The part of the schema at `pointer`; an empty schema where there is none."""
        node: Any = self.root
        for step in pointer:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return {}
        return node

    def accepts(self, pointer: Pointer, value: Any) -> bool:
        """Whether `value` is valid against the part of the schema at `pointer`."""
        if pointer not in self._parts:
            validator = self._part(pointer, None)
            self._parts[pointer] = validator.is_valid if validator else lambda _: False
        return self._parts[pointer](value)

    def faults(self, pointer: Pointer, value: Any, limit: int) -> list[Fault]:
        """At most `limit` faults of `value` against the part at `pointer`; empty where that part cannot be compiled."""
        if pointer not in self._finders:
            self._finders[pointer] = self._part(pointer, _branch_keywords(self))
        finder = self._finders[pointer]
        errors = itertools.islice(finder.iter_errors(value), limit) if finder else ()
        return [_fault(error) for error in errors]

    def integers_as_floats(self, value: Any) -> list[Pointer]:
        """Paths at which an integer is wanted and a float such as 5.0 stands, which JSON Schema takes as equal."""
        if self._float_finder is None:
            keywords: dict[str, Any] = dict.fromkeys(("type", *_UNIONS), _IntegerAsFloat)
            self._float_finder = self._engine.validator_for(self.root, offline=True, keywords=keywords)
        errors = self._float_finder.iter_errors(value)
        return [tuple(error.instance_path) for error in errors if error.message == _FLOAT_FOR_INTEGER]

    def _compile(self) -> "jsonschema_rs.Validator":
        for mend in (_without_unknown_dialect, _without_bad_patterns, None):
            try:
                return self._engine.validator_for(self.root, validate_formats=True, offline=True)
            except ValueError as error:
                if mend is None:
                    raise ValueError(str(error).partition("\n")[0][:300]) from None
                self.root = mend(self.root, self._engine, str(error))
        raise AssertionError("unreachable")

    def _part(self, pointer: Pointer, keywords: Any) -> "jsonschema_rs.Validator | None":
        try:
            self._registry = self._registry or self._engine.Registry([(_URI, self.root)])
            return self._engine.validator_for(
                {"$ref": _URI + "#" + "".join("/" + _escaped(step) for step in pointer)},
                registry=self._registry,
                validate_formats=True,
                offline=True,
                mask=VALUE,
                keywords=keywords,
            )
        except (ValueError, self._engine.ReferencingError):
            return None  # a part of an embedded `$id` resource: its pointers do not start at the root


def check_shape(schema: object) -> None:
    """Raise ValueError that names what is wrong, for what can be seen without compiling: types, references, keywords.

    Cheap enough for the start of a run with hundreds of tools; `Compiled` finds the rest.
    """
    if not is_object(schema):
        raise ValueError(f"the schema is a {type(schema).__name__}, not an object")
    root = schema
    if "object" not in _as_list(root.get("type", "object")):
        raise ValueError(f'the schema\'s "type" is {root["type"]!r}; arguments are an "object"')
    pending: list[tuple[str, Any, int]] = [("#", root, 0)]
    while pending:
        place, node, depth = pending.pop()
        if isinstance(node, bool):
            continue
        if not is_object(node):
            raise ValueError(f"{place} is {node!r:.60}, not a schema")
        if depth > 100:
            raise ValueError(f"{place[:60]}… is nested more than 100 schemas deep")
        _check_keywords(place, node, root)
        pending.extend((f"{place}/{where}", part, depth + 1) for where, part in _parts(place, node))


def _check_keywords(place: str, node: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    if "type" in node:
        kinds = _as_list(node["type"])
        if not kinds or not all(isinstance(kind, str) and kind in TYPES for kind in kinds):
            raise ValueError(f"{place}/type is {node['type']!r:.60}; known are {', '.join(sorted(TYPES))}")
    reference = node.get("$ref")
    if isinstance(reference, str):
        if reference.startswith("#/") and not _resolves(reference, root):
            raise ValueError(f"{place}/$ref leads nowhere: {reference}")
        if not reference.startswith("#") and not _has_ids(root):
            raise ValueError(f"{place}/$ref leads out of the schema, and nothing is fetched: {reference}")
    required = node.get("required", [])
    if not is_list(required) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"{place}/required is {required!r:.60}, not a list of names")


def _parts(place: str, node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    parts: list[tuple[str, Any]] = []
    for keyword in _MAPPINGS:
        if keyword in node:
            mapping = node[keyword]
            if not is_object(mapping):
                raise ValueError(f"{place}/{keyword} is {mapping!r:.60}, not an object")
            parts.extend((f"{keyword}/{name}", part) for name, part in mapping.items())
    for keyword in _LISTS:
        if keyword in node:
            branches = node[keyword]
            if not is_list(branches) or not branches:
                raise ValueError(f"{place}/{keyword} is {branches!r:.60}, not a list of schemas")
            parts.extend((f"{keyword}/{index}", part) for index, part in enumerate(branches))
    for keyword in _SINGLE:
        if keyword in node and not (keyword == "items" and is_list(node[keyword])):
            parts.append((keyword, node[keyword]))
    return parts


def resolve(node: Any, root: Mapping[str, Any]) -> Any:
    """`node`, or what its local `$ref` leads to, with the keywords beside the `$ref` added."""
    for _ in range(16):
        reference = node.get("$ref") if is_object(node) else None
        if not isinstance(reference, str):
            return node
        target = _target(reference, root)
        beside = {key: value for key, value in node.items() if key != "$ref"}
        if not is_object(target):
            return {}
        node = {**target, **beside}
    return {}


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    node: Any = root
    for step in unquote(reference.removeprefix(str(root.get("$id", "")))).removeprefix("#").split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(step)] if is_list(node) else node[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return node


def _has_ids(root: Mapping[str, Any]) -> bool:
    definitions: list[Any] = [*root.get("$defs", {}).values(), *root.get("definitions", {}).values()]
    return "$id" in root or any(is_object(definition) and "$id" in definition for definition in definitions)


def _resolves(reference: str, root: Mapping[str, Any]) -> bool:
    return _target(reference, root) is not None


def _as_list(value: Any) -> list[Any]:
    return list(value) if is_list(value) else [value]


def _escaped(step: str | int) -> str:
    return quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~")


def _fault(error: "jsonschema_rs.ValidationError") -> Fault:
    unexpected = getattr(error.kind, "unexpected", ())
    missing = getattr(error.kind, "property", None)
    return Fault(
        keyword=error.kind.name,
        path=tuple(error.instance_path),
        pointer=tuple(error.schema_path),
        message=error.message,
        types=tuple(getattr(error.kind, "types", ())),
        names=(missing,) if isinstance(missing, str) else tuple(str(name) for name in unexpected),
    )


def _branch_keywords(compiled: Compiled) -> dict[str, type]:
    """`anyOf`, `oneOf` and `allOf` that do not look into their branches' faults."""
    owner = weakref.ref(compiled)  # the engine holds these classes, and a cycle through it would never be collected

    def keyword(enough: Callable[[int, int], bool], message: str) -> type:
        class Branches:
            def __init__(self, parent_schema: Any, value: Any, schema_path: list[str | int]) -> None:
                self._branches = [(*schema_path, index) for index in range(len(value))]

            def validate(self, instance: Any) -> None:
                whole = owner()
                fitting = sum(whole.accepts(branch, instance) for branch in self._branches) if whole else 0
                if not enough(fitting, len(self._branches)):
                    raise ValueError(message)

        return Branches

    return {
        "anyOf": keyword(lambda fitting, _: fitting > 0, f"{VALUE} has none of the allowed forms"),
        "oneOf": keyword(lambda fitting, _: fitting == 1, f"{VALUE} must have exactly one of the allowed forms"),
        "allOf": keyword(lambda fitting, total: fitting == total, f"{VALUE} does not have the wanted form"),
    }


class _IntegerAsFloat:
    """As the keyword `type`, `anyOf` or `oneOf`: objects to 5.0 where an integer and no other number is wanted."""

    def __init__(self, parent_schema: Any, value: Any, schema_path: list[str | int]) -> None:
        branches = value if schema_path[-1] in _UNIONS else [parent_schema]
        kinds = {kind for branch in branches if is_object(branch) for kind in _as_list(branch.get("type"))}
        self._integer = "integer" in kinds and "number" not in kinds

    def validate(self, instance: Any) -> None:
        if self._integer and isinstance(instance, float) and instance.is_integer():
            raise ValueError(_FLOAT_FOR_INTEGER)


def _without_unknown_dialect(root: dict[str, Any], engine: Any, message: str) -> dict[str, Any]:
    """Draft 2020-12, MCP's default, for a `$schema` that the engine does not know."""
    return {key: value for key, value in root.items() if key != "$schema"} if "meta-schema" in message else root


def _without_bad_patterns(root: dict[str, Any], engine: Any, message: str) -> dict[str, Any]:
    """Without the patterns that the engine cannot compile (another dialect's): the server checks them itself."""

    def usable(keyword: str, pattern: Any) -> bool:
        try:
            engine.validator_for({keyword: pattern})
        except ValueError:
            return False
        return True

    def clean(node: Any) -> Any:
        if is_list(node):
            return [clean(item) for item in node]
        if not is_object(node):
            return node
        kept: dict[str, Any] = {}
        for key, value in node.items():
            if key == "pattern" and isinstance(value, str) and not usable("pattern", value):
                continue
            if key == "patternProperties" and is_object(value):
                value = {name: part for name, part in value.items() if usable(key, {name: {}})}
            kept[key] = clean(value)
        return kept

    return clean(root) if "regex" in message else root
