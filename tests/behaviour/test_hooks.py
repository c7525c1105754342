"""Hooks: what they are shown, what they may change, and that what they decided stays decided."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Limits, Orchestrator, RunOptions
from orchestrator.runtime.hooks import Decision, Moment, Redirect, Replace, Veto
from orchestrator.testing import Watcher, call
from tests.behaviour.stage import Stage, allow
from tests.support.runs import card


def boss(**more: Any) -> Any:
    return card("boss", **{"tools": ("fx__*",), **more})


def paying(folder: Path, **more: Any) -> Stage:
    script = {("boss", 1): call("fx__pay", {"text": "rent"}), "boss": "done"}
    return Stage(folder, script, boss(), **more)


@pytest.mark.requirement("A1")
def test_every_transition_is_shown(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int, str]] = []

    async def watch(moment: Moment) -> None:
        seen.append((moment.agent, moment.kind, moment.step, moment.tool or moment.answer))

    script = {
        ("boss", 1): [call("agents__kid", {"task": "go"}), call("fx__nothing", {}), call("fx__look", {})],
        "boss": "done",
        ("kid", 1): call("fx__look", {"text": "a"}),
        "kid": "kid is done",
    }
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=("fx__*",)))
    assert stage.run(hooks=[watch]).answer == "done"
    assert seen == [
        ("boss", "thinking", 0, ""),
        ("boss", "acting", 1, "agents__kid"),
        ("kid", "thinking", 0, ""),
        ("kid", "acting", 1, "fx__look"),
        ("kid", "thinking", 1, ""),
        ("kid", "finishing", 2, "kid is done"),
        ("boss", "thinking", 1, ""),
        ("boss", "finishing", 2, "done"),
    ]


@pytest.mark.requirement("A1", "A5")
@pytest.mark.parametrize(("hour", "paid"), [(23, 0), (11, 1)])
def test_office_hours(tmp_path: Path, hour: int, paid: int) -> None:
    async def office_hours(moment: Moment) -> Decision | None:
        if moment.kind == "acting" and not 9 <= hour < 17:
            return Veto("calls are made in office hours only")
        return None

    stage = paying(tmp_path)
    result = stage.run(hooks=[office_hours])
    assert (result.status, stage.effects["pay"]) == ("finished", paid)
    observation = result.steps[0].actions[0].observation
    assert observation == "pay rent done" if paid else "office hours only" in observation
    assert stage.last("boss") == observation


@pytest.mark.requirement("A1")
def test_other_arguments_go_out_and_the_model_is_told(tmp_path: Path) -> None:
    async def half(moment: Moment) -> Decision | None:
        return Replace(arguments={"text": "half"}) if moment.kind == "acting" else None

    stage = paying(tmp_path)
    result = stage.run(hooks=[half])
    (action,) = result.steps[0].actions
    assert action.arguments == {"text": "half"}
    assert "pay half done" in action.observation
    assert '{"text": "half"}' in action.observation
    assert json.loads(stage.ledger.read_text())["text"] == "half"


@pytest.mark.requirement("A1", "C7")
def test_a_hook_comes_before_the_policy(tmp_path: Path) -> None:
    async def half(moment: Moment) -> Decision | None:
        return Replace(arguments={"text": "half"}) if moment.kind == "acting" else None

    stage = paying(tmp_path, policy=allow())
    parked = stage.run(hooks=[half])
    assert [request.arguments for request in parked.approvals] == [{"text": "half"}]
    stage.decide(parked.run_id)

    async def never(moment: Moment) -> Decision | None:
        return Veto("asked again") if moment.kind == "acting" else None

    result = stage.resume(parked.run_id, hooks=[never])
    assert "pay half done" in result.steps[0].actions[0].observation, "what a hook has let through is not shown again"


@pytest.mark.requirement("A1", "A7")
def test_an_answer_is_sent_back_with_a_message(tmp_path: Path) -> None:
    async def reviewer(moment: Moment) -> Decision | None:
        return Redirect("name a figure") if moment.kind == "finishing" and "42" not in moment.answer else None

    stage = Stage(tmp_path, {("boss", 1): "soon", ("boss", 2): "42"}, boss())
    result = stage.run(hooks=[reviewer])
    assert result.answer == "42"
    assert [message["role"] for message in stage.bodies("boss")[-1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert stage.last("boss") == "name a figure"


@pytest.mark.requirement("A1", "A2", "A7")
def test_an_answer_that_is_always_sent_back_ends_at_the_limit(tmp_path: Path) -> None:
    async def never(moment: Moment) -> Decision | None:
        return Redirect("again") if moment.kind == "finishing" else None

    stage = Stage(tmp_path, {"boss": lambda request: f"try {request.turn}"}, boss())
    result = stage.run(hooks=[never], limits=Limits(steps=3))
    assert (result.status, result.stop_reason) == ("stopped", "max_steps")
    assert result.answer.startswith("try 4")


@pytest.mark.requirement("A1")
def test_another_answer_is_put_in_its_place(tmp_path: Path) -> None:
    async def polite(moment: Moment) -> Decision | None:
        return Replace(answer=f"{moment.answer}, please") if moment.kind == "finishing" else None

    async def louder(moment: Moment) -> Decision | None:
        return Replace(answer=f"{moment.answer}!") if moment.kind == "finishing" else None

    stage = Stage(tmp_path, {"boss": "go"}, boss())
    assert stage.run(hooks=[polite, louder]).answer == "go, please!"


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("kind", ["thinking", "finishing"])
def test_a_veto_ends_the_run_with_its_reason(tmp_path: Path, kind: str) -> None:
    async def stop(moment: Moment) -> Decision | None:
        return Veto("the budget is closed") if moment.kind == kind else None

    stage = Stage(tmp_path, {"boss": "done"}, boss())
    result = stage.run(hooks=[stop])
    assert result.status == "failed"
    assert "the budget is closed" in result.answer
    assert len(stage.requests) == (1 if kind == "finishing" else 0)


@pytest.mark.requirement("A1")
def test_the_model_is_told_something_before_it_thinks(tmp_path: Path) -> None:
    async def remind(moment: Moment) -> Decision | None:
        return Redirect(f"before step {moment.step + 1}") if moment.kind == "thinking" else None

    stage = Stage(tmp_path, {("boss", 1): call("fx__look", {"text": "a"}), "boss": "done"}, boss())
    stage.run(hooks=[remind])
    told = [message["content"] for message in stage.bodies("boss")[-1]["messages"] if message["role"] == "user"]
    assert told == ["the job\n\nbefore step 1", "before step 2"], "no two user turns in a row"


@pytest.mark.requirement("A1", "H1")
@pytest.mark.parametrize("kind", ["thinking", "finishing"])
def test_what_was_decided_before_a_stop_stays_decided(tmp_path: Path, kind: str) -> None:
    """The process is interrupted while a second hook is still at it: the first one's decision is in the journal."""
    decisions: dict[str, Decision] = {"thinking": Redirect("once"), "finishing": Replace(answer="better")}
    asked: list[str] = []
    stage = Stage(tmp_path, {"boss": "done"}, boss())

    async def first(moment: Moment) -> Decision | None:
        if moment.kind != kind:
            return None
        asked.append(kind)
        return decisions[kind]

    async def work(orchestrator: Orchestrator) -> Any:
        async def second(moment: Moment) -> None:
            if moment.kind == kind:
                orchestrator.park()
                await anyio.sleep_forever()

        return await orchestrator.run("the job", options=RunOptions(hooks=[first, second]))

    parked = stage.within(work)
    assert parked.status == "parked"
    seen: list[str] = []

    async def later(moment: Moment) -> None:
        seen.append(moment.answer or moment.kind)

    result = stage.resume(parked.run_id, hooks=[first, later])
    assert result.status == "finished"
    assert asked == [kind], "it is not asked again"
    if kind == "thinking":
        users = [message["content"] for message in stage.bodies("boss")[-1]["messages"] if message["role"] == "user"]
        assert users == ["the job\n\nonce"]
    else:
        assert (result.answer, seen) == ("better", ["better"])


@pytest.mark.requirement("A1")
def test_a_hook_with_a_bug_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    async def broken(moment: Moment) -> None:
        if moment.kind == "acting":
            raise ArithmeticError("a bug")

    stage = paying(tmp_path)
    seen = Watcher()

    async def work(orchestrator: Orchestrator) -> None:
        with pytest.raises(ArithmeticError):
            await orchestrator.run("the job", options=RunOptions(hooks=[broken]), on_event=seen)

    stage.within(work)
    assert stage.effects == {}
    assert stage.resume(seen.events[0].run_id).answer == "done"
    assert stage.effects == {"pay": 1}
    assert len(stage.requests) == 2, "the turn that was answered is not asked again"
