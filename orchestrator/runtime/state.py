"""A run's state as a pure fold over its events, and the next step as a pure function of that state.

    state = fold(events)        decide(state) -> Step

Nothing here reads a clock, a file or a setting: whatever a decision depends on has become an event first. So a run that
is rebuilt from its journal, in another process and days later, takes the same next step with the same bytes.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, assert_never

from orchestrator.events import (
    AnswerReviewed,
    ApprovalAsked,
    ApprovalDecided,
    HookApplied,
    InputAsked,
    JournalEvent,
    LimitReached,
    MemoryCompacted,
    MemoryIntent,
    MemoryPinned,
    ModelChanged,
    ModelFailed,
    ModelIntent,
    ModelResult,
    OutputChecked,
    PlanMade,
    ReviewAsked,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunForked,
    RunParked,
    RunResumed,
    RunStarted,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
    ToolsChanged,
    WindowCut,
)
from orchestrator.memory.conversation import opening
from orchestrator.messages import (
    AssistantMessage,
    Cost,
    Image,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from orchestrator.models.lenient import is_object
from orchestrator.runtime.partial import partial_answer
from orchestrator.runtime.plans import due, is_led, must_plan
from orchestrator.runtime.runstate import (
    Act,
    CallState,
    Done,
    Fail,
    Finish,
    Reservation,
    RunState,
    Step,
    StepRecord,
    Stop,
    Think,
    Wait,
)
from orchestrator.runtime.windowing import apply_memory

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
        case ModelIntent() | ModelResult() | ModelFailed():
            return _apply_model(state, event)
        case ModelChanged():
            return _changed(state, event)
        case ToolIntent() | ToolResult() | ToolInDoubt() | ToolRetried():
            return _apply_tool(state, event)
        case PlanMade():
            return _planned(state, event)
        case ToolsChanged():
            # What the model counted last time knows nothing of them yet.
            counted = state.input_tokens + event.tokens if state.input_tokens else 0
            return state._replace(tools=event.tools, input_tokens=counted)
        case ApprovalAsked() | InputAsked() | ApprovalDecided():
            return _apply_approval(state, event)
        case HookApplied():
            return _apply_hook(state, event)
        case OutputChecked(valid=True):
            return state._replace(answer=event.text, checked=True)
        case ReviewAsked():
            asked = ToolCall(id=event.call, name=event.tool, arguments=json.dumps(event.arguments, ensure_ascii=False))
            return state._replace(name="ACTING", calls=(CallState(call=asked, review=True),))
        case AnswerReviewed(accepted=True):
            return state._replace(reviewed=True, review=None)
        case AnswerReviewed():
            messages = (*state.messages, UserMessage(text=event.text))
            return state._replace(messages=messages, answer=None, review=None, reviews=state.reviews + 1)
        case OutputChecked():
            messages = (*state.messages, UserMessage(text=event.text))
            return state._replace(messages=messages, answer=None, sent_back=True)
        case MemoryPinned() | MemoryIntent() | MemoryCompacted() | WindowCut():
            return apply_memory(state, event)
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


def _apply_model(state: RunState, event: ModelIntent | ModelResult | ModelFailed) -> RunState:
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
    )


def _replied(state: RunState, event: ModelResult) -> RunState:
    message = event.message
    apart = state.ready or is_led(state)  # such a request is not the transcript's, so its tokens say nothing of that
    state = state._replace(
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
    if state.stop is not None:
        return state._replace(closed=True, answer=None if event.problem else message.text.strip() or None)
    pieces = (*state.cut, message.text)
    if message.calls:
        calls = tuple(CallState(call=call) for call in message.calls)
        return state._replace(
            name="ACTING",
            cut=(),
            messages=(*state.messages, message),
            calls=calls,
            breakers=state.breakers.parsed(),
        )
    step = StepRecord(n=event.turn, thought=message.text)
    state = state._replace(steps=(*state.steps, step), cut=())
    if event.final:
        return state._replace(ready=True)
    state = state._replace(ready=False)
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


def _apply_tool(state: RunState, event: ToolIntent | ToolResult | ToolInDoubt | ToolRetried) -> RunState:
    match event:
        case ToolIntent():
            counted = 1 if event.attempt == 1 else 0
            state = state._replace(own=state.own + Usage(tool_calls=counted))
            return _update(
                state,
                event.call,
                phase="sent",
                interrupted=False,
                attempt=event.attempt,
                effect=event.effect,
                arguments=event.arguments,
                share=event.share,
            )
        case ToolRetried():
            return state
        case ToolInDoubt():
            return _answered(
                _update(state, event.call, phase="answered", observation=event.observation, error="in_doubt")
            )
        case ToolResult():
            state = _spent_below(state, event.call, event.usage, event.cost)
            if event.lost and (found := _call(state, event.call)) is not None and found.at_stake is not None:
                state = state._replace(lost=(*state.lost, found.at_stake))
            return _answered(
                _update(
                    state,
                    event.call,
                    phase="answered",
                    observation=event.observation,
                    kept=event.kept,
                    error=event.error,
                    child=event.child,
                    chosen=event.chosen,
                    short=event.short,
                )
            )


def _planned(state: RunState, event: PlanMade) -> RunState:
    """The steps of a plan are calls of the turn, after the one that made it."""
    calls: list[CallState] = []
    for call in state.calls:
        if call.call.id != event.call:
            calls.append(call)
            continue
        calls.append(call._replace(phase="planned", plan=event.steps, reused=event.reused, began=event.at))
        for number, step in enumerate(event.steps, 1):
            written = json.dumps(step.arguments, ensure_ascii=False)
            made = ToolCall(id=f"{event.call}.s{number}", name=step.tool, arguments=written)
            calls.append(CallState(call=made, phase="planned", step=step))
    return state._replace(calls=tuple(calls), plans=state.plans + 1)


def _apply_approval(state: RunState, event: ApprovalAsked | InputAsked | ApprovalDecided) -> RunState:
    match event:
        case ApprovalAsked():
            return _update(
                state._replace(name="WAITING"),
                event.call,
                phase="waiting",
                arguments=event.arguments,
                reason=event.reason,
                digest=event.digest,
            )
        case InputAsked():
            return _asks(_spent_below(state, event.call, event.usage, event.cost), event.call, event)
        case ApprovalDecided():
            call = _call(state, event.call)
            if call is None or call.phase != "waiting" or call.digest != event.digest:
                return state  # the first verdict stands, and one on other arguments is none
            if call.input is not None:
                return _replied_to(state, call.input, event)
            phase = "approved" if event.approved else "denied"
            arguments = call.arguments if event.arguments is None else event.arguments
            return _update(state._replace(name="ACTING"), event.call, phase=phase, note=event.note, arguments=arguments)


def _spent_below(state: RunState, call: str, usage: Usage | None, cost: Cost | None) -> RunState:
    """What the agent that was called has used. One of another orchestrator may say so again, and says the total."""
    found = _call(state, call)
    if usage is None or found is None:
        return state
    cost = cost or Cost()
    if found.share is None:
        return state._replace(children=state.children + usage, children_cost=state.children_cost + cost)
    more, paid = usage.beyond(found.usage), cost.beyond(found.cost)
    state = state._replace(remote=state.remote + more, remote_cost=state.remote_cost + paid)
    return _update(state, call, usage=found.usage + more, cost=found.cost + paid)


def _asks(state: RunState, call: str, asked: InputAsked, *, held: bool = False) -> RunState:
    """The call waits for the next answer. After the last it goes on, unless it would begin anew only to be refused."""
    if (question := asked.open) is not None:
        return _update(state._replace(name="WAITING"), call, phase="waiting", input=asked, digest=question.digest)
    phase = "sent" if held else "denied" if asked.restarts and asked.refused else "approved"
    return _update(state._replace(name="ACTING"), call, phase=phase, input=asked, digest="")


def _replied_to(state: RunState, asked: InputAsked, event: ApprovalDecided) -> RunState:
    """An answer to the open question."""
    action = "accept" if event.approved else "cancel" if event.dismissed else "decline"
    given = {"action": action, "content": None if event.dismissed else event.arguments}
    questions = tuple(each.model_copy(update=given) if each is asked.open else each for each in asked.questions)
    state = _update(state, event.call, note=event.note)
    return _asks(state, event.call, asked.model_copy(update={"questions": questions}), held=event.held)


def _apply_hook(state: RunState, event: HookApplied) -> RunState:
    """A redirection is one more message; an answer may be replaced; a call's fate follows in events of its own."""
    state = state._replace(decided=(*state.decided, (event.moment, event.hook)))
    if event.decision == "redirect":
        return state._replace(messages=(*state.messages, UserMessage(text=event.text)), answer=None)
    if event.moment == "finishing":
        return state._replace(answer=event.text, checked=False)
    return state


