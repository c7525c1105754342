"""What a run has to say that did not come to an answer. Pure."""

from orchestrator.events import LimitReached
from orchestrator.runtime.runstate import RunState


def partial_answer(state: RunState, stop: LimitReached) -> str:
    """What a stopped run has to say: its last words or what it found, and in any case the limit and what was done."""
    audit = f"Stopped before the task was done: {stop.limit} ({stop.detail}). {audited(state)}"
    said = state.answer or "".join(state.cut)
    return f"{said}\n\n[{audit}]" if said else "\n".join([audit, *found(state)])


def audited(state: RunState) -> str:
    """How much was done."""
    made = [action for step in state.steps for action in step.actions]
    failed = sum(action.is_error for action in made)
    return f"Done so far: {len(state.steps)} steps, {len(made)} tool calls, {failed} of them failed."


def found(state: RunState) -> list[str]:
    """The last thought and the last good result of a run that did not come to an answer."""
    lines = [f"Last thought: {thought}"] if (thought := state.last_thought) else []
    good = [action for step in state.steps for action in step.actions if not action.is_error]
    if good:
        lines.append(f"Last result ({good[-1].call.name}): {good[-1].observation[:2000]}")
    return lines
