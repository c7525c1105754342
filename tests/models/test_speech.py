"""B4: replies of models that act by text, streamed in any pieces."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.messages import AssistantMessage
from orchestrator.models.base import CallReady, ModelReply, TextDelta
from orchestrator.models.speech import JsonSpeech, ReactSpeech, Speech

REACT = """Thought: I need the order.
Action: get_order
Action Input: {"order_id": 1043, "note": "a } in it"}
Thought: And the stock.
Action: get_stock
Action Input: {"item": "mug"}
"""
FINAL = 'Thought: Nothing is missing.\nFinal Answer: It is {"json": true} and pending.\nAnd more.'


def heard(speech: Speech, text: str, cuts: list[int], finish: Any = "stop") -> tuple[str, list[CallReady], ModelReply]:
    """A reply in pieces: what was shown, the calls that were ready early, and the whole."""
    parts: list[Any] = []
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        parts += speech.feed(text[start:end])
    reply = speech.close(ModelReply(message=AssistantMessage(text=text), finish=finish, usage=None))
    shown = "".join(part.text for part in parts if isinstance(part, TextDelta))
    return shown, [part for part in parts if isinstance(part, CallReady)], reply


def calls(reply: ModelReply) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in reply.message.calls]


cuts = st.lists(st.integers(0, 250), max_size=60)


@pytest.mark.requirement("B4", "B5")
@given(cuts)
@settings(deadline=None)
def test_react_actions_in_any_pieces(cuts: list[int]) -> None:
    shown, ready, reply = heard(ReactSpeech(), REACT, cuts)
    expected = [("get_order", {"order_id": 1043, "note": "a } in it"}), ("get_stock", {"item": "mug"})]
    assert calls(reply) == expected
    assert [call.id for call in reply.message.calls] == ["1", "2"]
    assert reply.message.text == "I need the order.\nAnd the stock."
    assert not set("{}[]") & set(shown), "no piece of a call is shown as text"
    assert "I need the order." in shown
    assert "Action" not in shown
    assert [(call.position, call.name) for call in ready] == [
        (n, reply.message.calls[n - 1].name) for n, _ in enumerate(ready, 1)
    ]


@pytest.mark.requirement("B4")
def test_a_react_call_is_ready_before_the_reply_ends() -> None:
    speech = ReactSpeech()
    assert [part for part in speech.feed(REACT[: REACT.index("Thought: And")]) if isinstance(part, CallReady)] == [
        CallReady(position=1, name="get_order", arguments='{"order_id": 1043, "note": "a } in it"}')
    ]


@pytest.mark.requirement("B4")
@given(cuts)
@settings(deadline=None)
def test_react_answers_in_any_pieces(cuts: list[int]) -> None:
    shown, ready, reply = heard(ReactSpeech(), FINAL, cuts)
    assert reply.final
    assert reply.message.text == 'It is {"json": true} and pending.\nAnd more.'
    assert shown.endswith(reply.message.text)
    assert not ready
    assert not reply.message.calls


@pytest.mark.requirement("B4", "B5")
@pytest.mark.parametrize(
    "text",
    [
        'Action: get_order\nAction Input: {"order_id": 7}\nObservation: shipped\nFinal Answer: shipped',
        '**Thought:** so\n**Action:** `get_order`\n**Action Input:** ```json\n{"order_id": 7}\n```',
        'thought：好\naction：get_order\naction_input：{"order_id": 7}',
        '<think>Action: other\nAction Input: {}</think>\nAction: get_order\nAction Input: {"order_id": 7} (waiting)',
    ],
)
def test_react_as_models_write_it(text: str) -> None:
    assert calls(heard(ReactSpeech(), text, [])[2]) == [("get_order", {"order_id": 7})], "and no made-up observation"


@pytest.mark.requirement("B4")
@given(cuts)
@settings(deadline=None)
def test_a_call_inside_prose_is_not_shown(cuts: list[int]) -> None:
    text = 'I look it up: {"name": "get_order",\n"arguments": {"order_id": 7}}'
    assert heard(ReactSpeech(), text, cuts)[0] == "I look it up: "


def test_react_without_any_label_is_the_answer() -> None:
    shown, _, reply = heard(ReactSpeech(), "Good morning is buenos días.", [3, 9])
    assert reply.message.text == shown == "Good morning is buenos días."


@pytest.mark.requirement("B4")
@given(cuts)
@settings(deadline=None)
def test_json_actions_and_answers_in_any_pieces(cuts: list[int]) -> None:
    step = '{"thought": "look", "action": "get_order", "arguments": {"order_id": 1043}}'
    shown, _, reply = heard(JsonSpeech(), step, cuts)
    assert (calls(reply), reply.message.text, shown) == ([("get_order", {"order_id": 1043})], "look", "")
    answer = json.dumps({"thought": "done", "action": "final", "arguments": {"answer": 'It is "pending" 好 {now}.'}})
    shown, _, reply = heard(JsonSpeech(), answer, cuts)
    assert shown == reply.message.text == 'It is "pending" 好 {now}.'
    assert reply.final


@pytest.mark.requirement("B6")
@given(st.integers(0, 80))
@settings(deadline=None)
def test_json_that_was_cut_off_is_no_other_call(place: int) -> None:
    whole = '{"action": "get_order", "arguments": {"order_id": 1043}}'
    _, _, reply = heard(JsonSpeech(), whole[:place], [], finish="length")
    assert reply.finish == "length"
    for call in reply.message.calls:
        assert call.name == "get_order"
        assert place >= len(whole) or not _is_json(call.arguments), "what is missing is not guessed"
    answer = '{"action": "final", "arguments": {"answer": "one two three"}}'
    _, _, reply = heard(JsonSpeech(), answer[:place], [], finish="length")
    assert not reply.message.calls
    assert "one two three".startswith(reply.message.text) or reply.message.text == answer[:place]


def test_a_server_that_ignores_the_schema_is_noticed() -> None:
    speech = JsonSpeech()
    heard(speech, "I would call get_order now.", [])
    assert speech.ignored
    speech = JsonSpeech()
    heard(speech, '{"action": "final", "arguments": {"answer": ""}}', [])
    assert not speech.ignored


@pytest.mark.requirement("B5")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"{}[]\"'`:,\n 1a｛“",
                "Action:",
                "Action Input:",
                "Thought:",
                "Final Answer:",
                '"answer"',
                '"action"',
                "<think>",
                REACT,
            ]
        ),
        max_size=14,
    ),
    cuts,
)
def test_no_text_raises(pieces: list[str], cuts: list[int]) -> None:
    for speech in (ReactSpeech(), JsonSpeech()):
        for finish in ("stop", "length"):
            heard(speech, "".join(pieces), cuts, finish)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
