"""A7: a final answer is judged before it goes out, by rules and by an agent, and may be sent back some times."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Limits
from orchestrator.errors import ConfigurationError
from orchestrator.events import JournalEvent
from orchestrator.models.base import ModelRequest
from orchestrator.testing import SqliteJournal, call
from tests.behaviour.stage import Stage, allow
from tests.support.runs import card

pytestmark = pytest.mark.requirement("A7")

BOSS = card("boss", tools=("fx__*",), review="judge")
JUDGE = card("judge", tools=("fx__*",))
TEAM = BOSS, JUDGE


def verdict(accept: bool, reasons: str = "") -> str:
    return json.dumps({"accept": accept, "reasons": reasons})


def events(folder: Path) -> dict[str, list[JournalEvent]]:
    async def read() -> dict[str, list[JournalEvent]]:
        journal = SqliteJournal(folder / "journal.sqlite")
        (row,) = await journal.runs()
        return await journal.tree(row.run_id)

    return anyio.run(read)


def verdicts(stage: Stage) -> list[tuple[bool, str, str]]:
    found = [event for run in events(stage.folder).values() for event in run if event.type == "answer.reviewed"]
    return [(event.accepted, event.by, event.text) for event in found]


def judging(*said: Any) -> Any:
    """The boss answers with the number of its turn; the judge says one thing after the other."""
    left = list(said)
    return lambda request: f"answer {request.turn}" if request.agent == "boss" else left.pop(0)


def test_an_answer_that_is_accepted_goes_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path, judging(verdict(True)), *TEAM)
    result = stage.run("count them")
    assert (result.status, result.answer) == ("finished", "answer 1")
    assert verdicts(stage) == [(True, "agents__judge", "")]
    asked = stage.bodies("judge")[0]["messages"][1]["content"]
    assert "The task:\ncount them\n\nThe answer:\nanswer 1" in asked
    assert "agents__judge" not in [tool.name for tool in stage.requests[0].tools], "nobody calls it but the run"
    assert result.usage.model_calls == 2
    assert set(events(tmp_path)) == {result.run_id, f"{result.run_id}/t1.review"}


def test_an_answer_is_sent_back_with_reasons_two_times_at_most(tmp_path: Path) -> None:
    stage = Stage(tmp_path, judging(verdict(False, "too short"), verdict(False, "too long")), *TEAM)
    result = stage.run()
    assert (result.status, result.answer) == ("finished", "answer 3")
    assert [accepted for accepted, *_ in verdicts(stage)] == [False, False]
    assert "sent back by its review: too short" in stage.bodies("boss")[1]["messages"][-1]["content"]
    assert "sent back by its review: too long" in stage.last("boss")


@pytest.mark.parametrize("said", ["No idea.", '{"reasons": "x"}'])
def test_a_reviewer_without_a_verdict_holds_nothing_up(tmp_path: Path, said: str) -> None:
    stage = Stage(tmp_path, judging(said, said), *TEAM)
    result = stage.run()
    assert (result.status, result.answer) == ("finished", "answer 1")
    [(accepted, _, text)] = verdicts(stage)
    assert accepted
    assert text.startswith("there is no verdict: ")


def test_nothing_is_sent_back_that_cannot_be_mended_within_the_limits(tmp_path: Path) -> None:
    stage = Stage(tmp_path, judging(verdict(False, "no")), *TEAM)
    result = stage.run(limits=Limits(steps=1))
    assert (result.status, result.answer, verdicts(stage)) == ("finished", "answer 1", [])


@pytest.mark.parametrize(
    "task", ["Count them. Answer in JSON.", "数一数，用 JSON 回答", "Return the rows as valid JSON"]
)
@pytest.mark.parametrize("right", ['{"n": 3}', "```json\n[1, 2]\n```"])
def test_an_answer_keeps_the_format_that_the_task_asks_for(tmp_path: Path, task: str, right: str) -> None:
    stage = Stage(tmp_path, {("boss", 1): "There are 3.", ("boss", 2): right}, card("boss", tools=("fx__*",)))
    assert stage.run(task).answer == right
    assert [(accepted, by) for accepted, by, _ in verdicts(stage)] == [(False, "rules")]


@pytest.mark.parametrize("task", ["Read the JSON file and answer in one word.", "Return what is in out.json"])
def test_a_word_in_the_task_is_no_format(tmp_path: Path, task: str) -> None:
    stage = Stage(tmp_path, {"boss": "Three."}, card("boss", tools=("fx__*",)))
    assert stage.run(task).answer == "Three."


def test_a_reviewer_waits_for_a_person_like_any_agent(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.agent == "boss":
            return "answer"
        return call("fx__pay", {"text": "a"}) if request.turn == 1 else verdict(True)

    stage = Stage(tmp_path, script, *TEAM, policy=allow("fx__look"))
    parked = stage.run()
    assert [each.call for each in parked.approvals] == ["t1.review/t1.1"]
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert (result.status, result.answer) == ("finished", "answer")
    assert len(stage.bodies("boss")) == 1


def test_a_reviewer_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="review: there is no agent `jugde`"):
        Stage(tmp_path, {}, card("boss", tools=("fx__*",), review="jugde"), JUDGE).open()
