"""The part of the fold that is about calls: sent, planned, answered; with the last answer their turn is observed."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from orchestrator.events import CallEvent, PlanMade, ToolInDoubt, ToolIntent, ToolResult, ToolRetried, ToolsChanged
from orchestrator.messages import AssistantMessage, Cost, Image, ToolCall, ToolMessage, Usage, UserMessage
from orchestrator.models.lenient import is_object
from orchestrator.runtime.plans import is_led
from orchestrator.runtime.runstate import CallState, RunState, StepRecord


def apply_call(state: RunState, event: CallEvent) -> RunState:
    match event:
        case ToolIntent():
            counted = 1 if event.attempt == 1 else 0
            state = state._replace(own=state.own + Usage(tool_calls=counted))
            return state.update(
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
            return _observed(
                state.update(event.call, phase="answered", observation=event.observation, error="in_doubt")
            )
        case ToolResult():
            return _observed(_answered(state, event))
        case PlanMade():
            return _planned(state, event)
        case ToolsChanged():
            # What the model counted last time knows nothing of them yet.
            counted = state.input_tokens + event.tokens if state.input_tokens else 0
            return state._replace(tools=event.tools, input_tokens=counted)
        case _:
            assert_never(event)


def spent_below(state: RunState, call: str, usage: Usage | None, cost: Cost | None) -> RunState:
    """What the agent that was called has used. One of another orchestrator may say so again, and says the total."""
    found = state.find(call)
    if usage is None or found is None:
        return state
    cost = cost or Cost()
    if found.share is None:
        return state._replace(children=state.children + usage, children_cost=state.children_cost + cost)
    more, paid = usage.beyond(found.usage), cost.beyond(found.cost)
    state = state._replace(remote=state.remote + more, remote_cost=state.remote_cost + paid)
    return state.update(call, usage=found.usage + more, cost=found.cost + paid)


def _answered(state: RunState, event: ToolResult) -> RunState:
    state = spent_below(state, event.call, event.usage, event.cost)
    if event.lost and (found := state.find(event.call)) is not None and found.at_stake is not None:
        state = state._replace(lost=(*state.lost, found.at_stake))
    return state.update(
        event.call,
        phase="answered",
        observation=event.observation,
        kept=event.kept,
        error=event.error,
        child=event.child,
        chosen=event.chosen,
        short=event.short,
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


def _observed(state: RunState) -> RunState:
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
        ready=state.ready or (state.run.part and is_led(state) and state.plans > 0),  # its team has done its parts
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
