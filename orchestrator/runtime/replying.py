"""The part of the fold that is about the model: what it was asked, what it replied, and what is asked again."""

from dataclasses import replace
from typing import assert_never

from orchestrator.events import ModelChanged, ModelEvent, ModelFailed, ModelIntent, ModelResult
from orchestrator.messages import AssistantMessage, UserMessage
from orchestrator.runtime.plans import is_led
from orchestrator.runtime.runstate import CallState, Reservation, RunState, StepRecord

GO_ON = (
    "Your answer was cut off at its output limit. Go on exactly where it stopped: write only what is missing, repeat "
    "nothing, and say nothing about it."
)
CUT_OFF = (
    "Your reply was cut off at its output limit before it came to a whole answer or call. Write the whole of it again, "
    "shorter."
)
EMPTY_REPLY = (
    "Your reply was empty. Either call one of the tools you were given or write the final answer as plain text."
)


def apply_model(state: RunState, event: ModelEvent) -> RunState:
    match event:
        case ModelIntent():
            reserved = Reservation(tokens=event.reserved, cost=event.reserved_cost)
            return state._replace(
                name="PLANNING" if event.planning else "THINKING",
                turn=event.turn,
                planning=event.planning,
                attempts=event.attempt,
                outstanding=reserved,
                failure=None,
                decided=(),
                asked=event.messages,
            )
        case ModelResult():
            return _replied(state, event)
        case ModelFailed():
            charged = event.charged and state.outstanding is not None
            lost = (*state.lost, state.outstanding) if charged and state.outstanding is not None else state.lost
            return state._replace(failure=event, failures=state.failures + 1, outstanding=None, lost=lost)
        case ModelChanged():
            return _changed(state, event)
        case _:
            assert_never(event)


def _changed(state: RunState, event: ModelChanged) -> RunState:
    """Another model has neither failed yet nor counted anything, and it may be no weak one."""
    return state._replace(
        model=event.model,
        spec=event.spec,
        weights=event.weights or state.weights,
        failure=None,
        failures=0,
        input_tokens=0,
        measured=0,
        ready=False,
        ceiling=0,
        apart=None,
    )


def _replied(state: RunState, event: ModelResult) -> RunState:
    apart = state.ready or is_led(state)  # such a request is not the transcript's, so its tokens say nothing of that
    state = _counted(state, event, apart=apart)
    message = event.message
    if state.stop is not None:
        return state._replace(closed=True, answer=None if event.problem else message.text.strip() or None)
    if message.calls:
        return state._replace(
            name="ACTING",
            cut=(),
            messages=(*state.messages, message),
            calls=tuple(CallState(call=call) for call in message.calls),
            breakers=state.breakers.parsed(),
        )
    return _spoken(state, event, apart=apart)


def _counted(state: RunState, event: ModelResult, *, apart: bool) -> RunState:
    return state._replace(
        outstanding=None,
        attempts=0,
        failures=0,
        failure=None,
        checked=False,
        reviewed=False,
        own=state.own + event.usage,
        own_cost=state.own_cost + event.cost,
        finish=event.finish,
        input_tokens=0 if apart else event.usage.input_tokens,
        measured=0 if apart else state.asked,
        weights=event.weights or state.weights,
    )


def _spoken(state: RunState, event: ModelResult, *, apart: bool) -> RunState:
    """A reply without calls: the answer, a piece of it, or what the model is asked for again."""
    message, pieces = event.message, (*state.cut, event.message.text)
    step = StepRecord(n=event.turn, thought=message.text)
    state = state._replace(steps=(*state.steps, step), cut=(), ready=event.final)
    if event.final:
        return state
    if not message.text.strip():
        # The empty reply stays in: many servers refuse two user messages in a row.
        problem = event.problem or (CUT_OFF if event.finish == "length" else EMPTY_REPLY)
        return _asked_again(state, replace(message, text=""), problem)
    if event.problem:
        return _asked_again(state, message, event.problem)
    if event.finish == "length" and apart:  # its request had no transcript that it could go on from
        return _asked_again(state, message, CUT_OFF)
    state = state._replace(messages=(*state.messages, message))
    if event.finish == "length":
        messages = (*state.messages, UserMessage(text=GO_ON))
        return state._replace(messages=messages, cut=pieces, breakers=state.breakers.cut_off(len(pieces)))
    return state._replace(answer="".join(pieces))


def _asked_again(state: RunState, message: AssistantMessage, problem: str) -> RunState:
    messages = (*state.messages, message, UserMessage(text=problem))
    return state._replace(messages=messages, breakers=state.breakers.unparseable())