def _call(state: RunState, call: str) -> CallState | None:
    return next((item for item in state.calls if item.call.id == call), None)


def _update(state: RunState, call: str, **changes: Any) -> RunState:
    calls = tuple(item._replace(**changes) if item.call.id == call else item for item in state.calls)
    return state._replace(calls=calls)


def _answered(state: RunState) -> RunState:
    """With the last answer the turn is observed: all answers join the transcript in call order.

    The call of `plan` answers for its steps. Those that it never came to are no calls.
    """
    if not any(call.phase == "planned" and call.plan for call in state.calls):
        state = state._replace(calls=tuple(call for call in state.calls if call.phase != "planned"))
    if any(call.phase != "answered" for call in state.calls):
        return state
    *earlier, message = state.messages
    assert isinstance(message, AssistantMessage), "calls belong to the model's newest reply"
    if state.calls[0].review:
        return state._replace(name="OBSERVING", calls=(), review=state.calls[0])
    asked = [call for call in state.calls if call.step is None]
    calls = tuple(map(_as_sent, asked))
    answers = [
        ToolMessage(call=call, text=s.observation, is_error=s.is_error) for call, s in zip(calls, asked, strict=True)
    ]
    kept = [answer for answer, call in zip(answers, asked, strict=True) if call.error != "withheld"]
    if calls != message.calls or len(kept) < len(answers):
        message = replace(message, calls=tuple(answer.call for answer in kept))
    done = [call for call in state.calls if not call.plan]  # a plan fails or makes progress by its steps
    observed = [(c.call.name, c.arguments, c.call.arguments, c.observation, c.error) for c in done]
    return state._replace(
        name="OBSERVING",
        messages=(*earlier, message, *kept, *_pictures(state.calls)) if kept else tuple(earlier),
        calls=(),
        steps=(*state.steps, StepRecord(n=state.turn, thought=message.text, actions=state.calls)),
        breakers=state.breakers.observed(observed),
    )


def _pictures(calls: Iterable[CallState]) -> tuple[UserMessage, ...]:
    """The images of a turn in a message of their own: in many vendors' words a tool's answer is text only."""
    shown = [kept for call in calls for kept in call.kept if kept.shown]
    if not shown:
        return ()
    images = tuple(Image(id=kept.id, mime_type=kept.mime_type, body=kept.body) for kept in shown)
    return (UserMessage(text=f"[The images of these results: {', '.join(each.id for each in images)}]", images=images),)


def _as_sent(state: CallState) -> ToolCall:
    """The call as the model is shown it from now on: broken JSON that was mended is shown mended."""
    if state.arguments is None or is_object(state.call.arguments):
        return state.call
    return replace(state.call, arguments=json.dumps(state.arguments, ensure_ascii=False))
