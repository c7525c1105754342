"""The part of the fold that is about persons: what waits for one, and what came of it."""

from typing import assert_never

from orchestrator.events import ApprovalAsked, ApprovalDecided, InputAsked, PersonEvent
from orchestrator.runtime.answering import spent_below
from orchestrator.runtime.runstate import RunState


def apply_person(state: RunState, event: PersonEvent) -> RunState:
    match event:
        case ApprovalAsked():
            return state._replace(name="WAITING").update(
                event.call, phase="waiting", arguments=event.arguments, reason=event.reason, digest=event.digest
            )
        case InputAsked():
            return _asks(spent_below(state, event.call, event.usage, event.cost), event.call, event)
        case ApprovalDecided():
            call = state.find(event.call)
            if call is None or call.phase != "waiting" or call.digest != event.digest:
                return state  # the first verdict stands, and one on other arguments is none
            if call.input is not None:
                return _replied_to(state, call.input, event)
            phase = "approved" if event.approved else "denied"
            arguments = call.arguments if event.arguments is None else event.arguments
            state = state._replace(name="ACTING")
            return state.update(event.call, phase=phase, note=event.note, arguments=arguments)
        case _:
            assert_never(event)


def _asks(state: RunState, call: str, asked: InputAsked, *, held: bool = False) -> RunState:
    """The call waits for the next answer. After the last it goes on, unless it would begin anew only to be refused."""
    if (question := asked.open) is not None:
        return state._replace(name="WAITING").update(call, phase="waiting", input=asked, digest=question.digest)
    found = state.find(call)
    alone = found is not None and found.share is None  # the run of a remote agent waits to be told
    phase = "sent" if held else "denied" if asked.restarts and asked.refused and alone else "approved"
    return state._replace(name="ACTING").update(call, phase=phase, input=asked, digest="")


def _replied_to(state: RunState, asked: InputAsked, event: ApprovalDecided) -> RunState:
    """An answer to the open question."""
    action = "accept" if event.approved else "cancel" if event.dismissed else "decline"
    given = {"action": action, "content": None if event.dismissed else event.arguments}
    questions = tuple(each.model_copy(update=given) if each is asked.open else each for each in asked.questions)
    state = state.update(event.call, note=event.note)
    return _asks(state, event.call, asked.model_copy(update={"questions": questions}), held=event.held)
