"""The part of JSONPath that picks by place: names, indexes, slices, `*` and `..name`. There are no filters."""

import re
from collections.abc import Iterator
from typing import Any, cast

FORMS = "$.rows[0].name, $.rows[10:20], $.rows[*].name, $['a key'], $..name"

_STEP = re.compile(
    r"""\.\.(?P<deep>[^\s.\[\]'"*?@()]+) | (?P<all>\.\*|\[\*\]) | \.(?P<name>[^\s.\[\]'"*?@()]+)
    | \[(?P<quote>['"])(?P<key>[^\]]*?)(?P=quote)\] | \[(?P<index>-?\d{1,9})\]
    | \[(?P<first>-?\d{0,9}):(?P<last>-?\d{0,9})\]""",
    re.VERBOSE,
)


def find(value: Any, path: str) -> tuple[list[Any], bool]:
    """What a path leads to, and whether it can lead to one place only. Raises `ValueError` for a path that is none."""
    found, single = [value], True
    at = 1 if path.startswith("$") else 0
    if not at and path[:1] not in (".", "["):
        path = f".{path}"
    while at < len(path):
        if (step := _STEP.match(path, at)) is None:
            raise ValueError(f"path: {path[at : at + 40]!r} is not understood; paths are like {FORMS}")
        single = single and not (step["deep"] or step["all"] or step["first"] is not None)
        found = [each for item in found for each in _step(item, step)]
        at = step.end()
    return found, single


def _step(value: Any, step: re.Match[str]) -> Iterator[Any]:
    if step["deep"]:
        yield from _deep(value, step["deep"])
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if step["all"]:
            yield from members.values()
        elif (name := step["name"] or step["key"]) in members:
            yield members[name]
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if step["all"]:
            yield from items
        elif step["index"] is not None:
            yield from items[int(step["index"]) :][:1] if -len(items) <= int(step["index"]) < len(items) else ()
        elif step["first"] is not None:
            yield from items[_number(step["first"]) : _number(step["last"])]


def _number(text: str) -> int | None:
    return int(text) if text.strip("-") else None


def _deep(value: Any, name: str) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            members = cast("dict[str, Any]", here)
            if name in members:
                yield members[name]
            waiting += reversed(members.values())
        elif isinstance(here, list):
            waiting += reversed(cast("list[Any]", here))
