"""A run again from its journal: its requests byte for byte, and on from one of its steps."""

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import ConfigurationError, Limits, Orchestrator, RunOptions, RunResult
from orchestrator.events import JournalEvent, RunForked, RunStarted
from orchestrator.models.base import ModelRequest, ToolSpec
from orchestrator.models.resolve import plain_codec
from orchestrator.runtime.replay import ReplayedRun, replay
from orchestrator.runtime.requests import Wire, rebuilt
from orchestrator.testing import SqliteJournal, call
from tests.behaviour.stage import Stage, allow
from tests.behaviour.test_input import BOOK, SEATS, stage_of
from tests.support.runs import card

pytestmark = pytest.mark.requirement("F6")

PAY, LOOK = call("fx__pay", {"text": "rent"}), call("fx__look", {"text": "数字"})


def team() -> list[Any]:
    return [card("boss", tools=("fx__*",), agents=("helper",)), card("helper", tools=("fx__*",))]


def script(request: ModelRequest) -> Any:
    """Boss pays and asks helper, both at once; then it fails once; then it answers."""
    answers = {
        ("boss", 1): ["Both.", PAY, call("agents__helper", {"task": "look"})],
        ("boss", 2): ["Again.", call("fx__fail", {"text": "it"})],
        ("helper", 1): ["I look.", LOOK],
    }
    return answers.get((request.agent, request.turn), f"{request.agent} is done")


def reading(folder: Path, run: str) -> tuple[dict[str, list[JournalEvent]], dict[str, bytes]]:
    """A run's tree of events, and the bodies that its runs name; from a journal that is only read."""

    async def work() -> tuple[dict[str, list[JournalEvent]], dict[str, bytes]]:
        journal = SqliteJournal(folder / "journal.sqlite", read_only=True)
        tree = await journal.tree(run)
        starts = [events[0] for events in tree.values()]
        named = {digest for each in starts if isinstance(each, RunStarted) for digest in (each.system, each.tools)}
        return tree, {digest: await journal.body(digest) for digest in named}

    return anyio.run(work)


def replayed(folder: Path, run: str) -> ReplayedRun:
    return replay(run, reading(folder, run)[0])


def running_on(run_id: str, step: int, source: Path | None = None) -> Callable[[Orchestrator], Awaitable[RunResult]]:
    async def work(orchestrator: Orchestrator) -> RunResult:
        journal = SqliteJournal(source, read_only=True) if source is not None else None
        return await orchestrator.rerun(run_id, step, source=journal, options=RunOptions())

    return work


def test_thoughts_calls_and_answers_in_order_with_agents_below_their_calls(tmp_path: Path) -> None:
    result = Stage(tmp_path, script, *team()).run()
    run = replayed(tmp_path, result.run_id)
    assert (run.status, run.answer, run.trace_id) == ("finished", "boss is done", result.trace_id)
    assert [(turn.n, turn.thought) for turn in run.turns] == [(1, "Both."), (2, "Again."), (3, "boss is done")]
    pay, helper = run.turns[0].calls
    assert (pay.tool, pay.arguments, pay.observation) == ("fx__pay", {"text": "rent"}, "pay rent done")
    assert (pay.at_once, helper.at_once, run.turns[1].calls[0].at_once) == (True, True, False)
    assert run.turns[1].calls[0].error == "tool_error"
    below = helper.run
    assert below is not None
    assert (helper.run_id, below.run_id, below.agent, below.task) == (
        below.run_id,
        f"{run.run_id}/t1.2",
        "helper",
        "look",
    )
    assert [(turn.thought, [each.observation for each in turn.calls]) for turn in below.turns] == [
        ("I look.", ["look 数字 done"]),
        ("helper is done", []),
    ]
    assert run.usage.model_calls == run.own_usage.model_calls + below.usage.model_calls == 5
    for turn in (*run.turns, *below.turns):
        assert turn.seconds is not None
        assert turn.usage is not None
        assert turn.at >= run.started_at


@pytest.mark.parametrize("era", ["old", "new"])
def test_what_a_server_asked_of_a_person_and_what_was_said(tmp_path: Path, era: str) -> None:
    stage = stage_of(tmp_path, era, BOOK)
    parked = stage.run()
    (call_,) = replayed(tmp_path, parked.run_id).turns[0].calls
    assert [(question.action, "Rome" in question.message) for question in call_.questions] == [(None, True)]
    stage.decide(parked.run_id, arguments=SEATS)
    stage.resume(parked.run_id)
    (call_,) = replayed(tmp_path, parked.run_id).turns[0].calls
    assert {(question.action, str(question.content)) for question in call_.questions} == {("accept", str(SEATS))}
    assert (call_.error, call_.verdict) == (None, None)


