"""The fold: whatever happens to a run, its events tell the same state, and every state has a next step."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from orchestrator.events import (
    ApprovalAsked,
    ApprovalDecided,
    InputAsked,
    JournalEvent,
    Limits,
    MemoryCompacted,
    MemoryIntent,
    ModelFailed,
    ModelIntent,
    ModelResult,
    Question,
    RunParked,
    RunResumed,
    RunStarted,
    ToolIntent,
    ToolResult,
    dump,
    load,
)
from orchestrator.messages import AssistantMessage, Cost, Message, ToolCall, ToolMessage, Usage
from orchestrator.runtime.runstate import Act, Done, RunState, Think, Wait
from orchestrator.runtime.state import apply, decide, fold
from tests.runtime.random_runs import runs

pytestmark = pytest.mark.requirement("A1", "H1")
many = settings(max_examples=200)


def prefixes(events: Sequence[JournalEvent]) -> list[RunState]:
    """The state after each event, and before the first."""
    states = [RunState()]
    for event in events:
        states.append(apply(states[-1], event))
    return states


def assert_valid(messages: Sequence[Message]) -> None:
    """Each call is answered exactly once, in call order, before anybody else speaks."""
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        assert not isinstance(message, ToolMessage), "an answer that nothing asked for"
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            assert rest, f"{call.id} is not answered"
            answer = rest.pop(0)
            assert isinstance(answer, ToolMessage)
            assert answer.call == call


@given(runs())
@many
def test_a_run_can_be_cut_anywhere(events: list[JournalEvent]) -> None:
    whole = fold(events)
    for cut, state in enumerate(prefixes(events)):
        assert fold(events[cut:], state) == whole


@given(runs())
@many
def test_events_survive_the_journal(events: list[JournalEvent]) -> None:
    read = [load(dump(event)) for event in events]
    assert read == events
    assert fold(read) == fold(events)


@given(runs())
@many
def test_every_state_has_a_next_step(events: list[JournalEvent]) -> None:
    for place, state in enumerate(prefixes(events)):
        assert state.seq == place
        step = decide(state)
        if isinstance(step, Think):
            assert not state.calls
            assert_valid(state.messages)
            assert step.turn in (state.turn, state.turn + 1)
        if isinstance(step, Act | Wait):
            assert step.calls
            assert_valid(state.messages[:-1])
        if isinstance(step, Act):
            assert {call.phase for call in step.calls} <= {"asked", "planned", "approved", "denied", "sent"}
            assert all(call.interrupted for call in step.calls if call.phase == "sent")
            left = {call.step.id for call in state.calls if call.step and call.phase != "answered"}
            assert not any(left & set(call.step.needs) for call in step.calls if call.step)
        if isinstance(step, Wait):
            assert any(call.phase in ("waiting", "sent") for call in step.calls), "a plan never waits for itself"
        if isinstance(step, Done) and state.started is not None:
            assert state.end is not None or state.parked is not None


@given(runs())
@many
def test_nothing_happens_to_a_run_that_has_ended(events: list[JournalEvent]) -> None:
    state = fold(events)
    if state.end is None:
        return
    late = {"seq": state.seq + 1, "at": state.last_at + 1, "run": "r", "agent": "a"}
    for event in (
        RunResumed(fence=9, **late),
        ApprovalDecided(call="t1.1", approved=True, digest="of t1.1", **late),
    ):
        later = apply(state, event)
        assert isinstance(decide(later), Done)
        assert (later.end, later.answer, later.messages, later.usage) == (
            state.end,
            state.answer,
            state.messages,
            state.usage,
        )


@given(runs())
@many
def test_what_is_counted(events: list[JournalEvent]) -> None:
    state = fold(events)
    results = [event for event in events if isinstance(event, ModelResult | MemoryCompacted)]
    own = sum((event.usage for event in results), Usage())
    sent = [event for event in events if isinstance(event, ToolIntent) and event.attempt == 1]
    assert state.own == own + Usage(tool_calls=len(sent))
    answers = [event for event in events if isinstance(event, ToolResult)]
    assert state.children == sum((event.usage or Usage() for event in answers), Usage())

    asked = [event.reserved for event in events if isinstance(event, ModelIntent | MemoryIntent)]
    settled = [event for event in events if isinstance(event, ModelResult | ModelFailed)]
    settled += [event for event in events if isinstance(event, MemoryCompacted) and not event.charged]
    charged = state.unsettled
    assert len(charged) == len(asked) - len(settled), "a request is settled, or stays charged at its worst"
    assert sum(each.tokens for each in charged) <= sum(asked)
    assert state.active >= 0


@given(runs())
@many
def test_the_first_verdict_on_a_call_stands(events: list[JournalEvent]) -> None:
    state, given_ = RunState(), dict[str, ApprovalDecided]()
    for event in events:
        before, state = state, apply(state, event)
        if isinstance(event, InputAsked):
            given_.pop(event.call, None)  # it was sent, and its server asks something else
        if not isinstance(event, ApprovalDecided):
            continue
        waits = {call.call.id: call.digest for call in before.calls if call.phase == "waiting"}
        if waits.get(event.call) == event.digest:
            assert event.call not in given_
            given_[event.call] = event
            (call,) = (call for call in state.calls if call.call.id == event.call)
            told = call.input is not None and not call.input.restarts  # a no goes to the server
            assert call.phase == ("approved" if event.approved or told else "denied")
        else:
            assert state.calls == before.calls


class Story:
    """A run told event by event; the clock goes on a second each."""

    def __init__(self) -> None:
        self.state, self.at = RunState(), 0.0
        self.then(
            RunStarted,
            task="t",
            limits=Limits(),
            model="m",
            trace_id="",
            span_id="",
            system="",
            tools="",
            max_output_tokens=9,
        )

    def then(self, kind: Any, /, *, after: float = 1.0, turn: int = 1, **facts: Any) -> "Story":
        self.at += after
        event = kind(seq=self.state.seq + 1, at=self.at, run="r", agent="a", turn=turn, **facts)
        self.state = apply(self.state, event)
        return self

    def asked(self, *calls: str) -> "Story":
        self.then(ModelIntent, attempt=1, request="", messages=1, reserved=500)
        wanted = tuple(ToolCall(id=f"t1.{n}", name=name, arguments="{}") for n, name in enumerate(calls, 1))
        message = AssistantMessage(text="", calls=wanted)
        return self.then(ModelResult, message=message, finish="tool_calls", usage=Usage(), cost=Cost())


def test_time_while_nobody_drives_is_not_counted() -> None:
    story = Story().asked("fx__pay")
    story.then(ApprovalAsked, call="t1.1", tool="fx__pay", arguments={}, reason="", digest="d")
    story.then(RunParked, reason="approval")
    active = story.state.active
    story.then(ApprovalDecided, after=1000.0, call="t1.1", approved=True, digest="d")
    assert story.state.active == active
    story.then(RunResumed, after=1000.0, fence=2)
    assert story.state.active == active
    story.then(ToolIntent, call="t1.1", tool="fx__pay", arguments={}, effect="write")
    assert story.state.active == active + 1
    story.then(RunResumed, after=1000.0, fence=3)
    assert story.state.active == active + 1, "nor is the time after a crash"


@pytest.mark.parametrize("kind", ["crash", "interrupt"])
def test_a_request_whose_reply_nobody_saw_stays_charged(kind: str) -> None:
    story = Story().then(ModelIntent, attempt=1, request="", messages=1, reserved=500)
    if kind == "interrupt":
        story.then(RunParked, reason="interrupted")
    story.then(RunResumed, fence=2)
    assert [each.tokens for each in story.state.lost] == [500]
    assert decide(story.state) == Think(turn=1, attempt=2)


def test_answers_join_the_transcript_in_call_order() -> None:
    story = Story().asked("a", "b", "c")
    for n in (3, 1, 2):
        story.then(ToolIntent, call=f"t1.{n}", tool="x", arguments={}, effect="read")
    for n in (2, 3, 1):
        story.then(ToolResult, call=f"t1.{n}", tool="x", observation=f"answer {n}")
    answers = [message for message in story.state.messages if isinstance(message, ToolMessage)]
    assert [(answer.call.id, answer.text) for answer in answers] == [(f"t1.{n}", f"answer {n}") for n in (1, 2, 3)]


def test_a_call_that_waits_inside_an_agent_lets_the_others_end_first() -> None:
    story = Story().asked("agents__worker", "fx__look")
    for n, effect in ((1, "agent"), (2, "read")):
        story.then(ToolIntent, call=f"t1.{n}", tool="x", arguments={}, effect=effect)
    story.then(ToolResult, call="t1.2", tool="x", observation="seen")
    step = decide(story.state)
    assert isinstance(step, Wait)
    assert [call.call.id for call in step.calls] == ["t1.1"]
    step = decide(story.then(RunParked, reason="approval").then(RunResumed, fence=2).state)
    assert isinstance(step, Act)
    assert [call.call.id for call in step.calls] == ["t1.1"], "what has an answer is not made again"


@pytest.mark.parametrize(
    ("approved", "held", "phase"),
    [(True, True, "sent"), (False, True, "sent"), (True, False, "approved"), (False, False, "denied")],
)
def test_an_answer_to_a_server(approved: bool, held: bool, phase: str) -> None:
    """What the running call has taken is in doubt after a crash; what came later makes it again, unless it is a no."""
    story = Story().asked("fx__pay")
    story.then(ToolIntent, call="t1.1", tool="fx__pay", arguments={}, effect="write")
    asked = Question(key="k", message="?", requested={}, digest="d")
    story.then(InputAsked, call="t1.1", tool="fx__pay", server="fx", arguments={}, questions=(asked,), restarts=True)
    story.then(RunResumed, fence=2)
    assert (story.state.calls[0].phase, story.state.calls[0].interrupted) == ("waiting", False)
    story.then(ApprovalDecided, call="t1.1", approved=approved, digest="other", held=held)
    assert story.state.calls[0].phase == "waiting", "a verdict on something else is none"
    story.then(ApprovalDecided, call="t1.1", approved=approved, digest="d", held=held)
    assert story.state.calls[0].phase == phase
    story.then(RunResumed, fence=3)
    assert story.state.calls[0].interrupted == held
