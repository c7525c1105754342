"""JSON as people write it by hand: comments and trailing commas are read, and every member's place is known.

Errors name the line and column, and say what is missing and where the thing was opened.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import ConfigurationError, Problem

Where = tuple[str | int, ...]
"""A path into a document: keys and list positions."""

_SPACE = re.compile(r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_DEPTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A value, the line of each of its members, and the members that are there more than once with all their lines."""

    value: Any
    lines: Mapping[Where, int]
    repeated: Mapping[Where, Sequence[int]]


def parse(text: str, file: Path | None = None) -> Document:
    """Reads JSON with comments and trailing commas.

    Raises:
        ConfigurationError: with file, line and column of the first thing that cannot be read.
    """
    reader = _Reader(text, file)
    value = reader.document()
    return Document(value=value, lines=reader.lines, repeated=reader.repeated)


class _Reader:
    def __init__(self, text: str, file: Path | None) -> None:
        self.text = text
        self.file = file
        self.at = 0
        self.lines: dict[Where, int] = {}
        self.repeated: dict[Where, list[int]] = {}
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def fault(self, message: str) -> ConfigurationError:
        return ConfigurationError(Problem(message, self.file, *self.place(self.at)))

    def peek(self) -> str:
        """The next character that is not space or comment; empty at the end."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        if self.text.startswith("/*", self.at):
            raise self.fault("this comment is not closed: `*/` is missing.")
        return self.text[self.at : self.at + 1]

    def document(self) -> Any:
        if not self.peek():
            raise self.fault("the file is empty.")
        value = self.value((), 0)
        if self.peek():
            raise self.fault(
                f"the file should end here; {self.seen()} is left over. Is there a bracket too many above?"
            )
        return value

    def seen(self) -> str:
        found = self.text[self.at : self.at + 1]
        return f"`{found}`" if found.isprintable() else repr(found)

    def value(self, where: Where, depth: int) -> Any:
        if depth > _DEPTH:
            raise self.fault(f"this is nested more than {_DEPTH} levels deep.")
        match self.peek():
            case "{":
                return self.members(where, depth)
            case "[":
                return self.items(where, depth)
            case '"':
                return self.string()
            case "":
                raise self.fault("the file ends where a value is expected.")
            case _:
                return self.scalar()

    def scalar(self) -> Any:
        if number := _NUMBER.match(self.text, self.at):
            try:
                value = json.loads(number.group())
            except ValueError:
                raise self.fault("this number is too long.") from None
            self.at = number.end()
            return value
        word = _WORD.match(self.text, self.at)
        if word and word.group() in _WORDS:
            self.at = word.end()
            return _WORDS[word.group()]
        if word or self.text[self.at] == "'":
            raise self.fault('a value is expected; text is written in double quotes, like "this".')
        raise self.fault(f"a value is expected, not {self.seen()}.")

    def string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self.fault(
                'this text is not closed on its line: a `"` is missing (or a line break is not written `\\n`).'
            )
        try:
            value = json.loads(match.group())
            value.encode()
        except ValueError:
            raise self.fault("this text has a wrong `\\` escape; a backslash itself is written `\\\\`.") from None
        self.at = match.end()
        return value

    def members(self, where: Where, depth: int) -> dict[str, Any]:
        opened = self.at
        self.at += 1
        found: dict[str, Any] = {}
        while self.more("}", opened, first=not found):
            if self.peek() != '"':
                raise self.fault(
                    f'a name in double quotes (or `}}`) is expected, not {self.seen()}: {{"name": value}}.'
                )
            at = self.at
            key = self.string()
            path = (*where, key)
            line = self.place(at)[0]
            if key in found:
                self.repeated.setdefault(path, [self.lines[path]]).append(line)
            self.lines[path] = line
            if self.peek() != ":":
                raise self.fault(f"`:` is missing after the name that starts in line {line}.")
            self.at += 1
            found[key] = self.value(path, depth + 1)
        return found

    def items(self, where: Where, depth: int) -> list[Any]:
        opened = self.at
        self.at += 1
        found: list[Any] = []
        while self.more("]", opened, first=not found):
            path = (*where, len(found))
            self.lines[path] = self.place(self.at)[0]
            found.append(self.value(path, depth + 1))
        return found

    def more(self, end: str, opened: int, *, first: bool) -> bool:
        """Whether another member follows; eats the comma before it, or the closing bracket."""
        comma = not first and self.peek() == ","
        if comma:
            self.at += 1
        found = self.peek()
        if found == end:
            self.at += 1
            return False
        if not found:
            line, column = self.place(opened)
            opening = self.text[opened]
            raise self.fault(
                f"the file ends here: `{end}` is missing, for the `{opening}` of line {line}, column {column}."
            )
        if not (first or comma):
            raise self.fault(f"`,` or `{end}` is missing before {self.seen()}.")
        return True
