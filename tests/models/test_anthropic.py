"""Anthropic's Messages API: requests that keep its rules, and what it answers beside replies."""

import datetime
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from playing import ECHO, Play, Stage, ask, play, request
from rules import broken_for_anthropic

from orchestrator.errors import ModelError
from orchestrator.messages import (
    AssistantMessage,
    Image,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from orchestrator.models.anthropic import AnthropicCodec
from orchestrator.models.base import ModelOptions, ToolSpec
from orchestrator.models.http import AnthropicModel
from orchestrator.models.wire import NO_TEXT

KEY = "sk-ant-secret-0123456789"
WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
HELLO = json.dumps(WHOLE).encode()


def on_stage(*plays: Play, test: Callable[[Stage, AnthropicModel], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with play(*plays) as stage:
            model = AnthropicModel("m", options=ModelOptions(base_url=stage.url, api_key=KEY, **options))
            try:
                await test(stage, model)
            finally:
                await model.aclose()

    anyio.run(main)


def failing(status: int, kind: str, message: str, details: Any = None, **headers: str) -> ModelError:
    found: list[ModelError] = []
    fields = {"type": kind, "message": message} | ({"details": details} if details else {})
    body = json.dumps({"type": "error", "error": fields, "request_id": "req_1"}).encode()

    async def test(stage: Stage, model: AnthropicModel) -> None:
        with pytest.raises(ModelError) as caught:
            await ask(model)
        found.append(caught.value)

    on_stage(Play(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}), test=test)
    assert KEY not in str(found[0])
    return found[0]


def call(place: int, turn: int = 1, **fields: Any) -> ToolCall:
    return ToolCall(**{"id": f"t{turn}.{place}", "name": "demo__echo", "arguments": "{}", **fields})


def sent(messages: list[Message], codec: AnthropicCodec | None = None, tools: bytes | None = None) -> Any:
    codec = codec or AnthropicCodec("m")
    encoded = [codec.message(message) for message in messages]
    return json.loads(codec.body(encoded, codec.tools([ECHO]) if tools is None else tools, 512))


def test_a_request() -> None:
    async def test(stage: Stage, model: AnthropicModel) -> None:
        deltas, reply = await ask(model, request(model, [SystemMessage(text="Be."), UserMessage(text="Hi.")], [ECHO]))
        assert deltas == ["Hello"]
        assert reply.usage == Usage(input_tokens=3, output_tokens=2)
        path, headers, body = stage.seen[0]
        assert path == "/v1/messages"
        assert headers["x-api-key"] == KEY
        assert headers["anthropic-version"] == "2023-06-01"
        cached = {"cache_control": {"type": "ephemeral"}}
        assert body == {
            "model": "m",
            "tools": [
                {
                    "name": "demo__echo",
                    "description": "Echoes.",
                    "input_schema": {"type": "object", "properties": {}},
                }
            ],
            "system": [{"type": "text", "text": "Be.", **cached}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi.", **cached}]}],
            "stream": True,
            "temperature": 0.2,
            "max_tokens": 512,
        }
        assert model.key == ("ANTHROPIC_API_KEY", True)

    on_stage(Play(HELLO), test=test)


def test_its_models_are_listed() -> None:
    async def test(stage: Stage, model: AnthropicModel) -> None:
        assert list(await model.listed()) == ["claude-x"]
        assert stage.seen[0][0] == "/v1/models?limit=1000"
        assert stage.seen[0][1]["anthropic-version"] == "2023-06-01"

    on_stage(Play(b'{"data": [{"type": "model", "id": "claude-x"}], "has_more": false}'), test=test)


def test_answers_of_a_turn_are_one_turn_and_stand_first() -> None:
    one, two = call(1, wire_id="toolu_1"), call(2, wire_id="call:2")
    body = sent(
        [
            UserMessage(text="Go."),
            AssistantMessage(text=" ", calls=(one, two)),
            ToolMessage(call=one, text=""),
            UserMessage(text="And be quick.", images=(Image(id="i1", mime_type="image/png", body="h", data=b"x"),)),
            ToolMessage(call=two, text="no", is_error=True),
        ]
    )
    assert broken_for_anthropic(body) is None
    assert [block["type"] for block in body["messages"][2]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
        "image",
    ]
    assert body["messages"][2]["content"][0] == {"type": "tool_result", "tool_use_id": "toolu_1"}
    assert body["messages"][2]["content"][1] == {
        "type": "tool_result",
        "tool_use_id": "0000001c2",
        "content": "no",
        "is_error": True,
    }
    assert body["messages"][2]["content"][3]["source"] == {"type": "base64", "media_type": "image/png", "data": "eA=="}


def test_no_turn_is_empty() -> None:
    history: list[Message] = [
        SystemMessage(text=" "),
        UserMessage(text=""),
        AssistantMessage(text="\n"),
        UserMessage(text=" "),
        AssistantMessage(text="", extra={"blocks": [{"type": "thinking", "thinking": "x", "signature": "s"}]}),
        UserMessage(text="Now?"),
    ]
    body = sent(history)
    assert broken_for_anthropic(body) is None
    assert "system" not in body
    assert body["messages"][1]["content"] == [{"type": "text", "text": NO_TEXT}]


def test_the_last_request_keeps_its_tools_and_may_not_call_them() -> None:
    codec = AnthropicCodec("m")
    history: list[Message] = [UserMessage(text="Go."), AssistantMessage(text="", calls=(call(1),))]
    history += [ToolMessage(call=call(1), text="1"), UserMessage(text="Stop.")]
    body = sent(history, codec, codec.closed(codec.tools([ECHO])))
    assert broken_for_anthropic(body) is None
    assert body["tool_choice"] == {"type": "none"}
    assert codec.closed(b"") == b""


@pytest.mark.requirement("B8")
def test_what_was_marked_for_the_cache_is_found_in_the_next_request() -> None:
    codec = AnthropicCodec("m")
    mark = b',"cache_control":{"type":"ephemeral"}'
    history: list[Message] = [SystemMessage(text="Be."), UserMessage(text="Go.")]
    tools = codec.tools([ECHO])
    before = b""
    for turn in range(1, 6):
        body = codec.body([codec.message(message) for message in history], tools, 512 - turn)
        assert broken_for_anthropic(json.loads(body)) is None
        assert 2 <= body.count(mark) <= 4
        if before:
            written = before[: before.rindex(mark)].replace(mark, b"")
            assert any(  # one of the marks now stands exactly where the last one stood
                body[:place].replace(mark, b"") == written for place in range(len(body)) if body.startswith(mark, place)
            )
        before = body
        calls = tuple(call(place, turn) for place in range(1, 15))
        history += [AssistantMessage(text="", calls=calls), *(ToolMessage(call=each, text="1") for each in calls)]


def test_schemas_in_the_part_that_it_takes() -> None:
    parameters = {
        "type": "object",
        "properties": {"$filter": {"type": "string"}, "a": {"type": "object", "properties": {"b c": {}, "d": {}}}},
        "required": ["$filter", "a"],
        "anyOf": [{"required": ["a"]}, {"required": ["$filter"]}],
    }
    spec = ToolSpec(name="s__t", description="D" * 2000, parameters=parameters)
    (tool,) = json.loads(AnthropicCodec("m").tools([spec]))
    assert tool["description"] == "D" * 2000
    schema = tool["input_schema"]
    assert schema["type"] == "object"
    assert "anyOf" not in schema
    assert list(schema["properties"]) == ["a"]
    assert schema["required"] == ["a"]
    assert "`$filter`" in schema["description"]
    assert list(schema["properties"]["a"]["properties"]) == ["d"]


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("pause_turn", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_why_it_stopped(stop: str, finish: str) -> None:
    async def test(stage: Stage, model: AnthropicModel) -> None:
        assert (await ask(model))[1].finish == finish

    on_stage(Play(json.dumps({**WHOLE, "stop_reason": stop}).encode()), test=test)


@pytest.mark.requirement("B3")
@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (400, "invalid_request_error", "max_tokens: too large", "bad_request"),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            "context_overflow",
        ),
        (401, "authentication_error", f"invalid x-api-key {KEY}", "authentication"),
        (402, "billing_error", "check your payment details", "authentication"),
        (403, "permission_error", "no", "authentication"),
        (404, "not_found_error", "model: m", "not_found"),
        (413, "request_too_large", "Request exceeds the maximum size", "context_overflow"),
        (429, "rate_limit_error", "slow down", "rate_limit"),
        (500, "api_error", "Internal server error", "overloaded"),
        (504, "timeout_error", "timed out", "overloaded"),
        (529, "overloaded_error", "Overloaded", "overloaded"),
    ],
)
def test_errors_by_kind(status: int, kind: str, message: str, expected: str) -> None:
    failure = failing(status, kind, message)
    assert (failure.kind, failure.status) == (expected, status)
    if expected == "authentication":
        assert "ANTHROPIC_API_KEY" in str(failure)


def test_how_long_to_wait() -> None:
    def limits(seconds: int, **remaining: str) -> dict[str, str]:
        reset = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()
        given = {f"anthropic_ratelimit_{name}_remaining": value for name, value in remaining.items()}
        return given | {f"anthropic_ratelimit_{name}_reset": reset.replace("+00:00", "Z") for name in remaining}

    def wait(**headers: str) -> float | None:
        return failing(429, "rate_limit_error", "slow down", **headers).retry_after

    assert wait(**{"retry_after": "7", **limits(50, requests="0")}) == 7
    assert 40 < (wait(**limits(50, requests="0")) or 0) <= 50
    assert 40 < (wait(**limits(50, input_tokens="0"), **limits(90, requests="3")) or 0) <= 50
    assert wait(**limits(50, requests="3")) is None
    assert wait(anthropic_ratelimit_requests_remaining="0", anthropic_ratelimit_requests_reset="soon") is None


def test_a_spent_budget_is_not_waited_for() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    assert not failing(429, "rate_limit_error", "spend limit", details).retryable


@pytest.mark.parametrize(
    ("refusal", "name"),
    [
        ("`temperature` is deprecated for this model.", "temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        ("system.0.cache_control: Extra inputs are not permitted", "cache_control"),
    ],
)
def test_what_it_refuses_is_left_out_at_once_and_for_good(refusal: str, name: str) -> None:
    def judge(body: Any) -> str | None:
        return refusal if f'"{name}"' in json.dumps(body) else None

    async def test(stage: Stage, model: AnthropicModel) -> None:
        messages = [SystemMessage(text="Be."), UserMessage(text="Hi.")]
        for _ in range(2):
            assert (await ask(model, request(model, messages, [ECHO])))[1].message.text == "Hello"
        assert len(stage.seen) == 3
        assert stage.seen[1][2] == stage.seen[2][2]
        assert model.learned == (f"refuses {name}",)

    on_stage(Play(HELLO, refuses=judge), test=test)


def test_thoughts_between_calls_stay_between_them() -> None:
    thoughts = [{"type": "thinking", "thinking": text, "signature": "s"} for text in ("one", "two")]
    use = {"type": "tool_use", "name": "demo__echo", "input": {}}
    content = [thoughts[0], {**use, "id": "toolu_1"}, thoughts[1], {**use, "id": "toolu_2"}]

    async def test(stage: Stage, model: AnthropicModel) -> None:
        message = (await ask(model))[1].message
        answers = [ToolMessage(call=call, text="1") for call in message.calls]
        await ask(model, request(model, [UserMessage(text="Go."), message, *answers], [ECHO]))
        assert stage.seen[1][2]["messages"][1]["content"] == content

    on_stage(Play(json.dumps({**WHOLE, "content": content}).encode()), test=test)


def test_counts_are_totals_and_a_later_zero_takes_none_back() -> None:
    events: list[Any] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 400, "output_tokens": 1}}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 0, "output_tokens": 9},
        },
    ]

    async def test(stage: Stage, model: AnthropicModel) -> None:
        assert (await ask(model))[1].usage == Usage(input_tokens=400, output_tokens=9)

    on_stage(Play([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]), test=test)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"type": "message"}'])
def test_a_page_that_is_no_message(body: bytes) -> None:
    async def test(stage: Stage, model: AnthropicModel) -> None:
        with pytest.raises(ModelError, match="no message"):
            await ask(model)

    on_stage(Play(body), test=test)


def test_a_whole_call_in_its_first_event_and_half_known_events() -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "demo__echo", "input": {"x": 1}}
    events: list[Any] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 0, "output_tokens": 0}}},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "late"}},
        {"type": "something_new"},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"input_tokens": 9, "output_tokens": 4},
        },
    ]

    async def test(stage: Stage, model: AnthropicModel) -> None:
        reply = (await ask(model))[1]
        assert [call.arguments for call in reply.message.calls] == ['{"x":1}']
        assert reply.message.text == "late"
        assert reply.usage == Usage(input_tokens=9, output_tokens=4)

    on_stage(Play([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]), test=test)
