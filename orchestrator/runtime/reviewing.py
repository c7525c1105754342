"""Whether a final answer does what was asked for: rules, what a reviewer is asked, and what it said. Pure."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from orchestrator.models.lenient import as_object, parse
from orchestrator.runtime.runstate import CallState, RunState

SENT_BACK: Final = 2
"""Times that the answers of a run may be sent back by its review."""

_JSON: Final = re.compile(
    r"\b(?:answer|reply|respond|output|return)\b[^.\n]{0,40}\b(?:as|in|with)\s+(?:\w+\s+){0,2}json\b(?!\s*(?:file|lines))"
    r"|(?:用|以|按|返回|输出)\s*json(?!\s*文件)",
    re.IGNORECASE,
)
_FENCED: Final = re.compile(r"```\w*\s*(.*?)```", re.DOTALL)

Rule = Callable[[str, str], str]
"""From the task and the answer to what must be mended; empty where nothing must."""


def _is_json(task: str, answer: str) -> str:
    if not _JSON.search(task) or any(map(_reads, (answer, *_FENCED.findall(answer)))):
        return ""
    return "The task asks for JSON, and the answer cannot be read as JSON."


def _reads(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


RULES: Final[tuple[Rule, ...]] = (_is_json,)


def broken(state: RunState, answer: str) -> str:
    """What the rules find wrong with an answer."""
    return " ".join(filter(None, (rule(state.run.task, answer) for rule in RULES)))


def question(state: RunState, answer: str) -> dict[str, Any]:
    """What the reviewer is called with."""
    task = (
        "Review the answer that another agent is about to give. Accept it when it does what its task asks; otherwise "
        "give the reasons, so that it can be mended."
    )
    return {"task": task, "context": f"The task:\n{state.opening}\n\nThe answer:\n{answer}"}


def verdict(review: CallState) -> tuple[bool, str]:
    """Whether the reviewer accepts, and its reasons. One that fails, or says neither yes nor no, holds nothing up."""
    said = as_object(parse(review.observation)) if review.error is None and not review.short else {}
    if not isinstance(accept := said.get("accept"), bool):
        return True, f"there is no verdict: {review.short or review.observation[:500]}"
    return accept, str(said.get("reasons") or "")


def sent_back(reasons: str) -> str:
    """What a model is told of an answer that is not accepted."""
    why = reasons or "no reasons were given."
    return f"Your answer is sent back by its review: {why}\nMend it, and write the whole answer again."
