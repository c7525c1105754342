"""Long results: what a model is shown of them, and how it gets at the rest."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, Tool, ToolAnnotations

from orchestrator.config.settings import MemorySettings, ToolSettings
from orchestrator.events import Limits
from orchestrator.messages import ToolMessage
from orchestrator.models.base import ModelRequest
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.command import AWKWARD
from tests.support.runs import card

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def server(**results: Any) -> Server[Any]:
    """A server of this process with one tool that only reads for each result."""
    tools = [
        Tool(name=name, input_schema={"type": "object"}, annotations=ToolAnnotations(read_only_hint=True))
        for name in results
    ]

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        return CallToolResult.model_validate(results[params.name])

    return Server("big", on_list_tools=list_tools, on_call_tool=call_tool)


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def stage_of(folder: Path, script: Any, **results: Any) -> Stage:
    return Stage(folder, script, card("boss", tools=("big__*",)), servers={"big": server(**results)})


def observations(stage: Stage) -> list[str]:
    return [message.text for message in stage.requests[-1].messages if isinstance(message, ToolMessage)]


def awkward(folder: Path, script: Any, **settings: Any) -> Stage:
    """A server over stdio, in the place of the effects server."""
    command = {"command": sys.executable, "args": ("-S", "-E", str(AWKWARD))}
    return Stage(folder, script, card("boss", tools=("fx__*",)), fx=command, **settings)


def pages(request: ModelRequest) -> Any:
    """Reads the result of the first turn page by page, to its end."""
    if request.turn == 1:
        return call("fx__big", {"bytes": 4_000_000})
    last = request.messages[-1]
    assert isinstance(last, ToolMessage)
    if request.turn > 2 and (more := re.search(r"offset=(\d+)\]", last.text.partition("\n")[0])) is None:
        return "read"
    return call("retrieve_result", {"id": "t1.1", "offset": 1 if request.turn == 2 else int(more[1])})


@pytest.mark.requirement("C8")
def test_s9_four_megabytes_make_a_small_request_and_are_read_again_to_the_byte(tmp_path: Path) -> None:
    stage = awkward(
        tmp_path, pages, tools=ToolSettings(result_tokens=100_000), memory=MemorySettings(window_tokens=10**7)
    )
    result = stage.run(limits=Limits(steps=40, tokens=10**9))
    assert result.answer == "read"
    seen = observations(stage)
    assert len(stage.requests[1].body) < 400_000
    assert "".join(page.partition("\n")[2] for page in seen[1:]) == "x" * 4_000_000


@pytest.mark.requirement("C8")
def test_s9_what_is_shown_is_below_the_cap(tmp_path: Path) -> None:
    stage = awkward(tmp_path, {("boss", 1): call("fx__big", {"bytes": 4_000_000}), ("boss", 2): "done"})
    stage.run()
    assert len(stage.requests[1].body) < 8000 * 3.5 + 3000
    assert observations(stage)[0].startswith(
        '[Long result, cut: 1 line, 4,000,000 characters. All of it is kept as "t1.1"'
    )


@pytest.mark.requirement("C8")
def test_s7_an_error_keeps_its_body_over_stdio(tmp_path: Path) -> None:
    stage = awkward(tmp_path, {("boss", 1): call("fx__broken"), ("boss", 2): "done"})
    action = stage.run().steps[0].actions[0]
    assert action.is_error
    assert action.observation.startswith("Error from fx__broken: ")
    assert '"code": 17' in action.observation


@pytest.mark.requirement("C8")
def test_parts_are_found_by_rows_path_and_search(tmp_path: Path) -> None:
    body = {"total": 3000, "rows": [{"id": n, "name": f"name {n}" + "é" * 9} for n in range(3000)]}
    table = "id,name\n" + "".join(f"{n},name {n}\n" for n in range(30_000))
    asked = [
        {"id": "t1.1", "rows": "2999-3000"},
        {"id": "t1.1", "path": "$.rows[7].name"},
        {"id": "t1.1", "path": "$.total"},
        {"id": "t1.2", "rows": "2"},
        {"id": "t1.2", "grep": "^2999,"},
    ]
    script = {
        ("boss", 1): [call("big__body"), call("big__table")],
        ("boss", 2): [call("retrieve_result", each) for each in asked],
        ("boss", 3): "done",
    }
    stage = stage_of(tmp_path, script, body={"content": [], "structuredContent": body}, table=said(table))
    stage.run()
    first, second, *found = observations(stage)
    assert first.startswith("[Long result, cut: JSON, an object with total, rows (3,000 items); ")
    shown = json.loads(first.partition("\n")[2])
    assert shown["rows"][0] == body["rows"][0], "what is shown is JSON still"
    assert shown["rows"][-1] == body["rows"][-1]
    assert second.startswith("[Long result, cut: a table of 30,000 rows with id, name; ")
    assert second.endswith("\n29999,name 29999\n")
    assert [each.partition("\n")[2] for each in found] == [
        "\n".join(json.dumps(row, ensure_ascii=False) for row in body["rows"][2998:]),
        body["rows"][7]["name"],
        "3000",
        "id,name\n1,name 1",
        "3001: 2999,name 2999",
    ]


@pytest.mark.requirement("C8")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"id": "t9.9"}, "Kept here: t1.1"),
        ({"id": "t1.1", "offset": 99_999}, "has 20,000 lines"),
        ({"id": "t1.1", "grep": "(a+"}, "(?i)error|fail"),
        ({"id": "t1.1", "grep": "a(?=b)"}, "no look-around"),
        ({"id": "t1.1", "path": "$.rows"}, "path is for JSON"),
        ({"id": "t1.1", "rows": "5"}, "this is plain text"),
    ],
)
def test_a_wrong_id_or_expression_is_told_with_a_right_one(
    tmp_path: Path, arguments: dict[str, Any], told: str
) -> None:
    script = {("boss", 1): call("big__log"), ("boss", 2): call("retrieve_result", arguments), ("boss", 3): "done"}
    stage = stage_of(tmp_path, script, log=said("a line of a log\n" * 20_000))
    action = stage.run().steps[1].actions[0]
    assert action.is_error
    assert told in action.observation


def test_a_hostile_expression_takes_no_more_time_than_another(tmp_path: Path) -> None:
    """By an engine that backtracks, it would take longer than the test may."""
    script = {
        ("boss", 1): call("big__log"),
        ("boss", 2): call("retrieve_result", {"id": "t1.1", "grep": "^(a+)+$"}),
        ("boss", 3): "done",
    }
    stage = stage_of(tmp_path, script, log=said(f"{'a' * 900}!\n" * 40))
    stage.run()
    assert observations(stage)[1] == "[t1.1: 0 of 40 lines match]"


@pytest.mark.requirement("C8", "H1")
def test_what_was_kept_is_there_after_a_resume_and_no_other_run_sees_it(tmp_path: Path) -> None:
    log = "".join(f"line {n}\n" for n in range(20_000))
    script = {
        ("boss", 1): call("agents__worker", {"task": "look"}),
        ("boss", 2): call("big__log"),
        ("boss", 3): call("big__ask"),
        ("boss", 4): [
            call("retrieve_result", {"id": f"{path}t{n}.1", "grep": "line 777$"}) for path, n in (("", 2), ("t1.1/", 1))
        ],
        ("boss", 5): "done",
        ("worker", 1): call("big__log"),
        ("worker", 2): call("retrieve_result", {"id": "t1.1/t1.1", "offset": 20_000}),
        ("worker", 3): lambda request: request.messages[-1].text,
    }
    team = (
        card("boss", tools=("big__*",), agents=("worker",), approve=("big__ask",)),
        card("worker", tools=("big__log",)),
    )
    stage = Stage(tmp_path, script, *team, servers={"big": server(log=said(log), ask=said("asked"))})
    parked = stage.run()
    assert parked.status == "parked"
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert "line 19999" in result.steps[0].actions[0].observation, "a child reads its own by its full id"
    own, childs = result.steps[3].actions
    assert own.observation.endswith("\n778: line 777")
    assert childs.is_error
    assert "Kept here: t2.1" in childs.observation


class TestImages:
    SCRIPT = {("boss", 1): [call("big__draw"), call("big__ask")], ("boss", 2): "done"}  # noqa: RUF012

    def stage(self, folder: Path, *, vision: bool) -> Stage:
        drawn = {
            "content": [{"type": "text", "text": "drawn"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]
        }
        return Stage(
            folder,
            self.SCRIPT,
            card("boss", tools=("big__*",), approve=("big__ask",)),
            servers={"big": server(draw=drawn, ask=said("asked"))},
            vision=vision,
        )

    @pytest.mark.requirement("C8")
    @pytest.mark.parametrize("vision", [True, False])
    def test_an_image_is_a_reference_and_goes_to_models_that_see(self, tmp_path: Path, vision: bool) -> None:
        stage = self.stage(tmp_path, vision=vision)
        run_id = stage.run().run_id
        stage.decide(run_id)
        stage.resume(run_id)
        messages = stage.bodies("boss")[-1]["messages"]
        results = [message["content"] for message in messages if message["role"] == "tool"]
        assert results == ["drawn\n[image, image/png, 70 bytes, id t1.1#1]", "asked"]
        assert (PNG in json.dumps(messages)) is vision
        assert messages[-1]["role"] == ("user" if vision else "tool")
        if vision:
            text, image = messages[-1]["content"]
            assert text == {"type": "text", "text": "[The images of these results: t1.1#1]"}
            assert image == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
