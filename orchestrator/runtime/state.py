"""A run's state as a pure fold over its events, and the next step as a pure function of that state.

    state = fold(events)        decide(state) -> Step

Nothing here reads a clock, a file or a setting: whatever a decision depends on has become an event first. So a run that
is rebuilt from its journal, in another process and days later, takes the same next step with the same bytes.
"""

import json
from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from orchestrator.events import (
    AnswerReviewed,
    ApprovalDecided,
    CallEvent,
    CheckEvent,
    HookApplied,
    JournalEvent,
    LifeEvent,
    LimitReached,
    MemoryEvent,
    ModelEvent,
    OutputChecked,
    PersonEvent,
    ReviewAsked,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunForked,
    RunParked,
    RunResumed,
    RunStarted,
)
from orchestrator.memory.conversation import opening
from orchestrator.messages import Cost, ToolCall, Usage, UserMessage
from orchestrator.runtime.answering import apply_call
from orchestrator.runtime.partial import partial_answer
from orchestrator.runtime.plans import due, findings, has_found, is_led, must_plan
from orchestrator.runtime.replying import apply_model
from orchestrator.runtime.runstate import Act, CallState, Done, Fail, Finish, RunState, Step, Stop, Think, Wait
from orchestrator.runtime.verdicts import apply_person
from orchestrator.runtime.windowing import apply_memory


def fold(events: Iterable[JournalEvent], state: RunState | None = None) -> RunState:
    """The state after `events`; `fold(a + b) == fold(b, fold(a))`."""
    return reduce(apply, events, state or RunState())


def decide(state: RunState) -> Step:
    """The next step. Total: every state has one."""
    if state.end is not None or state.parked is not None or state.started is None:
        return Done()
    if unanswered := tuple(call for call in state.calls if call.phase != "answered"):
        ready = [call.call.id for call in due(state)]
        possible = tuple(
            call
            for call in unanswered
            if call.interrupted or call.phase in ("asked", "approved", "denied") or call.call.id in ready
        )
        return Act(possible) if possible else Wait(unanswered)
    if state.stop is not None:
        return _close(state, state.stop)
    if state.answer is not None:
        return Finish("finished", "answered", state.answer)
    if state.failure is not None and state.failure.retry_in is None:
        return Fail(state.failure.kind, state.failure.error)
    if (tripped := state.breakers.tripped) is not None:
        return Stop(*tripped)
    if has_found(state) is not None:
        return Finish("finished", "answered", findings(state))
    if state.ready:
        return _think(state, closing=True)
    limit = state.run.limits.steps
    if limit is not None and state.turn >= limit and state.attempts == 0:
        return Stop("max_steps", f"{limit} steps")
    return _think(state, closing=is_led(state) and not must_plan(state))


def _think(state: RunState, *, closing: bool = False) -> Think:
    asked_again = state.failure is not None or state.attempts > 0
    turn = state.turn if asked_again else state.turn + 1
    delay = state.failure.retry_in or 0.0 if state.failure is not None else 0.0
    return Think(turn, state.attempts + 1, closing, delay, planning=not closing and must_plan(state))


def _close(state: RunState, stop: LimitReached) -> Step:
    """A stopped run asks once for an answer without tools, when its budget allowed that; else it says what it has."""
    if has_found(state) is not None:
        return Finish("stopped", stop.limit, findings(state))
    failed = state.failure is not None and state.failure.retry_in is None
    if stop.closing and not state.closed and not failed:
        return _think(state, closing=True)
    return Finish("stopped", stop.limit, partial_answer(state, stop))


def apply(state: RunState, event: JournalEvent) -> RunState:
    """One step of the fold."""
    asked = state.name == "WAITING" and isinstance(event, ApprovalDecided)  # a person's time is not the run's
    idle = asked or not state.last_at or state.parked is not None or isinstance(event, RunResumed | RunForked)
    passed = 0.0 if idle else max(0.0, event.at - state.last_at)
    state = state._replace(seq=event.seq, last_at=event.at, active=state.active + passed)
    if isinstance(event, ModelEvent):
        return apply_model(state, event)
    if isinstance(event, CallEvent):
        return apply_call(state, event)
    if isinstance(event, PersonEvent):
        return apply_person(state, event)
    if isinstance(event, CheckEvent):
        return _apply_check(state, event)
    if isinstance(event, MemoryEvent):
        return apply_memory(state, event)
    return _apply_life(state, event)


def _apply_life(state: RunState, event: LifeEvent) -> RunState:
    match event:
        case RunStarted():
            messages = (UserMessage(text=opening(event.earlier, event.task)),)
            weights = event.weights or state.weights
            return state._replace(
                started=event, tools=event.tools, model=event.model, messages=messages, weights=weights
            )
        case RunResumed():
            return _resumed(state)
        case RunForked():
            return _forked(state)
        case LimitReached():
            return state._replace(stop=event, failure=None, failures=0, attempts=0)
        case RunParked():
            return _unsettled(state)._replace(parked=event, name="WAITING")
        case RunFinished():
            return state._replace(end=event, answer=event.answer, name="FINISHED")
        case RunFailed() | RunCancelled():
            return state._replace(end=event, name="FAILED")
        case _:
            assert_never(event)


def _resumed(state: RunState) -> RunState:
    """Another process goes on: what was under way is in doubt, and a lost model reply stays charged at its worst."""
    calls = tuple(call._replace(interrupted=True) if call.phase == "sent" else call for call in state.calls)
    return _unsettled(state)._replace(calls=calls, parked=None)


def _forked(state: RunState) -> RunState:
    """What another run did is known here, and was paid there: time and money are counted from now on."""
    return state._replace(
        own=Usage(),
        own_cost=Cost(),
        children=Usage(),
        children_cost=Cost(),
        remote=Usage(),
        remote_cost=Cost(),
        lost=(),
        held=None,
        active=0.0,
    )


def _unsettled(state: RunState) -> RunState:
    """Nobody will see the reply to the request that was under way: it may have cost its worst."""
    return state._replace(lost=state.unsettled, outstanding=None, held=None)


def _apply_check(state: RunState, event: CheckEvent) -> RunState:
    match event:
        case HookApplied():
            return _hooked(state, event)
        case OutputChecked(valid=True):
            return state._replace(answer=event.text, checked=True)
        case OutputChecked():
            return _sent_back(state, event.text)._replace(sent_back=True)
        case ReviewAsked():
            asked = ToolCall(id=event.call, name=event.tool, arguments=json.dumps(event.arguments, ensure_ascii=False))
            return state._replace(name="ACTING", calls=(CallState(call=asked, review=True),))
        case AnswerReviewed(accepted=True):
            return state._replace(reviewed=True, review=None)
        case AnswerReviewed():
            return _sent_back(state, event.text)._replace(review=None, reviews=state.reviews + 1)
        case _:
            assert_never(event)


def _sent_back(state: RunState, text: str) -> RunState:
    """The answer is none: its model is told why."""
    return state._replace(messages=(*state.messages, UserMessage(text=text)), answer=None, ready=False)


def _hooked(state: RunState, event: HookApplied) -> RunState:
    """A redirection is one more message; an answer may be replaced; a call's fate follows in events of its own."""
    state = state._replace(decided=(*state.decided, (event.moment, event.hook)))
    if event.decision == "redirect":
        return _sent_back(state, event.text)
    if event.moment == "finishing":
        return state._replace(answer=event.text, checked=False)
    return state
