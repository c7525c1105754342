"""Constraints said at the start still hold after a long run: thirty of them, in both languages."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator import RunOptions
from orchestrator.config import PolicySettings
from orchestrator.errors import ConfigurationError
from orchestrator.events import Limits, MemoryPinned
from orchestrator.memory import pins
from orchestrator.memory.pins import MOST, constraints, held
from orchestrator.models.base import ModelRequest
from orchestrator.testing import call
from tests.behaviour.test_memory import LONG, SUMMARY, events, stage_of, turns
from tests.support.runs import card

CASES = [
    "Only look at last month's orders.",
    "Return at most 10 rows.",
    "Do not include refunds.",
    "Answer in French.",
    "Give the result as JSON.",
    "Never send mail to customers.",
    "Always cite the page number.",
    "Amounts must be in euros.",
    "Use no more than 200 words.",
    "Exclude test accounts.",
    "Leave out anything before 2024.",
    "Limit the list to twenty items.",
    "Write dates as YYYY-MM-DD.",
    "Don't guess a missing number.",
    "Compare it with the previous quarter.",
    "只看上个月的订单。",
    "最多返回10行。",
    "不要包含退款。",
    "请用英文回答。",
    "输出为JSON格式。",
    "禁止给客户发邮件。",
    "每次都要注明页码。",
    "金额必须以欧元为单位。",
    "总结不超过两百字。",
    "排除测试账号。",
    "只统计最近7天的数据。",
    "列表控制在20条以内。",
    "日期格式一律用年月日。",
    "不得猜测缺失的数字。",
    "仅统计2024年的销售额。",
]
FILLER = "The shelf by the window holds boxes of paper and some old lamps. "
"""Words that hold no constraint, as much of them as makes a task too long to stay in the window whole."""


def told(constraint: str) -> str:
    return f"Read the pages and report.\n{FILLER * 150}\n{constraint}\n{FILLER * 150}\nBegin with page 1."


def obedient(constraint: str) -> Any:
    """A model that obeys only what it sees: after 40 noisy turns it says whether it still sees the constraint."""

    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        if request.turn <= 40:
            return call("pages__read", {"n": request.turn})
        seen = any(constraint.rstrip(".。") in message.text for message in request.messages)
        return "obeyed" if seen else "lost"

    return script


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("constraint", CASES)
def test_a_constraint_holds_after_forty_noisy_turns_and_is_lost_without_pins(
    tmp_path: Path, constraint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "on").mkdir()
    (tmp_path / "off").mkdir()
    stage = stage_of(tmp_path / "on", obedient(constraint), size=2500)
    assert stage.run(told(constraint), limits=LONG).answer == "obeyed"
    monkeypatch.setattr(pins, "constraints", lambda text: [])
    stage = stage_of(tmp_path / "off", obedient(constraint), size=2500)
    assert stage.run(told(constraint), limits=LONG).answer == "lost"


@pytest.mark.requirement("D1")
def test_the_newest_of_two_that_contradict_holds_and_says_so(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        return [call("pages__read", {"n": request.turn})] if request.turn <= 20 else "done"

    stage = stage_of(tmp_path, script, policy=PolicySettings(ask=("pages__*",)), boss=card("boss", tools=("pages__*",)))
    run = stage.run("Return at most 10 rows. Answer in French.", limits=LONG)
    assert run.status == "parked"
    stage.decide(run.run_id, every=True, note="Return at most 20 rows.")
    for _ in range(20):
        run = stage.resume(run.run_id)
        if run.status != "parked":
            break
        stage.decide(run.run_id, every=True)
    assert run.answer == "done"
    pinned = [event for event in events(stage, run.run_id) if isinstance(event, MemoryPinned)]
    assert [event.text for event in pinned] == ["Return at most 10 rows", "Answer in French", "Return at most 20 rows"]
    head = turns(stage)[-1].messages[1].text
    assert '- Return at most 20 rows; in place of "Return at most 10 rows" where the two differ' in head
    assert "- Answer in French" in head
    assert "- Return at most 10 rows" not in head


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(
    ("said", "task", "holds", "gone"),
    [
        (
            ["Return at most 10 rows. Answer in French.", "Return at most 20 rows."],
            "Read them.",
            [
                '- Return at most 20 rows (said earlier in the conversation); in place of "Return at most 10 rows"',
                "- Answer in French (said earlier in the conversation)",
            ],
            "- Return at most 10 rows",
        ),
        (
            ["Return at most 10 rows.", "Return at most 20 rows."],
            "Read them. Return at most 10 rows.",
            ['- Return at most 10 rows; in place of "Return at most 20 rows" where the two differ'],
            "- Return at most 20 rows",
        ),
        (
            ["最多返回10行。不要包含退款。"],
            "读完。最多返回20行。",
            ["- 最多返回20行; in place of", "- 不要包含退款 (said earlier"],
            "- 最多返回10行",
        ),
    ],
)
def test_what_was_said_earlier_in_a_conversation_holds_until_something_newer_is_said(
    tmp_path: Path, said: list[str], task: str, holds: list[str], gone: str
) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        calls = [call("pages__read", {"n": request.turn}), call("agents__reader", {"task": "Look."})]
        return calls[: 2 if request.turn == 1 else 1] if request.turn <= 20 and request.agent == "boss" else "done"

    team = card("boss", tools=("pages__*",), agents=("reader",)), card("reader", tools=("pages__*",))
    stage = stage_of(tmp_path, script, policy=PolicySettings(ask=("pages__*",)), boss=team[0], team=team[1:])
    run = stage.run(task, limits=LONG, said=tuple(said))
    while run.status == "parked":  # a process of its own for each turn
        stage.decide(run.run_id, every=True)
        run = stage.resume(run.run_id)
    assert run.answer == "done"
    head = [request for request in turns(stage) if request.agent == "boss"][-1].messages[1].text
    for each in holds:
        assert each in head
    assert gone not in head.replace("in place of", "")
    assert not any(isinstance(each, MemoryPinned) for each in events(stage, f"{run.run_id}/t1.2"))


@pytest.mark.requirement("D1")
def test_what_holds_of_a_conversation_is_bounded() -> None:
    found = held([f"Never open door {n}. Return at most {n} rows." for n in range(500)], "earlier")
    assert len(found) == MOST
    assert [pin.text for pin in found][-2:] == ["Never open door 499", "Return at most 499 rows"]
    assert sum("rows" in pin.text for pin in found) == 1
    assert held(["Answer in French.", "Answer in French."])[0].replaces == ()


@pytest.mark.requirement("D1")
def test_a_model_and_a_caller_pin_and_the_user_has_the_last_word(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        if any(tool.name == "pin" for tool in request.tools) and not shown:
            shown.append(request.turn)
            return [
                call("pin", {"text": "The total so far is 17."}),
                call("pin", {"text": "Answer in German."}),
            ]
        return call("pages__read", {"n": request.turn}) if request.turn <= 40 else "done"

    shown: list[int] = []
    stage = stage_of(tmp_path, script)
    result = stage.run("Read them. Answer in French.", limits=LONG, pins=("Amounts are in euros.",))
    assert result.answer == "done"
    assert shown[0] > 1, "nobody needs it before turns have left"
    refused = next(step.actions for step in result.steps if step.n == shown[0])[1]
    assert refused.is_error
    assert "Answer in French" in refused.observation
    head = turns(stage)[-1].messages[1].text
    assert "- The total so far is 17. (your own note)" in head
    assert "- Amounts are in euros." in head
    assert "German" not in head.partition("Results that are not shown")[0]


@pytest.mark.requirement("D1")
def test_a_specialist_has_the_constraints_of_its_own_task(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        if request.agent == "boss":
            task = {"task": told("Never open page 99.")}
            return call("agents__reader", task) if request.turn == 1 else "done"
        return call("pages__read", {"n": request.turn}) if request.turn <= 30 else "read"

    reader = card("reader", tools=("pages__*",), limits=Limits(steps=50))
    stage = stage_of(tmp_path, script, boss=card("boss", agents=("reader",)), team=(reader,))
    assert stage.run("Ask. Return at most 10 rows.", limits=LONG).answer == "done"
    head = [request for request in turns(stage) if request.agent == "reader"][-1].messages[1].text
    assert "- Never open page 99" in head
    assert "10 rows" not in head


@pytest.mark.requirement("D1")
def test_a_pin_of_a_callers_that_is_too_long_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="1 to 300 characters"):
        stage_of(tmp_path, lambda request: "done").run(pins=("x" * 301,))
    assert RunOptions().pins == ()


@pytest.mark.requirement("D1")
def test_pasted_text_does_not_push_out_what_was_asked() -> None:
    pasted = "\n".join(f"You must never open door {n}." for n in range(500))
    found = constraints(f"At most 10 rows.\n{pasted}\n用中文回答。")
    assert len(found) <= MOST
    assert found[0].text == "At most 10 rows"
    assert found[-1].text == "用中文回答"
    assert not constraints("Make a chart of sales by region and write a report.")
    assert not constraints("请把销售数据画成图并写一份报告。")
