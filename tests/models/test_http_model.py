import asyncio
import datetime
import gzip
import json
from collections.abc import Awaitable, Callable
from email.utils import format_datetime
from typing import Any

import anyio
import pytest
from playing import ECHO, END, HELLO, Play, Stage, ask, delta, error, play, request

from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.messages import Prices, Usage
from orchestrator.models.base import ModelOptions, TextDelta
from orchestrator.models.http import OpenAIModel

KEY = "sk-secret-0123456789"
FASTAPI = b'{"detail":[{"type":"x","loc":%s,"input":{"y":1}}]}'
OPENAI = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


def model_at(url: str, **options: Any) -> OpenAIModel:
    return OpenAIModel("m", options=ModelOptions(base_url=url, api_key=KEY, **options), key_name="MY_KEY")


def on_stage(*plays: Play, test: Callable[[Stage, OpenAIModel], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with play(*plays) as stage:
            model = model_at(stage.url, **options)
            try:
                await test(stage, model)
            finally:
                await model.aclose()

    anyio.run(main)


def failing(*plays: Play, **options: Any) -> ModelError:
    found: list[ModelError] = []

    async def test(stage: Stage, model: OpenAIModel) -> None:
        with pytest.raises(ModelError) as caught:
            await ask(model)
        found.append(caught.value)

    on_stage(*plays, test=test, **options)
    assert KEY not in str(found[0])
    return found[0]


def test_text_comes_as_it_is_streamed_and_the_whole_at_the_end():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        deltas, reply = await ask(model, request(model, tools=[ECHO]))
        assert "".join(deltas) == reply.message.text == "Hello"
        assert reply.usage == Usage(input_tokens=7, output_tokens=3)
        await ask(model)
        path, headers, body = stage.seen[0]
        assert path == "/v1/chat/completions"
        assert headers["authorization"] == f"Bearer {KEY}"
        assert headers["content-type"] == "application/json"
        assert headers["host"] in stage.url
        assert headers["x-team"] == "blue"
        assert body["tools"][0]["function"]["name"] == "demo__echo"
        assert body["temperature"] == 0.2
        assert stage.connections == 1  # one connection serves both

    on_stage(Play(HELLO), test=test, headers={"X-Team": "blue"})


def test_what_it_is():
    prices = Prices(input=1, output=2)  # type: ignore[arg-type]
    model = model_at("https://user.example/openai/v1/?api-version=1", prices=lambda: prices)
    assert (model.name, model.provider, model.prices) == ("m", "openai", prices)
    assert repr(model) == "OpenAIModel('m', url='https://user.example/openai/v1/chat/completions?api-version=1')"


@pytest.mark.parametrize("url", ["localhost:1", "ftp://x/v1", "http://", "http://me:pass@host/v1", "http://a b:x/"])
def test_a_bad_base_url_is_refused(url: str):
    with pytest.raises(ConfigurationError, match="base_url"):
        model_at(url)


def test_a_key_that_no_header_can_carry_is_refused_and_not_shown():
    with pytest.raises(ConfigurationError, match="MY_KEY") as caught:
        OpenAIModel("m", options=ModelOptions(api_key="sk-\nx"), key_name="MY_KEY")
    assert "sk-" not in str(caught.value)


def test_a_server_that_does_not_stream():
    body = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()

    async def test(stage: Stage, model: OpenAIModel) -> None:
        deltas, reply = await ask(model)
        assert deltas == ["Hello"]
        assert reply.usage is None

    on_stage(Play(body), test=test)
    on_stage(Play(gzip.compress(body), headers={"Content-Encoding": "gzip"}), test=test)


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (401, error(f"Incorrect API key: {KEY}"), "authentication", "MY_KEY"),
        (403, error("no"), "authentication", "MY_KEY"),
        (402, error("Insufficient Balance"), "authentication", "Insufficient Balance"),
        (404, error("model 'm' not found"), "not_found", "model 'm' not found"),
        (404, b"404 page not found", "not_found", "base_url"),
        (429, error("slow down"), "rate_limit", "slow down"),
        (429, error("You exceeded your quota", code="insufficient_quota"), "authentication", "quota"),
        (500, b"", "overloaded", "HTTP 500"),
        (502, b"<html>bad gateway</html>", "overloaded", "bad gateway"),
        (503, error("loading model"), "overloaded", "loading model"),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}', "overloaded", "Busy"),
        (400, error("nonsense"), "bad_request", "nonsense"),
        (413, b"too large", "bad_request", "too large"),
        (422, FASTAPI % b'["body","messages"],"msg":"Field required"', "bad_request", "body.messages: Field required"),
        (400, b'{"object":"error","message":"bad ref","code":400}', "bad_request", "bad ref"),
        (400, b'[{"error":{"code":400,"message":"from Gemini"}}]', "bad_request", "from Gemini"),
        (400, b'{"error":"registry: m does not support tools"}', "bad_request", "does not support tools"),
        (307, b"", "bad_request", "base_url"),
    ],
)
def test_errors_have_a_kind_and_say_what_the_server_said(status: int, body: bytes, kind: str, says: str):
    failure = failing(Play(body, status=status))
    assert (failure.kind, failure.status) == (kind, status)
    assert says in str(failure)
    assert "model 'm' at http://127.0.0.1" in str(failure)


@pytest.mark.parametrize(
    ("status", "message", "fields"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you requested 9000", {}),
        (400, "too big", {"code": "context_length_exceeded"}),
        (400, "the request exceeds the available context size", {"type": "exceed_context_size_error", "n_ctx": 512}),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", {}),
        (422, "Input is too long for requested model.", {}),
        (413, "too many tokens", {}),
        (400, "max_tokens is not supported to exceed the maximum context length", {}),
        (500, "context length exceeded", {}),
    ],
)
def test_a_full_context_is_told_apart(status: int, message: str, fields: dict[str, Any]):
    assert failing(Play(error(message, **fields), status=status)).kind == "context_overflow"


