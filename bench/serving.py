"""`orchestrator serve` under load over HTTP, and beside an abusive client (this project only).

    .venv/bin/python bench/serving.py [--calls 2000] [--at-once 200] [--era 2026-07-28]

A model in another process takes 50 ms for each of six replies: five calls of a tool (bench/echo_server.py), then the
answer. `load` makes calls with the MCP SDK's clients, 200 at once, and says how many came back with the right answer,
and what the server's process holds on the way. `abuse` times a good client, alone and while another one with a token of
its own sends slow bodies, bodies of 100 MB, requests as fast as it can and requests with wrong tokens.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

HERE = Path(__file__).resolve().parent
COMMAND = Path(sys.executable).with_name("orchestrator")
STEPS, LATENCY, CLIENTS = 5, 0.05, 10
TOKENS = {"good": "token-of-the-good-client-1", "bad": "token-of-the-bad-client-12"}
CARD = "---\nname: worker\ndescription: Works.\ntools: [demo__echo]\n---\nCall your tool.\n"
SLOW, LARGE, FLOOD, WRONG = 50, 2, 8, 2
"""Connections of the abusive client for each of its ways."""


def model(ready: Connection) -> None:
    """Chat completions, streamed: calls the tool until five results are there."""

    def reply(body: dict[str, Any]) -> bytes:
        done = sum(message["role"] == "tool" for message in body["messages"])
        function = {"name": "demo__echo", "arguments": json.dumps({"text": f"hello {done}"})}
        call = {"tool_calls": [{"index": 0, "id": f"call_{done}", "type": "function", "function": function}]}
        delta = call if done < STEPS else {"content": "done"}
        choices = [{"index": 0, "delta": delta, "finish_reason": None}]
        ended = [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if done < STEPS else "stop"}]
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        chunks = [{"choices": choices}, {"choices": ended}, {"choices": [], "usage": usage}]
        return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                body = json.loads(await reader.readexactly(int(length.split(b":")[1])))
                await asyncio.sleep(LATENCY)
                payload = reply(body)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % len(payload) + payload)
                await writer.drain()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@contextmanager
def serving(folder: Path, port: int, more: str = "") -> Generator[tuple[subprocess.Popen[str], str]]:
    """The server as a process of its own, and its address."""
    (folder / "cards").mkdir(parents=True)
    (folder / "cards" / "worker.md").write_text(CARD)
    echo = {"command": sys.executable, "args": ["-S", "-E", str(HERE / "echo_server.py")]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"demo": echo}}))
    tokens = [f'[serve.tokens.{name}]\nsha256 = "{sha256(each.encode()).hexdigest()}"' for name, each in TOKENS.items()]
    table = f'model = "m"\n[models.m]\nbase_url = "http://127.0.0.1:{port}/v1"\nmodel = "m"\n'
    (folder / "orchestrator.toml").write_text("\n".join([table, *tokens, more]))
    command = [COMMAND, "serve", "--port", "0", "--agents", "cards", "--only", "worker"]
    env = {**os.environ, "ORCHESTRATOR_HOME": str(folder / "home")}
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, encoding="utf-8")
    assert process.stderr is not None
    try:
        said = next(line for line in process.stderr if line.startswith("MCP at "))
        yield process, said.split()[2].removesuffix("/mcp")
    finally:
        process.terminate()
        process.wait(30)


def held(process: subprocess.Popen[str], folder: Path, runs: int) -> str:
    """What the server holds now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = dict(line.split(":", 1) for line in status.splitlines())
    rss, threads = int(found["VmRSS"].split()[0]) / 1024, found["Threads"].strip()
    files = len(os.listdir(f"/proc/{process.pid}/fd"))
    journal = sum(path.stat().st_size for path in (folder / "home").glob("journal.sqlite*"))
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    cpu = sum(map(int, times[11:13])) / os.sysconf("SC_CLK_TCK") / runs * 1000
    return f"{rss:6.1f} MB, {cpu:.0f} ms of CPU a run, {files} file descriptors, {threads} threads, journal {journal / runs / 1024:.1f} KB a run"


async def connected(stack: AsyncExitStack, address: str, era: str) -> Client:
    headers = {"authorization": f"Bearer {TOKENS['good']}"}
    limits = httpx2.Limits(max_connections=1000)
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=600, limits=limits))
    mode: Any = "auto" if era == "2026-07-28" else "legacy"
    return await stack.enter_async_context(
        Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=mode)
    )


async def calls(clients: list[Client], count: int, at_once: int, outcomes: Counter[str]) -> list[float]:
    """Makes calls, so many at once; seconds of each."""
    left, took = iter(range(count)), list[float]()

    async def worker(client: Client) -> None:
        for _ in left:
            began = time.perf_counter()
            try:
                result = await client.call_tool("worker", {"task": "work"})
                outcomes["".join(getattr(block, "text", "") for block in result.content)] += 1
            except Exception as error:
                outcomes[repr(error)] += 1
            took.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            group.create_task(worker(clients[number % len(clients)]))
    return took


