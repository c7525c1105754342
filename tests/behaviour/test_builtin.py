"""The built-in tools, as agents see and call them."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import PolicySettings, RoleSettings
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.runs import card


def offered(stage: Stage, agent: str) -> list[str]:
    return [tool["function"]["name"] for tool in stage.bodies(agent)[0]["tools"]]


def test_an_agent_with_tools_gets_the_built_in_ones_beside_its_globs(tmp_path: Path) -> None:
    script = {
        ("boss", 1): call("agents__worker", {"task": "look"}),
        ("boss", 2): "done",
        ("worker", 1): call("fx__look", {"text": "a"}),
        ("worker", 2): "seen",
    }
    stage = Stage(tmp_path, script, card("boss", agents=("worker",)), card("worker", tools=("fx__look",)))
    assert stage.run().status == "finished"
    assert offered(stage, "worker") == ["retrieve_result", "fx__look"]
    assert offered(stage, "boss") == ["agents__worker", "plan"]


@pytest.mark.parametrize("name", ["retrieve_result", "builtin__retrieve_result"])
@pytest.mark.parametrize("settings", [{"policy": PolicySettings(deny=("*",))}, {"policy": PolicySettings(ask=("*",))}])
def test_neither_policy_nor_role_takes_away_what_the_run_has_already(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    script = {("boss", 1): call(name, {"id": "t9.9"}), ("boss", 2): "done"}
    stage = Stage(tmp_path, script, card("boss", tools=("fx__*",)), roles={"none": RoleSettings(tools=())}, **settings)
    result = stage.run(role="none")
    assert result.status == "finished"
    assert "t9.9" in result.steps[0].actions[0].observation
    assert "Denied" not in result.steps[0].actions[0].observation
