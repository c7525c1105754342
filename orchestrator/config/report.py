"""Files that people wrote: what each holds, where every part of it stands, and all that is wrong in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from orchestrator.config.names import did_you_mean, listed
from orchestrator.errors import ConfigurationError, Problem

Where = tuple[str | int, ...]
"""A path into a document: keys and list positions."""

_WORDS = {
    "a valid tuple": "a list",
    "a valid dictionary": "a table",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "Input should be": "must be",
    "Field required": "is missing",
    "Value error, ": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A value, the line of each of its members, and the members that are there again with the line of the last."""

    value: Any = None
    lines: dict[Where, int] = field(default_factory=dict[Where, int])
    repeated: dict[Where, int] = field(default_factory=dict[Where, int])

    def put(self, where: Where, line: int) -> None:
        """Adds a member; what is in one that is there again is not told of itself."""
        if where in self.lines and not any(where[:end] in self.repeated for end in range(len(where))):
            self.repeated[where] = line
        self.lines[where] = line


class Report:
    """Errors and warnings of one file, in order of discovery; the reader goes on after each."""

    def __init__(self, file: Path | None, lines: Mapping[Where, int] | None = None) -> None:
        self.file = file
        self.lines = lines or {}
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def line(self, where: Where) -> int | None:
        """The line of a member, or of the nearest thing around it whose line is known."""
        return next((self.lines[where[:end]] for end in range(len(where), 0, -1) if where[:end] in self.lines), None)

    def error(self, message: str, where: Where = (), *, line: int | None = None) -> None:
        self.errors.append(Problem(message, self.file, line or self.line(where)))

    def warn(self, message: str, where: Where = (), *, line: int | None = None) -> None:
        self.warnings.append(Problem(message, self.file, line or self.line(where)))

    def explain(
        self,
        error: ValidationError,
        known: Mapping[str, Iterable[str]],
        places: Mapping[str, Where] | None = None,
        *,
        inside: Where = (),
        before: str = "",
    ) -> None:
        """Reports pydantic's errors in our words, each with its line and never with a value.

        `known` are the keys that may stand in each table, those of the whole under ""; `*` is any name. `places` say
        where the values of our keys were found, if elsewhere; `inside` is what their paths have in common, which
        `before` names.
        """
        for found in error.errors(include_url=False, include_input=False, include_context=False):
            loc = found["loc"]
            where = (*(places or {}).get(str(loc[0]), (*inside, loc[0])), *loc[1:]) if loc else inside
            name = ".".join(map(str, where[len(inside) :]))
            if found["type"] == "extra_forbidden":
                keys = _keys_of(tuple(map(str, loc[:-1])), known)
                hint = did_you_mean(str(where[-1]), keys)
                self.error(f"{before}unknown key `{name}`.{hint} Known: {listed(keys, 20)}.", where)
                continue
            said = found["msg"].partition(" or instance of ")[0]
            for theirs, ours in _WORDS.items():
                said = said.replace(theirs, ours)
            self.error(f"{before}`{name}` {said}".rstrip(".") + ("" if said.endswith("?") else "."), where)


def _keys_of(table: tuple[str, ...], known: Mapping[str, Iterable[str]]) -> list[str]:
    """The keys that may stand in a table, by its path or by that with any name in the second place."""
    names = (".".join(table), ".".join((*table[:1], "*", *table[2:])), *table[:1])
    return list(next((known[name] for name in names if name in known), ()))


def mapping(value: object) -> dict[str, Any] | None:
    """`value` when it is an object, else None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def sequence(value: object) -> list[Any] | None:
    """`value` when it is a list, else None."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def plain_text(value: object) -> object:
    """A value as text, where it is a number, true or false; anything else as it is."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and "\0" in value:
        raise ValueError("must have no null character")
    return str(value) if isinstance(value, int | float) else value


def read_document(path: Path, what: str, parse: Callable[[str, Path], Document]) -> tuple[Any, Report]:
    """What a file holds and a report on it, which has the error when nothing could be read."""
    try:
        document = parse(read_text(path, what), path)
    except ConfigurationError as error:
        report = Report(path)
        report.errors += error.problems
        return None, report
    report = Report(path, document.lines)
    for where, line in document.repeated.items():
        report.error(f"`{'.'.join(map(str, where))}` is there twice; leave one.", line=line)
    return document.value, report


def read_text(path: Path, what: str) -> str:
    """The text of a file that a person wrote: UTF-8 (UTF-16 with its mark), marks removed, line ends as `\\n`.

    Raises:
        ConfigurationError: it is missing, unreadable or not text.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(Problem(f"there is no such {what}.", path)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(Problem(f"this {what} is not text; save it as UTF-8.", path, line)) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(Problem(f"this {what} cannot be read: {error}.", path)) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
