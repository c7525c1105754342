"""Servers that come up, fall, hang and come back; over pipes and over HTTP."""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server as LowServer
from mcp_types import ListToolsResult, Tool

from orchestrator.tools.servers import Server, Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import broken_server, local_server, stdio_server
from tests.support.command import wait_for_end
from tests.support.toolsets import (
    awkward,
    awkward_server,
    call,
    changed,
    listing,
    sums,
    tool,
    web,
    web_server,
    with_toolset,
)


@pytest.mark.requirement("A5")
def test_a_server_that_falls_at_its_start_says_its_last_words() -> None:
    async def test(toolset: Toolset) -> None:
        server = toolset.servers["awkward"]
        assert not server.up
        said = "Its last lines: starting up\nfatal: no database at db.example"
        assert server.problem == f"its process ended with exit code 3. {said}"
        assert toolset.offers() == ()

    with_toolset(test, awkward_server("--fall"))


def test_a_server_that_hangs_at_its_start_has_a_deadline_and_the_others_do_not_wait_for_it() -> None:
    async def main() -> None:
        toolset = Toolset([awkward_server("--mute", start_timeout=0.3), awkward_server(name="good")])
        with anyio.fail_after(20):
            async with toolset.running():
                toolset.start(toolset.servers)
                await toolset.ready(["good"])
                assert (await call(toolset, "good__echo", {"text": "hi"})).text == "hi"
                await toolset.ready(["awkward"])
                assert toolset.servers["awkward"].problem == "it did not answer within 0.3 s"

    anyio.run(main)


def test_a_command_that_is_not_there() -> None:
    async def test(toolset: Toolset) -> None:
        assert toolset.servers["awkward"].problem == "nothing to be found"

    with_toolset(test, broken_server("awkward", "nothing to be found"))


@pytest.mark.requirement("A5")
def test_a_server_that_dies_in_mid_call_is_unavailable_and_the_next_call_starts_it_again() -> None:
    async def test(toolset: Toolset) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(expect_unavailable, toolset)
        for text in ("again", "and again"):
            assert (await call(toolset, "awkward__echo", {"text": text})).text == text

    async def expect_unavailable(toolset: Toolset) -> None:
        reply = await call(toolset, "awkward__die")
        assert reply.error == "unavailable"
        assert reply.text.startswith("Error from awkward__die: server awkward ")

    with_toolset(test, awkward_server())


def test_a_server_that_died_between_two_calls_is_started_again() -> None:
    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "awkward__die")).error == "unavailable"
        replies: list[Any] = []

        async def one() -> None:
            replies.append(await call(toolset, "awkward__echo", {"text": "hi"}))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        assert [reply.text for reply in replies] == ["hi"] * 5

    with_toolset(test, awkward_server())


def test_a_server_that_dies_while_nobody_calls_it_is_noticed(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(wait_for_end, pid)
        while toolset.servers["awkward"].up:
            await anyio.lowlevel.checkpoint()
        assert (await call(toolset, "awkward__echo", {"text": "hi"})).text == "hi"

    with_toolset(test, awkward_server("--pid", tmp_path / "pid"))


def test_all_pages_of_a_list_are_read() -> None:
    async def page(ctx: Any, params: Any) -> ListToolsResult:
        del ctx
        number = int(params.cursor) if params and params.cursor else 1
        tool = Tool(name=f"tool{number}", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor=str(number + 1) if number < 3 else None)

    async def test(toolset: Toolset) -> None:
        assert [offer.name for offer in toolset.offers()] == ["paged__tool1", "paged__tool2", "paged__tool3"]

    with_toolset(test, local_server("paged", LowServer("paged", on_list_tools=page)))


def test_a_server_that_does_not_come_back_says_why() -> None:
    starts = 0

    def start() -> Any:
        nonlocal starts
        starts += 1
        return awkward(*(["--fall"] if starts > 1 else []))()

    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "awkward__die")).error == "unavailable"
        reply = await call(toolset, "awkward__echo")
        assert reply.error == "unavailable"
        assert "fatal: no database" in reply.text

    with_toolset(test, stdio_server("awkward", start, start_timeout=20, terms=Terms()))
    assert starts == 2


