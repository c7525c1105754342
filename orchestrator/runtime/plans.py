"""A plan that is carried out: which steps can act now, what each is told of the others, what came of them all. Pure.

A step is a call of the run's state beside the call of `plan`, so intents, approvals, limits and crashes are as for any
other call. It acts once the steps that it needs have good results; what needs a failed one never does.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.models.lenient import dump
from orchestrator.runtime.runstate import CallState, RunState

PLAN: Final = "plan"
"""The built-in tool that makes a plan."""

REVISIONS: Final = 3
"""Times that a run may plan again."""

FAILED: Final = "plan_failed"
"""The kind of error of a plan with a step that failed or could not run."""

_WHOLE: Final = "The whole job, of which this is a part: "
_RESULTS: Final = "Results so far:"
# In a task as text, and in the JSON that an agent with an input of its own is given.
_CONTEXT: Final = re.compile(r'\n\nContext:\n|"context": "')
_GIVEN: Final = re.compile(rf'(?:\n|\\n|"){_RESULTS}(?:\n|\\+n)')
_LONGEST_FACT: Final = 2_000  # characters of a result
_LONGEST_ERROR: Final = 500

PLAN_FIRST: Final = "Begin with a plan: call `plan` before anything else. A plan of one step is fine."


def is_led(state: RunState) -> bool:
    """Whether code leads the team: its model splits the job once, and answers from what the specialists say."""
    return state.run.plan == "led"


def must_plan(state: RunState) -> bool:
    """Whether the next thought can only be a plan."""
    return state.run.plan in ("always", "led") and not state.plans


def due(state: RunState) -> tuple[CallState, ...]:
    """The steps of a plan that can act now; the call of `plan` itself, to be answered, when none is left that could."""
    planned = [call for call in state.calls if call.phase == "planned"]
    if not planned:
        return ()
    results = {call.step.id: call for call in state.calls if call.step is not None}
    led = is_led(state)
    steps = tuple(call for call in planned if call.step is not None and _has_what_it_needs(call, results, led))
    busy = any(call.step is not None and call.phase not in ("planned", "answered") for call in state.calls)
    return steps if steps or busy else tuple(call for call in planned if call.plan)


def _has_what_it_needs(call: CallState, results: Mapping[str, CallState], led: bool) -> bool:
    """A step that is not of this plan was done before. Where code leads, a specialist goes on without the others."""
    needs = [results[need] for need in call.step.needs if need in results] if call.step is not None else []
    return all(each.phase == "answered" and (led or is_good(each)) for each in needs)


def is_good(call: CallState) -> bool:
    return call.phase == "answered" and call.error is None and not call.short


def finished(state: RunState) -> dict[str, CallState]:
    """The steps of this run's earlier plans that have good results, by id."""
    return {action.step.id: action for action in _actions(state) if action.step is not None and is_good(action)}


def arguments(state: RunState, call: CallState) -> Mapping[str, Any]:
    """What an agent's step is called with: its own arguments, and the results of the steps that it needs as context.

    What was said earlier in the conversation is among the results: answers that it holds are nobody's orders.
    """
    assert call.step is not None, "only a step of a plan has a context"
    results = finished(state) | {each.step.id: each for each in state.calls if each.step is not None}
    earlier = [state.run.earlier] if is_led(state) and state.run.earlier else []
    given = [*earlier, *(f"[{need}] {results[need].observation}" for need in call.step.needs if need in results)]
    whole = f"{_WHOLE}{state.run.task}" if is_led(state) else ""
    parts = (call.step.arguments.get("context", ""), whole, "\n".join([_RESULTS, *given]) if given else "")
    context = "\n\n".join(part for part in parts if part)
    return {**call.step.arguments, **({"context": context} if context else {})}


def apart(task: str) -> tuple[str, str]:
    """What an agent was asked to do, and the results of other steps that came along with it."""
    context = _CONTEXT.search(task)
    given = _GIVEN.search(task, context.end() - 1) if context else None
    return (task[: given.start()], task[given.end() :]) if given else (task, "")


def ordered(state: RunState) -> str:
    """What a person asked for, as far as it is known: of a part that a weak model worded, the whole job."""
    asked, _ = apart(state.run.task)
    return asked.rpartition(_WHOLE)[2] if state.run.part else asked


def results(state: RunState) -> list[str]:
    """Every good result of a run, each with what was asked for."""
    good = [action for action in _actions(state) if action.error is None]
    return [f"- {a.call.name} {_asked(a)}: {a.observation[:_LONGEST_FACT]}" for a in good if not a.plan]


def _actions(state: RunState) -> list[CallState]:
    return [action for step in state.steps for action in step.actions]


def _asked(action: CallState) -> str:
    """What was asked for, without what else an agent's step of a plan was told."""
    return action.call.arguments if action.step is not None else dump(dict(action.arguments or {})).decode()


def has_found(state: RunState) -> bool | None:
    """Whether a weak model that was given a part of a job, and is done with it or was stopped, found anything; None
    before that, where it tried nothing, and of any other run, so that it says something in words.

    On a part of a job its words may hold what it does not know of the rest, and they hide that nothing worked.
    """
    over = state.ready or state.stop is not None
    return bool(results(state)) if state.run.part and over and _actions(state) else None


def findings(state: RunState) -> str:
    """The answer of a run that `has_found` something, or nothing."""
    return "\n".join(results(state)) or f"found nothing. {_actions(state)[-1].observation[:_LONGEST_ERROR]}"


def report(state: RunState, plan: CallState) -> tuple[str, str | None]:
    """The one observation that answers a call of `plan`, and its kind of error, if any."""
    calls = {call.step.id: call for call in state.calls if call.step is not None}
    steps = [calls[step.id] for step in plan.plan]
    before = [f"[{id}] done before" for id in plan.reused]
    lines = [*before, *(_line(call, calls) for call in steps)]
    if all(map(is_good, steps)):
        return "\n".join([f"All {len(steps)} steps are done.", *lines]), None
    good = sum(map(is_good, steps))
    left = REVISIONS + 1 - state.plans
    head = f"{good} of {len(steps)} steps are done; the plan did not work out."
    again = (
        "Plan what is left in another way: name finished steps in `needs`, they are not run again. Or answer with what "
        "there is, and say what is missing."
        if left > 0
        else "No further plan is possible. Answer with what there is, and say what is missing."
    )
    return "\n".join([head, *lines, again]), FAILED


def _line(call: CallState, calls: Mapping[str, CallState]) -> str:
    assert call.step is not None, "only steps have a line"
    name = f"[{call.step.id}]"
    if is_good(call):
        return f"{name} done: {call.observation}"
    if call.phase == "answered":
        return f"{name} failed{f' ({call.short})' if call.short else ''}: {call.observation}"
    without = [need for need in call.step.needs if need in calls and not is_good(calls[need])]
    return f"{name} not run, for want of {', '.join(without)}"
