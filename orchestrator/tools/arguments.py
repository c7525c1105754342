"""What a model wrote as a tool's arguments, as its schema wants them, or an observation that says why not.

Read (`repair`), coerce (`coerce`), validate (`validation`); a failure carries the problem, the expected schema and a
correct example. Pure: no I/O, nothing fetched, the same text always gives the same arguments.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from orchestrator.tools import dates, repair
from orchestrator.tools.coerce import coerce
from orchestrator.tools.examples import ATTEMPTS, example
from orchestrator.tools.repair import is_list, is_object
from orchestrator.tools.validation import VALUE, Compiled, Fault, Pointer, check_shape, resolve

_MAX_PROBLEMS: Final = 5
_MAX_EXPECTED: Final = 600
_MAX_EXAMPLE: Final = 1_200
_INTEGRAL = re.compile(r"\d\.0|\d[eE][+\d]")
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_NOISE: Final = frozenset({"title", "examples", "example", "$schema", "$id", "$comment", "deprecated", "readOnly"})


class InvalidArguments(ValueError):
    """Arguments that cannot be used. `str()` is the whole observation for the model.

    `expected` is a short text of the schema of the arguments concerned, `example` a call's arguments as they should be.
    """

    def __init__(self, problem: str, expected: str = "a JSON object", example: dict[str, Any] | None = None) -> None:
        self.problem = problem
        self.expected = expected
        self.example = {"name": "value"} if example is None else example
        shown = _bounded(json.dumps(self.example, ensure_ascii=False), _MAX_EXAMPLE)
        super().__init__(f"Invalid arguments: {problem}\nExpected: {expected}\nA correct example: {shown}")


def parse(text: str) -> dict[str, Any]:
    """The object that a model wrote, however badly. No text and `null` are `{}`. Raises InvalidArguments only."""
    try:
        value = repair.decode(text)
        if is_object(value):
            if text.count("{") + text.count("[") > repair.MAX_DEPTH or "\\u" in text or not text.isascii():
                repair.check_sound(value)
            return value
        value = repair.repair(text) if isinstance(value, str) else value
    except repair.NotFinite as error:
        raise _unreadable(text, str(error)) from None
    except (ValueError, RecursionError):
        try:
            value = repair.repair(text)
        except ValueError as error:
            raise _unreadable(text, str(error)) from None
    if value is None:
        return {}
    if not is_object(value):
        raise _unreadable(text, f"it is a {_kind(value)}, not an object")
    return value


def canonical(arguments: Mapping[str, Any]) -> str:
    """Compact ASCII JSON with sorted keys. Numbers that are equal are written alike, as in JSON Schema: 1.0 is 1."""
    text = _CANONICAL.encode(arguments if is_object(arguments) else dict(arguments))
    if _INTEGRAL.search(text):
        text = _CANONICAL.encode(_with_integers(dict(arguments)))
    return text


class ArgumentSchema:
    """A tool's input schema. Raises ValueError, naming what is wrong, if no arguments could ever be judged by it.

    Only the shape is checked at first; compiling waits for `compile()` or the first call, and is kept.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        check_shape(schema)
        self._schema = dict(schema)

    def compile(self) -> None:
        """Compile now. Raises ValueError for what only the engine finds, such as `"minimum": "3"`."""
        _ = self._compiled

    def prepare(self, text: str) -> dict[str, Any]:
        """The arguments to send for what the model wrote. Raises InvalidArguments."""
        try:
            arguments = parse(text)
        except InvalidArguments as error:
            raise InvalidArguments(error.problem, self._overview(), self.example()) from None
        compiled = self._usable()
        if not compiled.is_valid(arguments):
            return self._coerced(arguments, compiled)
        return _integers(arguments, compiled) if _INTEGRAL.search(text) else arguments

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """As `prepare`, for arguments that are already an object; `arguments` is left as it is."""
        try:
            repair.check_sound(arguments)
        except ValueError as error:
            raise InvalidArguments(str(error), self._overview(), self.example()) from None
        compiled = self._usable()
        if not compiled.is_valid(arguments):
            return self._coerced(arguments, compiled)
        return _integers(arguments, compiled)

    def example(self) -> dict[str, Any]:
        """Arguments that are right: what is required, or the first argument where nothing is. Best effort."""
        return json.loads(self._example)

    @cached_property
    def _compiled(self) -> Compiled:
        return Compiled(self._schema)

    @cached_property
    def _example(self) -> str:
        return json.dumps(self._example_with(()))

    def _usable(self) -> Compiled:
        try:
            return self._compiled
        except ValueError as error:
            raise InvalidArguments(
                f"this tool cannot be used, its schema is broken ({error}). Use another tool.", "nothing", {}
            ) from error

    def _coerced(self, arguments: dict[str, Any], compiled: Compiled) -> dict[str, Any]:
        mended = coerce(arguments, compiled)
        if compiled.is_valid(mended):
            return _integers(mended, compiled)
        raise self._invalid(mended, compiled)

    def _invalid(self, mended: Any, compiled: Compiled) -> InvalidArguments:
        """Told of what coercion left, so that an argument is reported for what is really wrong with it."""
        faults = list(_faults(compiled, mended))
        problems = list(dict.fromkeys(_told(fault, mended, compiled) for fault in faults))
        more = f"\n- and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        names = sorted({name for fault in faults for name in _concerned(fault)})
        problem = "".join(f"\n- {problem}" for problem in problems[:_MAX_PROBLEMS]) + more
        return InvalidArguments(problem, self._overview(names), self._example_with(names))

    def _example_with(self, names: Collection[str]) -> dict[str, Any]:
        compiled = self._usable()
        first: dict[str, Any] | None = None
        for shown in (names, ()) if names else ((),):
            for attempt in range(ATTEMPTS):
                made = example(compiled.root, shown, attempt)
                if is_object(made) and compiled.is_valid(made):
                    return made
                first = made if first is None and is_object(made) else first
        return first or {}

    def _overview(self, names: Collection[str] = ()) -> str:
        """The schema of the arguments named, or of all; each with whether it is required."""
        flat: dict[str, Any] = resolve(self._schema, self._schema)
        properties: dict[str, Any] = flat.get("properties", {})
        required = flat.get("required", ())
        shown = [name for name in properties if name in names] or list(properties)
        parts = [
            f"{name}{' (required)' if name in required else ''}: {_compact(properties[name], self._schema)}"
            for name in shown[:20]
        ]
        return _bounded("; ".join(parts) or _compact(flat, self._schema), _MAX_EXPECTED)


