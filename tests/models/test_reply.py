"""What servers send, as reported in their trackers, and what it is read as."""

import json
from typing import Any

import pytest
from playing import END, USAGE, delta, event

from orchestrator.errors import ModelError
from orchestrator.messages import Usage
from orchestrator.models.base import ModelReply
from orchestrator.models.reply import ReplyReader


def read(*events: bytes) -> ModelReply:
    reader = ReplyReader()
    for data in events:
        reader.feed(data)
    reader.close()
    return reader.reply()


def calls(*events: bytes) -> list[tuple[str, str, str, str | None]]:
    reply = read(*events, END)
    assert reply.finish == "tool_calls"
    return [(call.id, call.name, call.arguments, call.wire_id) for call in reply.message.calls]


def piece(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**fields, "function": {key: value for key, value in function.items() if value is not None}}


def pieces(*several: dict[str, Any]) -> bytes:
    return delta(tool_calls=list(several))


A, B = ("1", "a", '{"x":1}', "c1"), ("2", "b", '{"y":2}', "c2")


def test_calls_in_pieces_by_index():
    assert calls(
        pieces(piece("a", "", index=0, id="c1")),
        pieces(piece(None, '{"x":', index=0), piece("b", '{"y"', index=1, id="c2")),
        pieces(piece(None, ":2}", index=1)),
        pieces(piece(None, "1}", index=0)),
    ) == [A, B]


def test_every_index_zero_a_new_id_is_a_new_call():
    assert calls(
        pieces(piece("a", '{"x":', index=0, id="c1")),
        pieces(piece(None, "1}", index=0)),
        pieces(piece("b", '{"y":2}', index=0, id="c2")),
    ) == [A, B]


def test_pieces_without_index():
    assert calls(
        pieces(piece("a", '{"x":', id="c1")),
        pieces(piece(None, "1}", id="c1")),
        pieces(piece("b", '{"y":', id="c2")),
        pieces(piece(None, "2}")),
    ) == [A, B]


def test_pieces_without_index_and_id_by_position():
    expected = [("1", "a", '{"x":1}', ""), ("2", "b", '{"y":2}', "")]
    assert (
        calls(pieces(piece("a", '{"x":'), piece("b", '{"y":')), pieces(piece(None, "1}"), piece(None, "2}")))
        == expected
    )
    assert calls(pieces(piece("a", '{"x":1}')), pieces(piece("b", '{"y":2}'))) == expected


def test_the_same_call_twice_with_nothing_to_tell_them_apart():
    expected = [("1", "a", '{"x":1}', ""), ("2", "a", '{"x":2}', "")]
    assert calls(pieces(piece("a", '{"x":1}', index=0)), pieces(piece("a", '{"x":2}', index=0))) == expected
    assert calls(pieces(piece("a", '{"x":1}')), pieces(piece("a", '{"x":2}'))) == expected


def test_a_name_or_an_id_that_is_repeated_begins_nothing_new():
    assert calls(
        pieces(piece("a", '{"x":', index=0, id="c1")), pieces(piece("a", "1}", index=0, id="c1", type="function"))
    ) == [A]
    assert calls(pieces(piece("a", '{"x":', index=0, id="c1")), pieces(piece("a", "1}", index=0))) == [A]
    assert calls(pieces(piece("a", '{"x":', index=0, id="c1")), pieces(piece(None, "1}", index=0, id="c9"))) == [A]
    assert calls(pieces(piece("a", '{"x":', index=0)), pieces(piece(None, "1}", index=0, id="c1"))) == [A]


def test_an_id_that_two_calls_share_is_kept_once():
    assert calls(pieces(piece("a", '{"x":1}', index=0, id="c1")), pieces(piece("b", '{"y":2}', index=1, id="c1"))) == [
        A,
        ("2", "b", '{"y":2}', ""),
    ]


