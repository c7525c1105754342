"""Agents and servers as files, while they are served (E5): what becomes of the files becomes of the tools."""

import itertools
import os
import select
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp_types import ToolListChangedNotification

from tests.serving.served import ERAS, WAYS, House, bell, rung, served, text
from tests.serving.site import caller, open_site, tables
from tests.support.command import EFFECTS, OFF, call, end, plain, servers, wait_for_end, write_cards
from tests.support.processes import give

pytestmark = pytest.mark.requirement("E5")
both = pytest.mark.parametrize(("way", "era"), WAYS)
TASK = {"task": "x"}
REPLIES = ({"text": "first"}, {"agent": "more", "text": "another"})


class Ears:
    """A client that hears of changes in the way of its era, and of each one once."""

    def __init__(self, house: House, way: str, era: str) -> None:
        self._house, self._way, self._era = house, way, era
        self._send, self._heard = anyio.create_memory_object_stream[None](100)

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Client]:
        async with (
            self._send,
            self._heard,
            served(self._house, self._way, self._era, message_handler=self._message) as client,
            anyio.create_task_group() as group,
        ):
            if self._era == "2026-07-28":
                await group.start(self._listen, client)
            yield client
            group.cancel_scope.cancel()

    async def heard(self, client: Client, expected: list[str]) -> None:
        """Until it is told of a change after which the list is this one."""
        await self._heard.receive()
        while await names(client) != expected:
            await self._heard.receive()

    async def first(self, change: Callable[[int], None]) -> None:
        """Makes a change, and another one where nothing is heard: a session's stream may not have been open yet."""
        for number in itertools.count(1):
            change(number)
            with anyio.move_on_after(5):
                await self._heard.receive()
                self._send.send_nowait(None)
                return

    async def _message(self, message: Any) -> None:
        if self._era == "2025-11-25" and isinstance(message, ToolListChangedNotification):
            self._send.send_nowait(None)

    async def _listen(self, client: Client, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with client.listen(tools_list_changed=True) as changes:
            task_status.started()
            async for _ in changes:
                self._send.send_nowait(None)


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools if tool.name in ("lone", "more", "reader")]


def card(folder: Path, name: str, front: str) -> None:
    """A card as an editor saves it: whole at once."""
    write_cards(folder / "new", **{name: front})
    (folder / "cards").mkdir(exist_ok=True)
    (folder / "new" / "cards" / f"{name}.md").replace(folder / "cards" / f"{name}.md")


@both
def test_agents_come_and_go_with_their_cards(tmp_path: Path, way: str, era: str) -> None:
    """Who listens is told. A wrong card is told of on stderr, and serves as it was."""
    house = House.build(tmp_path, {"lone": "tools: []"}, *REPLIES, every=True)
    servers(tmp_path / ".mcp.json", **OFF, fx=plain(EFFECTS, tmp_path / "ledger"))
    ears = Ears(house, way, era)

    async def main() -> None:
        async with ears.listening() as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            assert await names(client) == ["lone"]
            await ears.first(lambda number: card(tmp_path, "more", f"tools: []\nlimits: {{steps: {number}}}"))
            await ears.heard(client, ["lone", "more"])
            assert text(await client.call_tool("more", TASK)) == "another"
            card(tmp_path, "more", "tols: []")
            card(tmp_path, "reader", "tools: [fx__look]")
            await ears.heard(client, ["lone", "more", "reader"])
            assert text(await client.call_tool("more", TASK)) == "another"
            (tmp_path / "cards" / "more.md").unlink()
            await ears.heard(client, ["lone", "reader"])

    anyio.run(main)
    if way == "http":
        said = "".join(house.lines)
        assert said.count("more.md:4: unknown key `tols`") == 1
        assert "going on with what was there before" in said