@pytest.mark.requirement("A9")
def test_a_call_that_takes_too_long_is_stopped_and_the_server_lives(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        reply = await call(toolset, "awkward__hang_once", {"file": str(tmp_path / "seen")}, timeout=0.2)
        assert reply.error == "timeout"
        assert "no answer within 0.2 s" in reply.text
        assert (await call(toolset, "awkward__hang_once", {"file": str(tmp_path / "seen")})).error is None

    with_toolset(test, awkward_server())


def test_an_error_result_is_told_with_its_body() -> None:
    async def test(toolset: Toolset) -> None:
        reply = await call(toolset, "awkward__broken")
        assert reply.error == "tool_error"
        assert "the order was refused" in reply.text
        assert '"code": 17' in reply.text

    with_toolset(test, awkward_server())


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_servers_at_a_url(transport: str) -> None:
    app = sums().streamable_http_app() if transport == "http" else sums().sse_app()
    size = 4_000_000 if transport == "http" else 500_000  # the SDK reads no longer event of the older transport

    async def test(toolset: Toolset) -> None:
        assert toolset.servers["web"].up, toolset.servers["web"].problem
        assert (await call(toolset, "web__add", {"a": 2, "b": 3})).text == "5"
        reply = await call(toolset, "web__long", {"size": size})
        assert reply.error is None, reply.text
        assert len(reply.text) == size

    with web(app) as url:
        server = web_server(f"{url}/{'mcp' if transport == 'http' else 'sse'}", transport, long_running=("long",))
        with_toolset(test, server)


class Failing:
    """Refuses one `tools/call`, counted from 1."""

    def __init__(self, app: Any, call: int, status: int, body: bytes) -> None:
        self.app, self.call, self.status, self.body = app, call, status, body
        self.calls = self.requests = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        first = await receive()
        self.requests += 1
        if b'"tools/call"' in first.get("body", b""):
            self.calls += 1
            if self.calls == self.call:
                headers = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": self.status, "headers": headers})
                await send({"type": "http.response.body", "body": self.body})
                return
        waiting = [first]

        async def again() -> Any:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, again, send)


def test_a_web_server_that_goes_and_comes_back() -> None:
    """Nothing tells a client that its server is gone but the next request."""
    ports: list[int] = []

    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "web__add", {"a": 1, "b": 1})).text == "2"
        await anyio.to_thread.run_sync(first.close)
        reply = await call(toolset, "web__add", {"a": 1, "b": 2})
        assert reply.error == "unavailable"
        toolset.servers["web"].backoff.clock = lambda: float("inf")  # whatever pause there is has passed
        with web(sums().streamable_http_app(), port=ports[0]):
            assert (await call(toolset, "web__add", {"a": 1, "b": 3})).text == "4"

    with contextlib.ExitStack() as first:
        url = first.enter_context(web(sums().streamable_http_app()))
        ports.append(int(url.rpartition(":")[2]))
        with_toolset(test, web_server(f"{url}/mcp"))


def test_a_session_that_the_server_forgot_is_begun_anew() -> None:
    lost = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
    app = Failing(sums().streamable_http_app(), 1, 404, json.dumps(lost).encode())

    async def test(toolset: Toolset) -> None:
        before = app.requests
        assert (await call(toolset, "web__add", {"a": 1, "b": 1})).error == "unavailable"
        assert (await call(toolset, "web__add", {"a": 1, "b": 2})).text == "3"
        assert app.requests - before > 2, "there is a new connection"

    with web(app) as url:
        with_toolset(test, web_server(f"{url}/mcp"))


def test_nobody_at_the_url() -> None:
    async def test(toolset: Toolset) -> None:
        web, good = toolset.servers["web"], toolset.servers["good"]
        assert good.up
        assert not web.up
        assert "connect" in web.problem.lower()

    with_toolset(test, web_server("http://127.0.0.1:9/mcp"), awkward_server(name="good"))


def test_no_mcp_at_the_url() -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"no such page"})

    async def test(toolset: Toolset) -> None:
        assert not toolset.servers["web"].up
        assert toolset.servers["web"].problem

    with web(nothing) as url:
        with_toolset(test, web_server(f"{url}/mcp"))


