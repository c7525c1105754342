"""A stdio server's process and pipes: long lines, much noise, and an end that leaves nothing behind."""

from pathlib import Path

import anyio
import pytest

from orchestrator.tools import transports
from orchestrator.tools.orphans import Watcher
from orchestrator.tools.process import GRACE_SECONDS, TAIL, Process, spawn
from orchestrator.tools.servers import Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import stdio_server
from tests.support.command import alive, group_ended
from tests.support.toolsets import awkward, awkward_server, call, with_toolset

MEGABYTE = 1_000_000


def test_a_line_of_20_mb_arrives_whole() -> None:
    async def test(toolset: Toolset) -> None:
        reply = await call(toolset, "awkward__big", {"bytes": 20 * MEGABYTE})
        assert (len(reply.text), set(reply.text)) == (20 * MEGABYTE, {"x"})

    with_toolset(test, awkward_server())


def test_other_calls_go_on_while_a_long_line_comes() -> None:
    async def test(toolset: Toolset) -> None:
        done: list[str] = []

        async def one(server: str, tool: str, **arguments: object) -> None:
            await call(toolset, f"{server}__{tool}", arguments)
            done.append(server)

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: one("slow", "big", bytes=20 * MEGABYTE))
            group.start_soon(lambda: one("quick", "echo"))
        assert done == ["quick", "slow"]

    with_toolset(test, awkward_server(name="slow"), awkward_server(name="quick"))


def test_many_calls_at_once_get_their_own_answers() -> None:
    async def test(toolset: Toolset) -> None:
        texts: dict[int, str] = {}

        async def one(number: int) -> None:
            texts[number] = (await call(toolset, "awkward__echo", {"text": f"{number} " * 3000})).text

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
        assert texts == {number: f"{number} " * 3000 for number in range(40)}

    with_toolset(test, awkward_server())


def test_a_server_that_honours_the_end_of_its_input_ends_at_once() -> None:
    async def main() -> int:
        process = awkward()()
        assert alive(process.popen.pid)
        with anyio.fail_after(GRACE_SECONDS):
            await process.close()
        await process.close()
        assert group_ended(process.popen.pid)
        return process.popen.returncode

    assert anyio.run(main) == 0


def test_what_a_server_started_ends_with_it() -> None:
    """As `npx` and `uvx` do: the process that we started is not the one that serves."""

    async def main() -> None:
        process = awkward("--child")()
        await process.close()
        assert group_ended(process.popen.pid)

    anyio.run(main)


def test_a_deaf_server_is_killed_with_its_whole_group(tmp_path: Path) -> None:
    async def main() -> int:
        process = awkward("--deaf", "--pid", tmp_path / "pid")()
        assert process.popen.stdout is not None
        await anyio.to_thread.run_sync(process.popen.stdout.read, 0)
        with anyio.fail_after(3 * GRACE_SECONDS):
            await process.close()
        assert group_ended(process.popen.pid)
        return process.popen.returncode

    assert anyio.run(main) in (-9, -15)


def test_the_environment_is_not_handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server gets what its configuration names; keys of ours are not in it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    process = spawn("env", ["/usr/bin/env"], {"MINE": "1"}, tmp_path)
    assert process.popen.stdout is not None
    lines = process.popen.stdout.read().decode().splitlines()
    anyio.run(process.close)
    assert "MINE=1" in lines
    assert "LANG=C.UTF-8" in lines
    assert not [line for line in lines if "secret" in line]


def test_a_line_that_does_not_end_costs_the_connection_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pipes = transports.pipes
    monkeypatch.setattr(transports, "pipes", lambda child, lost: pipes(child, lost, longest=MEGABYTE))

    async def test(toolset: Toolset) -> None:
        assert len((await call(toolset, "awkward__big", {"bytes": MEGABYTE // 2})).text) > 100
        reply = await call(toolset, "awkward__flood", {"bytes": 2 * MEGABYTE})
        assert reply.error == "unavailable"
        assert "it wrote a line of more than 1,000,000 bytes to its standard output" in reply.text
        assert (await call(toolset, "awkward__echo", {"text": "hi"})).text == "hi"

    with_toolset(test, awkward_server())


def test_of_what_a_server_writes_to_standard_error_the_end_is_kept_and_nothing_is_held_up() -> None:
    """Two megabytes before its first answer, which a pipe that nobody reads would not take."""
    processes: list[Process] = []

    def start() -> Process:
        processes.append(awkward("--scream")())
        return processes[-1]

    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "awkward__echo", {"text": "hi"})).text == "hi"
        (process,) = processes
        assert process.last_words(1).startswith("line 19999 x")
        assert process.kept == TAIL

    with_toolset(test, stdio_server("awkward", start, start_timeout=20, terms=Terms()))


def test_all_servers_end_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits, on its way out, until the other is on its way as well."""
    leaving: list[str] = []
    close = Process.close

    async def together(self: Process) -> None:
        leaving.append(self.name)
        while len(leaving) < 3:
            await anyio.lowlevel.checkpoint()
        await close(self)

    monkeypatch.setattr(Process, "close", together)

    async def test(toolset: Toolset) -> None:
        assert all(server.up for server in toolset.servers.values())

    with_toolset(test, *(awkward_server(name=name) for name in ("a", "b", "c")))
    assert len(leaving) == 3


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_the_watcher_ends_the_groups_that_are_left_and_no_other() -> None:
    async def main() -> None:
        watcher = Watcher()
        left, released, other = (awkward("--deaf", "--child")() for _ in range(3))
        for process in (left, released):
            watcher.watch(process.popen.pid)
        watcher.release(released.popen.pid)
        await watcher.close()
        assert group_ended(left.popen.pid)
        assert alive(released.popen.pid)
        assert alive(other.popen.pid)
        for process in (left, released, other):
            await process.close()

    anyio.run(main)