def _kind(value: Any) -> str:
    return (
        "list"
        if is_list(value)
        else "string"
        if isinstance(value, str)
        else "boolean"
        if isinstance(value, bool)
        else "number"
    )


def _unreadable(text: str, reason: str) -> InvalidArguments:
    return InvalidArguments(f"{reason}. What was written: {_fragment(text)}")


def _fragment(text: str) -> str:
    return text if len(text) <= 240 else f"{text[:160]} … {text[-60:]} ({len(text)} characters)"


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _compact(node: Any, root: Mapping[str, Any]) -> str:
    return json.dumps(_trimmed(node, root, 3), ensure_ascii=False, separators=(",", ":"), default=str)


def _trimmed(node: Any, root: Mapping[str, Any], depth: int) -> Any:
    """A schema without noise and with `$ref` followed, three levels deep."""
    if is_list(node):
        return [_trimmed(item, root, depth) for item in node[:20]]
    if not is_object(node):
        return _bounded(node, 100) if isinstance(node, str) else node
    if depth == 0:
        return {"…": "…"}
    flat: dict[str, Any] = resolve(node, root) if isinstance(node.get("$ref"), str) else node
    kept = {key: value for key, value in flat.items() if key not in _NOISE and key not in {"$defs", "definitions"}}
    return {
        key: {name: _trimmed(part, root, depth - 1) for name, part in list(value.items())[:20]}
        if key == "properties" and is_object(value)
        else _trimmed(value, root, depth - 1 if is_object(value) else depth)
        for key, value in kept.items()
    }


