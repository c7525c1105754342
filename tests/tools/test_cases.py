"""Cases of servers in trouble, each named after its number; S4 is in test_toolset, S5 in cli/test_tool_names, S6 in
test_shown."""

import logging
import os
import threading
from pathlib import Path

import anyio
import pytest

from orchestrator.tools.process import Process
from orchestrator.tools.servers import Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import stdio_server
from tests.support.command import group_ended
from tests.support.toolsets import awkward, awkward_server, call, sums, web, web_server, with_toolset
from tests.tools.test_servers import Failing


@pytest.mark.requirement("A5")
def test_s1_a_server_that_answers_500_once_works_again_afterwards() -> None:
    async def test(toolset: Toolset) -> None:
        first = await call(toolset, "web__add", {"a": 1, "b": 1})
        second = await call(toolset, "web__add", {"a": 1, "b": 2})
        third = await call(toolset, "web__add", {"a": 1, "b": 3})
        assert (first.text, third.text) == ("2", "4")
        assert second.error is not None
        assert second.text.startswith("Error from web__add:")

    with web(Failing(sums().streamable_http_app(), 2, 500, b"oops")) as url:
        with_toolset(test, web_server(f"{url}/mcp"))


def test_s2_a_run_goes_on_with_the_servers_that_are_there() -> None:
    async def test(toolset: Toolset) -> None:
        assert toolset.servers["web"].down
        assert "connect" in toolset.servers["web"].problem.lower()
        for name in ("one", "two"):
            assert (await call(toolset, f"{name}__echo", {"text": name})).text == name

    nowhere = web_server("http://127.0.0.1:9/mcp")
    with_toolset(test, nowhere, awkward_server(name="one"), awkward_server(name="two"))


def test_s3_calls_at_once_on_one_connection_from_different_tasks() -> None:
    """Whoever opened the connection, and whoever closes it, a call may come from any task."""
    answers: dict[str, str] = {}

    async def caller(toolset: Toolset, text: str) -> None:
        await toolset.ready(["one"])
        answers[text] = (await call(toolset, "one__echo", {"text": text})).text

    async def main() -> None:
        with anyio.fail_after(60):
            async with Toolset([awkward_server(name="one")]).running() as toolset, anyio.create_task_group() as group:
                group.start_soon(caller, toolset, "a")
                group.start_soon(caller, toolset, "b")

    anyio.run(main)
    assert answers == {"a": "a", "b": "b"}


def test_s8_twenty_runs_some_of_them_cancelled_leave_no_process() -> None:
    groups: list[int] = []

    def started() -> Process:
        process = awkward("--child")()
        groups.append(process.popen.pid)
        return process

    async def run(number: int) -> None:
        server = stdio_server("s", started, start_timeout=60, terms=Terms())
        with anyio.CancelScope() as scope:
            async with Toolset([server]).running() as toolset:
                await toolset.ready(["s"])
                if number % 4 == 0:
                    scope.cancel()
                await call(toolset, "s__echo")

    async def main() -> None:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(run, number)

    anyio.run(main)
    assert len(groups) == 20
    assert all(map(group_ended, groups))


def test_s11_what_is_no_message_on_standard_output_is_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(toolset: Toolset) -> None:
        for text in ("a", "b"):
            assert (await call(toolset, "awkward__echo", {"text": text})).text == text

    with caplog.at_level(logging.WARNING):
        with_toolset(test, awkward_server("--banner"))
    assert [record.getMessage() for record in caplog.records] == [
        "server awkward writes to its standard output what is not JSON-RPC: *** Awkward server 1.0 ***"
    ]


def test_s12_others_are_usable_while_a_server_takes_its_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one comes up when the pipe is opened, which the test does after the others have answered."""
    monkeypatch.setattr("orchestrator.tools.toolset.TELL_AFTER", 0)
    os.mkfifo(tmp_path / "pipe")

    async def main() -> None:
        slow = awkward_server("--when", tmp_path / "pipe", name="slow", start_timeout=60)
        toolset = Toolset([slow, awkward_server(name="quick")], patience=0)
        with anyio.fail_after(60):
            async with toolset.running():
                await toolset.ready(["quick"])
                await toolset.ready(["slow", "quick"])
                assert (await call(toolset, "quick__echo", {"text": "hi"})).text == "hi"
                assert toolset.get("slow__echo") is None
                version = toolset.version
                threading.Thread(target=lambda: open(tmp_path / "pipe", "w").close()).start()
                while toolset.version == version:
                    await anyio.lowlevel.checkpoint()
                assert (await call(toolset, "slow__echo", {"text": "late"})).text == "late"
                assert toolset.offers()[0].server.name == "slow", "the order is that of the configuration"

    with caplog.at_level(logging.WARNING):
        anyio.run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for server `quick` to start",
        "waiting for server `slow` to start",
        "going on without server `slow`; its tools join when it has started",
    ]
