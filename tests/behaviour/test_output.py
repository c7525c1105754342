"""A card's `output` schema: asked for, checked, repaired, sent back once."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import PolicySettings
from orchestrator.errors import ConfigurationError
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.runs import card

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
GOOD = {"city": "Bern 伯尔尼", "people": 134794}


def boss(**more: Any) -> Any:
    return card("boss", **{"output": SCHEMA, **more})


def on(folder: Path, *answers: Any, team: Any = None, **more: Any) -> Stage:
    script = {("boss", turn): answer for turn, answer in enumerate(answers, 1)}
    return Stage(folder, script, team or boss(), servers={}, configured={}, **more)


@pytest.mark.requirement("B10")
def test_the_schema_is_asked_for_in_the_system_prompt(tmp_path: Path) -> None:
    stage = on(tmp_path, json.dumps(GOOD))
    stage.run()
    system = stage.bodies("boss")[0]["messages"][0]["content"]
    assert system.startswith("You are boss.")
    assert '"people":{"type":"integer"}' in system


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    "written",
    [
        json.dumps(GOOD, indent=2),
        f"Here it is:\n```json\n{json.dumps(GOOD)}\n```\nAnything else?",
        "{'city': 'Bern 伯尔尼', 'people': '134794',}",
    ],
    ids=["spaced", "fenced", "badly written"],
)
def test_an_answer_is_read_where_it_is_certain_what_was_meant(tmp_path: Path, written: str) -> None:
    result = on(tmp_path, written).run()
    assert (result.status, result.answer) == ("finished", json.dumps(GOOD, ensure_ascii=False))


@pytest.mark.requirement("B10")
def test_a_wrong_answer_is_sent_back_once_with_the_problem_and_an_example(tmp_path: Path) -> None:
    stage = on(tmp_path, '{"city": "Bern"}', json.dumps(GOOD))
    result = stage.run()
    assert (result.status, json.loads(result.answer)) == ("finished", GOOD)
    said = stage.last("boss")
    assert "people" in said
    example = said.partition("example of the form: ")[2].partition("\n")[0]
    assert set(json.loads(example)) == {"city", "people"}


@pytest.mark.requirement("B10")
def test_an_answer_that_stays_wrong_ends_the_run_and_is_kept(tmp_path: Path) -> None:
    stage = on(tmp_path, "Bern is nice.", "Bern is very nice.")
    result = stage.run()
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    assert result.answer.startswith("Bern is very nice.")
    assert "`output`" in result.answer
    assert len(stage.requests) == 2


@pytest.mark.requirement("B10")
def test_a_caller_gets_its_specialists_answer_as_an_object(tmp_path: Path) -> None:
    script = {
        ("boss", 1): call("agents__kid", {"task": "where"}),
        ("boss", 2): "done",
        ("kid", 1): "Bern?",
        ("kid", 2): f"```json\n{json.dumps(GOOD)}\n```",
    }
    stage = Stage(
        tmp_path, script, card("boss", agents=("kid",)), card("kid", output=SCHEMA), servers={}, configured={}
    )
    result = stage.run()
    [action] = result.steps[0].actions
    assert not action.is_error
    assert json.loads(action.observation) == GOOD


@pytest.mark.requirement("B10")
def test_a_specialist_without_such_an_answer_is_an_error_with_what_it_wrote(tmp_path: Path) -> None:
    script = {("boss", 1): call("agents__kid", {"task": "where"}), ("boss", 2): "done", "kid": "Bern is nice."}
    stage = Stage(
        tmp_path, script, card("boss", agents=("kid",)), card("kid", output=SCHEMA), servers={}, configured={}
    )
    result = stage.run()
    [action] = result.steps[0].actions
    assert action.is_error
    assert "unparseable_output" in action.observation
    assert "Bern is nice." in action.observation


@pytest.mark.requirement("B10", "A6")
def test_what_was_sent_back_stays_so_after_a_resume(tmp_path: Path) -> None:
    """The run parks after the first wrong answer; the second one, in another sitting, ends it."""
    wants = call("fx__look", {"text": "a"})
    script = {("boss", 1): "Bern.", ("boss", 2): wants, ("boss", 3): "Bern!"}
    stage = Stage(tmp_path, script, boss(tools=("fx__*",)), policy=PolicySettings(ask=("fx__*",)))
    parked = stage.run()
    assert parked.status == "parked"
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    before, after = stage.bodies("boss")[1]["messages"], stage.bodies("boss")[2]["messages"]
    assert after[: len(before)] == before


@pytest.mark.requirement("B10")
def test_a_schema_that_is_no_object_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"output: .*\"object\""):
        on(tmp_path, "x", team=boss(output={"type": "array", "items": {}})).run()


@pytest.mark.requirement("B10")
def test_an_answer_of_the_right_form_is_no_call_though_it_looks_like_one(tmp_path: Path) -> None:
    """`{"look": {"text": …}}` is how some models call `fx__look`; here it is what the card asks for."""
    schema = {"type": "object", "properties": {"look": {"type": "object"}}, "required": ["look"]}
    answer = json.dumps({"look": {"text": "a"}})
    stage = Stage(tmp_path, {("boss", 1): answer}, boss(output=schema, tools=("fx__*",)))
    assert (stage.run().answer, stage.effects["look"]) == (answer, 0)
