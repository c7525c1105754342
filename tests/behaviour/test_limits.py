"""How far a run may go: over the whole tree, counted before it is spent."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import ConfigurationError, Limits, ModelError, Options, Orchestrator, RunOptions, RunResult
from orchestrator.config import PolicySettings, Settings
from orchestrator.events import JournalEvent
from orchestrator.messages import Prices, Usage
from orchestrator.models.base import ModelRequest
from orchestrator.runtime.approvals import give_verdict
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import MemoryJournal, NullTracer, ScriptedModel, call, reply
from tests.behaviour.stage import SECONDS, Stage, allow
from tests.support.runs import card, cards

LEAST_OUTPUT = 256
PRICES = Prices(input=Decimal(10), output=Decimal(100))
KIDS = ("ann", "bob", "cat", "dan")


def desk() -> MCPServer:
    server = MCPServer("desk", log_level="ERROR")

    @server.tool()
    async def look(text: str) -> str:
        return f"saw {text}"

    @server.tool()
    async def hang(text: str) -> str:
        del text
        await anyio.sleep_forever()
        return ""

    return server


def at_worst(*parts: Any) -> Callable[[ModelRequest], Any]:
    """A reply that writes all it may, and reports what its request really had."""

    def answer(request: ModelRequest) -> Any:
        usage = Usage(input_tokens=len(request.body) // 4, output_tokens=request.max_output_tokens)
        made = [part(request) if callable(part) else part for part in parts]
        return reply(*made, usage=usage)

    return answer


def look(request: ModelRequest) -> Any:
    return call("desk__look", {"text": f"{request.agent} {request.turn}"})


def on(folder: Path, script: Any, *team: Any, **more: Any) -> Stage:
    return Stage(folder, script, *(team or (boss(),)), servers={"desk": desk()}, **more)


def boss(**more: Any) -> Any:
    return card("boss", **{"tools": ("desk__*",), **more})


def spent(result: RunResult) -> int:
    return result.usage.input_tokens + result.usage.output_tokens


@pytest.mark.requirement("A2", "A12")
@pytest.mark.parametrize(
    ("limits", "own", "steps"),
    [(None, None, 12), (Limits(steps=3), None, 3), (None, 5, 5), (Limits(steps=3), 5, 3), (Limits(steps=1), None, 1)],
    ids=["default", "of the run", "of the card", "the run's before the card's", "one"],
)
def test_so_many_turns_and_one_closing_request(
    tmp_path: Path, limits: Limits | None, own: int | None, steps: int
) -> None:
    stage = on(
        tmp_path, {"boss": lambda request: look(request) if request.tools else "So far."}, boss(limits={"steps": own})
    )
    result = stage.run(limits=limits)
    assert (result.status, result.stop_reason) == ("stopped", "max_steps")
    assert [bool(request.tools) for request in stage.requests] == [True] * steps + [False]
    assert "tools" not in stage.bodies("boss")[-1]
    assert "max_steps" in stage.last("boss")
    assert result.answer.startswith("So far.")
    assert "max_steps" in result.answer
    assert (len(result.steps), result.usage.tool_calls, result.usage.model_calls) == (steps, steps, steps + 1)
    assert stage.seen.of("final_answer")[-1].answer == result.answer


@pytest.mark.requirement("A2")
def test_an_answer_in_the_last_turn_is_an_answer(tmp_path: Path) -> None:
    stage = on(tmp_path, {("boss", 1): look, ("boss", 2): "done"})
    assert stage.run(limits=Limits(steps=2)).stop_reason == "answered"


@pytest.mark.requirement("A2", "A3")
@pytest.mark.parametrize("limit", [2_000, 6_000, 9_999, 20_000])
def test_tokens_of_input_and_output_stay_within_the_limit(tmp_path: Path, limit: int) -> None:
    stage = on(tmp_path, {"boss": at_worst("Looking.", look)})
    result = stage.run(limits=Limits(tokens=limit))
    assert (result.status, result.stop_reason) == ("stopped", "max_tokens")
    assert limit - 2 * LEAST_OUTPUT - 1_000 < spent(result) <= limit, "as much as fits, and no more"
    asked = [request.max_output_tokens for request in stage.requests]
    assert asked[0] == min(4096, asked[0])
    assert min(asked) >= LEAST_OUTPUT
    assert asked == sorted(asked, reverse=True), "a smaller output is asked for before a call is refused"
    assert "Last thought: Looking." in result.answer
    assert "max_tokens" in result.answer
    assert str(limit) in result.answer


@pytest.mark.requirement("A2", "A3")
def test_what_cannot_fit_is_not_even_asked(tmp_path: Path) -> None:
    stage = on(tmp_path, {"boss": at_worst("never")})
    result = stage.run(limits=Limits(tokens=LEAST_OUTPUT))
    assert (result.status, result.stop_reason, result.usage.model_calls) == ("stopped", "max_tokens", 0)
    assert "max_tokens" in result.answer


@pytest.mark.requirement("A3", "B6")
@pytest.mark.parametrize(("limit", "asked"), [(250, False), (300, False), (500, True)])
def test_an_output_too_small_to_be_of_use_is_not_asked_for(tmp_path: Path, limit: int, asked: bool) -> None:
    stage = on(tmp_path, {"boss": at_worst("done")}, boss(tools=()))
    result = stage.run("go", limits=Limits(tokens=limit))
    assert [request.max_output_tokens >= LEAST_OUTPUT for request in stage.requests] == [True] * asked
    assert result.status == ("finished" if asked else "stopped")


def team_of_four(**more: Any) -> Any:
    kids = [card(name, tools=("desk__*",), **more) for name in KIDS]
    return card("boss", tools=(), agents=KIDS), *kids


def ask_all(_: ModelRequest) -> Any:
    return [call(f"agents__{name}", {"task": "go"}) for name in KIDS]


@pytest.mark.requirement("A3", "E2")
@pytest.mark.parametrize("limit", [3_000, 10_000, 30_000])
def test_children_at_once_never_exceed_the_limit_together(tmp_path: Path, limit: int) -> None:
    script = {("boss", 1): ask_all, "boss": "all done", **{name: at_worst(look) for name in KIDS}}
    stage = on(tmp_path, script, *team_of_four())
    result = stage.run(limits=Limits(tokens=limit))
    assert spent(result) <= limit
    answers = [action.observation for action in result.steps[0].actions]
    assert len(answers) == 4
    assert all("max_tokens" in answer for answer in answers)


@pytest.mark.requirement("A3", "A12")
def test_money_stays_within_the_limit(tmp_path: Path) -> None:
    stage = on(tmp_path, {"boss": at_worst(look)}, prices=PRICES)
    result = stage.run(limits=Limits(cost=0.9))
    assert (result.status, result.stop_reason) == ("stopped", "max_cost")
    assert result.cost.known
    expected = (result.usage.input_tokens * 10 + result.usage.output_tokens * 100) / 1_000_000
    assert result.cost.amount == pytest.approx(expected)
    assert 0.8 < result.cost.amount <= 0.9
    assert "$0.9" in result.answer


@pytest.mark.requirement("A3", "E2")
def test_money_of_children_at_once(tmp_path: Path) -> None:
    script = {("boss", 1): ask_all, "boss": "all done", **{name: at_worst(look) for name in KIDS}}
    result = on(tmp_path, script, *team_of_four(), prices=PRICES).run(limits=Limits(cost=0.9))
    assert result.cost.amount <= 0.9


@pytest.mark.requirement("A3", "B9")
def test_a_limit_on_money_needs_a_price(tmp_path: Path) -> None:
    stage = on(tmp_path, {"boss": "never"})
    with pytest.raises(ConfigurationError, match="price"):
        stage.run(limits=Limits(cost=1.0))
    assert not stage.requests


@pytest.mark.requirement("A2", "A9")
@pytest.mark.parametrize("what", ["tool", "model"])
def test_time_ends_what_hangs(tmp_path: Path, what: str) -> None:
    async def hang(_: ModelRequest) -> Any:
        await anyio.sleep_forever()

    turn = call("desk__hang", {"text": "a"}) if what == "tool" else hang
    stage = on(tmp_path, {("boss", 1): ["I look.", look_at("a")], "boss": turn})
    result = stage.run(limits=Limits(seconds=0.5))
    assert (result.status, result.stop_reason) == ("stopped", "timeout")
    assert "timeout (0.5 seconds)" in result.answer
    assert "I look." in result.answer
    assert len(stage.requests) == 2
    assert result.duration_s < 10


def look_at(text: str) -> Any:
    return call("desk__look", {"text": text})


@pytest.mark.requirement("A8", "A9")
def test_time_ends_calls_that_wait_for_their_turn_at_a_server(tmp_path: Path) -> None:
    three = [call("fx__hang", {"text": text}) for text in "abc"]
    stage = Stage(tmp_path, {"boss": lambda _: three}, card("boss", tools=("fx__*",)), fx={"concurrency": 1})
    result = stage.run(limits=Limits(seconds=2))
    assert result.stop_reason == "timeout"
    assert [action.is_error for action in result.steps[0].actions] == [True] * 3
    assert result.duration_s < 3.5, "the time of the run is not given to each call anew"


@pytest.mark.requirement("A2")
def test_a_closing_request_that_takes_too_long_keeps_the_first_limit(tmp_path: Path) -> None:
    async def answer(request: ModelRequest) -> Any:
        if not request.tools:
            await anyio.sleep_forever()
        return look(request)

    result = on(tmp_path, {"boss": answer}).run(limits=Limits(steps=2, seconds=1))
    assert (result.status, result.stop_reason) == ("stopped", "max_steps")
    assert "saw boss 2" in result.answer


class Aged(MemoryJournal):
    """A journal in which everything happened some time ago, or took longer than it did."""

    ago, slower = 0.0, 1.0

    async def tree(self, root: str) -> dict[str, list[JournalEvent]]:
        found = await super().tree(root)
        first = found[root][0].at

        def aged(event: JournalEvent) -> JournalEvent:
            return event.model_copy(update={"at": first + (event.at - first) * self.slower - self.ago})

        return {run: [aged(event) for event in events] for run, events in found.items()}


def parked_twice(age: Callable[[Aged, int], None]) -> RunResult:
    """A run of two calls that are asked for; before each of its later sittings the journal is aged."""
    journal = Aged()
    script = {1: look_at("a"), 2: look_at("b"), 3: "done"}
    options = Options(
        settings=Settings(policy=allow()),
        cards=cards(boss()),
        servers={"desk": desk()},
        model=ScriptedModel(lambda request: script[request.turn]),
        journal=journal,
        tracer=NullTracer(),
    )

    async def main() -> RunResult:
        with anyio.fail_after(SECONDS):
            async with Orchestrator(options, agent="boss") as orchestrator:
                result = await orchestrator.run("the job", limits=Limits(seconds=100))
                for sitting in (1, 2):
                    if result.status == "parked":
                        age(journal, sitting)
                        await give_verdict(journal, result.run_id, Verdict(approved=True))
                        result = await orchestrator.resume(result.run_id)
                return result

    return anyio.run(main)


@pytest.mark.requirement("A3", "C7", "E4")
def test_time_while_parked_does_not_count() -> None:
    def days_pass(journal: Aged, sitting: int) -> None:
        journal.ago = sitting * 86_400.0

    result = parked_twice(days_pass)
    assert (result.status, result.answer) == ("finished", "done")
    assert result.duration_s < 100


@pytest.mark.requirement("A3", "E4")
def test_time_of_earlier_sittings_does_count() -> None:
    def it_was_slow(journal: Aged, sitting: int) -> None:
        journal.slower = 1e9

    result = parked_twice(it_was_slow)
    assert (result.status, result.stop_reason) == ("stopped", "timeout")
    assert result.steps[0].actions[0].is_error, "what was approved is not begun when the time is up"


@pytest.mark.requirement("A3", "E2")
def test_model_calls_of_the_whole_tree(tmp_path: Path) -> None:
    script = {("boss", 1): ask_all, "boss": "all done", **dict.fromkeys(KIDS, look)}
    result = on(tmp_path, script, *team_of_four()).run(limits=Limits(model_calls=7))
    assert result.usage.model_calls == 7
    assert result.stop_reason == "max_steps"
    assert "7 model calls" in result.answer


@pytest.mark.requirement("A3")
def test_a_tree_makes_a_hundred_model_calls_by_default(tmp_path: Path) -> None:
    script = {("boss", 1): ask_all, "boss": "all done", **dict.fromkeys(KIDS, look)}
    result = on(tmp_path, script, *team_of_four(limits={"steps": 1000})).run()
    assert (result.usage.model_calls, result.stop_reason) == (100, "max_steps")


CHILD_LIMITS = {
    "max_steps": {"steps": 2},
    "max_tokens": {"tokens": 5_000},
    "max_cost": {"cost": 0.45},
    "timeout": {"seconds": 0.5},
}


@pytest.mark.requirement("A2", "A3", "E2")
@pytest.mark.parametrize("limit", CHILD_LIMITS)
def test_a_childs_own_limit_ends_the_child_only(tmp_path: Path, limit: str) -> None:
    async def kid(request: ModelRequest) -> Any:
        if limit == "timeout" and request.turn > 1:
            await anyio.sleep_forever()
        return at_worst("I am at it.", look)(request)

    script = {("boss", 1): call("agents__kid", {"task": "go"}), "boss": "went on", "kid": kid}
    team = (boss(agents=("kid",)), card("kid", tools=("desk__*",), limits=CHILD_LIMITS[limit]))
    result = on(tmp_path, script, *team, prices=PRICES).run()
    assert (result.status, result.answer) == ("finished", "went on")
    (action,) = result.steps[0].actions
    assert not action.is_error
    assert limit in action.observation
    assert "I am at it." in action.observation


@pytest.mark.requirement("A3")
def test_a_childs_limit_does_not_widen_the_runs(tmp_path: Path) -> None:
    script = {("boss", 1): call("agents__kid", {"task": "go"}), "boss": "went on", "kid": at_worst(look)}
    team = (boss(agents=("kid",)), card("kid", tools=("desk__*",), limits={"tokens": 900_000, "steps": 50}))
    result = on(tmp_path, script, *team).run(limits=Limits(tokens=10_000))
    assert spent(result) <= 10_000
    assert "max_tokens" in result.steps[0].actions[0].observation


@pytest.mark.requirement("A3", "E4", "H1")
@pytest.mark.parametrize("nested", [False, True])
def test_what_was_spent_before_a_resume_is_spent(tmp_path: Path, nested: bool) -> None:
    agent = "kid" if nested else "boss"
    script = {("boss", 1): call("agents__kid", {"task": "go"}), "boss": "went on", agent: at_worst(look)}
    team = (boss(agents=("kid",)), card("kid", tools=("desk__*",))) if nested else (boss(),)
    if not nested:
        script = {"boss": at_worst(look)}
    stage = on(tmp_path, script, *team, policy=allow())
    result = stage.run(limits=Limits(tokens=15_000))
    sittings = 1
    while result.status == "parked":
        stage.decide(result.run_id)
        result = stage.resume(result.run_id)
        sittings += 1
    assert sittings > 3
    assert spent(result) <= 15_000
    told = result.steps[0].actions[0].observation if nested else result.answer
    assert "max_tokens" in told


@pytest.mark.requirement("A2", "E4")
def test_turns_before_a_resume_count(tmp_path: Path) -> None:
    stage = on(tmp_path, {"boss": look}, policy=allow())
    result = stage.run(limits=Limits(steps=3))
    while result.status == "parked":
        stage.decide(result.run_id)
        result = stage.resume(result.run_id)
    assert (result.stop_reason, len(result.steps)) == ("max_steps", 3)


@pytest.mark.requirement("A3", "B2")
def test_a_model_that_reports_no_usage_is_counted_by_estimate(tmp_path: Path) -> None:
    class Silent(ScriptedModel):
        async def stream(self, request: ModelRequest) -> Any:
            from dataclasses import replace

            async for part in super().stream(request):
                yield replace(part, usage=None) if hasattr(part, "usage") else part

    options = Options(
        settings=Settings(policy=allow("*")),
        cards=cards(boss()),
        servers={"desk": desk()},
        model=Silent(look),
        home=tmp_path,
        tracer=NullTracer(),
    )

    async def main() -> RunResult:
        async with Orchestrator(options, agent="boss") as orchestrator:
            return await orchestrator.run("the job", limits=Limits(tokens=3_000))

    result = anyio.run(main)
    assert result.stop_reason in ("max_tokens", "max_steps")
    assert 0 < spent(result) <= 3_000


@pytest.mark.requirement("A3")
def test_a_stream_that_broke_is_paid_for(tmp_path: Path) -> None:
    tried: list[int] = []

    def answer(request: ModelRequest) -> Any:
        tried.append(request.attempt)
        return ModelError("broken_stream", "it broke", retry_after=0.0)

    result = on(tmp_path, answer).run(limits=Limits(model_calls=2))
    assert (result.status, result.stop_reason) == ("stopped", "max_steps")
    assert tried == [1, 2], "every request counts, also one whose reply was lost"


@pytest.mark.requirement("A3")
def test_an_agent_that_is_at_its_end_waits_for_nobody(tmp_path: Path) -> None:
    done = anyio.Event()

    async def answer(request: ModelRequest) -> Any:
        if request.agent == "ann":
            await done.wait()  # holds a reservation until the other one has ended
        return "done"

    async def main() -> None:
        spender = card("bob", limits=Limits(tokens=1))
        team = card("boss", agents=("ann", "bob"))

        def play(request: ModelRequest) -> Any:
            if request.agent != "boss":
                return answer(request)
            both = [call("agents__ann", {"task": "x"}), call("agents__bob", {"task": "x"})]
            return both if request.turn == 1 else "end"

        def seen(event: Any) -> None:
            if event.type == "final_answer" and event.agent == "bob":
                done.set()

        stage = on(tmp_path, play, team, card("ann"), spender)
        with anyio.fail_after(SECONDS):
            async with stage.open() as orchestrator:
                assert (await orchestrator.run("go", on_event=seen)).status == "finished"

    anyio.run(main)


@pytest.mark.requirement("A3")
def test_a_cards_limit_on_money_needs_a_price_too(tmp_path: Path) -> None:
    team = [card("boss", agents=("kid",)), card("kid", limits=Limits(cost=0.01))]
    with pytest.raises(ConfigurationError, match="price"):
        on(tmp_path, {"boss": "done"}, *team).run()


@pytest.mark.requirement("A2")
def test_a_persons_time_is_not_the_runs(tmp_path: Path) -> None:
    async def main() -> RunResult:
        loop = asyncio.get_running_loop()
        real = loop.time

        async def slow(request: Any) -> Verdict:
            del request
            loop.time = lambda: real() + 3600  # an hour passes while the person thinks
            return Verdict(approved=True)

        script = {("boss", 1): call("desk__look", {"text": "a"}), ("boss", 2): "done"}
        stage = on(tmp_path, script, policy=PolicySettings(ask=("*",)))
        async with stage.open() as orchestrator:
            return await orchestrator.run("go", limits=Limits(seconds=60), options=RunOptions(approver=slow))

    assert anyio.run(main).status == "finished"
