"""The tree of spans that a collector receives of real runs: nested, parallel, failed, cancelled, left early. F1."""

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Limits, Orchestrator
from orchestrator.config import PolicySettings
from orchestrator.errors import ModelError
from orchestrator.testing import call
from tests.behaviour.stage import Bell, Stage
from tests.support.runs import card
from tests.tracing.receiver import Received, Receiver, http_receiver

pytestmark = pytest.mark.requirement("F1")

look, hang = call("fx__look", {"text": "a"}), call("fx__hang", {"text": "a"})
ask = call("agents__b", {"task": "go on"})


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with http_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


def stage(folder: Path, script: Any, *agents: str, **more: Any) -> Stage:
    """A chain: each agent may call the next one. All have the effects server."""
    team = [card(a, tools=("fx__*",), agents=tuple(agents[n : n + 1])) for n, a in enumerate(agents, 1)]
    return Stage(folder, script, *team, traced=True, **more)


def agent(name: str, *children: Any) -> list[Any]:
    return [name, f"invoke_agent {name}", *children]


def chat(name: str) -> list[Any]:
    return [name, "chat scripted"]


def tool(name: str, tool: str, *children: Any) -> list[Any]:
    return [name, f"execute_tool {tool}", *children]


def run_of(name: str, *children: Any) -> list[Any]:
    return ["orchestrator", f"invoke_workflow {name}", agent(name, *children)]


def ends(spans: list[Received]) -> dict[str, tuple[str, str | None]]:
    return {span.name: (span.status, span.attributes.get("error.type")) for span in spans}


def test_agents_three_deep_are_one_branch_each_below_the_call_that_asked(tmp_path: Path, receiver: Receiver) -> None:
    script = {
        ("a", 1): ask,
        ("a", 2): "done",
        ("b", 1): call("agents__c", {"task": "go on"}),
        ("b", 2): "done",
        ("c", 1): call("agents__d", {"task": "go on"}),
        ("c", 2): "done",
        ("d", 1): look,
        ("d", 2): "done",
    }
    assert stage(tmp_path, script, "a", "b", "c", "d").run().status == "finished"
    deepest = agent("d", chat("d"), chat("d"), tool("d", "fx__look"))
    third = agent("c", chat("c"), chat("c"), tool("c", "agents__d", deepest))
    second = agent("b", chat("b"), chat("b"), tool("b", "agents__c", third))
    assert receiver.tree() == [run_of("a", chat("a"), chat("a"), tool("a", "agents__b", second))]


def test_steps_of_a_plan_lie_beside_it_and_the_thought_that_made_it_within_its_own_span(
    tmp_path: Path, receiver: Receiver
) -> None:
    steps = [{"id": "ask", "agent": "b", "task": "go on"}, {"id": "look", "tool": "fx__look", "needs": ["ask"]}]
    steps[1]["arguments"] = {"text": "a"}
    script = {("a", 1): call("plan", {"steps": steps}), ("a", 2): "done", ("b", 1): "seen"}
    team = card("a", tools=("fx__*",), agents=("b",), plan="always"), card("b")
    assert Stage(tmp_path, script, *team, traced=True).run().status == "finished"
    child = agent("b", chat("b"))
    made = ["a", "plan a", chat("a")]
    steps = tool("a", "agents__b", child), tool("a", "fx__look")
    assert receiver.tree() == [run_of("a", chat("a"), *steps, tool("a", "plan"), made)]


def test_calls_that_run_at_once_keep_their_own_branches(tmp_path: Path, receiver: Receiver) -> None:
    script = {("a", 1): [ask, look, call("agents__b", {"task": "other"})], ("a", 2): "done", ("b", 1): look}
    script[("b", 2)] = "done"
    assert stage(tmp_path, script, "a", "b").run().status == "finished"
    child = agent("b", chat("b"), chat("b"), tool("b", "fx__look"))
    calls = [tool("a", "agents__b", child), tool("a", "agents__b", child), tool("a", "fx__look")]
    assert receiver.tree() == [run_of("a", chat("a"), chat("a"), *calls)]


def test_a_failed_call_is_an_error_and_its_run_is_none(tmp_path: Path, receiver: Receiver) -> None:
    script = {("a", 1): [call("fx__fail", {"text": "x"}), call("fx__look")], ("a", 2): "done"}
    assert stage(tmp_path, script, "a").run().status == "finished"
    assert ends(receiver.spans) == {
        "execute_tool fx__fail": ("ERROR", "tool_error"),
        "execute_tool fx__look": ("ERROR", "invalid_arguments"),
        "chat scripted": ("UNSET", None),
        "invoke_agent a": ("UNSET", None),
        "invoke_workflow a": ("UNSET", None),
    }


