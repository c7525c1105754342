"""The cases L1 to L12: what went wrong in other frameworks, each as a test of what is right."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import ConfigurationError, Limits, Orchestrator, RunOptions
from orchestrator.events import ToolResult
from orchestrator.messages import Usage
from orchestrator.models.base import ModelRequest
from orchestrator.runtime.hooks import Moment, Veto
from orchestrator.testing import SqliteJournal, Watcher, call, reply
from tests.behaviour.stage import Bell, Stage, allow
from tests.support.runs import card


def boss(**more: Any) -> Any:
    return card("boss", **{"tools": ("fx__*",), **more})


@pytest.mark.requirement("A5", "A9")
def test_L1_a_tool_that_never_answers_is_timed_out(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__hang", {"text": "a"}), ("boss", 2): "went on"}
    stage = Stage(tmp_path, script, boss(), fx={"call_timeout": 0.5})
    result = stage.run()
    assert (result.status, result.answer) == ("finished", "went on")
    assert "no answer within 0.5 s" in result.steps[0].actions[0].observation
    assert stage.effects == {"hang": 1, "cancelled": 1}, "the server is told to stop"


@pytest.mark.requirement("A8", "A9")
def test_L1_a_run_that_is_cancelled_inside_a_tool_ends_at_once(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "ledger")
    stage = Stage(tmp_path, {"boss": call("fx__hang", {"text": "a"})}, boss())

    async def work(orchestrator: Orchestrator) -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(orchestrator.run, "the job")
            await bell.rung()
            began = anyio.current_time()
            group.cancel_scope.cancel()
        return anyio.current_time() - began

    assert stage.within(work) < 2
    assert stage.effects == {"hang": 1, "cancelled": 1}


def moody(*, raises: type[Exception] = ValueError) -> MCPServer:
    server = MCPServer("fx", log_level="ERROR")

    @server.tool()
    async def look(text: str) -> str:
        if text == "b":
            raise raises("the second one")
        return f"saw {text}"

    return server


@pytest.mark.requirement("A5", "A8")
@pytest.mark.parametrize("raises", [ValueError, OSError, anyio.ClosedResourceError, TimeoutError])
def test_L2_four_calls_and_the_second_raises(tmp_path: Path, raises: type[Exception]) -> None:
    script = {("boss", 1): [call("fx__look", {"text": text}) for text in "abcd"], ("boss", 2): "went on"}
    stage = Stage(tmp_path, script, boss(), servers={"fx": moody(raises=raises)})
    result = stage.run()
    assert result.answer == "went on"
    assert [action.is_error for action in result.steps[0].actions] == [False, True, False, False]
    ask, *answers = stage.bodies("boss")[-1]["messages"][-5:]
    assert [answer["role"] for answer in answers] == ["tool"] * 4
    assert [answer["tool_call_id"] for answer in answers] == [each["id"] for each in ask["tool_calls"]]
    assert [answer["content"] for answer in answers][::2] == ["saw a", "saw c"]


def specialist(request: ModelRequest) -> Any:
    """Uses 1,000 tokens a turn, and has its answer in the second."""
    usage = Usage(input_tokens=900, output_tokens=100)
    if request.turn == 1:
        return reply(f"{request.agent} begins.", call("fx__look", {"text": request.agent}), usage=usage)
    return reply(f"{request.agent} is done", usage=usage)


@pytest.mark.requirement("A3", "E2")
def test_L3_four_specialists_under_one_limit(tmp_path: Path) -> None:
    names = ("ann", "bob", "cat", "dan")
    script = {
        ("boss", 1): reply(
            *(call(f"agents__{name}", {"task": "go"}) for name in names),
            usage=Usage(input_tokens=100, output_tokens=50),
        ),
        "boss": reply("all", usage=Usage(input_tokens=100, output_tokens=50)),
        **dict.fromkeys(names, specialist),
    }
    team = (boss(agents=names), *(card(name, tools=("fx__look",)) for name in names))
    stage = Stage(tmp_path, script, *team)
    result = stage.run(limits=Limits(tokens=8_000))
    assert result.usage.input_tokens + result.usage.output_tokens <= 8_000
    answers = [action.observation for action in result.steps[0].actions]
    stopped = [answer for answer in answers if "max_tokens" in answer]
    done = [answer for answer in answers if answer.endswith("is done")]
    assert len(stopped) + len(done) == 4
    assert stopped
    assert all("begins." in answer or "Stopped before" in answer for answer in stopped)


@pytest.mark.requirement("A3", "A12", "E2")
def test_L4_the_total_is_the_sum_of_all_replies_once_each(tmp_path: Path) -> None:
    usages: list[Usage] = []

    def counted(*parts: Any) -> Any:
        number = len(usages) + 1
        usages.append(Usage(input_tokens=1000 + number, output_tokens=10 * number, cached_tokens=number))
        return reply(*parts, usage=usages[-1])

    script = {
        ("boss", 1): lambda _: counted(call("agents__mid", {"task": "1"}), call("agents__mid", {"task": "2"})),
        "boss": lambda _: counted("boss is done"),
        ("mid", 1): lambda _: counted(call("agents__leaf", {"task": "x"}), call("fx__look", {"text": "m"})),
        "mid": lambda _: counted("mid is done"),
        ("leaf", 1): lambda _: counted(call("fx__look", {"text": "l"})),
        # One leaf is stopped, and its closing request is paid for as well.
        "leaf": lambda _: counted("leaf is done"),
    }
    team = (boss(agents=("mid",)), card("mid", tools=("fx__*",), agents=("leaf",)))
    stage = Stage(tmp_path, script, *team, card("leaf", tools=("fx__*",), limits={"steps": 1}))
    result = stage.run()
    assert result.usage.input_tokens == sum(usage.input_tokens for usage in usages)
    assert result.usage.output_tokens == sum(usage.output_tokens for usage in usages)
    assert result.usage.cached_tokens == sum(usage.cached_tokens for usage in usages)
    assert result.usage.model_calls == len(usages) == 10
    assert result.usage.tool_calls == 2 + 2 * 2 + 2
    told = stage.seen.of("usage")
    for kind in ("input_tokens", "output_tokens", "cached_tokens", "model_calls"):
        by_run = Counter[str]()
        for event in told:
            by_run[event.run_id] += getattr(event.usage, kind)
        assert len(by_run) == 5
        assert by_run[result.run_id] == getattr(result.own_usage, kind), "its own"
        assert by_run.total() == getattr(result.usage, kind), "and those of all below it, once each"
        for answer in answers_of_agents(stage, result.run_id):
            below = sum(count for run, count in by_run.items() if f"{run}/".startswith(f"{answer.child}/"))
            assert getattr(answer.usage, kind) == below, "a caller is told what the agents below it used"
    assert result.own_usage.tool_calls == 2


def answers_of_agents(stage: Stage, run_id: str) -> list[ToolResult]:
    async def main() -> list[ToolResult]:
        journal = SqliteJournal(stage.folder / "journal.sqlite")
        tree = await journal.tree(run_id)
        await journal.aclose()
        events = [event for events in tree.values() for event in events]
        return [event for event in events if isinstance(event, ToolResult) and event.child]

    answers = anyio.run(main)
    assert len(answers) == 4
    return answers


@pytest.mark.requirement("C3")
def test_L5_two_agents_of_one_name_are_refused_at_the_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {}, boss(agents=("kid",)), card("kid", tools=()), card("kid", tools=("fx__*",)))
    with pytest.raises(ConfigurationError, match="kid"):
        stage.open()


@pytest.mark.requirement("C7", "E4")
def test_L5_the_approval_reaches_the_right_call_of_two_agents(tmp_path: Path) -> None:
    pay = call("fx__pay", {"text": "the same"})
    script = {
        ("boss", 1): [call("agents__ann", {"task": "go"}), call("agents__bob", {"task": "go"})],
        "boss": "done",
        ("ann", 1): pay,
        ("bob", 1): pay,
        "ann": lambda request: request.messages[-1].text,
        "bob": lambda request: request.messages[-1].text,
    }
    team = (boss(agents=("ann", "bob")), card("ann", tools=("fx__*",)), card("bob", tools=("fx__*",)))
    stage = Stage(tmp_path, script, *team, policy=allow())
    parked = stage.run()
    assert [(request.call, request.agent) for request in parked.approvals] == [
        ("t1.1/t1.1", "ann"),
        ("t1.2/t1.1", "bob"),
    ]
    stage.decide(parked.run_id, "t1.2/t1.1")
    stage.decide(parked.run_id, "t1.1/t1.1", approved=False, note="not ann")
    result = stage.resume(parked.run_id)
    ann, bob = (action.observation for action in result.steps[0].actions)
    assert "not ann" in ann
    assert "pay the same done" in bob
    assert stage.effects == {"pay": 1}


@pytest.mark.requirement("A8", "C7", "E4")
def test_L6_the_call_that_has_finished_is_not_run_again(tmp_path: Path) -> None:
    turn = [call("fx__look", {"text": "a"}), call("fx__pay", {"text": "b"})]
    stage = Stage(tmp_path, {("boss", 1): turn, "boss": "done"}, boss(), policy=allow())
    parked = stage.run()
    assert (parked.status, stage.effects) == ("parked", {"look": 1})
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert (result.answer, stage.effects) == ("done", {"look": 1, "pay": 1})
    assert [action.observation for action in result.steps[0].actions] == ["look a done", "pay b done"]


@pytest.mark.requirement("C7", "E4")
def test_L7_three_approvals_answered_out_of_order(tmp_path: Path) -> None:
    turn = [call("fx__pay", {"text": text}) for text in ("one", "two", "three")]
    stage = Stage(tmp_path, {("boss", 1): turn, "boss": "done"}, boss(), policy=allow())
    parked = stage.run()
    assert [request.call for request in parked.approvals] == ["t1.1", "t1.2", "t1.3"]
    stage.decide(parked.run_id, "t1.3", arguments={"text": "drei"})
    still = stage.resume(parked.run_id)
    assert (still.status, [request.call for request in still.approvals]) == ("parked", ["t1.1", "t1.2"])
    stage.decide(parked.run_id, "t1.1", approved=False, note="too dear")
    stage.decide(parked.run_id, "t1.2")
    result = stage.resume(parked.run_id)
    one, two, three = result.steps[0].actions
    assert "too dear" in one.observation
    assert two.observation == "pay two done"
    assert three.observation.endswith("pay drei done")
    assert '{"text": "drei"}' in three.observation, "the model is told that other arguments were sent"
    assert three.arguments == {"text": "drei"}
    assert sorted(json.loads(line)["text"] for line in stage.ledger.read_text().splitlines()) == ["drei", "two"]
    assert result.answer == "done"


@pytest.mark.requirement("A8", "A9", "E2")
def test_L8_a_cancel_reaches_the_childs_tool(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "ledger")
    script = {
        "boss": [call("agents__kid", {"task": "go"}), call("fx__hang", {"text": "own"})],
        "kid": [call("fx__hang", {"text": "kid"})],
    }
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=("fx__*",)))
    seen = Watcher()

    async def work(orchestrator: Orchestrator) -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: orchestrator.run("the job", on_event=seen))
            await bell.rung(2)
            began = anyio.current_time()
            group.cancel_scope.cancel()
        took = anyio.current_time() - began
        assert not [event for event in seen.of("tool_call") if event.step > 1]
        return took

    assert stage.within(work) < 2
    assert stage.effects == {"hang": 2, "cancelled": 2}
    assert len(stage.requests) == 2, "nothing starts after the cancel"
    ended = {event.agent for event in seen.of("state") if event.state == "FAILED"}
    assert ended == {"boss", "kid"}


@pytest.mark.requirement("A5", "E2")
@pytest.mark.parametrize("how", ["model", "hook"])
def test_L9_a_child_that_fails_is_an_observation(tmp_path: Path, how: str) -> None:
    from orchestrator import ModelError

    async def veto(moment: Moment) -> Veto | None:
        return Veto("enough") if (moment.agent, moment.step, moment.kind) == ("kid", 1, "thinking") else None

    script = {
        ("boss", 1): call("agents__kid", {"task": "go"}),
        "boss": "went on",
        ("kid", 1): ["I looked first.", call("fx__look", {"text": "kid"})],
        ("kid", 2): ModelError("bad_request", "no more of this"),
    }
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=("fx__*",)))
    result = stage.run(hooks=[veto] if how == "hook" else [])
    assert (result.status, result.answer) == ("finished", "went on")
    (action,) = result.steps[0].actions
    assert action.is_error
    assert ("no more of this" if how == "model" else "enough") in action.observation
    assert "I looked first." in action.observation, "with what the child found until then"
    assert "look kid done" in action.observation


@pytest.mark.requirement("A5", "E2")
def test_L9_an_error_in_driving_a_child_is_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(moment: Moment) -> None:
        if moment.agent == "kid":
            raise ArithmeticError("a hook with a bug")

    script = {("boss", 1): call("agents__kid", {"task": "go"}), "boss": "went on", "kid": "kid is done"}
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=()))

    async def work(orchestrator: Orchestrator) -> str:
        seen = Watcher()
        with pytest.raises(ArithmeticError):
            await orchestrator.run("the job", options=RunOptions(hooks=[broken]), on_event=seen)
        return seen.events[0].run_id

    run_id = stage.within(work)
    assert not caplog.records
    assert stage.resume(run_id).answer == "went on", "the run can be resumed without it"


@pytest.mark.requirement("A1", "E4")
def test_L10_a_resume_goes_on_at_the_open_step(tmp_path: Path) -> None:
    script = {
        ("boss", 1): ["First look, then pay, then tell.", call("fx__look", {"text": "a"})],
        ("boss", 2): call("fx__pay", {"text": "b"}),
        ("boss", 3): "told",
    }
    stage = Stage(tmp_path, script, boss(), policy=allow())
    parked = stage.run()
    stage.decide(parked.run_id)
    result = stage.resume(parked.run_id)
    assert result.answer == "told"
    assert [request.turn for request in stage.requests] == [1, 2, 3], "nothing that was answered is asked again"
    assert "First look, then pay, then tell." in json.dumps(stage.bodies("boss")[-1])
    assert stage.effects == {"look": 1, "pay": 1}


@pytest.mark.requirement("A4", "A5")
def test_L11_a_tool_that_is_not_there(tmp_path: Path) -> None:
    script = {"boss": lambda request: call("fx__lok", {"text": "a"}) if request.tools else "There is no such tool."}
    stage = Stage(tmp_path, script, boss())
    result = stage.run()
    assert (result.status, result.stop_reason) == ("stopped", "repeated_failure")
    assert len(stage.requests) == 3
    first = stage.bodies("boss")[1]["messages"][-1]["content"]
    assert "there is no tool named fx__lok" in first
    assert "fx__look" in first
    assert not stage.effects


@pytest.mark.requirement("A5", "C4")
def test_L12_an_object_where_the_schema_wants_text(tmp_path: Path) -> None:
    script = {
        ("boss", 1): call("agents__kid", {"task": {"title": "x", "notes": [1, 2]}}),
        ("boss", 2): "went on",
        "kid": lambda request: request.messages[-1].text,
    }
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=()))
    result = stage.run()
    assert result.answer == "went on"
    (action,) = result.steps[0].actions
    if action.is_error:
        assert "A correct example" in action.observation
    else:
        assert json.loads(action.observation) == {"title": "x", "notes": [1, 2]}, "nothing is lost"
