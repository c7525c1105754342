"""Nearest names, so that an error about a misspelling can say what was meant."""

import re
from collections.abc import Iterable

_OUTSIDE = re.compile(r"[^A-Za-z0-9_-]")


def sanitise(name: str) -> str:
    """`name` in the alphabet that model vendors accept for tool names; what is outside becomes `_`."""
    return _OUTSIDE.sub("_", name)


def misspelt(word: str, ours: Iterable[str]) -> str | None:
    """The one of `ours` that `word` is a misspelling of: within two edits, or one where the name has four letters."""
    return _best(word, ((name, 1 if len(name) <= 4 else 2) for name in ours))


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that is most like `word`, when one is like it at all."""
    bound = min(4, max(2, len(word) // 3))
    return _best(word, ((choice, min(bound, max(1, len(choice) - 2))) for choice in choices), fold=True)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A question to append to a message, with a space before it; empty when nothing is near."""
    found = nearest(word, choices)
    return f" Did you mean `{found}`?" if found else ""


def listed(names: Iterable[str], most: int = 12) -> str:
    """`a`, `b` and `c`, for a message; what is beyond `most` is counted."""
    quoted = [f"`{name}`" for name in names]
    if len(quoted) > most:
        return ", ".join(quoted[:most]) + f" and {len(quoted) - most} more"
    return " and ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))


def _best(word: str, choices: Iterable[tuple[str, int]], *, fold: bool = False) -> str | None:
    best: tuple[int, str] | None = None
    for name, bound in choices:
        if abs(len(word) - len(name)) > bound:
            continue
        edits = _distance(word.lower(), name.lower()) if fold else _distance(word, name)
        if edits <= bound and (best is None or edits < best[0]):
            best = (edits, name)
    return best[1] if best else None


def _distance(one: str, other: str) -> int:
    """Edits between two words, a swap of neighbours being one."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
