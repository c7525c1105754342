"""Wrongly typed arguments to what the schema wants, where what was meant is certain.

Led by the validator's faults, so that what is valid is never touched, whatever keywords the schema uses: each round
asks for the faults, mends the values they point at, deepest first, and asks again. `anyOf` and `oneOf` take the first
branch that validates after coercion, branches of the value's own type before others. What cannot be mended stays as it
was. Work is bounded by a count, not by a clock, so that the same text always gives the same arguments.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from orchestrator.tools import dates
from orchestrator.tools.repair import is_list, is_object
repaired_container=None
from orchestrator.tools.validation import Compiled, Fault, Pointer

_ROUNDS: Final = 24
_FAULTS: Final = 1_000
_BUDGET: Final = 200_000
"""Values looked at. A call with a thousand wrong values needs a few thousand."""

_NUMBER = re.compile(
    r"[+-]?(?:\d{1,300}|\d{1,3}(?:,\d{3}){1,100})(?:\.\d{0,300})?(?:[eE][+-]?\d{1,3})?|[+-]?\.\d{1,300}"
)
_CODE = re.compile(r"0\d\d")
"""Rather a code, or what a comma has cut off from `1,000`, than a number."""
_WORD_GAP = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")
_NOTHING: Final = frozenset({"", "null", "none"})
_BOOLEANS: Final = {"true": True, "false": False, "1": True, "0": False}
_WRAPPING: Final = {"object": 1, "array": 2, "string": 3}


class _Unmended(Exception):
    """No certain reading."""


_DROP: Final = object()


def coerce(value: Any, compiled: Compiled) -> Any:
    """A copy of `value` as near to valid as is certain. Nothing is filled in, nothing of what was said is lost."""
    coercion = _Coercion(compiled)
    return coercion.mend(coercion.copy(value), ())


class _Coercion:
    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._budget = _BUDGET

    def copy(self, value: Any) -> Any:
        """A deep copy, paid for in the budget."""
        self._budget -= 1
        if is_object(value):
            return {name: self.copy(item) for name, item in value.items()}
        if is_list(value):
            return [self.copy(item) for item in value]
        return value

    def mend(self, value: Any, pointer: Pointer) -> Any:
        """Mend `value`, which may be changed in place, against the part of the schema at `pointer`."""
        holder: list[Any] = [value]
        dropped: dict[tuple[Pointer, str], Any] = {}
        kept: set[tuple[Pointer, str]] = set()
        for _ in range(_ROUNDS):
            if self._budget <= 0 or self._compiled.accepts(pointer, holder[0]):
                break
            faults = self._compiled.faults(pointer, holder[0], _FAULTS)
            self._budget -= 20 + 5 * len(faults)
            restored = _restore(holder, faults, dropped, kept)
            if not self._round(holder, faults, dropped, kept) and not restored:
                break
        return holder[0]

    def _round(
        self,
        holder: list[Any],
        faults: list[Fault],
        dropped: dict[tuple[Pointer, str], Any],
        kept: set[tuple[Pointer, str]],
    ) -> bool:
        """Mend what the faults point at; whether anything changed."""
        changed: set[Pointer] = set()
        for fault in sorted(faults, key=lambda fault: (-len(fault.path), fault.keyword == "type")):
            if fault.path in changed:
                continue
            parent, step = _parent(holder, fault.path)
            try:
                new = self._mended(parent[step], fault)
            except (KeyError, IndexError, TypeError, _Unmended):
                continue
            if new is not _DROP:
                parent[step] = new
            elif is_object(parent) and (fault.path[:-1], str(step)) not in kept:
                dropped[(fault.path[:-1], str(step))] = parent.pop(step)
            else:
                continue
            changed.add(fault.path)
        return bool(changed)

    def _mended(self, value: Any, fault: Fault) -> Any:
        """The value that satisfies `fault`, or `_DROP`. Raises `_Unmended`."""
        try:
            return self._kept(value, fault)
        except _Unmended:
            droppable = fault.keyword in {"type", "enum", "const", "format", "anyOf", "oneOf"}
            if droppable and (value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)):
                return _DROP
            raise

    def _kept(self, value: Any, fault: Fault) -> Any:
        owner = fault.pointer[:-1]
        match fault.keyword:
            case "type":
                return self._typed(value, fault, owner)
            case "enum":
                return _one_of(value, self._compiled.at(fault.pointer))
            case "const":
                return _one_of(value, [self._compiled.at(fault.pointer)])
            case "format":
                return _formatted(value, self._compiled.at(fault.pointer))
            case "anyOf" | "oneOf":
                return self._branch(value, fault.pointer)
            case "allOf":
                return self._all_branches(value, fault.pointer)
            case "required" | "additionalProperties" | "unevaluatedProperties":
                return _renamed(value, fault, self._compiled.at(owner).get("properties", {}))
            case _:
                raise _Unmended

    def _typed(self, value: Any, fault: Fault, owner: Pointer) -> Any:
        """The first reading as one of the wanted types that validates; else the first there is."""
        first: Any = _DROP
        for kind in sorted(fault.types, key=lambda kind: _WRAPPING.get(kind, 0)):
            for reading in _readings(value, kind):
                mended = self.mend(self.copy(reading), owner)
                if self._compiled.accepts(owner, mended):
                    return mended
                if first is _DROP and not (kind == "string" and (is_list(value) or is_object(value))):
                    first = mended
        if first is _DROP:
            raise _Unmended
        return first

    def _branch(self, value: Any, pointer: Pointer) -> Any:
        branches = [(*pointer, index) for index in range(len(self._compiled.at(pointer)))]
        far = [branch for branch in branches if self._is_other_type(value, branch)]
        for branch in [branch for branch in branches if branch not in far] + far:
            if self._budget <= 0:
                break
            mended = self.mend(self.copy(value), branch)
            if self._compiled.accepts(branch, mended) and mended != value:
                return mended
        raise _Unmended

    def _is_other_type(self, value: Any, branch: Pointer) -> bool:
        self._budget -= 1
        return any(fault.keyword == "type" and not fault.path for fault in self._compiled.faults(branch, value, 1))

    def _all_branches(self, value: Any, pointer: Pointer) -> Any:
        mended = self.copy(value)
        for index in range(len(self._compiled.at(pointer))):
            mended = self.mend(mended, (*pointer, index))
        if mended == value:
            raise _Unmended
        return mended


def _parent(holder: list[Any], path: Pointer) -> tuple[Any, Any]:
    """The container of the value at `path`, and the step into it."""
    node: Any = holder
    step: str | int = 0
    for following in path:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            return {}, step
        step = following
    return node, step


def _restore(
    holder: list[Any], faults: list[Fault], dropped: dict[tuple[Pointer, str], Any], kept: set[tuple[Pointer, str]]
) -> bool:
    """Put back what was dropped and turns out to be required."""
    restored = False
    for fault in faults:
        for name in fault.names if fault.keyword == "required" else ():
            place = (fault.path, name)
            if place in dropped and place not in kept:
                parent, step = _parent(holder, fault.path)
                parent[step][name] = dropped[place]
                kept.add(place)
                restored = True
    return restored


def _readings(value: Any, kind: str) -> Iterator[Any]:
    """What `value` may mean as a `kind`, likeliest first."""
    match kind:
        case "integer":
            number = _number(value)
            if number is not None and number == int(number):
                yield int(number)
        case "number":
            number = _number(value)
            if number is not None:
                yield number
        case "boolean":
            word = str(value).strip().lower() if isinstance(value, str | int) else ""
            if word in _BOOLEANS:
                yield _BOOLEANS[word]
        case "null":
            if isinstance(value, str) and value.strip().lower() in _NOTHING:
                yield None
        case "object":
            if isinstance(value, str) and is_object(container := repaired_container(value)):
                yield container
        case "array":
            yield from _lists(value)
        case "string":
            if isinstance(value, bool | int | float | dict | list):
                yield json.dumps(value, ensure_ascii=False)
        case _:
            return


def _number(value: Any) -> int | float | None:
    if isinstance(value, float):
        return value
    if not isinstance(value, str) or len(value) > 400:
        return None
    text = unicodedata.normalize("NFKC", value).replace("−", "-").strip()
    if not _NUMBER.fullmatch(text):
        return None
    if _CODE.fullmatch(text):
        return None
    text = text.replace(",", "")
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def _lists(value: Any) -> Iterator[Any]:
    """JSON first, then commas, then the one value wrapped."""
    if value is None:
        return
    if isinstance(value, str):
        if not value.strip():
            yield []
            return
        if is_list(container := repaired_container(value)):
            yield container
        elif container is None and len(parts := re.split("[,，、]", value)) > 1:
            yield [part.strip() for part in parts if part.strip()]
    yield [value]


def _one_of(value: Any, options: list[Any]) -> Any:
    """The one option that differs from `value` in case, spacing, `_` for `-`, or only in being text."""
    if isinstance(value, bool | int | float):
        matches = [option for option in options if isinstance(option, str) and option == json.dumps(value)]
    elif isinstance(value, str):
        matches = [option for option in options if isinstance(option, str) and _folded(option) == _folded(value)]
        matches = matches or [option for option in options if isinstance(option, str) and loose(option) == loose(value)]
        matches = matches or [
            option for option in options if not isinstance(option, str) and json.dumps(option) == _folded(value)
        ]
    else:
        matches = []
    if len(matches) != 1:
        raise _Unmended
    return matches[0]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()


def loose(name: str) -> str:
    """A name without what spellings differ in: `maxResults`, `max_results` and `Max-Results` are one."""
    return _WORD_GAP.sub("", _folded(name))


def _formatted(value: Any, wanted: Any) -> str:
    converters = {"date": dates.iso_date, "date-time": dates.iso_datetime}
    if not isinstance(value, str) or wanted not in converters:
        raise _Unmended
    try:
        return converters[wanted](value)
    except dates.NoDate as error:
        raise _Unmended from error


def _renamed(value: Any, fault: Fault, properties: Any) -> dict[str, Any]:
    """`value` with misspelt property names replaced by the schema's, in place and order; only what is unambiguous."""
    known: set[str] = {*properties} | (set(fault.names) if fault.keyword == "required" else set())
    strays: list[str] = [name for name in value if name not in known]
    wanted = set(fault.names) if fault.keyword == "required" else known
    names: dict[str, str] = {}
    for stray in strays:
        matches = [name for name in known if loose(name) == loose(stray)]
        rivals = [other for other in strays if loose(other) == loose(stray)]
        if len(matches) == 1 and len(rivals) == 1 and matches[0] in wanted and matches[0] not in value:
            names[stray] = matches[0]
    if not names:
        raise _Unmended
    return {str(names.get(name, name)): item for name, item in value.items()}
