"""What a reader of one file collects: everything that is wrong in it, with lines; and reading the file at all."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from orchestrator.config.jsonc import Document, Where
from orchestrator.errors import ConfigurationError, Problem

_LARGEST = 4 * 1024 * 1024
_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\- ])+?)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")
_TOML_PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)


class Report:
    """Errors and warnings of one file, in order of discovery; the reader goes on after each."""

    def __init__(self, file: Path | None, lines: Mapping[Where, int] | None = None) -> None:
        self.file = file
        self.lines = lines or {}
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def line(self, where: Where) -> int | None:
        """The line of a member, or of the nearest thing around it whose line is known."""
        for end in range(len(where), 0, -1):
            if (line := self.lines.get(where[:end])) is not None:
                return line
        return None

    def error(self, message: str, where: Where = (), *, line: int | None = None) -> None:
        self.errors.append(Problem(message, self.file, line or self.line(where)))

    def warn(self, message: str, where: Where = (), *, line: int | None = None) -> None:
        self.warnings.append(Problem(message, self.file, line or self.line(where)))


def mapping(value: object) -> dict[str, Any] | None:
    """`value` when it is an object, else None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def sequence(value: object) -> list[Any] | None:
    """`value` when it is a list, else None."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def read_text(path: Path, what: str = "file") -> str:
    """The text of a file that a person wrote: UTF-8 (UTF-16 with its mark), marks removed, line ends as `\\n`.

    Raises:
        ConfigurationError: it is missing, unreadable, too large (4 MiB) or not text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise ConfigurationError(Problem(f"there is no such {what}.", path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(Problem(f"this {what} cannot be read: {reason}.", path)) from None
    if len(data) > _LARGEST:
        raise ConfigurationError(Problem(f"this {what} is larger than {_LARGEST // 1024 // 1024} MiB.", path))
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"this {what} is not UTF-8 text (byte 0x{data[error.start]:02x}); save it as UTF-8."
        raise ConfigurationError(Problem(message, path, line)) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_toml(text: str, file: Path) -> Document:
    """Reads TOML, with the line of each table and of each key that starts a line.

    Raises:
        ConfigurationError: with file, line and column of what is not TOML.
    """
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ConfigurationError(Problem("this is nested too deeply.", file)) from None
    except ValueError as error:
        match = _TOML_PLACE.match(str(error))
        message, line, column = match.groups() if match else (str(error), None, None)
        place = (int(line), int(column)) if line and column else (text.count("\n") + 1, None)
        raise ConfigurationError(Problem(f"this is not TOML: {message}.", file, *place)) from None
    return Document(value=value, lines=_toml_lines(text), repeated={})


def _toml_lines(text: str) -> dict[Where, int]:
    lines: dict[Where, int] = {}
    table: tuple[str, ...] = ()
    inside = ""  # the quotes of the multi-line text that the line lies in
    for number, line in enumerate(text.split("\n"), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        start = line.strip()[:200]
        if header := _HEADER.match(start):
            table = _parts(header.group(1))
            lines.setdefault(table, number)
        elif key := _KEY.match(start):
            path = (*table, *_parts(key.group(1)))
            for end in range(len(table) + 1, len(path) + 1):
                lines.setdefault(path[:end], number)
        inside = next((quotes for quotes in ('"""', "'''") if line.count(quotes) == 1), "")
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple("".join(match.groups(default="")) for match in _PART.finditer(dotted))
