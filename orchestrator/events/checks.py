"""Events of what code and reviewers make of a run: hooks, the schema of an answer, and its review."""

from typing import Any, Literal

from orchestrator.events.base import Event


class HookApplied(Event):
    """A hook stepped in. `text` is a redirection's message, a veto's reason, or the answer in the answer's place."""

    type: Literal["hook.applied"] = "hook.applied"
    hook: str
    moment: Literal["thinking", "acting", "finishing"]
    decision: Literal["veto", "replace", "redirect"]
    call: str | None = None
    text: str = ""
    arguments: dict[str, Any] | None = None


class OutputChecked(Event):
    """A final answer against its card's `output` schema. `text` is the answer as JSON, or what the model is told."""

    type: Literal["output.checked"] = "output.checked"
    valid: bool
    text: str


class ReviewAsked(Event):
    """A reviewer is called with the final answer, as any agent is; the call is one of the turn."""

    type: Literal["review.asked"] = "review.asked"
    call: str
    tool: str
    arguments: dict[str, Any]


class AnswerReviewed(Event):
    """The verdict on a final answer, `by` the rules or by a reviewer. `text` is what the model is told of one that is
    not accepted, or why it goes out without a verdict.
    """

    type: Literal["answer.reviewed"] = "answer.reviewed"
    accepted: bool
    by: str
    text: str = ""


CheckEvent = HookApplied | OutputChecked | ReviewAsked | AnswerReviewed
