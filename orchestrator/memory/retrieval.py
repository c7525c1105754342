"""A part of a text that is kept whole: a page, the lines that match, some rows, or what a JSONPath leads to."""

import re
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.memory.excerpts import describe_json, excerpt, fits, leading, parsed, separator, table_rows, units
from orchestrator.memory.jsonpath import FORMS, find
from orchestrator.memory.tokens import MOST_CHARACTERS, estimate
from orchestrator.tools.results import rows
from orchestrator.tools.validation import searcher

SEARCH_SECONDS = 5.0
"""A search that takes longer stops and says how far it came."""

OVERLAP = 200
"""Characters of the next piece that are searched with each piece of a long line, so that few matches are missed."""

_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:[-:]\s*(\d{1,9}))?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for. Lines and rows count from 1; `rows` is `5` or `10-20`. `path` narrows what the others see."""

    id: str
    offset: int = 1
    limit: int | None = None
    grep: str = ""
    path: str = ""
    rows: str = ""


def retrieve(text: str, wanted: Wanted, tokens: int) -> str:
    """The part, in about so many `tokens`, after a line that says what it is and what comes next.

    Raises:
        ValueError: the expression is wrong, or fits no such text; the message shows a right one.
    """
    name = wanted.id
    if wanted.path:
        text, name = _picked(text, wanted), f"{name} {wanted.path}"
    if wanted.rows:
        return _rows(text, name, wanted.rows, tokens)
    if wanted.grep:
        return _matching(text, name, wanted, tokens)
    return _page(text, name, wanted, tokens)


def _page(text: str, name: str, wanted: Wanted, tokens: int) -> str:
    """Whole lines from `offset` on, exactly as they are."""
    found = units(text)
    if wanted.offset > len(found):
        raise ValueError(f"offset {wanted.offset} is beyond the end: {name} has {len(found):,} lines")
    first = wanted.offset - 1
    last = min(len(found), first + wanted.limit) if wanted.limit else len(found)
    start = found[first - 1] if first else 0
    end = start + leading(text[start : min(found[last - 1], start + MOST_CHARACTERS * tokens)], tokens)
    last = max(first + 1, bisect_right(found, end, first, last))
    more = f"; go on with offset={last + 1}" if last < len(found) else "; this is the end"
    return f"[{name}, lines {first + 1}-{last} of {len(found):,}{more}]\n{text[start : found[last - 1]]}"


def _matching(text: str, name: str, wanted: Wanted, tokens: int) -> str:
    """The lines that match, with their numbers; those that do not fit are counted."""
    try:
        matches = searcher(wanted.grep)
    except ValueError as error:
        raise ValueError(f"grep: {error}. Expressions are like (?i)error|fail; there is no look-around") from error
    deadline = time.monotonic() + SEARCH_SECONDS
    found, shown = units(text), list[str]()
    left, total, following = tokens, 0, 0
    for number in range(wanted.offset, len(found) + 1):
        start, end = found[number - 2] if number > 1 else 0, found[number - 1]
        if time.monotonic() > deadline:
            return _answer(f"{name}: the search took too long; go on with offset={number}", shown)
        line = text[start:end].removesuffix("\n")
        if not matches(line if text[end - 1] == "\n" else line + text[end : end + OVERLAP]):
            continue
        total += 1
        left -= estimate(line.encode())
        if not following and (left >= 0 or not shown) and (wanted.limit is None or len(shown) < wanted.limit):
            shown.append(f"{number}: {line}")
        else:
            following = following or number
    more = f"; {len(shown)} shown, go on with offset={following}" if following else ""
    return _answer(f"{name}: {total:,} of {len(found):,} lines match{more}", shown)


def _rows(text: str, name: str, wanted: str, tokens: int) -> str:
    """Rows of a table below its header, or items of a list."""
    if (asked := _RANGE.fullmatch(wanted)) is None:
        raise ValueError(f"rows: {wanted[:40]!r} is no range; write rows like 5 or 10-20")
    first, last = int(asked[1]), int(asked[2] or asked[1])
    header, found = _rows_of(text)
    if not 1 <= first <= min(last, len(found)):
        raise ValueError(f"rows: {wanted.strip()} is no range of {name}, which has {len(found):,} rows, from 1 on")
    last = min(last, len(found))
    shown, left = found[first - 1 : last], tokens - estimate(header.encode())
    for at, row in enumerate(shown):
        left -= estimate(row.encode())
        if left < 0 and at:
            shown = shown[:at]
            break
    until = first + len(shown) - 1
    more = f"; go on with rows={until + 1}-{last}" if until < last else ""
    if len(shown) == 1 and not fits(shown[0], tokens):
        shown = [excerpt(shown[0], tokens)]
    return _answer(f"{name}, rows {first}-{until} of {len(found):,}{more}", [*([header] if header else []), *shown])


def _rows_of(text: str) -> tuple[str, list[str]]:
    """The header and rows of a table; without a header those of a list, or of the one list that an object has."""
    value = parsed(text)
    if isinstance(value, dict):
        lists: list[Any] = [each for each in cast("dict[str, Any]", value).values() if isinstance(each, list)]
        value = lists[0] if len(lists) == 1 else cast("Any", value)
    if isinstance(value, list):
        return "", [rows([item])[1:-1] for item in cast("list[Any]", value)]
    if value is None and (char := separator(text)) is not None:
        return table_rows(text, char)
    kind = f"this is {describe_json(value)}: pick a list with path" if value is not None else "this is plain text"
    raise ValueError(f"rows are of tables and lists; {kind}, or use offset and limit")


def _picked(text: str, wanted: Wanted) -> str:
    """What the path leads to, as text of its own."""
    value = parsed(text)
    if value is None:
        raise ValueError("path is for JSON, and this is none; use grep, or offset and limit")
    found, single = find(value, wanted.path)
    if not found:
        raise ValueError(f"nothing is at {wanted.path[:80]}: this is {describe_json(value)}. Paths are like {FORMS}")
    if single:
        return found[0] if isinstance(found[0], str) else rows(found[0])
    return rows(found)


def _answer(about: str, lines: list[str]) -> str:
    return "\n".join([f"[{about}]", *lines])