def test_retry_after_in_all_its_forms():
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=90)

    def wait(**headers: str) -> float | None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return failing(Play(error("slow down"), status=429, headers=given)).retry_after

    assert wait(Retry_After="7") == 7
    assert wait(Retry_After="1.5") == 1.5
    assert wait(retry_after_ms="250", Retry_After="1") == 0.25
    assert 80 < (wait(Retry_After=format_datetime(later, usegmt=True)) or 0) <= 90
    assert wait(Retry_After="Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert wait(Retry_After="soon") is None
    assert wait(Retry_After="inf") is None
    assert wait() is None


@pytest.mark.parametrize(
    ("status", "body", "parameter"),
    [
        (400, error(OPENAI, param="max_tokens", code="unsupported_parameter"), "max_tokens"),
        (400, error("Unsupported value: it does not support 0.2 here.", param="temperature"), "temperature"),
        (422, FASTAPI % b'["body","stream_options"],"msg":"Extra inputs are not permitted"', "stream_options"),
        (400, error("property 'stream_options' is unsupported"), "stream_options"),
        (400, b'{"message":"json: unknown field \\"stream_options\\""}', "stream_options"),
    ],
)
def test_a_refused_parameter_is_left_out_at_once_and_for_good(status: int, body: bytes, parameter: str):
    async def test(stage: Stage, model: OpenAIModel) -> None:
        _, reply = await ask(model)
        assert reply.message.text == "Hello"
        await ask(model)
        first, again, later = (body for _, _, body in stage.seen)
        assert parameter in first
        assert parameter not in again
        assert again == later
        limit = "max_completion_tokens" if parameter == "max_tokens" else "max_tokens"
        assert again[limit] == 512

    on_stage(Play(body, status=status), Play(HELLO), test=test)


def test_several_refused_parameters_one_after_the_other():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        await ask(model)
        assert len(stage.seen) == 4
        assert stage.seen[-1][2].keys() == {"model", "messages", "stream", "max_completion_tokens"}

    refused = [
        Play(error(f"unknown field: {name}"), status=400) for name in ("temperature", "max_tokens", "stream_options")
    ]
    on_stage(*refused, Play(HELLO), test=test)


def test_a_refusal_that_does_not_help_ends():
    failure = failing(*[Play(error("unsupported: temperature"), status=400)] * 2)
    assert failure.kind == "bad_request"


def test_no_server_is_a_connection_error():
    async def main() -> None:
        async with play(Play()) as stage:
            url = stage.url
        model = model_at(url)
        with pytest.raises(ModelError, match="Is the server running") as caught:
            await ask(model)
        assert caught.value.kind == "connection"
        await model.aclose()

    anyio.run(main)


def test_a_drop_in_the_middle_is_a_broken_stream():
    assert failing(Play(HELLO[:2], drop=True)).kind == "broken_stream"
    assert failing(Play(HELLO[:2])).kind == "broken_stream"
    assert (
        failing(Play([delta(content="x"), b'data: {"error":{"message":"gone","code":503}}\n\n'])).kind == "overloaded"
    )


def test_a_drop_after_the_end_is_no_error():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        assert (await ask(model))[1].message.text == "Hello"

    on_stage(Play(HELLO, drop=True), test=test)
    on_stage(Play(HELLO[:-2], drop=True), test=test)


def test_a_server_that_never_ends_its_stream_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("orchestrator.models.http.PATIENCE", 0.0)

    async def test(stage: Stage, model: OpenAIModel) -> None:
        assert (await ask(model))[1].message.text == "Hello"
        await stage.left.wait()

    on_stage(Play([b"".join(HELLO)], hold=True), test=test)


def test_cancelling_closes_the_connection_at_once():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        started = asyncio.Event()

        async def consume() -> None:
            async for part in model.stream(request(model)):
                assert part == TextDelta(text="Hel")
                started.set()

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            await started.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await stage.left.wait()

    on_stage(Play(HELLO[:2], hold=True), test=test)


def test_leaving_the_stream_closes_the_connection():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        stream = model.stream(request(model))
        assert await anext(stream) == TextDelta(text="Hel")
        await stream.aclose()
        with anyio.fail_after(5):
            await stage.left.wait()
        assert (await ask(model))[1].message.text == "Hello"

    on_stage(Play(HELLO[:2], hold=True), Play(HELLO), test=test)


def test_many_at_once_each_get_their_own():
    async def test(stage: Stage, model: OpenAIModel) -> None:
        replies: list[str] = []

        async def one() -> None:
            replies.append((await ask(model))[1].message.text)

        for _ in range(2):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one)
        assert replies == ["Hello"] * 40
        assert stage.connections <= 20  # the second round used the connections of the first

    on_stage(Play([*HELLO[:-1], END]), test=test)


def test_a_proxy_of_the_environment_is_used_for_hosts_that_are_elsewhere(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        async with play(Play(HELLO)) as stage:
            monkeypatch.setenv("http_proxy", stage.url.removesuffix("/v1"))
            monkeypatch.setenv("no_proxy", "near.example")
            model = model_at("http://far.example/v1")
            assert (await ask(model))[1].message.text == "Hello"
            assert stage.seen[0][0] == "http://far.example/v1/chat/completions"
            await model.aclose()
            for host in ("near.example", "127.0.0.1"):
                assert model_at(f"http://{host}/v1")._lanes._proxy is None

    anyio.run(main)
