"""Where a run that goes nowhere is stopped. What reached a tool is counted by its server, not by us."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import RunResult
from orchestrator.testing import call
from orchestrator.tools.results import failure
from tests.behaviour.stage import Stage, allow
from tests.support.runs import card

AGAIN = "do not repeat the same call"


def fail(text: str = "a", name: str = "fx__fail") -> Any:
    return call(name, {"text": text})


def closing(turn_of: Any, *, at_end: str = "I found nothing.") -> Any:
    """Answers turns from a function or a list; a request without tools gets the last words."""

    def answer(request: Any) -> Any:
        if not request.tools:
            return at_end
        return turn_of(request.turn) if callable(turn_of) else turn_of[request.turn - 1]

    return answer


def boss(**more: Any) -> Any:
    return card("boss", tools=("fx__*",), **more)


def alone(folder: Path, turns: Any) -> tuple[Stage, RunResult]:
    stage = Stage(folder, {"boss": closing(turns)}, boss())
    return stage, stage.run()


def assert_stopped(stage: Stage, result: RunResult, limit: str, agent: str = "boss") -> None:
    """Stopped by `limit`, after one last request without tools, with an answer that names the limit."""
    assert (result.status, result.stop_reason) == ("stopped", limit)
    assert limit in result.answer
    assert "I found nothing." in result.answer
    assert [bool(request.tools) for request in stage.requests if request.agent == agent][-2:] == [True, False]


@pytest.mark.requirement("A2", "A4", "A5")
def test_the_same_failing_call_is_made_twice_and_never_again(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, lambda _: fail())
    assert_stopped(stage, result, "repeated_failure")
    assert stage.effects == {"fail": 2}
    first = next(body for body in stage.bodies("boss") if len(body["messages"]) == 4)["messages"][-1]
    assert first["content"] == failure("fx__fail", "fail a done")
    assert AGAIN in first["content"]


@pytest.mark.requirement("A4")
def test_the_same_arguments_in_another_spelling_are_the_same_call(tmp_path: Path) -> None:
    spellings = ['{"text":"5"}', '{ "text" : 5 }', '{"text": "5",}']
    stage, result = alone(tmp_path, lambda turn: call("fx__fail", spellings[turn - 1]))
    assert_stopped(stage, result, "repeated_failure")
    assert stage.effects == {"fail": 2}


@pytest.mark.requirement("A4", "A5", "E2")
def test_a_child_that_repeats_a_failure_is_stopped_and_its_caller_goes_on(tmp_path: Path) -> None:
    script = {
        ("boss", 1): call("agents__kid", {"task": "try"}),
        ("boss", 2): "went on",
        "kid": closing(lambda turn: ["I try.", fail()], at_end="Half of it."),
    }
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=("fx__fail",)))
    result = stage.run()
    assert (result.status, result.answer) == ("finished", "went on")
    assert stage.effects == {"fail": 2}
    (action,) = result.steps[0].actions
    assert not action.is_error, "what a child found so far is no failure"
    assert "repeated_failure" in action.observation
    assert "Half of it." in action.observation
    assert stage.last("boss") == action.observation


@pytest.mark.requirement("A4", "E4", "H1")
@pytest.mark.parametrize("nested", [False, True])
def test_a_failure_before_a_resume_counts(tmp_path: Path, nested: bool) -> None:
    turns = [fail(), call("fx__pay", {"text": "x"}), fail(), fail()]
    agent = "kid" if nested else "boss"
    script: dict[Any, Any] = {
        ("boss", 1): call("agents__kid", {"task": "try"}),
        ("boss", 2): "went on",
        agent: closing(turns),
    }
    team = (boss(agents=("kid",)), card("kid", tools=("fx__*",)))
    if not nested:
        team, script = (boss(),), {agent: closing(turns)}
    stage = Stage(tmp_path, script, *team, policy=allow("fx__fail"))
    parked = stage.run()
    assert parked.status == "parked"
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert stage.effects == {"fail": 2, "pay": 1}
    if nested:
        assert "repeated_failure" in result.steps[0].actions[0].observation
    else:
        assert_stopped(stage, result, "repeated_failure")


@pytest.mark.requirement("A4")
def test_three_failing_turns_in_a_row_with_other_arguments_each(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, lambda turn: [fail(f"{turn}a"), fail(f"{turn}b")])
    assert_stopped(stage, result, "consecutive_failures")
    assert stage.effects == {"fail": 6}


@pytest.mark.requirement("A4")
def test_one_success_in_a_turn_is_enough(tmp_path: Path) -> None:
    turns = [fail("1"), fail("2"), [fail("3"), call("fx__look", {"text": "3"})], fail("4"), fail("5"), "done"]
    stage, result = alone(tmp_path, turns)
    assert (result.status, result.answer) == ("finished", "done")
    assert stage.effects == {"fail": 5, "look": 1}


def flaky(outcomes: Sequence[bool]) -> tuple[MCPServer, list[bool]]:
    """A server whose only tool works or fails as told, and the calls that it got."""
    server, got = MCPServer("fx", log_level="ERROR"), []

    @server.tool()
    async def try_it(text: str) -> str:
        got.append(outcomes[len(got)])
        if not got[-1]:
            raise ValueError("not now")
        return f"worked at {len(got)}"

    return server, got


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    ("outcomes", "stop"),
    [
        ((False, True, False, True), None),
        ((False, True, False, False), "repeated_failure"),
    ],
)
def test_a_success_starts_a_pair_anew(tmp_path: Path, outcomes: Sequence[bool], stop: str | None) -> None:
    server, got = flaky(outcomes)

    def turn(number: int) -> Any:
        return call("fx__try_it", {"text": "x"}) if number <= len(outcomes) else "done"

    stage = Stage(tmp_path, {"boss": closing(turn)}, boss(), servers={"fx": server})
    result = stage.run()
    assert len(got) == 4
    assert result.stop_reason == (stop or "answered")


@pytest.mark.requirement("A4")
def test_other_calls_between_two_failures_do_not_matter(tmp_path: Path) -> None:
    looks = (call("fx__look", {"text": str(number)}) for number in itertools.count())
    stage, result = alone(tmp_path, lambda turn: fail() if turn % 3 == 1 else next(looks))
    assert_stopped(stage, result, "repeated_failure")
    assert stage.effects == {"fail": 2, "look": 2}


@pytest.mark.requirement("A4", "A8")
def test_the_same_failing_call_twice_in_one_turn_counts_once(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, [[fail(), fail()], "done"])
    assert (result.status, result.answer) == ("finished", "done")
    assert stage.effects == {"fail": 2}


@pytest.mark.requirement("A4")
def test_the_same_call_with_the_same_result_in_three_turns(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, lambda _: call("fx__look", {"text": "a"}))
    assert_stopped(stage, result, "no_progress")
    assert stage.effects == {"look": 3}


def counting() -> tuple[MCPServer, list[str]]:
    """A server that never says the same twice."""
    server, got = MCPServer("fx", log_level="ERROR"), []

    @server.tool()
    async def ask(text: str) -> str:
        got.append(text)
        return f"answer {len(got)}"

    return server, got


def asking(folder: Path, turns: Any, steps: int = 30) -> tuple[RunResult, list[str]]:
    server, got = counting()
    stage = Stage(folder, {"boss": closing(turns)}, boss(limits={"steps": steps}), servers={"fx": server})
    return stage.run(), got


@pytest.mark.requirement("A4")
@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_cycle_of_calls_three_times_over(tmp_path: Path, length: int) -> None:
    result, got = asking(tmp_path, lambda turn: call("fx__ask", {"text": "abcde"[(turn - 1) % length]}))
    assert result.stop_reason == "no_progress"
    assert "".join(got) == "abcde"[:length] * 3


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    "turns",
    [
        ["a"] * 10,  # one call whose result changes is watching, not going in a circle
        ["ab"] * 6,  # so are two at once
        list("abcde" * 4),  # too long to be called one
        list("ababcabcdabab"),  # never three times over
    ],
    ids=["the same call", "the same two calls", "five calls", "broken"],
)
def test_what_is_no_cycle_goes_on(tmp_path: Path, turns: list[str]) -> None:
    def turn(number: int) -> Any:
        if number > len(turns):
            return "done"
        return [call("fx__ask", {"text": text}) for text in turns[number - 1]]

    result, got = asking(tmp_path, turn)
    assert result.answer == "done"
    assert "".join(got) == "".join(turns)


@pytest.mark.requirement("A2", "A4")
def test_three_empty_replies_in_a_row(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, lambda _: "  \n")
    assert_stopped(stage, result, "unparseable_output")
    assert len(stage.requests) == 4
    assert "empty" in stage.bodies("boss")[1]["messages"][-1]["content"]


@pytest.mark.requirement("A4")
def test_a_call_between_two_empty_replies_starts_the_count_anew(tmp_path: Path) -> None:
    _, result = alone(tmp_path, ["", "", call("fx__look", {"text": "a"}), "", "", "done"])
    assert result.answer == "done"


@pytest.mark.requirement("A2", "A4")
def test_a_run_whose_model_says_nothing_at_all_still_has_an_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"boss": lambda _: ""}, boss())
    result = stage.run()
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    assert "unparseable_output" in result.answer


@pytest.mark.requirement("A4", "C7")
def test_a_denial_is_no_failure(tmp_path: Path) -> None:
    turns = [
        [call("fx__pay", {"text": "1"}), fail("1")],
        call("fx__pay", {"text": "2"}),
        fail("2"),
        call("fx__pay", {"text": "1"}),
        "done",
    ]
    stage = Stage(tmp_path, {"boss": closing(turns)}, boss(), policy=allow("fx__fail"))
    result = stage.run(approve="none")
    assert result.answer == "done"
    denied = result.steps[0].actions[0]
    assert denied.is_error
    assert "Denied" in denied.observation
    assert stage.effects == {"fail": 2}, "what is denied never reaches its tool"


@pytest.mark.requirement("A4", "C7")
def test_a_denial_is_no_success_either(tmp_path: Path) -> None:
    turns = [fail("1"), call("fx__pay", {"text": "1"}), fail("2"), call("fx__pay", {"text": "2"}), fail("3")]
    stage = Stage(tmp_path, {"boss": closing(turns)}, boss(), policy=allow("fx__fail"))
    assert stage.run(approve="none").stop_reason == "consecutive_failures"


@pytest.mark.requirement("A4", "C7")
def test_the_same_denied_call_in_three_turns_makes_no_progress(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"boss": closing(lambda _: call("fx__pay", {"text": "x"}))}, boss(), policy=allow())
    result = stage.run(approve="none")
    assert (result.stop_reason, len(result.steps[:3])) == ("no_progress", 3)


@pytest.mark.requirement("A4", "A5", "C4")
def test_arguments_that_stay_wrong_twice(tmp_path: Path) -> None:
    stage, result = alone(tmp_path, lambda _: call("fx__look", {"txet": "a"}))
    assert_stopped(stage, result, "repeated_failure")
    assert not stage.effects, "what is wrong is never sent"
    shown = stage.bodies("boss")[1]["messages"][-1]["content"]
    assert "text" in shown
    assert "A correct example" in shown


@pytest.mark.requirement("A5")
def test_the_calls_of_a_stopped_turn_are_all_answered(tmp_path: Path) -> None:
    turns = [fail(), [call("fx__look", {"text": "a"}), fail(), call("fx__nothing", {})]]
    stage, result = alone(tmp_path, turns)
    assert_stopped(stage, result, "repeated_failure")
    *_, ask, one, two, three, _ = stage.bodies("boss")[-1]["messages"]
    assert [answer["tool_call_id"] for answer in (one, two, three)] == [each["id"] for each in ask["tool_calls"]]


@pytest.mark.requirement("A2")
def test_a_closing_reply_that_asks_for_tools_is_not_obeyed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"boss": lambda _: ["Still trying.", fail()]}, boss())
    result = stage.run()
    assert result.stop_reason == "repeated_failure"
    assert "Still trying." in result.answer
    assert stage.effects == {"fail": 2}


@pytest.mark.requirement("A4", "B1")
def test_an_empty_reply_stays_in_the_conversation(tmp_path: Path) -> None:
    stage, _ = alone(tmp_path, [" ", "done"])
    roles = [message["role"] for message in stage.bodies("boss")[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"], "many servers refuse two user messages in a row"
    assert stage.bodies("boss")[-1]["messages"][2]["content"].strip()
