"""What was said earlier in a conversation, as the next run of it reads it: bounded, the newest first of all."""

import json
from collections.abc import Sequence

from orchestrator.memory.excerpts import excerpt, fits

TOKENS = 4_000
"""Tokens of all that is told of earlier; one question or answer has at most a quarter."""

ABOUT = "[Earlier in this conversation, the oldest first. What you said is cut where it was long.]"
NOW = "[Now]"


def earlier(exchanges: Sequence[tuple[str, str]]) -> str:
    """Pairs of what the user said and what came of it, as text; empty where there are none.

    Each is a line of JSON, so that nothing in an answer looks like something the user said.
    """
    lines: list[str] = []
    for asked, answered in reversed(exchanges):
        line = json.dumps({"user": _cut(asked), "you": _cut(answered)}, ensure_ascii=False)
        if not fits("\n".join([line, *lines]), TOKENS):
            break
        lines.insert(0, line)
    left_out = len(exchanges) - len(lines)
    gap = [f"[{left_out} earlier ones are left out]"] if left_out else []
    return "\n".join([ABOUT, *gap, *lines]) if exchanges else ""


def opening(said: str, task: str) -> str:
    """A run's first message: what was said earlier, if anything, and its task."""
    return f"{said}\n\n{NOW}\n{task}" if said else task


def _cut(text: str) -> str:
    return text if fits(text, TOKENS // 4) else excerpt(text, TOKENS // 4)