def test_an_object_of_this_process_is_a_server() -> None:
    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "sums__add", {"a": 2, "b": 3})).text == "5"

    with_toolset(test, local_server("sums", sums()))


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(("hints", "starts"), [({"readOnlyHint": True}, 2), ({"idempotentHint": True}, 2), ({}, 1)])
def test_a_call_that_dies_with_its_server_is_made_once_more_only_where_that_is_safe(
    tmp_path: Path, hints: dict[str, bool], starts: int
) -> None:
    file, counted = listing(tmp_path / "tools", tool("once", annotations=hints)), tmp_path / "starts"

    async def test(toolset: Toolset) -> None:
        reply = await call(toolset, "s__once", {"file": str(tmp_path / "seen")})
        assert (reply.error, len(counted.read_text().splitlines())) == (None if starts == 2 else "unavailable", starts)

    with_toolset(test, awkward_server("--tools", file, "--starts", counted, name="s"))


@pytest.mark.requirement("A5")
def test_a_server_that_stays_away_is_tried_at_once_and_then_only_after_a_pause() -> None:
    starts = 0

    def start() -> Any:
        nonlocal starts
        starts += 1
        return awkward(*(["--fall"] if 1 < starts < 5 else []))()

    server = stdio_server("awkward", start, start_timeout=20, terms=Terms())
    now = 0.0
    server.backoff.clock = lambda: now

    async def test(toolset: Toolset) -> None:
        nonlocal now
        assert (await call(toolset, "awkward__die")).error == "unavailable"
        assert starts == 2, "read-only, so it was tried again at once, in vain"
        for moment, expected in [(0.0, 2), (0.9, 2), (1.0, 3), (2.9, 3), (3.0, 4), (6.9, 4)]:
            now = moment
            reply = await call(toolset, "awkward__echo", {"text": "hi"})
            assert (reply.error, starts) == ("unavailable", expected), moment
        now = 7.0
        assert (await call(toolset, "awkward__echo", {"text": "hi"})).text == "hi"
        assert server.backoff.failures == 0

    with_toolset(test, server)


def test_a_server_that_was_down_at_the_start_joins_when_it_comes_up() -> None:
    starts = 0
    pauses: list[float] = []

    def start() -> Any:
        nonlocal starts
        starts += 1
        return awkward(*(["--fall"] if starts < 4 else []))()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        server.backoff.clock = lambda: float("inf")  # the time has passed

    server = stdio_server("awkward", start, start_timeout=20, terms=Terms())
    server.pause = pause

    async def main() -> None:
        with anyio.fail_after(60):
            async with Toolset([server]).running() as toolset:
                await toolset.ready(["awkward"])
                await changed(toolset, 0)
                assert (await call(toolset, "awkward__echo", {"text": "hi"})).text == "hi"

    anyio.run(main)
    assert (starts, len(pauses)) == (4, 3)
    assert min(pauses) >= 1.0, "no busy loop"


def test_what_does_not_help_is_not_tried_again() -> None:
    async def test(toolset: Toolset) -> None:
        assert toolset.servers["s"].down
        await anyio.wait_all_tasks_blocked()

    server = broken_server("s", "no such variable")
    server.pause = lambda _: pytest.fail("it was to be tried again")
    with_toolset(test, server)


def test_leaving_does_not_wait_for_a_server_that_is_starting() -> None:
    async def main() -> None:
        with anyio.fail_after(30):
            async with Toolset([awkward_server("--mute", start_timeout=10_000)]).running() as toolset:
                toolset.start(["awkward"])

    anyio.run(main)


def test_no_more_servers_start_at_once_than_there_are_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for its turn does not lose its time to start."""
    monkeypatch.setattr("orchestrator.tools.toolset.STARTS", 2)
    starting, most = 0, 0

    def counted(name: str) -> Any:
        server = local_server(name, sums())
        connect = server._connect  # pyright: ignore[reportPrivateUsage]

        @contextlib.asynccontextmanager
        async def slowly(link: Any) -> Any:
            nonlocal starting, most
            starting += 1
            most = max(most, starting)
            async with connect(link) as client:
                await anyio.lowlevel.checkpoint()
                starting -= 1
                yield client

        return Server(name, slowly, start_timeout=20)

    async def test(toolset: Toolset) -> None:
        assert all(server.up for server in toolset.servers.values())

    with_toolset(test, *(counted(f"s{number}") for number in range(6)))
    assert most == 2