async def load(folder: Path, port: int, options: argparse.Namespace) -> None:
    outcomes: Counter[str] = Counter()
    traffic = "[serve]\nanswer_within = 0\n[serve.traffic]\nper_minute = 1000000\nat_once = 1000\n"
    with serving(folder, port, traffic) as (process, address):
        async with AsyncExitStack() as stack:
            clients = [await connected(stack, address, options.era) for _ in range(CLIENTS)]
            print(f"load: {options.calls} calls, {options.at_once} at once, {options.era}")
            made = 0
            while made < options.calls:
                part = min(options.at_once, options.calls - made)
                began = time.perf_counter()
                took = await calls(clients, part, options.at_once, outcomes)
                made += part
                seconds = time.perf_counter() - began
                if made in (options.at_once, options.calls // 2, options.calls):
                    print(
                        f"  after {made:5}: {held(process, folder, made)}; {part / seconds:.1f} calls a second,", end=""
                    )
                    print(f" p50 {statistics.median(took):.2f} s, longest {max(took):.2f} s")
    print(f"  outcomes: {dict(outcomes)}")


def abuse(address: str, told: Connection) -> None:
    """Does what should not be done until it is told to end, then says how often, and what was answered."""
    host, port = "127.0.0.1", int(address.rpartition(":")[2])
    counts: Counter[str] = Counter()

    def head(token: str, length: int, path: str = "/mcp") -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
        return "\r\n".join([*lines, "Content-Type: application/json", f"Content-Length: {length}", "", ""]).encode()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(head(TOKENS["bad"], 10_000))
        answer = asyncio.create_task(reader.read(12))
        while not answer.done():
            writer.write(b" ")
            await asyncio.wait([answer], timeout=0.5)
        return answer.result().decode()

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(head(TOKENS["bad"], 100_000_000))
        with suppress(ConnectionError):
            for _ in range(1000):
                writer.write(b" " * 100_000)
                await writer.drain()
        return (await reader.read(12)).decode()

    async def fast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> str:
        writer.write(head(token, 2, "/api/runs") + b"{}")
        return (await reader.read(12)).decode()

    async def again(name: str, way: Any, *more: Any) -> None:
        while True:
            said = "refused"
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    said = await way(reader, writer, *more)
                finally:
                    writer.close()
            counts[f"{name} {said[9:] or 'closed'}"] += 1

    async def main() -> None:
        ways = [("slow body", slow)] * SLOW + [("100 MB", large)] * LARGE
        tasks = [asyncio.create_task(again(*each)) for each in ways]
        tasks += [asyncio.create_task(again("request", fast, TOKENS["bad"])) for _ in range(FLOOD)]
        tasks += [asyncio.create_task(again("wrong token", fast, "no-such-token")) for _ in range(WRONG)]
        await asyncio.to_thread(told.recv)
        told.send(dict(sorted(counts.items())))
        os._exit(0)

    asyncio.run(main())


async def beside_abuse(folder: Path, port: int, options: argparse.Namespace) -> None:
    outcomes: Counter[str] = Counter()
    with serving(folder, port) as (process, address):
        async with AsyncExitStack() as stack:
            client = await connected(stack, address, options.era)
            await calls([client], 10, 4, outcomes)
            for name in ("alone", "beside abuse", "alone again"):
                ours, theirs = multiprocessing.Pipe()
                bad = multiprocessing.Process(target=abuse, args=(address, theirs), daemon=True)
                if name == "beside abuse":
                    bad.start()
                took = sorted(await calls([client], options.good, 4, outcomes))
                p99 = took[int(len(took) * 0.99)]
                print(f"abuse: good client {name}: p50 {statistics.median(took):.2f} s, p99 {p99:.2f} s", end="; ")
                print(held(process, folder, sum(outcomes.values())))
                if name == "beside abuse":
                    ours.send(True)
                    print(f"  the other one got {await asyncio.to_thread(ours.recv)}")
                    bad.join()
    print(f"  outcomes of the good one: {dict(outcomes)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--good", type=int, default=200, help="calls of the good client beside the abusive one")
    parser.add_argument("--era", choices=["2026-07-28", "2025-11-25"], default="2026-07-28")
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=model, args=(theirs,), daemon=True).start()
    port = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        if options.calls:
            asyncio.run(load(Path(folder, "load"), port, options))
        if options.good:
            asyncio.run(beside_abuse(Path(folder, "abuse"), port, options))


if __name__ == "__main__":
    main()