def test_a_call_that_took_too_long_is_a_timeout(tmp_path: Path, receiver: Receiver) -> None:
    script = {("a", 1): hang, ("a", 2): "done"}
    assert stage(tmp_path, script, "a", fx={"call_timeout": 0.2}).run().status == "finished"
    assert ends(receiver.spans)["execute_tool fx__hang"] == ("ERROR", "timeout")


def test_a_denied_call_is_marked_and_never_reached_its_server(tmp_path: Path, receiver: Receiver) -> None:
    script = {("a", 1): look, ("a", 2): "done"}
    denying = stage(tmp_path, script, "a", policy=PolicySettings(deny=("fx__*",)))
    assert denying.run().status == "finished"
    assert ends(receiver.spans)["execute_tool fx__look"] == ("ERROR", "denied")
    assert "mcp.method.name" not in receiver.named("execute_tool fx__look").attributes
    assert not denying.effects


def test_a_run_that_a_limit_stopped_is_no_error_and_says_which(tmp_path: Path, receiver: Receiver) -> None:
    result = stage(tmp_path, {("a", 1): look, ("a", 2): "partial"}, "a").run(limits=Limits(steps=1))
    assert result.stop_reason == "max_steps"
    span = receiver.named("invoke_agent a")
    assert (span.status, span.attributes["orchestrator.run.stop_reason"]) == ("UNSET", "max_steps")
    assert [facts["limit"] for name, facts in span.events if name == "limit.reached"] == ["max_steps"]


def test_a_model_that_fails_for_good_gives_the_run_its_kind(tmp_path: Path, receiver: Receiver) -> None:
    assert stage(tmp_path, {"a": ModelError("authentication", "no such key")}, "a").run().status == "failed"
    assert {end[0] for end in ends(receiver.spans).values()} == {"ERROR"}
    kinds = {span.name: span.attributes["error.type"] for span in receiver.spans}
    assert kinds["invoke_agent a"] == kinds["invoke_workflow a"] == kinds["chat scripted"] == "authentication"


def test_cancelling_reaches_the_deepest_span(tmp_path: Path, receiver: Receiver) -> None:
    play = stage(tmp_path, {("a", 1): ask, ("b", 1): hang}, "a", "b")
    bell = Bell(play.ledger)

    async def cancelled(orchestrator: Orchestrator) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(orchestrator.run, "the job")
            await bell.rung()
            group.cancel_scope.cancel()

    play.within(cancelled)
    cancelled_spans = {span.name for span in receiver.spans if span.attributes.get("error.type") == "cancelled"}
    assert cancelled_spans == {
        "execute_tool fx__hang",
        "invoke_agent b",
        "execute_tool agents__b",
        "invoke_agent a",
        "invoke_workflow a",
    }


def test_leaving_the_stream_early_ends_every_span_once(tmp_path: Path, receiver: Receiver) -> None:
    play = stage(tmp_path, {("a", 1): ask, ("b", 1): look, ("b", 2): "done", ("a", 2): "done"}, "a", "b")

    async def leave(orchestrator: Orchestrator) -> None:
        async with aclosing(orchestrator.stream("the job")) as events:
            async for event in events:
                if event.type == "tool_result" and event.agent == "b":
                    break

    play.within(leave)
    [(_, root, *_)] = receiver.tree()
    assert root == "invoke_workflow a"
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)
    assert ends(receiver.spans)["invoke_workflow a"] == ("ERROR", "cancelled")


def test_a_resumed_run_goes_on_below_its_first_sitting_with_the_totals_so_far(
    tmp_path: Path, receiver: Receiver
) -> None:
    script = {("a", 1): ask, ("a", 2): "done", ("b", 1): call("fx__pay", {"text": "a"}), ("b", 2): "paid"}
    play = stage(tmp_path, script, "a", "b", policy=PolicySettings(ask=("fx__pay",)))
    parked = play.run()
    play.decide(parked.run_id, every=True)
    assert play.resume(parked.run_id).status == "finished"
    first, second = [span for span in receiver.spans if span.name == "invoke_workflow a"]
    assert {span.trace_id for span in receiver.spans} == {parked.trace_id}
    assert (first.parent_id, second.parent_id) == ("", first.span_id)
    assert (first.status, first.attributes["orchestrator.run.status"]) == ("UNSET", "parked")
    assert [span.attributes["orchestrator.tree.model_calls"] for span in (first, second)] == [2, 4]
    inner = [agent("b", chat("b"), tool("b", "fx__pay"))]
    assert receiver.tree()[0][2:] == [
        agent("a", chat("a"), tool("a", "agents__b", agent("b", chat("b")))),
        run_of("a", chat("a"), tool("a", "agents__b", *inner)),
    ]