def test_whole_calls_in_one_chunk_with_arguments_as_object():
    assert calls(pieces(piece("a", {"x": 1}, index=0, id="c1"), piece("b", {"y": 2}, index=1, id=""))) == [
        A,
        ("2", "b", '{"y":2}', ""),
    ]


def test_no_arguments_are_an_empty_object():
    assert calls(pieces(piece("a", index=0, id="c1"))) == [("1", "a", "{}", "c1")]


def test_broken_arguments_are_kept():
    assert calls(pieces(piece("a", '{"x":', index=0, id="c1"))) == [("1", "a", '{"x":', "c1")]


@pytest.mark.parametrize("said", ["stop", "tool_calls", "function_call", None])
def test_calls_decide_not_the_finish_reason(said: str | None):
    assert read(pieces(piece("a", "{}", id="c1")), delta(said), END).finish == "tool_calls"
    assert read(delta(content="hi"), delta(said), END).finish == "stop"


def test_length_and_filter_are_kept():
    assert read(pieces(piece("a", '{"x', id="c1")), delta("length"), END).finish == "length"
    assert read(delta(content="hi"), delta("length"), END).finish == "length"
    assert read(delta(content="hi"), delta("content_filter"), END).finish == "content_filter"


def test_an_empty_list_of_calls_is_none():
    reply = read(delta(content="hi", tool_calls=[]), delta("tool_calls", tool_calls=None), END)
    assert (reply.message.text, reply.message.calls, reply.finish) == ("hi", (), "stop")


def test_names_of_the_reply():
    reply = read(delta(content="hi"), USAGE, END)
    assert (reply.model, reply.response_id) == ("m-1", "r1")


USED = Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=8)


@pytest.mark.parametrize(
    "reported",
    [
        {"prompt_tokens_details": {"cached_tokens": 64}},
        {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "prompt_tokens_details": None},
        {"cached_tokens": 64},
    ],
)
def test_usage(reported: dict[str, Any]):
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 8}}
    chunk = {"choices": [], "usage": usage | reported}
    assert (
        read(event({"choices": [], "prompt_filter_results": []}), delta(content="x"), event(chunk), END).usage == USED
    )
    in_choice = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage | reported}]}
    assert read(delta(content="x"), event(in_choice), event({"choices": [], "usage": {}}), END).usage == USED
    assert read(delta(content="x"), event(chunk), event({"choices": [], "usage": {"total_time": 1}}), END).usage == USED


@pytest.mark.parametrize("usage", [None, {}, {"queue_time": 1}, "much"])
def test_no_usage_is_none_not_zero(usage: Any):
    assert read(delta(content="x"), event({"choices": [], "usage": usage}), END).usage is None


def test_reasoning_is_kept_and_is_no_text():
    reply = read(
        delta(role="assistant", content=None, reasoning_content="Let "),
        delta(content="", reasoning_content="me see", reasoning="r", extra_content={"google": {"s": 1}}),
        delta(reasoning_details=[1]),
        delta(content="4", reasoning_details=[2]),
        END,
    )
    assert reply.message.text == "4"
    assert reply.message.extra == {
        "reasoning_content": "Let me see",
        "reasoning": "r",
        "extra_content": {"google": {"s": 1}},
        "reasoning_details": [1, 2],
    }


def test_signatures_of_calls_are_kept_by_position():
    signed = {**piece("b", "{}", index=1, id="c2"), "extra_content": {"google": {"thought_signature": "sig"}}}
    extra = read(pieces(piece("a", "{}", index=0, id="c1"), signed), END).message.extra
    assert extra == {"tool_calls": [{}, {"extra_content": {"google": {"thought_signature": "sig"}}}]}


def test_content_as_parts_and_refusals_are_text():
    assert (
        read(delta(content=[{"type": "text", "text": "a"}, {"type": "x"}]), delta(content="b"), END).message.text
        == "ab"
    )
    assert read(delta(content=None, refusal="I can't."), END).message.text == "I can't."


