"""Agents as tools of other programs (E3), as a client of the SDK sees them: both eras, over stdio and HTTP."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.serving.served import ERAS, WAYS, House, bell, rung, served, text
from tests.support.command import call

pytestmark = pytest.mark.requirement("E3")
both = pytest.mark.parametrize(("way", "era"), WAYS)

BOSS = "tools: []\nagents: [hand]"
HAND = "tools: [fx__look]"
LOOK = (
    {"agent": "boss", "calls": [call("agents__hand", task="look at a")]},
    {"agent": "hand", "calls": [call("fx__look", text="a")]},
    {"agent": "hand", "text": "a is there"},
    {"agent": "boss", "text": "all done"},
)


@both
def test_an_agent_is_a_tool_that_tells_how_it_goes_and_what_it_spent(tmp_path: Path, way: str, era: str) -> None:
    house = House.build(tmp_path, {"boss": BOSS, "hand": HAND}, *LOOK)
    told: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message))

    async def main() -> Any:
        async with served(house, way, era) as client:
            assert client.protocol_version == era
            assert client.server_capabilities.experimental == {"orchestrator": {"version": 1}}
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            return tools, await client.call_tool("boss", {"task": "the job"}, progress_callback=progress)

    tools, result = anyio.run(main)
    assert list(tools) == ["boss", "hand", "run_result"]
    assert (tools["boss"].description, tools["boss"].input_schema["required"]) == ("The boss.", ["task"])
    assert tools["boss"].annotations.read_only_hint is True  # through `hand`, whose only tool reads
    assert (text(result), result.is_error) == ("all done", False)
    spent = result.meta["orchestrator/spent"]
    assert (spent["status"], spent["usage"]["model_calls"], spent["usage"]["tool_calls"]) == ("finished", 4, 2)
    words = [message or "" for _, message in told]
    assert any(word.startswith("hand · step 1 · fx__look · ") and word.endswith(" tokens") for word in words)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_promises_are_those_of_all_tools_below(tmp_path: Path) -> None:
    """The worst of them counts, also that of an agent which it only may call."""
    agents = {"boss": "tools: [fx__look]\nagents: [hand]", "hand": "tools: [fx__pay]", "mild": "tools: [fx__draw]"}
    house = House.build(tmp_path, agents)

    async def main() -> Any:
        async with served(house, "stdio", "2026-07-28") as client:
            return {tool.name: tool.annotations for tool in (await client.list_tools()).tools}

    found = anyio.run(main)
    hints = {name: (each.read_only_hint, each.destructive_hint) for name, each in found.items()}
    assert hints["boss"] == (False, True)
    assert hints["mild"] == (False, False)


SUM = """tools: []
input: {type: object, properties: {path: {type: string}}, required: [path]}
output: {type: object, properties: {total: {type: integer}}, required: [total]}"""


@both
def test_the_cards_schemas_hold(tmp_path: Path, way: str, era: str) -> None:
    house = House.build(tmp_path, {"sum": SUM}, {"agent": "sum", "text": '{"total": 7}'})

    async def main() -> Any:
        async with served(house, way, era) as client:
            (tool, _) = (await client.list_tools()).tools
            wrong = await client.call_tool("sum", {"file": "a"})
            return tool, wrong, await client.call_tool("sum", {"path": "a.csv"})

    tool, wrong, result = anyio.run(main)
    assert tool.output_schema["required"] == ["total"]
    assert wrong.is_error
    assert "path is required but missing" in text(wrong)
    assert 'A correct example: {"path": "text"}' in text(wrong)
    assert (result.structured_content, json.loads(text(result))) == ({"total": 7}, {"total": 7})


def test_a_wrong_card_is_said_and_left_out(tmp_path: Path) -> None:
    house = House.build(tmp_path, {"good": "tools: []"}, {"agent": "good", "text": "yes"})
    (tmp_path / "cards" / "bad.md").write_text("---\nname: bad\ndescription: Bad.\nlimits: {steps: none}\n---\nBad.\n")
    (tmp_path / "cards" / "typo.md").write_text("---\nname: typo\ndescription: T.\ntools: [fx__lok]\n---\nT.\n")
    house.every = True

    async def main() -> Any:
        async with served(house, "http", "2026-07-28") as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    names = anyio.run(main)
    assert "good" in names
    assert not {"bad", "typo"} & set(names)
    said = "".join(house.lines)
    assert "bad.md:4: `limits.steps` must be" in said
    assert "Did you mean `fx__look`?" in said


@both
def test_a_caller_that_leaves_ends_the_deepest_call(tmp_path: Path, way: str, era: str) -> None:
    """The tool's server is told at once, its process is there for the next call, and the journal says cancelled."""
    replies = (
        {"agent": "boss", "calls": [call("agents__hand", task="hang")]},
        {"agent": "hand", "calls": [call("fx__hang", text="a")]},
    )
    house = House.build(tmp_path, {"boss": BOSS, "hand": "tools: [fx__hang]"}, *replies)
    pipe = bell(tmp_path)

    async def main() -> None:
        async with served(house, way, era) as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def leave() -> None:
                        await rung(pipe)
                        scope.cancel()

                    group.start_soon(leave)
                    await client.call_tool("boss", {"task": "the job"})

    anyio.run(main)
    os.close(pipe)
    assert house.effects == ["hang", "cancelled"]
    assert house.statuses == ["cancelled"]  # and not parked, as what runs when the server stops


@pytest.mark.parametrize("era", ERAS)
def test_many_calls_at_once_are_all_answered_each_by_its_own_run(tmp_path: Path, era: str) -> None:
    steps = [{"calls": [call("fx__look", text=str(step))]} for step in range(5)]
    house = House.build(tmp_path, {"lone": "tools: [fx__look]"}, *steps, {"text": "done"})
    results: list[Any] = []

    async def main() -> None:
        async with served(house, "http", era) as client, anyio.create_task_group() as group:

            async def ask() -> None:
                results.append(await client.call_tool("lone", {"task": "x"}))

            for _ in range(20):
                group.start_soon(ask)

    anyio.run(main)
    assert [text(result) for result in results] == ["done"] * 20
    assert len({result.meta["orchestrator/spent"]["run"] for result in results}) == 20
    assert len(house.effects) == 100
    assert house.statuses == ["finished"] * 20
