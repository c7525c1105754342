"""A long text cut to its head and tail, once, with counts of what it is and what is left out."""

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

from pydantic_core import from_json

from orchestrator.memory.tokens import MOST_CHARACTERS, MOST_TOKENS, estimate
from orchestrator.tools.results import rows

PARSED = 4_000_000
"""Characters of JSON that are parsed to be cut; longer JSON is cut as text."""

UNIT = 1000
"""Characters of the longest line that is paged whole; a longer one counts as several."""

_SEPARATORS = ",\t;|"
_RULE = re.compile(r"\|?[\s:|-]+\|[\s:|-]*")
"""The line below the header of a Markdown table."""


def fits(text: str, tokens: int) -> bool:
    """Whether a text has at most so many tokens; looks only at as much of it as could have."""
    if len(text) * MOST_TOKENS < tokens:
        return True
    return len(text) <= tokens * MOST_CHARACTERS and estimate(text.encode()) <= tokens


def excerpt(text: str, tokens: int, id: str = "") -> str:
    """What is shown of a text too long to be shown whole, in about so many `tokens`.

    `id` is what the whole is kept under; empty where nobody can ask for more.
    """
    value = parsed(text) if len(text) <= PARSED else None
    room = max(64, tokens - 160)
    shown = _json_excerpt(value, room) if isinstance(value, list | dict) else None
    if shown is not None:
        return "\n".join([_notice(f"{describe_json(value)}; {_size(text)}", id, 'path="$[…]" picks a part'), shown])
    head = text[: leading(text, room * 2 // 3)]
    tail = text[len(text) - _trailing(text, room // 3) :]
    left_out = text[len(head) : len(text) - len(tail)]
    gap = f"[… {_amount(left_out)} left out here …]"
    offset = max(1, len(units(head)) + (1 if head.endswith("\n") else 0))
    about, way = _amount(text), f"offset={offset} goes on"
    if (char := separator(text)) is not None:
        header, rows_there = table_rows(text, char)
        names = [cell.strip(' "') for cell in header.partition("\n")[0].strip("|").split(char)]
        about = f"a table of {len(rows_there):,} rows with {_names(names)}; {_size(text)}"
        way = f'rows="{max(1, offset - _lines(header))}-{len(rows_there)}" goes on'
    return "\n".join([_notice(about, id, way), head.removesuffix("\n"), gap, tail])


def _notice(about: str, id: str, way: str) -> str:
    if not id:
        return f"[Long result, cut: {about}. Ask for a smaller part.]"
    return (
        f'[Long result, cut: {about}. All of it is kept as "{id}": retrieve_result with {way}, with grep finds lines.]'
    )


def describe(text: str) -> str:
    """What a text is and how much of it, in a few words."""
    if text.startswith("[Long result, cut: "):
        return text.partition(": ")[2].partition(". ")[0]
    if (value := parsed(text) if len(text) <= PARSED else None) is not None:
        return f"{describe_json(value)}; {_size(text)}"
    if (char := separator(text)) is not None:
        return f"a table of {len(table_rows(text, char)[1]):,} rows; {_size(text)}"
    return _amount(text)


def parsed(text: str) -> Any:
    """The JSON that a text is; None when it is none."""
    if text[:1000].lstrip()[:1] not in ("{", "["):
        return None
    try:
        return from_json(text)
    except ValueError:
        return None


def units(text: str) -> list[int]:
    """Where the lines of a text end, line ends included; those longer than `UNIT` in pieces."""
    lengths = [len(line) + 1 for line in text.split("\n")]
    lengths[-1] -= 1
    if max(lengths) > UNIT:
        lengths = [min(UNIT, length - at) for length in lengths for at in range(0, length, UNIT)]
    return list(accumulate(length for length in lengths if length))


def leading(text: str, tokens: int) -> int:
    """How many characters at the start have at most so many tokens; whole lines, where there are any."""
    window = _shrunk(text[: tokens * MOST_CHARACTERS], tokens)
    if len(window) == len(text):
        return len(text)
    border = window.rfind("\n") + 1
    return border if border * 2 > len(window) else len(window)


def _trailing(text: str, tokens: int) -> int:
    window = _shrunk(text[-tokens * MOST_CHARACTERS :], tokens, keep_end=True)
    border = window.find("\n", 0, len(window) // 2) + 1
    return len(window) - border


def _shrunk(window: str, tokens: int, *, keep_end: bool = False) -> str:
    while window and (cost := estimate(window.encode())) > tokens:
        size = max(0, len(window) * tokens // cost - 1)
        window = window[len(window) - size :] if keep_end else window[:size]
    return window


def _json_excerpt(value: Any, tokens: int) -> str | None:
    """JSON still, with strings and lists shortened until it fits; None when it cannot be made to."""
    most = tokens  # an item has at least one
    while most > 2:
        if fits(shown := rows(_shortened(value, most)), tokens):
            return shown
        most = most * 2 // 3
    return None


def _shortened(value: Any, most: int) -> Any:
    """Strings of at most so many characters, lists of at most so many items and objects of so many members."""
    if isinstance(value, str):
        longest = max(4 * most, 80)
        return value if len(value) <= longest else f"{value[:longest]}… [{len(value):,} characters]"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if len(items) <= most:
            return [_shortened(item, most) for item in items]
        tail = most // 4
        kept = [_shortened(item, most) for item in (*items[: most - tail], *items[len(items) - tail :])]
        return [
            *kept[: most - tail],
            f"[… {len(items) - most:,} of {len(items):,} items left out …]",
            *kept[most - tail :],
        ]
    if isinstance(value, dict):
        members = list(cast("dict[str, Any]", value).items())
        more = {"…": f"{len(members) - most:,} more keys"} if len(members) > most else {}
        return {key: _shortened(item, most) for key, item in members[:most]} | more
    return value


def describe_json(value: Any) -> str:
    """`JSON, a list of 5,000 objects with id, name`; what is not a list or an object is just that."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        first = items[0] if items else None
        kind = f" objects with {_names(list(cast('dict[str, Any]', first)))}" if isinstance(first, dict) else " items"
        return f"JSON, a list of {len(items):,}{kind}"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        named = [f"{key} ({len(cast('list[Any]', v)):,} items)" if isinstance(v, list) else key for key, v in members]
        return f"JSON, an object with {_names(named)}"
    return "JSON"


def separator(text: str) -> str | None:
    """What separates the cells of a table whose first line is its header; None for text that is no table.

    Judged by the first lines: at least three with as many separators each, and no cell that goes over a line end.
    """
    lines = text[:20_000].split("\n", 12)[:-1][:11]
    for char in _SEPARATORS if len(lines) >= 3 else "":
        counts = {line.count(char) for line in lines}
        if len(counts) == 1 and counts != {0} and not any(line.count('"') % 2 for line in lines):
            return char
    return None


def table_rows(text: str, char: str) -> tuple[str, list[str]]:
    """The header of a table, with the rule below it in Markdown, and its rows."""
    lines = text.removesuffix("\n").split("\n")
    above = 2 if char == "|" and _RULE.fullmatch(lines[1]) else 1
    return "\n".join(lines[:above]), lines[above:]


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(name[:40] for name in names[:12])
    return f"{shown} and {len(names) - 12:,} more" if len(names) > 12 else shown


def _amount(text: str) -> str:
    lines = _lines(text)
    return f"{lines:,} {'line' if lines == 1 else 'lines'}, {_size(text)}"


def _size(text: str) -> str:
    return f"{len(text):,} characters"


def _lines(text: str) -> int:
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)