def test_an_emoji_split_over_two_events_is_one():
    reader = ReplyReader()
    halves = [b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % half for half in (b"a\\ud83d", b"\\ude00b")]
    assert [reader.feed(half) for half in halves] == ["a", "😀b"]
    reader.feed(halves[0] + END)
    assert reader.reply().message.text == "a😀ba\ufffd"


def test_half_a_surrogate_pair_in_a_name_or_id_can_be_written_down():
    piece = b'{"index":0,"id":"c\\ud800","function":{"name":"f\\ud800","arguments":"{}"}}'
    (call,) = read(b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n\n' % piece, END).message.calls
    assert (call.name, call.wire_id) == ("f\ufffd", "c\ufffd")


def test_noise_between_events_is_skipped():
    reply = read(b": ping\n\n", b"data: : keepalive\n\n", b"data: \n\n", b"data: 7\n\n", delta(content="x"), END)
    assert reply.message.text == "x"


@pytest.mark.parametrize("events", [[], [delta(content="x")], [USAGE], [END], [delta(content="x"), b'data: {"choi']])
def test_a_stream_that_just_ends_is_broken(events: list[bytes]):
    with pytest.raises(ModelError) as caught:
        read(*events)
    assert caught.value.kind == "broken_stream"
    assert caught.value.retryable


@pytest.mark.parametrize("last", [delta("stop"), END, END.strip()])
def test_a_finish_reason_or_done_ends_a_stream(last: bytes):
    assert read(delta(content="x"), last).message.text == "x"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"message": "slow down", "code": 429}}, "rate_limit"),
        ({"error": {"message": "slow down", "type": "rate_limit_exceeded"}}, "rate_limit"),
        ({"error": {"message": "busy", "type": "overloaded_error"}}, "overloaded"),
        ({"error": {"message": "oops", "type": "server_error", "code": None}}, "overloaded"),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, "context_overflow"),
        ({"error": {"message": "no", "type": "invalid_request_error"}}, "bad_request"),
        ({"error": "the prompt is too long"}, "context_overflow"),
        ({"object": "error", "message": "bad", "code": 400}, "bad_request"),
        ({"error": {"message": "key", "code": "401"}, "choices": []}, "authentication"),
    ],
)
def test_an_error_in_the_stream(payload: Any, kind: str):
    with pytest.raises(ModelError) as caught:
        read(delta(content="x"), event(payload))
    assert caught.value.kind == kind


def whole(message: dict[str, Any], **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "r1", "model": "m-1", "choices": [choice], **fields}).encode()


def test_a_reply_that_is_not_streamed():
    reader = ReplyReader()
    body = b"\n " + whole({"content": "Hello", "reasoning": "r"}, usage={"prompt_tokens": 1, "completion_tokens": 2})
    assert reader.feed(body[:1]) == reader.feed(body[1:9]) == reader.feed(body[9:]) == ""
    assert reader.close() == "Hello"
    reply = reader.reply()
    assert (reply.message.text, reply.finish, reply.model) == ("Hello", "stop", "m-1")
    assert reply.message.extra == {"reasoning": "r"}
    assert reply.usage == Usage(input_tokens=1, output_tokens=2)


def test_whole_calls_are_never_merged():
    same = piece("a", {"x": 1}, id="c1")
    found = read(whole({"content": None, "tool_calls": [same, same]})).message.calls
    assert [(call.id, call.arguments, call.wire_id) for call in found] == [
        ("1", '{"x":1}', "c1"),
        ("2", '{"x":1}', ""),
    ]


@pytest.mark.parametrize("body", [b"<html>nginx</html>", b'{"status": "ok"}', b"[]", b'{"choices": []}', b'{"choi'])
def test_a_page_that_is_no_reply_says_so(body: bytes):
    with pytest.raises(ModelError, match="no chat completion") as caught:
        read(body)
    assert caught.value.kind == "bad_request"
