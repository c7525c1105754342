"""A model server on loopback, in a thread: for commands that run in processes of their own.

It speaks chat completions, and Anthropic's Messages API at `/v1/messages`.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

Reply = Mapping[str, Any]
"""`text`, `calls` and `finish` as in a recording, `ids` where the calls have none; or `status` with `error`, and
`headers`."""

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}


@dataclass
class ModelServer:
    """`url` is what OPENAI_BASE_URL takes. `seen` are the bodies of all requests, `raw` the same as they came, `keys`
    what came as a key. Without a `key` it lists its models for anyone, as most servers of one's own do."""

    url: str
    answer: Callable[[dict[str, Any]], Reply]
    seen: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    key: str = "sk-loopback"

    @property
    def env(self) -> dict[str, str]:
        keys = {"OPENAI_API_KEY": "sk-loopback", "ANTHROPIC_API_KEY": "sk-loopback"}
        return {"OPENAI_BASE_URL": self.url, "ANTHROPIC_BASE_URL": self.url, **keys}


def turn_of(body: Mapping[str, Any]) -> int:
    return 1 + sum(message["role"] == "assistant" for message in body["messages"])


def playing(recording: Path, systems: Mapping[str, str]) -> Callable[[dict[str, Any]], Reply]:
    """Plays a recording; a request is of the agent whose instructions (`systems`, by agent) its first message holds."""
    lines = [json.loads(line) for line in recording.read_text("utf-8").splitlines()]
    replies = {(line["agent"], line["turn"]): line for line in lines if "agent" in line}

    def answer(body: dict[str, Any]) -> Reply:
        system = body["messages"][0]["content"]
        (agent,) = (name for name, words in systems.items() if words in system)
        return replies[agent, turn_of(body)]

    return answer


@contextlib.contextmanager
def model_server(answer: Callable[[dict[str, Any]], Reply]) -> Iterator[ModelServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            server.raw.append(self.rfile.read(int(self.headers["content-length"])))
            body = json.loads(server.raw[-1])
            server.seen.append(body)
            server.keys.add(self.headers.get("authorization") or self.headers.get("x-api-key", ""))
            server.paths.add(self.path)
            anthropic = self.path == "/v1/messages"
            if anthropic:
                system = {"role": "system", "content": body["system"][0]["text"]}
                body = {**body, "messages": [system, *body["messages"]]}
            reply = server.answer(body)
            status = reply.get("status", 200)
            streamed = status == 200 and body.get("stream", False)
            if status != 200:
                content = json.dumps({"error": {"message": reply["error"]}}).encode()
            elif streamed:
                content = (_anthropics if anthropic else _stream)(reply)
            else:
                content = json.dumps(_whole(reply)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
            for name, value in reply.get("headers", {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            """The list of models, which costs nothing; only for who has the key."""
            given = self.headers.get("x-api-key"), self.headers.get("authorization", "")[7:]
            right = not server.key or server.key in given
            listed = {"data": [{"id": "loop"}, {"id": "other"}, {"id": "dated-20250929"}]}
            content = json.dumps(listed if right else {"error": {"message": "wrong key"}}).encode()
            self.send_response((200 if self.path.partition("?")[0] == "/v1/models" else 404) if right else 401)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = ModelServer(f"http://127.0.0.1:{http.server_address[1]}/v1", answer)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _stream(reply: Reply) -> bytes:
    """A reply as the events of a stream: text in two parts, then each call, then the end and the usage."""
    text, calls = reply.get("text", ""), reply.get("calls", [])
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": part} for part in (text[:7], text[7:]) if part]
    for index, each in enumerate(calls):
        function = {"name": each["name"], "arguments": json.dumps(each["arguments"])}
        named = {"id": f"c{index}"} if reply.get("ids", True) else {}
        deltas.append({"tool_calls": [{"index": index, **named, "type": "function", "function": function}]})
    events: Sequence[dict[str, Any]] = [
        *({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas),
        {
            "choices": [
                {"index": 0, "delta": {}, "finish_reason": reply.get("finish") or ("tool_calls" if calls else "stop")}
            ]
        },
        {"choices": [], "usage": USAGE},
    ]
    lines = [json.dumps({"id": "r", "model": "played", **event}) for event in events]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


def _whole(reply: Reply) -> dict[str, Any]:
    """A chat completion that was not asked for as a stream."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {**each, "arguments": json.dumps(each["arguments"])}}
        for n, each in enumerate(reply.get("calls", []))
    ]
    message = {"role": "assistant", "content": reply.get("text"), **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    about = {"id": "r", "object": "chat.completion", "created": 0, "model": "played"}
    return {**about, "choices": [choice], "usage": {**USAGE, "total_tokens": 110}}


def _anthropics(reply: Reply) -> bytes:
    """A reply as Anthropic's events; the usage is the same, of which the cached part stands apart there."""
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if text := reply.get("text", ""):
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": text}))
    for each in reply.get("calls", []):
        use = {"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": each["name"], "input": {}}
        blocks.append((use, {"type": "input_json_delta", "partial_json": json.dumps(each["arguments"])}))
    usage = {"input_tokens": 50, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg", "model": "played", "usage": usage}}
    ]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = "tool_use" if reply.get("calls") else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 10}})
    lines = [json.dumps(event) for event in [*events, {"type": "message_stop"}]]
    return "".join(f"data: {line}\n\n" for line in lines).encode()