def _faults(compiled: Compiled, value: Any, pointer: Pointer = (), depth: int = 0) -> Iterator[Fault]:
    """The faults to tell of: those within a union's only branch that is not null, instead of the union's own."""
    for fault in compiled.faults(pointer, value, 50):
        inner = _only_branches(compiled, fault) if depth < 8 else []
        told = False
        for branch in inner:
            for deeper in _faults(compiled, _at(value, fault.path), branch, depth + 1):
                told = True
                yield Fault(
                    keyword=deeper.keyword,
                    path=(*fault.path, *deeper.path),
                    pointer=deeper.pointer,
                    message=deeper.message,
                    types=deeper.types,
                    names=deeper.names,
                )
        if not told:
            yield fault


def _only_branches(compiled: Compiled, fault: Fault) -> list[Pointer]:
    if fault.keyword not in {"anyOf", "oneOf", "allOf"}:
        return []
    branches = [(*fault.pointer, index) for index in range(len(compiled.at(fault.pointer)))]
    if fault.keyword == "allOf":
        return branches
    real = [branch for branch in branches if not compiled.accepts(branch, None)]
    return real if len(real) == 1 else []


def _at(value: Any, path: Pointer) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _concerned(fault: Fault) -> tuple[str, ...]:
    return (str(fault.path[0]),) if fault.path else tuple(fault.names)


def _told(fault: Fault, given: Any, compiled: Compiled) -> str:
    """One problem as a line for the model, with the place and a bounded piece of the value."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path).lstrip(".")
    value = _at(given, fault.path)
    if fault.keyword == "required":
        return f"{'.'.join(filter(None, (place, fault.names[0])))} is required but missing"
    if fault.keyword in {"additionalProperties", "unevaluatedProperties"} and fault.names:
        known = list(compiled.at(fault.pointer[:-1]).get("properties", {}))
        return "; ".join(_unknown(name, place, known) for name in fault.names[:_MAX_PROBLEMS])
    reason = ""
    if fault.keyword == "format" and isinstance(value, str):
        reason = _date_problem(value, compiled.at(fault.pointer))
    shown = _bounded(json.dumps(value, ensure_ascii=False, default=str), 120)
    message = _bounded(fault.message, 300).replace(VALUE, shown)
    return f"{place}: {message}{reason}" if place else message


def _unknown(name: str, place: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:100], known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are: {_bounded(', '.join(known), 200) or 'none'}"
    return f"there is no argument {'.'.join(filter(None, (place, name[:100])))}; {hint}"


def _date_problem(value: str, wanted: Any) -> str:
    try:
        if wanted == "date":
            dates.iso_date(value)
        elif wanted == "date-time":
            dates.iso_datetime(value)
    except dates.NoDate as error:
        return f": {error}"
    return ""


def _integers(arguments: dict[str, Any], compiled: Compiled) -> dict[str, Any]:
    """5.0 as 5 where an integer is wanted: equal in JSON Schema, but not to every server's decoder."""
    if not _has_integral_float(arguments):
        return arguments
    copied: dict[str, Any] = json.loads(json.dumps(arguments))
    for path in compiled.integers_as_floats(copied):
        parent = _at(copied, path[:-1])
        parent[path[-1]] = int(parent[path[-1]])
    return copied


def _has_integral_float(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    items: Any = value.values() if is_object(value) else value if is_list(value) else ()
    return any(_has_integral_float(item) for item in items)


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _with_integers(item) for name, item in value.items()}
    if is_list(value):
        return [_with_integers(item) for item in value]
    return value
