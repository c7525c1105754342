"""A page of lines on stdout: coloured and wrapped between words at a terminal, plain and never broken elsewhere."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from unicodedata import east_asian_width

from orchestrator.cli.progress import printable

_COLOURS = {"bad": "31;1", "warn": "33", "good": "32", "dim": "2", "title": "1"}
_WIDE = "\u2e80-\ud7ff\uf900-\ufaff\uff00-\uff60"
_PIECE = re.compile(rf"\S*/\S*\s*|[^\s{_WIDE}]+[{_WIDE}]?\s*|\S\s*|\s+")
"""What is not broken: a path, a word, one character of Chinese, Japanese or Korean."""


class Page:
    """Writes the lines. `width` is 0 where it does not matter."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self._width = shutil.get_terminal_size().columns if terminal else 0
        self._colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def title(self, text: str) -> None:
        print(f"\n{self.style(text, 'title')}")

    def line(self, text: str, *, indent: int = 2, mark: str = "", style: str = "") -> None:
        """A line. What does not fit goes on below its beginning; `mark` stands before it."""
        text = printable(" ".join(text.split("\n")))
        before = " " * indent + mark
        for row in wrapped(text, self._width - columns(before)):
            print(f"{before}{self.style(row, style)}")
            before = " " * columns(before)

    def style(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if style and self._colour else text


def columns(text: str) -> int:
    """How many columns a terminal needs for it."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in re.sub(r"\x1b\[[\d;]*m", "", text))


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def wrapped(text: str, room: int) -> Iterator[str]:
    """Rows of at most `room` columns, but for a piece that is longer; one row where there is no room to speak of."""
    row = ""
    for piece in _PIECE.findall(text) if room >= 20 else [text]:
        if row and columns(row + piece.rstrip()) > room:
            yield row.rstrip()
            row = ""
        row += piece
    yield row.rstrip()
