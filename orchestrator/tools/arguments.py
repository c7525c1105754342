"""What a model wrote as a tool's arguments, as its schema wants them, or an observation that says why not.

Read (`repair`), coerce (`coerce`), validate (`validation`); a failure carries the problem, the expected schema and a
correct example. Pure: no I/O, nothing fetched, the same text always gives the same arguments.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from orchestrator.models import repair
from orchestrator.models.repair import is_list, is_object
from orchestrator.tools.coerce import coerce
from orchestrator.tools.examples import ATTEMPTS, example
from orchestrator.tools.validation import Compiled, bounded, resolve

_MAX_PROBLEMS: Final = 5
_MAX_EXPECTED: Final = 600
_MAX_EXAMPLE: Final = 1_200
_MAX_INTEGER: Final = 2**63
_INTEGRAL = re.compile(r"\d\.0|\d[eE][+\d]")
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_KINDS: Final[dict[type, str]] = {list: "list", bool: "boolean", int: "number", float: "number", str: "string"}
_NOISE: Final = frozenset({"title", "examples", "example", "$schema", "$id", "$comment", "deprecated", "readOnly"})


class InvalidArguments(ValueError):
    """Arguments that cannot be used. `str()` is the whole observation for the model.

    `expected` is a short text of the schema of the arguments concerned, `example` a call's arguments as they should be.
    """

    def __init__(self, problem: str, expected: str = "a JSON object", example: dict[str, Any] | None = None) -> None:
        self.problem = problem
        self.expected = expected
        self.example = {"name": "value"} if example is None else example
        shown = bounded(json.dumps(self.example, ensure_ascii=False), _MAX_EXAMPLE)
        super().__init__(f"Invalid arguments: {problem}\nExpected: {expected}\nA correct example: {shown}")


def parse(text: str) -> dict[str, Any]:
    """The object that a model wrote, however badly. No text and `null` are `{}`. Raises InvalidArguments only."""
    try:
        value = repair.repair(text)
        if not is_object(value) and value is not None:
            raise ValueError(f"it is a {_KINDS[type(value)]}, not an object")
    except ValueError as error:
        fragment = text if len(text) <= 240 else f"{text[:160]} … {text[-60:]} ({len(text)} characters)"
        raise InvalidArguments(f"{error}. What was written: {fragment}") from None
    return value or {}


def canonical(arguments: Mapping[str, Any]) -> str:
    """Compact ASCII JSON with sorted keys. Numbers that are equal are written alike, as in JSON Schema: 1.0 is 1."""
    text = _CANONICAL.encode(arguments if is_object(arguments) else dict(arguments))
    return _CANONICAL.encode(_with_integers(dict(arguments))) if _INTEGRAL.search(text) else text


class ArgumentSchema:
    """A tool's input schema. Raises ValueError, naming what is wrong, if no arguments could ever be judged by it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._compiled = Compiled(schema)

    def prepare(self, text: str) -> dict[str, Any]:
        """The arguments to send for what the model wrote. Raises InvalidArguments."""
        try:
            arguments = parse(text)
        except InvalidArguments as error:
            raise InvalidArguments(error.problem, self._overview(), self.example()) from None
        if not self._compiled.is_valid(arguments):
            return self._coerced(arguments)
        return _with_integers(arguments) if _INTEGRAL.search(text) else arguments

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """As `prepare`, for arguments that are already an object; `arguments` is left as it is."""
        try:
            repair.check_sound(arguments)
        except ValueError as error:
            raise InvalidArguments(str(error), self._overview(), self.example()) from None
        return _with_integers(arguments) if self._compiled.is_valid(arguments) else self._coerced(arguments)

    def example(self) -> dict[str, Any]:
        """Arguments that are right: what is required, or the first argument where nothing is. Best effort."""
        return self._example_with(())

    def _coerced(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Told of what coercion left, so that an argument is reported for what is really wrong with it."""
        mended = coerce(arguments, self._compiled)
        if self._compiled.is_valid(mended):
            return _with_integers(mended)
        told = list(self._compiled.problems(mended))
        problems = list(dict.fromkeys(line for _, line in told))
        more = f"\n- and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        names = sorted({name for concerned, _ in told for name in concerned})
        problem = "".join(f"\n- {problem}" for problem in problems[:_MAX_PROBLEMS]) + more
        raise InvalidArguments(problem, self._overview(names), self._example_with(names))

    def _example_with(self, names: Collection[str]) -> dict[str, Any]:
        """The first that is right, of those with the optional arguments `names` and then of those without."""
        first: Any = None
        for shown in dict.fromkeys((tuple(names), ())):
            for attempt in range(ATTEMPTS):
                made = example(self._compiled.root, shown, attempt)
                if self._compiled.is_valid(made):
                    return made
                first = first or made
        return first if is_object(first) else {}

    def _overview(self, names: Collection[str] = ()) -> str:
        """The schema of the arguments named, or of all; each with whether it is required."""
        root = self._compiled.root
        flat: dict[str, Any] = resolve(root, root)
        properties: dict[str, Any] = flat.get("properties", {})
        required = flat.get("required", ())
        shown = [name for name in properties if name in names] or list(properties)
        parts = [
            f"{name}{' (required)' if name in required else ''}: {_compact(properties[name], root)}"
            for name in shown[:20]
        ]
        return bounded("; ".join(parts) or _compact(flat, root), _MAX_EXPECTED)


def _compact(node: Any, root: Mapping[str, Any]) -> str:
    return json.dumps(_trimmed(node, root, 5), ensure_ascii=False, separators=(",", ":"), default=str)


def _trimmed(node: Any, root: Mapping[str, Any], depth: int) -> Any:
    """A schema without noise and with `$ref` followed, some levels deep. A property may be named as noise is."""
    if is_list(node):
        return [_trimmed(item, root, depth) for item in node[:20]]
    if not is_object(node):
        return bounded(node, 100) if isinstance(node, str) else node
    if depth == 0:
        return {"…": "…"}
    flat: dict[str, Any] = resolve(node, root)
    kept = [(key, value) for key, value in flat.items() if is_object(value) or key not in _NOISE]
    return {key: _trimmed(value, root, depth - 1) for key, value in kept[:20] if key != "$defs"}


def _with_integers(value: Any) -> Any:
    """5.0 as 5: equal in JSON Schema, but not to every server's decoder of an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_INTEGER else value
    if is_object(value):
        return {name: _with_integers(item) for name, item in value.items()}
    if is_list(value):
        return [_with_integers(item) for item in value]
    return value
