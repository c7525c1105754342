"""What was seen of a server the last time: a second start offers it without a connection, and notices what changed."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator.config import ServerSettings
from orchestrator.tools.remembered import Memory, memory_of
from orchestrator.tools.servers import Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import http_server
from tests.support.toolsets import awkward_server, call, listing, running, tool, web


def lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


class Scene:
    """One server's file of tools and memory; each `within` is a new process's toolset over them."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.tools, self.starts, self.path = folder / "tools.json", folder / "starts", folder / "servers" / "s.json"
        self.more = more
        self.list("one", "two")

    def list(self, *names: str) -> None:
        listing(self.tools, *map(tool, names))

    def within(self, test: Any) -> None:
        async def main() -> None:
            server = awkward_server(
                "--tools", self.tools, "--starts", self.starts, name="s", memory=Memory(self.path), **self.more
            )
            with anyio.fail_after(60):
                async with running(server) as toolset:
                    await test(toolset)

        anyio.run(main)


def names(toolset: Toolset) -> list[str]:
    return [offer.name for offer in toolset.offers()]


async def nothing(toolset: Toolset) -> None:
    assert toolset.offers()


@pytest.mark.requirement("C2")
def test_a_second_start_offers_all_tools_and_connects_with_the_first_call(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def first(toolset: Toolset) -> None:
        assert names(toolset) == ["s__one", "s__two"]
        assert lines(scene.starts) == 1

    async def second(toolset: Toolset) -> None:
        assert names(toolset) == ["s__one", "s__two"]
        assert not toolset.servers["s"].up
        assert lines(scene.starts) == 1, "nothing was started"
        assert (await call(toolset, "s__two")).text == "two"
        assert lines(scene.starts) == 2

    scene.within(first)
    scene.within(second)


def test_what_is_not_called_is_never_started(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for _ in range(3):
        scene.within(nothing)
    assert lines(scene.starts) == 1


def test_who_looks_at_the_servers_themselves_is_shown_those_that_are_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.within(nothing)
    scene.list("three")

    async def look(toolset: Toolset) -> None:
        await toolset.live(["s"])
        assert names(toolset) == ["s__three"]

    scene.within(look)


def test_a_list_that_changed_meanwhile_is_noticed_at_the_first_call(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.within(nothing)
    scene.list("two", "three")

    async def second(toolset: Toolset) -> None:
        gone, version = toolset.get("s__one"), toolset.version
        assert gone is not None
        assert (await call(toolset, "s__two")).text == "two"
        assert names(toolset) == ["s__two", "s__three"]
        assert toolset.version > version
        reply = await toolset.call(gone, {}, timeout=30, meta={})
        assert (reply.error, "does not offer it any more" in reply.text) == ("unavailable", True)

    async def third(toolset: Toolset) -> None:
        assert names(toolset) == ["s__two", "s__three"]

    scene.within(second)
    scene.within(third)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"v": 99}', "\x00", "[" * 100_000], ids=lambda text: repr(text[:9])
)
def test_a_file_that_is_not_ours_counts_as_none_and_is_written_anew(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.path.parent.mkdir()
    scene.path.write_text(text)
    with caplog.at_level(logging.DEBUG, "orchestrator"):
        scene.within(nothing)
    assert "is not used, and will be written anew" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert json.loads(scene.path.read_text())["listed"] == ["one", "two"]


@pytest.mark.parametrize("spoil", [{"listed": "one"}, {"listed": ["nowhere"]}, {"known": {"one": {}}}, {"changed": []}])
def test_a_file_with_a_value_of_another_form_counts_as_none(tmp_path: Path, spoil: dict[str, Any]) -> None:
    scene = Scene(tmp_path)
    scene.within(nothing)
    scene.path.write_text(json.dumps(json.loads(scene.path.read_text()) | spoil))
    scene.within(nothing)
    assert lines(scene.starts) == 2


def test_the_file_is_its_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.within(nothing)
    assert [path.name for path in scene.path.parent.iterdir()] == ["s.json"]
    assert (scene.path.stat().st_mode & 0o777, scene.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="needs a place that cannot be written")
def test_a_place_that_cannot_be_written_costs_the_memory_and_nothing_else(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "file").touch()
    scene.path = tmp_path / "file" / "s.json"
    for _ in range(2):
        scene.within(nothing)
    assert lines(scene.starts) == 2


def test_another_configuration_is_another_memory_and_no_secret_is_written(tmp_path: Path) -> None:
    settings = ServerSettings(name="a/b", command="run", args=("--token", "sk-verysecret123456"), env={"K": "${K}"})
    one, same = memory_of(tmp_path, settings, tmp_path), memory_of(tmp_path, settings, tmp_path)
    others = [
        memory_of(tmp_path, settings.model_copy(update={"args": ()}), tmp_path),
        memory_of(tmp_path, settings.model_copy(update={"env": {"K": "other"}}), tmp_path),
        memory_of(tmp_path, settings, tmp_path / "elsewhere"),
    ]
    assert one.path == same.path
    assert len({one.path, *(other.path for other in others)}) == 4
    assert memory_of(tmp_path, settings.model_copy(update={"start_timeout": 1.0}), tmp_path).path == one.path
    one.record.listed = []
    one.save()
    assert "secret" not in str(one.path) + one.path.read_text()
    assert one.path.parent.parent == tmp_path


def test_a_server_of_the_older_protocol_is_not_asked_for_the_newer_one_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.within(nothing)
    assert json.loads(scene.path.read_text())["era"] == "2025-11-25"

    async def second(toolset: Toolset) -> None:
        (hello, asking) = toolset.servers["s"].listing.hellos()
        assert (hello.mode, asking.mode) == ("legacy", "auto")
        assert (await call(toolset, "s__one")).text == "one"

    scene.within(second)
    assert lines(scene.starts) == 2


def test_what_a_server_said_of_itself_saves_asking_and_is_asked_again_where_it_does_not_hold(tmp_path: Path) -> None:
    """Over HTTP a question is a round trip; the server then turns into one that speaks the older protocol only."""
    asked: list[str] = []

    def watched(app: Any, *, old: bool) -> Any:
        async def serve(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            first = await receive()
            message = json.loads(first.get("body") or b"{}")
            asked.append(message.get("method", ""))
            newer = "io.modelcontextprotocol/protocolVersion" in (message.get("params") or {}).get("_meta", {})
            if old and newer:
                await send({"type": "http.response.start", "status": 400, "headers": []})
                return await send({"type": "http.response.body", "body": b""})
            waiting = [first]

            async def again() -> Any:
                return waiting.pop() if waiting else await receive()

            return await app(scope, again, send)

        return serve

    def within(*, old: bool) -> list[str]:
        sums = MCPServer("sums", log_level="CRITICAL")

        @sums.tool()
        async def add(a: int, b: int) -> int:
            return a + b

        asked.clear()

        async def main(url: str) -> None:
            settings = ServerSettings(name="web", transport="http", url=f"{url}/mcp")
            memory = Memory(tmp_path / "web.json")
            server = http_server("web", lambda: settings, start_timeout=20, terms=Terms(), memory=memory)
            with anyio.fail_after(60):
                async with running(server) as toolset:
                    assert (await call(toolset, "web__add", {"a": 2, "b": 3})).text == "5"

        with web(watched(sums.streamable_http_app(), old=old)) as url:
            anyio.run(main, url)
        return list(asked)

    assert within(old=False)[:2] == ["server/discover", "tools/list"]
    second = within(old=False)
    assert second[0] == "tools/list", "it was not asked first"
    assert "initialize" in within(old=True)
