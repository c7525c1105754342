"""Each vendor's wire as its documentation shows it, played by a server and read by its model."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from playing import ECHO, Play, ask, play, request
from rules import broken_for_anthropic, broken_for_openai

from orchestrator.errors import ModelError
from orchestrator.messages import Message, ToolMessage, Usage, UserMessage
from orchestrator.models.base import CallReady, ModelOptions, ModelReply
from orchestrator.models.http import AnthropicModel, OpenAIModel

CASSETTES = Path(__file__).parent / "cassettes"
HI = UserMessage(text="Hi.")


def model_of(cassette: str, url: str) -> OpenAIModel | AnthropicModel:
    kind = AnthropicModel if cassette.startswith("anthropic") else OpenAIModel
    return kind(f"{cassette.partition('_')[0]}-m", options=ModelOptions(base_url=url))


def lines(cassette: str) -> list[bytes]:
    return (CASSETTES / f"{cassette}.sse").read_bytes().splitlines(keepends=True)


def played(cassette: str) -> tuple[str, ModelReply, Any]:
    """The text as it came, the reply, and the request in which it went back to where it came from."""
    found: list[Any] = []

    async def main() -> None:
        async with play(Play(lines(cassette))) as stage:
            model = model_of(cassette, stage.url)
            deltas, reply = await ask(model, request(model, [HI], [ECHO]))
            answers = [ToolMessage(call=call, text="1") for call in reply.message.calls]
            history: list[Message] = [HI, reply.message, *(answers or [HI])]
            await ask(model, request(model, history, [ECHO]))
            found.extend(("".join(deltas), reply, stage.seen[1][2]))
            await model.aclose()

    anyio.run(main)
    return found[0], found[1], found[2]


PARIS = ("weather__get", '{"location":"Paris"}')
NOW = ("clock__now", "{}")


@pytest.mark.requirement("B1", "B2")
@pytest.mark.parametrize(
    ("cassette", "text", "calls", "finish", "usage"),
    [
        ("anthropic_text", "Hello!", [], "stop", Usage(input_tokens=25, output_tokens=15)),
        (
            "anthropic_tools",
            "Okay, let me check.",
            [("weather__get", '{"location": "San Francisco"}'), NOW],
            "tool_calls",
            Usage(input_tokens=400, output_tokens=89, cached_tokens=300, cache_write_tokens=60),
        ),
        (
            "anthropic_thinking",
            "I check it.",
            [("sums__check", '{"n": 12231}')],
            "tool_calls",
            Usage(input_tokens=25, output_tokens=60),
        ),
        (
            "openai_tools",
            "",
            [PARIS, NOW],
            "tool_calls",
            Usage(input_tokens=1200, output_tokens=40, cached_tokens=1024, reasoning_tokens=16),
        ),
        (
            "deepseek_reasoning",
            "9.8",
            [],
            "stop",
            Usage(input_tokens=100, output_tokens=30, cached_tokens=64, reasoning_tokens=20),
        ),
        ("gemini_tools", "", [PARIS], "tool_calls", Usage(input_tokens=80, output_tokens=12)),
        (
            "mistral_tools",
            "",
            [("weather__get", '{"location": "Paris"}')],
            "tool_calls",
            Usage(input_tokens=94, output_tokens=30),
        ),
        ("ollama_tools", "", [PARIS, NOW], "tool_calls", Usage(input_tokens=170, output_tokens=20)),
    ],
)
def test_a_reply(cassette: str, text: str, calls: list[tuple[str, str]], finish: str, usage: Usage) -> None:
    shown, reply, sent = played(cassette)
    assert shown == reply.message.text == text
    assert [(call.name, call.arguments) for call in reply.message.calls] == calls
    assert (reply.finish, reply.usage) == (finish, usage)
    assert reply.model
    assert reply.response_id
    own = [call.wire_id for call in reply.message.calls]
    if cassette.startswith("anthropic"):
        assert broken_for_anthropic(sent) is None
        assert own == [block["id"] for block in sent["messages"][1]["content"] if block["type"] == "tool_use"]
    else:
        strict = {**sent, "messages": [{k: v for k, v in m.items() if "_content" not in k} for m in sent["messages"]]}
        assert cassette == "gemini_tools" or broken_for_openai(strict) is None
        assert own == [call["id"] for call in sent["messages"][1].get("tool_calls", ())]


def test_thinking_goes_back_as_it_came_and_in_its_place() -> None:
    _, reply, sent = played("anthropic_thinking")
    assert sent["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "27 * 453 = 12231.", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA=="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="},
        {"type": "text", "text": "I check it."},
        {"type": "tool_use", "id": "toolu_01C", "name": "sums__check", "input": {"n": 12231}},
    ]
    assert "12231" not in reply.message.text


def test_an_error_in_the_middle_of_a_stream() -> None:
    with pytest.raises(ModelError, match="Overloaded") as caught:
        played("anthropic_overloaded")
    assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)


@pytest.mark.parametrize("cassette", ["anthropic_tools", "anthropic_thinking"])
def test_a_stream_that_breaks_off_anywhere(cassette: str) -> None:
    whole = lines(cassette)
    stopped = next(place for place, line in enumerate(whole) if b"stop_reason" in line and b"message_delta" in line)

    async def main() -> None:
        for cut in range(1, stopped, 3):
            async with play(Play(whole[:cut], drop=cut % 2 == 0)) as stage:
                model = model_of(cassette, stage.url)
                with pytest.raises(ModelError) as caught:
                    await ask(model)
                assert caught.value.kind == "broken_stream"
                await model.aclose()

    anyio.run(main)


def test_a_call_is_ready_when_its_block_ends() -> None:
    async def main() -> None:
        async with play(Play(lines("anthropic_tools"))) as stage:
            model = model_of("anthropic_tools", stage.url)
            parts = [part async for part in model.stream(request(model, [HI], [ECHO]))]
            assert [part for part in parts if isinstance(part, CallReady)] == [
                CallReady(position=1, name="weather__get", arguments='{"location": "San Francisco"}'),
                CallReady(position=2, name="clock__now", arguments="{}"),
            ]
            await model.aclose()

    anyio.run(main)
