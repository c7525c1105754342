"""More tools than a model should be shown: groups first, then those that it asks for."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import ServerSettings, ToolSettings
from orchestrator.models.base import ModelRequest
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support import many
from tests.support.command import AWKWARD
from tests.support.runs import card

pytestmark = pytest.mark.requirement("C5")

FIND = "find_tools"
ONE, TWO = "billing__delete_billing_invoice", "crm__fetch_crm_customer"


def server(folder: Path, name: str, *tools: Any) -> ServerSettings:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(tools))
    command = ("-S", "-E", str(AWKWARD), "--title", f'The "{name}" system', "--tools", str(file))
    return ServerSettings(name=name, command=sys.executable, args=command)


def stage(folder: Path, script: Any, *team: Any, names: tuple[str, ...] = ("billing", "crm"), **settings: Any) -> Stage:
    """Sixty tools, unless `names` says otherwise."""
    servers = {name: server(folder, name, *many.tools(name)) for name in names}
    team = team or (card("boss", tools=("*",)),)
    return Stage(folder, script, *team, configured=servers, **settings)


def names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def encoded(request: ModelRequest) -> str:
    """The tool list as it went over the wire, without its closing bracket."""
    return request.body.decode().partition('"tools":')[2].partition('],"stream"')[0]


def test_up_to_the_limit_every_tool_is_listed(tmp_path: Path) -> None:
    on_stage = stage(tmp_path, {"boss": "done"}, names=("billing",))
    on_stage.run()
    (body,) = on_stage.bodies("boss")
    assert FIND not in names(body)
    assert sum(name.startswith("billing__") for name in names(body)) == many.EACH == 30


def test_above_it_groups_are_shown_and_what_is_chosen_joins_at_the_end_and_stays(tmp_path: Path) -> None:
    script = {
        ("boss", 1): call(FIND, {"query": "delete an invoice", "limit": 1}),
        ("boss", 2): call(ONE, {"id": "7"}),
        ("boss", 3): call("builtin__find_tools", {"query": "get customer", "group": "crm", "limit": 1}),
        ("boss", 4): call(TWO, {"id": "8"}),
        ("boss", 5): "done",
    }
    on_stage = stage(tmp_path, script)
    result = on_stage.run()
    first, *later = on_stage.bodies("boss")
    always = names(first)
    assert FIND in always
    assert not any("__" in name for name in always)
    (found,) = (tool["function"]["description"] for tool in first["tools"] if tool["function"]["name"] == FIND)
    assert '- billing (30 tools) says of itself: "The "billing" system"; create_billing_invoice' in found
    assert found.count("\n- ") == 2
    assert [names(body) for body in later] == [
        [*always, ONE],
        [*always, ONE],
        [*always, ONE, TWO],
        [*always, ONE, TWO],
    ]
    for before, after in zip(on_stage.requests, on_stage.requests[1:], strict=False):
        assert encoded(after).startswith(encoded(before)), "what was there before keeps its place in the prompt"
    assert [step.actions[0].observation for step in result.steps[1:4:2]] == [
        "delete_billing_invoice",
        "fetch_crm_customer",
    ]
    assert f"- {ONE}(id, fields?): Delete one invoice in billing" in result.steps[0].actions[0].observation
    assert not any(action.is_error for step in result.steps for action in step.actions)


def test_a_call_of_a_tool_that_is_not_listed_yet_is_understood(tmp_path: Path) -> None:
    script = {
        ("boss", 1): [call(ONE, {"id": "7"}), call(TWO, {"name": "missing id"}), call("crm__nothing_like_it", {})],
        ("boss", 2): "done",
    }
    on_stage = stage(tmp_path, script)
    good, bad, unknown = on_stage.run().steps[0].actions
    assert (good.is_error, good.observation) == (False, "delete_billing_invoice")
    assert bad.is_error
    assert "id is required" in bad.observation
    assert "there is no tool" in unknown.observation.lower()
    first, second = map(names, on_stage.bodies("boss"))
    assert second == [*first, ONE, TWO]


@pytest.mark.parametrize(
    ("arguments", "chosen", "said"),
    [
        ({"query": f"{TWO}, {ONE}"}, {ONE, TWO}, "2 tools join"),
        ({"query": "delete_billing_invoice"}, {ONE}, "1 tools join"),
        ({"group": "crm", "limit": 3}, 3, "Fitting less well, to be had by their names: crm__"),
        ({"query": "crm", "limit": 20}, 20, "crm__"),
        ({"query": "quantum physics"}, 0, "No tool fits 'quantum physics'. Try other words, or look through a group:"),
        ({"query": "x", "group": "nope"}, 0, "there is no group 'nope'. The groups are:\n- billing (30 tools)"),
        ({}, 0, "say what the tool should do in `query`"),
    ],
)
def test_wishes(tmp_path: Path, arguments: dict[str, Any], chosen: Any, said: str) -> None:
    on_stage = stage(tmp_path, {("boss", 1): call(FIND, arguments), ("boss", 2): "done"})
    result = on_stage.run()
    assert said in result.steps[0].actions[0].observation
    first, second = map(names, on_stage.bodies("boss"))
    joined = second[len(first) :]
    assert len(joined) == chosen if isinstance(chosen, int) else set(joined) == chosen


def test_only_what_a_card_reaches_is_counted_and_found(tmp_path: Path) -> None:
    script = {("boss", 1): call(FIND, {"query": "delete invoice", "limit": 20}), ("boss", 2): "done", "few": "done"}
    boss = card("boss", tools=("billing__*", "crm__*_invoice"), agents=("few",))
    on_stage = stage(tmp_path, script, boss, card("few", tools=("crm__*_customer",)))
    on_stage.run()
    first, second = on_stage.bodies("boss")
    assert "agents__few" in names(first), "agents are shown as always"
    assert set(names(second)) - set(names(first)) <= {
        *(f"billing__{tool['name']}" for tool in many.tools("billing")),
        *(f"crm__{verb}_crm_invoice" for verb in many.VERBS),
    }
    few = stage(tmp_path, {"few": "done"}, card("few", tools=("crm__*_customer",)))
    few.run()
    (body,) = few.bodies("few")
    assert FIND not in names(body)
    assert len([name for name in names(body) if name.startswith("crm__")]) == len(many.VERBS)


def test_the_limit_is_a_setting_and_can_be_lifted(tmp_path: Path) -> None:
    on_stage = stage(tmp_path, {"boss": "done"}, tools=ToolSettings(groups_above=0))
    on_stage.run()
    assert len([name for name in names(on_stage.bodies("boss")[0]) if "__" in name]) == 60
    low = stage(tmp_path, {"boss": "done"}, names=("billing",), tools=ToolSettings(groups_above=29))
    low.run()
    assert FIND in names(low.bodies("boss")[0])


def test_tools_of_a_server_that_offers_more_join_between_turns(tmp_path: Path) -> None:
    """A server dies and comes back with another list; whoever runs is shown the new tool at the end of its list."""
    kinds = [{"name": name, "inputSchema": {"type": "object"}} for name in ("die", "echo", "extra")]
    (folder := tmp_path / "home").mkdir()
    more = folder / "s.json"

    def boss(request: ModelRequest) -> Any:
        if request.turn == 1:
            more.write_text(json.dumps(kinds))
            return call("s__die", {})
        return {2: call("s__echo", {}), 3: call("agents__helper", {"task": "help"})}.get(request.turn, "done")

    def script(request: ModelRequest) -> Any:
        return boss(request) if request.agent == "boss" else "helped"

    team = (card("boss", tools=("s__*",), agents=("helper",)), card("helper", tools=("s__*",)))
    on_stage = Stage(folder, script, *team, configured={"s": server(folder, "s", *kinds[:2])})
    on_stage.run()
    first, *_, last = map(names, on_stage.bodies("boss"))
    assert "s__extra" not in first
    assert last == [*first, "s__extra"]