def test_every_request_is_rebuilt_as_it_was_sent(tmp_path: Path) -> None:
    """With a limit that shrinks the output, a closing request, and a model that fails once."""
    stage = Stage(tmp_path, script, *team())
    result = stage.run(limits=Limits(steps=2, tokens=6000))
    assert result.status == "stopped"
    tree, bodies = reading(tmp_path, result.run_id)
    again: list[bytes] = []
    for events in tree.values():
        start = events[0]
        assert isinstance(start, RunStarted)
        specs = {start.tools: [ToolSpec(**spec) for spec in json.loads(bodies[start.tools])]}
        system, wires = bodies[start.system].decode(), [Wire(plain_codec(start.model), vision=True)]
        found = list(rebuilt(events, wires, system, specs, {}))
        assert all(each.checked for each in found)
        again += [each.body for each in found]
    assert sorted(again) == sorted(request.body for request in stage.requests)
    assert len(again) == 5


def test_running_on_keeps_what_was_before_and_does_none_of_it_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, script, *team())
    first = stage.run()
    sent = [request.body for request in stage.requests if request.agent == "boss"]
    other = Stage(tmp_path, lambda request: "Something else.", *team())
    second = other.within(running_on(first.run_id, 2))
    assert (second.status, second.answer) == ("finished", "Something else.")
    assert [request.body for request in other.requests] == [sent[1]], "the same prefix, byte for byte"
    assert stage.effects == {"pay": 1, "look": 1, "fail": 1}, "nothing was done again"
    assert second.run_id != first.run_id
    assert second.trace_id != first.trace_id
    assert (second.usage.model_calls, second.usage.tool_calls) == (1, 0), "what came before was paid there"
    assert [step.thought for step in second.steps] == ["Both.", "Something else."]
    tree, _ = reading(tmp_path, second.run_id)
    (events,) = tree.values()
    (forked,) = [event for event in events if isinstance(event, RunForked)]
    assert (forked.source, forked.step) == (first.run_id, 2)
    kept = replayed(tmp_path, second.run_id).turns[0].calls[1]
    assert (kept.observation, kept.run_id, kept.run) == ("helper is done", f"{first.run_id}/t1.2", None)


def test_a_run_that_runs_on_parks_and_is_resumed_by_a_new_process_as_any_other(tmp_path: Path) -> None:
    first = Stage(tmp_path, script, *team()).run()
    answers = {("boss", 2): ["Once more.", PAY], ("boss", 3): "Paid twice."}
    stage = Stage(tmp_path, answers, *team(), policy=allow("fx__look"))
    parked = stage.within(running_on(first.run_id, 2))
    assert (parked.status, [request.call for request in parked.approvals]) == ("parked", ["t2.1"])
    stage.decide(parked.run_id)
    ended = Stage(tmp_path, answers, *team(), policy=allow("fx__look")).resume(parked.run_id)
    assert (ended.status, ended.answer, ended.usage.model_calls) == ("finished", "Paid twice.", 2)
    assert stage.effects["pay"] == 2


def test_running_on_from_a_run_of_another_machine(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    first = Stage(there, script, *team()).run()
    shutil.copy(there / "journal.sqlite", tmp_path / "copied.sqlite")
    shutil.rmtree(there)
    stage = Stage(here, {("boss", 3): "Here."}, *team())
    second = stage.within(running_on(first.run_id, 3, tmp_path / "copied.sqlite"))
    assert (second.answer, len(second.steps)) == ("Here.", 3)
    assert stage.resume(second.run_id).answer == "Here.", "it is in the journal here, with all that it names"


def test_where_a_run_cannot_be_run_on_from(tmp_path: Path) -> None:
    stage = Stage(tmp_path, script, *team())
    first = stage.run()
    for run_id, step, message in (
        (first.run_id, 4, "has no step 4"),
        (first.run_id, 9, "has no step 9 (it has 1 to 3)"),
        (f"{first.run_id}/t1.2", 1, f"is part of another; run on from a step of {first.run_id}"),
        ("nobody", 1, "there is no run 'nobody'"),
    ):
        with pytest.raises(ConfigurationError) as told:
            stage.within(running_on(run_id, step))
        assert message in str(told.value)


def test_a_run_that_ended_at_a_limit_runs_on_with_a_fresh_one(tmp_path: Path) -> None:
    spending = Stage(tmp_path, script, *team())
    stopped = spending.run(limits=Limits(model_calls=3))
    assert stopped.stop_reason == "max_steps"
    on = Stage(tmp_path, {("boss", 2): "Enough."}, *team()).within(running_on(stopped.run_id, 2))
    assert (on.status, on.answer) == ("finished", "Enough.")
