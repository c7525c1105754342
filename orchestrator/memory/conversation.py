"""What was said earlier in a conversation, as the next run of it reads it: bounded, the newest first of all."""

import json
from collections.abc import Sequence

from orchestrator.memory.excerpts import excerpt, fits
from orchestrator.memory.pins import held, restated

TOKENS = 4_000
"""Tokens of all that is told of earlier; one question or answer has at most a quarter. What holds of what is not told
any more has at most a quarter besides."""

ABOUT = "[Earlier in this conversation, the oldest first. What you said is cut where it was long.]"
HOLDS = "[Said by the user before what is shown here; it holds until they say something else about the same.]"
NOW = "[Now]"


def earlier(exchanges: Sequence[tuple[str, str]]) -> str:
    """Pairs of what the user said and what came of it, as text; empty where there are none.

    Each is a line of JSON, so that nothing in an answer looks like something the user said.
    """
    lines: list[str] = []
    shown: list[str] = []
    for asked, answered in reversed(exchanges):
        line = json.dumps({"user": _cut(asked), "you": _cut(answered)}, ensure_ascii=False)
        if not fits("\n".join([line, *lines]), TOKENS):
            break
        lines.insert(0, line)
        shown.append(" ".join(_cut(asked).split()))
    left_out = len(exchanges) - len(lines)
    gap = [f"[{left_out} earlier ones are left out]"] if left_out else []
    holds = [pin for pin in held([asked for asked, _ in exchanges]) if not any(pin.text in text for text in shown)]
    kept = [HOLDS, restated(holds, TOKENS // 4)] if holds else []
    return "\n".join([ABOUT, *gap, *kept, *lines]) if exchanges else ""


def opening(said: str, task: str) -> str:
    """A run's first message: what was said earlier, if anything, and its task."""
    return f"{said}\n\n{NOW}\n{task}" if said else task


def _cut(text: str) -> str:
    return text if fits(text, TOKENS // 4) else excerpt(text, TOKENS // 4)
