"""What the gateway to models adds to a bare httpx2 call: CPU of this process a call, streaming included.

    .venv/bin/python bench/gateway.py

A server in another process streams one reply of text and a call, as chat completions or as Anthropic's events. `unread` is
httpx2's client taking in the bytes alone, `bare` the same reading line by line and each event with `json`; `gateway` is the model that the project uses,
from messages that are encoded already to the reply. They take turns in batches, so that a noisy neighbour slows all.
"""

import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import httpx2

from orchestrator.messages import UserMessage
from orchestrator.models.base import ModelOptions, ModelReply, ModelRequest, ToolSpec
from orchestrator.models.http import AnthropicModel, HttpModel, OpenAIModel

BATCHES, EACH, PIECES = 30, 20, 40
TOOL = ToolSpec(name="demo__echo", description="Echoes.", parameters={"type": "object", "properties": {}})


def chat() -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "demo__echo", "arguments": "{}"}}
    usage = {"prompt_tokens": 900, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 512}}
    texts = [chunk({"content": f" word{n}"}) for n in range(PIECES)]
    return [*texts, chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), {"choices": [], "usage": usage}]


def messages() -> list[dict[str, Any]]:
    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    usage = {"input_tokens": 400, "cache_read_input_tokens": 500, "output_tokens": 1}
    use = {"type": "tool_use", "id": "toolu_1", "name": "demo__echo", "input": {}}
    return [
        {"type": "message_start", "message": {"id": "m1", "model": "m", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(delta(0, type="text_delta", text=f" word{n}") for n in range(PIECES)),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": use},
        delta(1, type="input_json_delta", partial_json="{}"),
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 50}},
        {"type": "message_stop"},
    ]


def serve(ready: Connection) -> None:
    """Each event is a chunk of its own, as servers send them."""

    async def next_head(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # the client has gone
            return b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await next_head(reader):
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            anthropic = b" /v1/messages " in head
            events = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in (messages if anthropic else chat)()]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for event in events if anthropic else [*events, b"data: [DONE]\n\n"]:
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def lines(client: httpx2.AsyncClient, model: HttpModel, body: bytes) -> AsyncIterator[Any]:
    async with client.stream("POST", str(model._url), content=body, headers=dict(model._headers)) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield json.loads(line[6:])


async def measure(model: HttpModel) -> list[float]:
    """Milliseconds of CPU a call: the bytes alone, bare, and through the gateway."""
    codec = model.codec
    history = [UserMessage(text="Some words of a task. " * 20)]
    encoded, tools = [codec.message(message) for message in history], codec.tools([TOOL])

    async def unread() -> None:
        body = codec.body(encoded, tools, 512)
        async with client.stream("POST", str(model._url), content=body, headers=dict(model._headers)) as response:
            assert [chunk async for chunk in response.aiter_raw()]

    async def bare() -> None:
        assert [event async for event in lines(client, model, codec.body(encoded, tools, 512))]

    async def gateway() -> None:
        body = codec.body(encoded, tools, 512)
        asked = ModelRequest(agent="a", turn=1, messages=history, tools=[TOOL], max_output_tokens=512, body=body)
        parts = [part async for part in model.stream(asked)]
        assert isinstance(parts[-1], ModelReply)

    async with httpx2.AsyncClient() as client:
        took: list[list[float]] = [[], [], []]
        for _ in range(BATCHES):
            for call, times in zip((unread, bare, gateway), took, strict=True):
                times.append(await batch(call))
    await model.aclose()
    return [statistics.median(times[3:]) for times in took]


async def batch(call: Callable[[], Awaitable[None]]) -> float:
    start = time.process_time()
    for _ in range(EACH):
        await call()
    return (time.process_time() - start) / EACH * 1000


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    options = ModelOptions(base_url=f"http://127.0.0.1:{ours.recv()}/v1")
    for kind in (OpenAIModel, AnthropicModel):
        unread, bare, gateway = asyncio.run(measure(kind("m", options=options)))
        print(
            f"{kind.__name__:15} unread {unread:.2f} ms, bare {bare:.2f} ms, gateway {gateway:.2f} ms a call: ", end=""
        )
        print(f"{gateway / bare - 1:+.0%} to bare, {gateway / unread - 1:+.0%} to unread")
    server.terminate()


if __name__ == "__main__":
    main()
