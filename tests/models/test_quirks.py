"""What servers really do, each played by a server on loopback. Where it was reported stands beside each.

| row | what the server does | test |
| --- | --- | --- |
| 1 | pieces of a call without `index` (ollama#7881) | `test_row_1` |
| 2 | every parallel call has index 0 (ollama#15457) | `test_row_2` |
| 3 | a whole call in one chunk (kubectl-ai#559) | `test_row_3` |
| 4 | `tool_choice` is ignored (ollama#8421) | `test_row_4`: it is not relied on |
| 5 | `stop` with calls (vllm#25054) | `test_row_5` |
| 6 | `tool_calls` with none (vllm#53255) | `test_row_6` |
| 7 | arguments as an object (llama.cpp#20198) | `test_row_7` |
| 8 | wants arguments as an object in history (OpenJarvis#69) | `test_row_8` |
| 9 | a call as text (llama-cpp-python#1784) | `test_row_9`: text here; a mode of acting reads it |
| 10 | ids of nine alphanumerics, or no longer than 40 (opencode#1680) | `test_row_10` |
| 11 | `include_usage` refused (openai-agents-python#442) | `test_row_11` |
| 12 | usage in a chunk without choices (foundry-local#905) | `test_row_12` |
| 13 | comments and keep-alives (mistral-vibe#794) | `test_row_13` |
| 14 | `reasoning_content` must come back (langchain#34166) | `test_row_14` |
| 15 | thought signatures must come back (OpenMAIC#1556) | `test_row_15` |
| 16 | `content: null`, or an empty turn, refused (lmstudio#261, vllm#21089) | `test_row_16` |
| 17 | every call needs its answer (TuriX-CUA#15) | `test_row_17` |
| 18 | parts, and two user turns in a row, refused (litellm#8018) | `test_row_18` |
| 19 | `json_object` refused (lmstudio#189) | `test_row_19`: it is not sent |
| 20 | thinking only where streamed (langchain4j#3974) | `test_row_20`: all is streamed |
| 21 | thinking, then nothing (nullclaw#641) | `test_row_21` |
| 22 | prompt cut without a word (ollama#18107) | `test_row_22` |
| 23 | no arguments, or arguments cut off (vllm#41654) | `test_row_23` |
| llama.cpp | null in the first chunk, own fields, 500 after broken arguments | `test_llama_cpp` |
| no usage, thinking tags | | `test_no_usage`, `test_think_tags` |
| 429, 529, full context, cut-off streams | in `test_http_model.py` | `test_retry_after_in_all_its_forms`, … |
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from playing import ECHO, END, HELLO, USAGE, USER, Play, Stage, ask, delta, error, event, play, request
from rules import broken_for_openai

from orchestrator.errors import ModelError
from orchestrator.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import ModelOptions, ModelReply
from orchestrator.models.http import OpenAIModel


def on_stage(*plays: Play, test: Callable[[Stage, OpenAIModel], Awaitable[None]], name: str = "m") -> None:
    async def main() -> None:
        async with play(*plays) as stage:
            model = OpenAIModel(name, options=ModelOptions(base_url=stage.url))
            try:
                await test(stage, model)
            finally:
                await model.aclose()

    anyio.run(main)


def answered(*events: bytes, messages: Sequence[Message] = (USER,)) -> ModelReply:
    """What one streamed reply is read as."""
    found: list[ModelReply] = []

    async def test(stage: Stage, model: OpenAIModel) -> None:
        found.append((await ask(model, request(model, messages, [ECHO])))[1])

    on_stage(Play(list(events)), test=test)
    return found[0]


def piece(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**fields, "function": {key: value for key, value in function.items() if value is not None}}


def pieces(*several: dict[str, Any]) -> bytes:
    return delta(tool_calls=list(several))


def calls(*events: bytes) -> list[tuple[str, str]]:
    reply = answered(*events, delta("tool_calls"), END)
    assert reply.finish == "tool_calls"
    return [(call.name, call.arguments) for call in reply.message.calls]


TWO = [("a", '{"x":1}'), ("b", '{"y":2}')]


def turns(*calls: ToolCall, text: str = "") -> list[Message]:
    """A history in which calls were made and answered."""
    answers = [ToolMessage(call=call, text="done") for call in calls]
    return [SystemMessage(text="Be."), USER, AssistantMessage(text=text, calls=calls), *answers]


def a_call(place: int = 1, **fields: Any) -> ToolCall:
    return ToolCall(**{"id": f"t1.{place}", "name": "demo__echo", "arguments": '{"x":1}', **fields})


def taken(judge: Callable[[Any], str | None], messages: Sequence[Message], name: str = "m", status: int = 400) -> Stage:
    """Sends a history, twice, to a server that refuses what `judge` finds; the second time without being told again."""
    seen: list[Stage] = []

    async def test(stage: Stage, model: OpenAIModel) -> None:
        for _ in range(2):
            assert (await ask(model, request(model, messages, [ECHO])))[1].message.text == "Hello"
        assert len(stage.seen) <= 3
        assert judge(stage.seen[-1][2]) is None
        seen.append(stage)

    on_stage(Play(HELLO, refuses=judge, status_refused=status), test=test, name=name)
    return seen[0]


def test_row_1() -> None:
    assert calls(pieces(piece("a", '{"x":', id="c1")), pieces(piece(None, "1}")), pieces(piece("b", '{"y":2}'))) == TWO


def test_row_2() -> None:
    first, second = piece("a", '{"x":1}', index=0, id="c1"), piece("b", '{"y":2}', index=0, id="c2")
    assert calls(pieces(first), pieces(second)) == TWO


def test_row_3() -> None:
    whole = [piece("a", '{"x":1}', index=0, id="c1"), piece("b", '{"y":2}', index=1, id="c2")]
    assert calls(pieces(*whole)) == TWO


def test_row_4() -> None:
    async def test(stage: Stage, model: OpenAIModel) -> None:
        codec = model.codec
        await ask(model, request(model, turns(a_call()), [ECHO]))
        assert "tool_choice" not in stage.seen[0][2]
        assert codec.closed(codec.tools([ECHO])) == b"", "what must not be called is not shown"

    on_stage(Play(HELLO), test=test)


def test_row_5() -> None:
    reply = answered(pieces(piece("a", "{}", id="c1")), delta("stop"), END)
    assert (reply.finish, len(reply.message.calls)) == ("tool_calls", 1)


def test_row_6() -> None:
    reply = answered(delta(content="hi", tool_calls=[]), delta("tool_calls"), END)
    assert (reply.finish, reply.message.calls, reply.message.text) == ("stop", (), "hi")


def test_row_7() -> None:
    assert calls(pieces(piece("a", {"x": 1}, index=0), piece("b", {"y": 2}, index=1))) == TWO


def test_row_8() -> None:
    def judge(body: Any) -> str | None:
        functions = [call["function"] for message in body["messages"] for call in message.get("tool_calls", ())]
        if all(isinstance(function["arguments"], dict) for function in functions):
            return None
        return "json: cannot unmarshal string into messages.tool_calls.function.arguments of type map[string]any"

    assert len(taken(judge, turns(a_call())).seen) == 3


def test_row_9() -> None:
    reply = answered(delta(content='{"name": "demo__echo", "arguments": {}}'), delta("stop"), END)
    assert reply.message.calls == ()
    assert json.loads(reply.message.text)["name"] == "demo__echo"


@pytest.mark.parametrize(
    ("name", "id_"),
    [("mistral-large-latest", "[a-zA-Z0-9]{9}"), ("devstral-small", "[a-zA-Z0-9]{9}"), ("gpt", ".{1,40}")],
)
def test_row_10(name: str, id_: str) -> None:
    asked = (a_call(1, wire_id="chatcmpl-tool-0123456789abcdef0123456789abcdef"), a_call(2, wire_id=None))
    history = [*turns(*asked), *turns(a_call(3, wire_id="toolu_01"), a_call(4, wire_id="call_abcdefghijk"))[2:]]
    assert len(taken(lambda body: broken_for_openai(body, id_), history, name).seen) == 2, "right from the start"


@pytest.mark.parametrize("status", [400, 422])
def test_row_11(status: int) -> None:
    def judge(body: Any) -> str | None:
        return "stream_options: Extra inputs are not permitted" if "stream_options" in body else None

    assert len(taken(judge, [USER], status=status).seen) == 3


def test_row_12() -> None:
    reply = answered(event({"choices": [], "prompt_filter_results": []}), delta(content="x"), delta("stop"), USAGE, END)
    assert reply.message.text == "x"
    assert reply.usage is not None
    assert reply.usage.input_tokens == 7


def test_row_13() -> None:
    noise = [b": ping\n\n", b"data: : keepalive\n\n", b"event: ping\n\n"]
    assert answered(*noise, delta(content="x"), *noise, delta("stop"), END).message.text == "x"


def back(judge: Callable[[Any], str | None], *events: bytes) -> None:
    """A reply with calls, sent back with their answers to the server that gave it."""

    async def test(stage: Stage, model: OpenAIModel) -> None:
        _, reply = await ask(model, request(model, tools=[ECHO]))
        history: list[Message] = [USER, reply.message, *(ToolMessage(call=c, text="1") for c in reply.message.calls)]
        assert (await ask(model, request(model, history, [ECHO])))[1].message.text == "Hello"
        assert len(stage.seen) == 2

    on_stage(Play([*events, delta("tool_calls"), END]), Play(HELLO, refuses=judge), test=test)


def test_row_14() -> None:
    def judge(body: Any) -> str | None:
        said = body["messages"][1].get("reasoning_content")
        return None if said == "Let me see." else "Missing `reasoning_content` in the assistant message at index 1"

    thought = [delta(reasoning_content="Let me "), delta(content="", reasoning_content="see.")]
    back(judge, *thought, pieces(piece("demo__echo", "{}", id="c1")))


def test_row_15() -> None:
    sign = {"google": {"thought_signature": "sig"}}

    def judge(body: Any) -> str | None:
        (call,) = body["messages"][1]["tool_calls"]
        return None if call.get("extra_content") == sign else "Function call is missing a thought_signature"

    back(judge, pieces({**piece("demo__echo", "{}", id="c1"), "extra_content": sign}))


def test_row_16() -> None:
    def judge(body: Any) -> str | None:
        wrong = any(message["content"] is None for message in body["messages"])
        return (
            "Invalid 'content': 'content' field must be a string or an array of objects. Got 'null'." if wrong else None
        )

    assert len(taken(judge, turns(a_call())).seen) == 3
    empty = [USER, AssistantMessage(text=""), UserMessage(text="Go on.")]
    assert len(taken(broken_for_openai, empty).seen) == 2


def test_row_17() -> None:
    history = [*turns(a_call(1), a_call(2)), *turns(a_call(3), text="More.")[2:], AssistantMessage(text="Done."), USER]
    assert len(taken(broken_for_openai, history).seen) == 2


def test_row_18() -> None:
    history = [SystemMessage(text="Be."), USER, UserMessage(text="Stop here.\nNow.")]
    stage = taken(broken_for_openai, history)
    assert stage.seen[0][2]["messages"][1] == {"role": "user", "content": "hello\n\nStop here.\nNow."}


def test_row_19_and_20() -> None:
    async def test(stage: Stage, model: OpenAIModel) -> None:
        await ask(model, request(model, tools=[ECHO]))
        assert "response_format" not in stage.seen[0][2]
        assert stage.seen[0][2]["stream"] is True

    on_stage(Play(HELLO), test=test)


def test_row_21() -> None:
    reply = answered(delta(reasoning_content="Hmm."), delta("stop"), END)
    assert (reply.message.text, reply.message.calls, reply.finish) == ("", (), "stop")
    assert reply.message.extra["reasoning_content"] == "Hmm."


def test_row_22() -> None:
    words = " ".join(f"order {n} of {n * n % 9973} boxes for customer {n * 7919 % 104729}" for n in range(2000))
    few = event({"choices": [], "usage": {"prompt_tokens": 4096, "completion_tokens": 3}})

    async def test(stage: Stage, model: OpenAIModel) -> None:
        with pytest.raises(ModelError, match="cut off the beginning of the prompt") as caught:
            await ask(model, request(model, [UserMessage(text=words)]))
        assert caught.value.kind == "context_overflow"
        assert model.learned == ("cuts long prompts off without saying so",)
        for text in (" " * 100_000, words[:20_000]):  # blanks take few tokens; what fits is not suspected
            await ask(model, request(model, [UserMessage(text=text)]))

    on_stage(Play([delta(content="x"), delta("stop"), few, END]), test=test)


def test_row_23() -> None:
    assert calls(pieces(piece("a", index=0, id="c1"))) == [("a", "{}")]
    assert calls(pieces(piece("a", "", index=0, id="c1"))) == [("a", "{}")]
    assert calls(pieces(piece("a", '{"x": "on', index=0, id="c1"))) == [("a", '{"x": "on')]


def test_llama_cpp() -> None:
    def judge(body: Any) -> str | None:
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                try:
                    json.loads(call["function"]["arguments"])
                except ValueError:
                    return "Failed to parse tool call arguments as JSON"
        return None

    broken = turns(a_call(arguments='{"x": "on'), a_call(2, name="functions.echo(1)", arguments="[1]"))
    assert len(taken(judge, broken, status=500).seen) == 2
    assert len(taken(broken_for_openai, broken).seen) == 2
    timings = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "timings": {"n": 1}})
    reply = answered(delta(role="assistant", content=None), delta(content="x"), delta("stop"), timings, END)
    assert reply.message.text == "x"


def test_no_usage() -> None:
    async def test(stage: Stage, model: OpenAIModel) -> None:
        assert model.learned == ()
        assert (await ask(model))[1].usage is None
        assert OpenAIModel("m", options=ModelOptions(base_url=stage.url)).learned == ("reports no usage",)
        assert OpenAIModel("other", options=ModelOptions(base_url=stage.url)).learned == ()

    on_stage(Play([*HELLO[:-2], END]), test=test)


def test_what_was_refused_once_is_known_to_all_of_the_process() -> None:
    def judge(body: Any) -> str | None:
        return "`temperature` is deprecated for this model." if "temperature" in body else None

    async def test(stage: Stage, model: OpenAIModel) -> None:
        await ask(model)
        other = OpenAIModel("m", options=ModelOptions(base_url=stage.url, temperature=0.7))
        await ask(other)
        assert other.learned == ("refuses temperature",)
        assert len(stage.seen) == 3
        await other.aclose()

    on_stage(Play(HELLO, refuses=judge), test=test)


@pytest.mark.parametrize(
    "said",
    [
        "registry.ollama.ai/library/m does not support tools",
        "No endpoints found that support tool use.",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "Tools are not supported for this model",
    ],
)
def test_no_tools(said: str) -> None:
    async def test(stage: Stage, model: OpenAIModel) -> None:
        with pytest.raises(ModelError) as caught:
            await ask(model, request(model, tools=[ECHO]))
        assert caught.value.kind == "bad_request"
        assert model.learned == ("takes no tools",)

    on_stage(Play(error(said), status=400), test=test)


@pytest.mark.parametrize("name", ["m", "MiniMax-M2"])
def test_think_tags(name: str) -> None:
    """The thought is no answer, and goes back only to models that were trained to see it."""

    async def test(stage: Stage, model: OpenAIModel) -> None:
        deltas, reply = await ask(model)
        assert "".join(deltas) == reply.message.text == "4, and `<think>` is a tag."
        await ask(model, request(model, [USER, reply.message, USER]))
        sent = stage.seen[1][2]["messages"][1]["content"]
        assert sent == ("" if name == "m" else "<think>\n2+2\n</think>\n\n") + reply.message.text

    parts = ["\n", "<th", "ink>\n2+", "2\n</thi", "nk>", "\n\n", "4, and `<think>`", " is a tag."]
    on_stage(Play([*(delta(content=part) for part in parts), delta("stop"), END]), test=test, name=name)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>cut off in the", ""),
        ("<think>done</think>", ""),
        ("<thin", "<thin"),
        ("<thinking>x", "<thinking>x"),
        ("2+2 is\n</think>\n\n4", "4"),
        ("a </think> tag ends it", "a </think> tag ends it"),
        ("x <think>y</think> z", "x <think>y</think> z"),
    ],
)
def test_think_tags_that_are_half_there(text: str, answer: str) -> None:
    for size in (1, 3, len(text)):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        assert answered(*(delta(content=part) for part in parts), delta("stop"), END).message.text == answer
