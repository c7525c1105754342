"""A model server on loopback that plays given answers, one a request, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from orchestrator.messages import Message, UserMessage
from orchestrator.models.base import Model, ModelPart, ModelReply, ModelRequest, TextDelta, ToolSpec

USER = UserMessage(text="hello")
ECHO = ToolSpec(name="demo__echo", description="Echoes.", parameters={"type": "object", "properties": {}})


@dataclass
class Play:
    """One answer. A list is streamed; `drop` breaks off after it, `hold` stays silent until the client goes.

    `refuses` says what is wrong with a request, if something is: that is then answered, with `status_refused`.
    """

    body: bytes | list[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    hold: bool = False
    refuses: Callable[[Any], str | None] | None = None
    status_refused: int = 400


@dataclass
class Stage:
    """The server. `seen` are (path, headers, body) of requests; `left` is set when a client goes during `hold`."""

    url: str = ""
    seen: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """One event of a streamed reply."""
    return event({"id": "r1", "model": "m-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def error(message: str, **fields: Any) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
END = b"data: [DONE]\n\n"
HELLO = [delta(role="assistant", content=None), delta(content="Hel"), delta(content="lo"), delta("stop"), USAGE, END]


@asynccontextmanager
async def play(*plays: Play) -> AsyncGenerator[Stage, None]:
    """Answers in order; the last one is played again and again."""
    stage = Stage()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        stage.connections += 1
        try:
            while request := await _read(reader):
                stage.seen.append(request)
                act = plays[min(len(stage.seen), len(plays)) - 1]
                if act.refuses and (wrong := act.refuses(request[2])):
                    act = Play(error(wrong), status=act.status_refused)
                if not await _answer(act, stage, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    stage.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield stage
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], Any] | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return first.split(" ")[1], headers, json.loads(body or b"null")


async def _answer(act: Play, stage: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    lines = [f"HTTP/1.1 {act.status} X", *(f"{name}: {value}" for name, value in act.headers.items())]
    chunked = isinstance(act.body, list)
    lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(act.body)}")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    for piece in act.body if isinstance(act.body, list) else [act.body]:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
    if act.hold:
        await reader.read(1)
        stage.left.set()
        return False
    if chunked and not act.drop:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return not act.drop


def request(
    model: Model,
    messages: Sequence[Message] = (USER,),
    tools: Sequence[ToolSpec] = (),
    *,
    agent: str = "tester",
    turn: int = 1,
) -> ModelRequest:
    codec = model.codec
    body = codec.body([codec.message(message) for message in messages], codec.tools(tools), 512)
    return ModelRequest(agent=agent, turn=turn, messages=messages, tools=tools, max_output_tokens=512, body=body)


async def ask(model: Model, asked: ModelRequest | None = None) -> tuple[list[str], ModelReply]:
    """The deltas and the reply of one request."""
    parts: list[ModelPart] = [part async for part in model.stream(asked or request(model))]
    reply = parts.pop()
    assert isinstance(reply, ModelReply)
    return [part.text for part in parts if isinstance(part, TextDelta)], reply