@pytest.mark.parametrize("era", ERAS)
def test_a_server_joins_for_who_just_asks(tmp_path: Path, era: str) -> None:
    """Nobody listens; a wrong file of servers changes nothing until it is right."""
    replies = ({"calls": [call("other__look", text="a")]}, {"text": "seen"})
    house = House.build(tmp_path, {"lone": 'tools: ["other__*"]'}, *replies, every=True)
    servers(tmp_path / ".mcp.json", **OFF)

    async def main() -> None:
        async with served(house, "http", era) as client:
            assert await names(client) == [], "its tools are of a server that is not there"
            (tmp_path / ".mcp.json").write_text("{")
            assert await names(client) == []
            servers(tmp_path / ".mcp.json", **OFF, other=plain(EFFECTS, tmp_path / "ledger"))
            while await names(client) != ["lone"]:
                pass  # the files are looked at four times a second at most
            assert text(await client.call_tool("lone", TASK)) == "seen"

    anyio.run(main)
    assert house.effects == ["look"]


@pytest.mark.parametrize("era", ERAS)
def test_what_runs_goes_on_with_what_it_has(tmp_path: Path, era: str) -> None:
    """Its card and its server are gone meanwhile; when it has ended, so is the server's process."""
    replies = ({"calls": [call("fx__hang", text="a")]}, {"text": "at last"}, {"agent": "more", "text": "another"})
    house = House.build(tmp_path, {"lone": "tools: [fx__hang]"}, *replies, every=True)
    pids = tmp_path / "pids"
    pids.touch()
    entry = plain(EFFECTS, tmp_path / "ledger")
    entry = {"command": "sh", "args": ["-c", f'echo $$ >> {pids}; exec "$@"', "sh", entry["command"], *entry["args"]]}
    servers(tmp_path / ".mcp.json", **OFF, fx=entry)
    pipe = bell(tmp_path)
    os.mkfifo(tmp_path / "ledger.gate")
    ears, replied = Ears(house, "http", era), list[str]()

    async def main() -> None:
        async with ears.listening() as client:
            async with anyio.create_task_group() as group:

                async def ask() -> None:
                    replied.append(text(await client.call_tool("lone", TASK)))

                group.start_soon(ask)
                await rung(pipe)
                card(tmp_path, "more", "tools: []")
                (tmp_path / "cards" / "lone.md").unlink()
                servers(tmp_path / ".mcp.json", **OFF)
                while await names(client) != ["more"]:
                    pass
                assert text(await client.call_tool("more", TASK)) == "another"
                assert replied == []
                await anyio.to_thread.run_sync(give, tmp_path / "ledger.gate")
            (pid,) = {int(each) for each in pids.read_text().split()}
            assert await anyio.to_thread.run_sync(wait_for_end, pid)

    anyio.run(main)
    os.close(pipe)
    assert replied == ["at last"]
    assert house.effects == ["hang"]


def test_a_token_counts_for_as_long_as_it_stands_in_the_file(tmp_path: Path) -> None:
    """One that cannot be used changes nothing, and is told of."""
    process, address = open_site(tmp_path, tables())
    settings = tmp_path / "orchestrator.toml"

    def until(name: str, status: int) -> None:
        with caller(address, name) as http:
            while http.get("/api/runs").status_code != status:
                pass  # the files are looked at four times a second at most

    settings.write_text(settings.read_text().replace("[serve.tokens.bob]", "[serve.tokens.eve]\nrole = 'chief'"))
    assert process.stderr is not None
    while not select.select([process.stderr], [], [], 0.05)[0]:
        until("bob", 200)
    settings.write_text(settings.read_text().replace("role = 'chief'", ""))
    with caller(address, "bob") as eve:
        while eve.get("/api/runs").json()["runs"] != []:
            pass
    settings.write_text("\n".join(settings.read_text().splitlines()[:2]))
    until("bob", 401)
    until("ann", 200)
    process.terminate()
    ended = end(process)
    assert ended.code == 0
    assert "there is no role 'chief'" in ended.err
