"""What a model writes as arguments, what is sent, and what the model is shown of it afterwards."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import Limits
from orchestrator.testing import call
from tests.behaviour.stage import Stage, allow
from tests.support.runs import card


def shop() -> tuple[MCPServer, list[tuple[int, list[str], bool]]]:
    server, got = MCPServer("shop", log_level="ERROR"), []

    @server.tool()
    async def order(count: int, items: list[str], gift: bool = False) -> str:
        got.append((count, items, gift))
        return f"ordered {count}"

    return server, got


def ordering(folder: Path, *turns: Any) -> tuple[Stage, list[Any], Any]:
    server, got = shop()
    script = {("boss", number): turn for number, turn in enumerate(turns, 1)}
    stage = Stage(folder, {**script, "boss": "done"}, card("boss", tools=("shop__*",)), servers={"shop": server})
    return stage, got, stage.run()


BROKEN: Sequence[str] = (
    '{"count": 5, "items": ["a", "b"], "gift": true',
    "{'count': 5, 'items': ['a', 'b'], 'gift': True}",
    '```json\n{"count": 5, "items": ["a", "b"], "gift": true,}\n```',
    '"{\\"count\\": 5, \\"items\\": [\\"a\\", \\"b\\"], \\"gift\\": true}"',
)


@pytest.mark.requirement("B5", "C4")
@pytest.mark.parametrize("written", BROKEN)
def test_broken_json_is_mended_and_shown_mended(tmp_path: Path, written: str) -> None:
    stage, got, result = ordering(tmp_path, call("shop__order", written))
    assert result.answer == "done"
    assert got == [(5, ["a", "b"], True)]
    (shown,) = stage.bodies("boss")[-1]["messages"][-2]["tool_calls"]
    assert json.loads(shown["function"]["arguments"]) == {"count": 5, "items": ["a", "b"], "gift": True}
    assert result.steps[0].actions[0].arguments == {"count": 5, "items": ["a", "b"], "gift": True}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    "written",
    [
        {"count": "5", "items": "a, b", "gift": "true"},
        {"count": 5.0, "items": '["a", "b"]', "gift": "True"},
    ],
)
def test_arguments_are_coerced_before_they_are_sent(tmp_path: Path, written: dict[str, Any]) -> None:
    stage, got, result = ordering(tmp_path, call("shop__order", written))
    assert (result.answer, got) == ("done", [(5, ["a", "b"], True)])
    (event,) = stage.seen.of("tool_call")
    assert event.arguments == {"count": 5, "items": ["a", "b"], "gift": True}, "watchers see what was sent"


@pytest.mark.requirement("A5", "C4")
@pytest.mark.parametrize("written", ['{"items": ["a"]}', '{"count": "many", "items": []}', "no json at all", "[1, 2]"])
def test_wrong_arguments_come_back_with_an_example(tmp_path: Path, written: str) -> None:
    stage, got, result = ordering(
        tmp_path, call("shop__order", written), call("shop__order", {"count": 1, "items": []})
    )
    assert (result.answer, got) == ("done", [(1, [], False)])
    observation = result.steps[0].actions[0].observation
    assert "count" in observation
    example = json.loads(observation.partition("A correct example: ")[2].partition("\n")[0])
    assert isinstance(example["count"], int)
    assert isinstance(example["items"], list)
    (shown,) = stage.bodies("boss")[1]["messages"][-2]["tool_calls"]
    assert isinstance(json.loads(shown["function"]["arguments"]), dict), "history holds JSON objects only"


@pytest.mark.requirement("C4")
def test_half_a_character_reaches_nobody(tmp_path: Path) -> None:
    _, got, result = ordering(tmp_path, call("shop__order", '{"count": 1, "items": ["\\ud800"]}'))
    assert result.answer == "done"
    assert result.steps[0].actions[0].is_error or "\ud800" not in got[0][1][0]


def assert_valid(body: dict[str, Any]) -> None:
    """OpenAI's rules: every call is answered exactly once, at once, in order; ids are unique; contents are there."""
    messages = body["messages"]
    assert [message["role"] for message in messages[:2]] == ["system", "user"]
    names = {tool["function"]["name"] for tool in body.get("tools", [])}
    ids: list[str] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        assert message["role"] != "tool", "an answer to no call"
        asked = [each["id"] for each in message.get("tool_calls", [])]
        for each in message.get("tool_calls", []):
            assert each["type"] == "function"
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
        answers = messages[place : place + len(asked)]
        assert [answer.get("tool_call_id") for answer in answers] == asked
        assert all(answer["role"] == "tool" and isinstance(answer["content"], str) for answer in answers)
        ids += asked
        place += len(asked)
        assert asked or message["content"]
    assert len(ids) == len(set(ids))
    assert "tools" not in body or names


WILD: Sequence[Any] = (
    call("fx__look", {"text": "a"}),
    call("fx__look", "{'text': 'b'"),
    call("fx__look", "nonsense"),
    call("fx__look", {"txt": "a"}),
    call("fx__lok", {"text": "a"}),
    call("fx__fail", {"text": "a"}),
    call("fx__pay", {"text": "a"}),
    call("agents__kid", {"task": "go"}),
    call("agents__kid", {"tsk": "go"}),
    call("", "{}"),
    call("fx look!", "[]"),
)


@pytest.mark.requirement("A5", "B1")
@pytest.mark.parametrize("seed", range(12))
def test_every_request_is_valid_whatever_the_model_does(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def wild(request: Any) -> Any:
        if request.agent == "kid":
            return chance.choice(["kid is done", "", call("fx__fail", {"text": "k"}), call("fx__pay", {"text": "k"})])
        thought = chance.choice(["", "Hm.", "  "])
        return [thought, *chance.choices(WILD, k=chance.randrange(5))] if request.turn < 8 else "done"

    team = (card("boss", tools=("fx__*",), agents=("kid",)), card("kid", tools=("fx__*",)))
    stage = Stage(tmp_path, wild, *team, policy=allow() if seed % 2 else allow("*"))
    result = stage.run(limits=Limits(steps=8), approve="ask" if seed % 3 else "none")
    while result.status == "parked":
        for request in result.approvals:
            stage.decide(result.run_id, request.call, approved=chance.random() < 0.5)
        result = stage.resume(result.run_id)
    assert result.status in ("finished", "stopped")
    for request in stage.requests:
        assert_valid(json.loads(request.body))
    for step in result.steps:
        assert all(action.observation for action in step.actions), "every call has its answer"
