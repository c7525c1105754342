"""Which tools lead nowhere now: a pure function of the state, so that it is the same after a resume.

A wire that can leave them out of the next choice does so; to others it is nothing.
"""

from orchestrator.models.base import FINAL
from orchestrator.runtime.breakers import SAME_RESULT
from orchestrator.runtime.grounding import WITHHELD
from orchestrator.runtime.plans import PLAN, REVISIONS, must_plan
from orchestrator.runtime.runstate import CallState, RunState

RETRIEVE_RESULT = "retrieve_result"
"""The built-in tool that reads on in a result that was cut."""

_TRIES = 3  # of a weak specialist, before it may answer that nothing came of them
_LOST = 3  # tools whose calls were withheld one after the other: it knows of none that would help
_MENDABLE = ("tool_error", "invalid_arguments", "unknown_tool")
_REQUEST = 512  # tokens that a last request needs beyond what the newest one took


def closed(state: RunState, turn: int, tools: frozenset[str], *, weak: bool) -> frozenset[str]:
    """Those of `tools` that a person or the policy refused, that gave the same again, or whose calls are withheld;
    and what reads on in a long result, before there is one.

    `turn` is the next one. Nothing is left but an answer where the budget ends with it, or where one call after the
    other was withheld; and nothing but `plan`, not even an answer, where that must come first. A `weak` specialist
    begins with a tool, since it takes what others found for the answer, and tries again after an error that it can
    mend.
    """
    if PLAN in tools and must_plan(state):
        return (tools | {FINAL}) - {PLAN}
    if _nearly_out(state, turn):
        return tools
    actions = [action for step in state.steps for action in step.actions]
    denied = {action.call.name for action in actions if action.error == "denied"}
    same: dict[tuple[str, str, str], int] = {}
    for action in actions:
        key = (action.call.name, str(action.arguments), action.observation)
        same[key] = same.get(key, 0) + 1
    exhausted = {name for (name, _, _), times in same.items() if times >= SAME_RESULT - 1}
    nothing_kept = frozenset(() if any(action.kept for action in actions) else (RETRIEVE_RESULT,))
    planned_enough = frozenset((PLAN,) if state.plans > REVISIONS else ())
    if len(withheld := _withheld(actions)) >= _LOST:
        return tools
    shut = tools & (denied | exhausted | withheld | nothing_kept | planned_enough)
    begins = weak and state.run.parent is not None and len(actions) < _TRIES
    return shut | {FINAL} if begins and shut != tools and all(a.error in _MENDABLE for a in actions) else shut


def _withheld(actions: list[CallState]) -> set[str]:
    """The tools whose calls were withheld since one was last sent: the next try must be another."""
    names: set[str] = set()
    for action in reversed(actions):
        if action.error not in (WITHHELD, "invalid_arguments", "unknown_tool"):
            break
        if action.error == WITHHELD:
            names.add(action.call.name)
    return names


def _nearly_out(state: RunState, turn: int) -> bool:
    limits = state.run.limits
    if limits.steps is not None and 1 < limits.steps <= turn:
        return True
    left = None if limits.tokens is None else limits.tokens - state.usage.tokens
    return left is not None and bool(state.input_tokens) and left < 2 * (state.input_tokens + _REQUEST)
