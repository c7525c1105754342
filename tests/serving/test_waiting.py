"""Runs that outlive a call: approvals over the wire (E4), long calls, keys; a server that is killed or told to stop."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from tests.serving.served import WAYS, House, bell, rung, served, text
from tests.support.command import call, orchestrator

both = pytest.mark.parametrize(("way", "era"), WAYS)
approvals = pytest.mark.requirement("E4")

AGENTS = {"boss": "tools: []\nagents: [hand]", "hand": "tools: [fx__pay]"}
PAY = (
    {"agent": "boss", "calls": [call("agents__hand", task="pay")]},
    {"agent": "hand", "calls": [call("fx__pay", text="the rent")]},
    {"agent": "hand", "text": "paid"},
    {"agent": "boss", "text": "all done"},
)
TASK = {"task": "the job"}


@approvals
@both
def test_a_person_is_asked_once_through_the_caller(tmp_path: Path, way: str, era: str) -> None:
    """Two agents down, while the call is open; the tool runs once."""
    house = House.build(tmp_path, AGENTS, *PAY)
    asked: list[str] = []

    async def person(context: Any, params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        assert params.requested_schema["required"] == ["decision"]
        return ElicitResult(action="accept", content={"decision": "approve", "note": "go"})

    async def main() -> CallToolResult:
        async with served(house, way, era, elicitation_callback=person) as client:
            return await client.call_tool("boss", TASK)

    result = anyio.run(main)
    assert (text(result), house.effects) == ("all done", ["pay"])
    (message,) = asked
    assert message.startswith('hand wants to call fx__pay with {"text": "the rent"}\nbecause: ')


@approvals
@both
@pytest.mark.parametrize("answer", [ElicitResult(action="decline"), ElicitResult(action="cancel")])
def test_no_is_no_and_no_answer_waits(tmp_path: Path, way: str, era: str, answer: ElicitResult) -> None:
    house = House.build(tmp_path, AGENTS, *PAY)

    async def person(context: Any, params: ElicitRequestFormParams) -> ElicitResult:
        return answer

    async def main() -> CallToolResult:
        async with served(house, way, era, elicitation_callback=person) as client:
            return await client.call_tool("boss", TASK)

    result = anyio.run(main)
    assert house.effects == []
    assert not result.is_error
    if answer.action == "decline":
        assert text(result) == "all done"
    else:
        assert "waiting for approval: run " in text(result)
        assert house.statuses == ["parked"]


@approvals
def test_a_question_is_bounded_and_masked_and_only_a_clear_answer_counts(tmp_path: Path) -> None:
    secret = f"sk-{'a1' * 12}"
    replies = (PAY[0], {"agent": "hand", "calls": [call("fx__pay", text=f"{secret} {'x' * 9_000}")]}, *PAY[2:])
    house = House.build(tmp_path, AGENTS, *replies)
    answers = [{"decision": "perhaps"}, {"decision": "deny", "note": "rather not today"}]
    asked: list[str] = []

    async def person(context: Any, params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content=answers[len(asked) - 1])

    async def main() -> CallToolResult:
        async with served(house, "http", "2026-07-28", elicitation_callback=person) as client:
            return await client.call_tool("boss", TASK)

    assert text(anyio.run(main)) == "all done"
    assert [(secret in each, len(each) < 4_100) for each in asked] == [(False, True)] * 2
    assert house.effects == []
    with closing(sqlite3.connect(tmp_path / "home" / "journal.sqlite")) as journal:
        events = [body for (body,) in journal.execute("SELECT body FROM events")]
    assert any(b"rather not today" in event for event in events)


@approvals
def test_a_damaged_key_is_said(tmp_path: Path) -> None:
    house = House.build(tmp_path, AGENTS)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "serving.key").write_bytes(b"short")
    ended = orchestrator("serve", "--port", "0", *house.arguments, folder=tmp_path)
    assert ended.code != 0
    assert "serving.key is damaged; delete it" in ended.err


@approvals
@both
def test_a_host_that_cannot_ask_is_told_what_waits(tmp_path: Path, way: str, era: str) -> None:
    """The person approves at a command line, and the answer is collected by the run's id."""
    house = House.build(tmp_path, AGENTS, *PAY)

    async def main() -> tuple[CallToolResult, CallToolResult]:
        async with served(house, way, era) as client:
            waiting = await client.call_tool("boss", TASK)
            run = (waiting.meta or {})["orchestrator/run"]
            assert (waiting.meta or {})["orchestrator/spent"]["usage"]["model_calls"] == 2
            assert f"orchestrator approve {run} t1.1/t1.1" in text(waiting)
            told = await anyio.to_thread.run_sync(lambda: orchestrator("approve", run, folder=tmp_path))
            assert told.code == 0, told.err
            return waiting, await client.call_tool("run_result", {"run": run})

    waiting, result = anyio.run(main)
    assert not waiting.is_error
    assert (text(result), house.effects) == ("all done", ["pay"])


@approvals
def test_an_answer_counts_once_and_after_a_kill(tmp_path: Path) -> None:
    """Both sides are gone when it comes. Altered, replayed or for another call, it is refused."""
    house = House.build(tmp_path, AGENTS, *PAY)
    yes = {"t1.1/t1.1": ElicitResult(action="accept", content={"decision": "approve"})}
    no = {"t1.1/t1.1": ElicitResult(action="decline")}

    async def person(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("asked by hand here")

    async def ask() -> InputRequiredResult:
        async with house.client("http", "2026-07-28", elicitation_callback=person) as client:
            found = await client.session.call_tool("boss", TASK, allow_input_required=True)
            assert isinstance(found, InputRequiredResult)
            return found

    async def answer(state: str, said: Any, task: Any = TASK) -> Any:
        """What came of it; the words of the refusal, where it is refused."""
        async with house.client("http", "2026-07-28", elicitation_callback=person) as client:
            more = {"request_state": state, "input_responses": said, "allow_input_required": True}
            try:
                return await client.session.call_tool("boss", task, **more)
            except MCPError as refused:
                return str(refused)

    house.start()
    asked = anyio.run(ask)
    assert list(asked.input_requests or {}) == ["t1.1/t1.1"]
    state = asked.request_state or ""
    house.end(signal.SIGKILL)
    house.start()
    assert "altered" in anyio.run(answer, state[:-4] + "AAAA", yes)
    assert "another call" in anyio.run(answer, state, yes, {"task": "another job"})
    assert house.effects == []
    result = anyio.run(answer, state, yes)
    assert (text(result), house.effects) == ("all done", ["pay"])
    assert "answered already" in anyio.run(answer, state, no)
    assert "answered already" in anyio.run(answer, state, yes)
    assert house.end() == 0
    assert house.effects == ["pay"]
    assert oct((tmp_path / "home" / "serving.key").stat().st_mode)[-3:] == "600"


@both
@pytest.mark.requirement("E3")
def test_a_long_call_says_where_its_answer_will_be(tmp_path: Path, way: str, era: str) -> None:
    """Also one that is told so before its journal has begun."""
    agents = {"lone": "tools: [fx__wait]"}
    replies = ({"calls": [call("fx__wait", ms=1500)]}, {"text": "at last"})
    house = House.build(tmp_path, agents, *replies, settings="[serve]\nanswer_within = 0.01\n")

    async def main() -> tuple[CallToolResult, CallToolResult]:
        async with served(house, way, era) as client:
            early = await client.call_tool("lone", TASK)
            run = (early.meta or {})["orchestrator/run"]
            while True:
                late = await client.call_tool("run_result", {"run": run, "wait": 30})
                if "still running" not in text(late):
                    return early, late

    early, late = anyio.run(main)
    assert "still running: run " in text(early)
    assert not early.is_error
    assert (text(late), house.effects) == ("at last", ["wait"])


@both
@pytest.mark.requirement("E3")
def test_the_same_key_finds_the_same_run(tmp_path: Path, way: str, era: str) -> None:
    """Also after the server's end; with other arguments it is an error."""
    house = House.build(tmp_path, {"lone": "tools: [fx__look]"}, {"calls": [call("fx__look", text="a")]}, {"text": "a"})
    meta: Any = {"orchestrator/key": "outer/t1.1"}

    async def once() -> CallToolResult:
        async with served(house, way, era) as client:
            return await client.call_tool("lone", TASK, meta=meta)

    async def twice() -> tuple[CallToolResult, CallToolResult]:
        async with served(house, way, era) as client:
            again = await client.call_tool("lone", TASK, meta=meta)
            return again, await client.call_tool("lone", {"task": "another"}, meta=meta)

    first = anyio.run(once)
    again, other = anyio.run(twice)
    assert (first.meta or {})["orchestrator/spent"] == (again.meta or {})["orchestrator/spent"]
    assert house.effects == ["look"]
    assert other.is_error
    assert "was used for another call" in text(other)


@pytest.mark.requirement("E3")
def test_a_keyed_call_goes_on_after_a_kill(tmp_path: Path) -> None:
    """In the middle of a tool's call; what only reads is called again, and the spent total counts both sittings."""
    house = House.build(tmp_path, {"lone": "tools: [fx__hang, fx__look]"}, {"calls": [call("fx__hang", text="a")]})
    pipe = bell(tmp_path)
    meta: Any = {"orchestrator/key": "outer/t1.1"}

    async def cut() -> None:
        async with house.client("http", "2025-11-25") as client, anyio.create_task_group() as group:

            async def lost() -> None:
                with pytest.raises(MCPError):
                    await client.call_tool("lone", TASK, meta=meta)

            group.start_soon(lost)
            await rung(pipe)
            house.end(signal.SIGKILL)

    async def go_on() -> None:
        async with house.client("http", "2026-07-28") as client, anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("lone", TASK, meta=meta))
            await rung(pipe)
            group.cancel_scope.cancel()

    house.start()
    anyio.run(cut)
    house.start()
    anyio.run(go_on)
    assert house.end() == 0
    os.close(pipe)
    assert [effect for effect in house.effects if effect != "cancelled"] == ["hang", "hang"]
    assert house.statuses == ["parked"]  # who has a key may come again: one run, not two


@pytest.mark.requirement("E3", "A3")
def test_who_comes_back_at_once_goes_on_and_a_call_that_begins_nothing_says_so(tmp_path: Path) -> None:
    """The run of the caller that left is still being parked then."""
    replies = ({"calls": [call("fx__hang", text="a")]}, {"text": "done"})
    house = House.build(tmp_path, {"lone": "tools: [fx__hang]"}, *replies)
    pipe = bell(tmp_path)
    meta: Any = {"orchestrator/key": "outer/t1.1"}

    async def main() -> tuple[CallToolResult, CallToolResult]:
        async with served(house, "http", "2026-07-28") as client:
            for times in (1, 2):
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: client.call_tool("lone", TASK, meta=meta))
                    await rung(pipe)
                    group.cancel_scope.cancel()
                while house.effects.count("cancelled") < times:  # noqa: ASYNC110 - the server is another process
                    await anyio.sleep(0.01)
            (tmp_path / "ledger.free").touch()
            return await client.call_tool("lone", TASK, meta=meta), await client.call_tool("lone", {}, meta=meta)

    last, wrong = anyio.run(main)
    os.close(pipe)
    assert (text(last), house.statuses) == ("done", ["finished"])
    assert (wrong.is_error, (wrong.meta or {})["orchestrator/unbegun"]) == (True, True)


@both
@pytest.mark.requirement("E3", "A3")
def test_the_callers_limits_hold(tmp_path: Path, way: str, era: str) -> None:
    replies = [{"agent": "boss", "calls": [call("agents__hand", task="x")]}, {"agent": "boss", "text": "done"}]
    house = House.build(
        tmp_path, {"boss": AGENTS["boss"], "hand": "tools: []"}, *replies, {"agent": "hand", "text": "h"}
    )

    def limits(**each: Any) -> Any:
        return {"orchestrator/limits": each}

    async def main() -> list[Any]:
        async with served(house, way, era) as client:
            few = await client.call_tool("boss", TASK, meta=limits(tokens=40))
            flat = await client.call_tool("boss", TASK, meta=limits(depth=1))
            deep = await client.call_tool("boss", TASK, meta=limits(depth=2))
            with pytest.raises(MCPError, match="tokens"):
                await client.call_tool("boss", TASK, meta=limits(tokens="many"))
            with pytest.raises(MCPError, match="depth is 0"):
                await client.call_tool("boss", TASK, meta=limits(depth=0))
            return [few, flat, deep]

    few, flat, deep = anyio.run(main)
    assert few.meta["orchestrator/spent"]["stop_reason"] == "max_tokens"
    assert "does not offer" in text(flat)  # its own level is the last one, so it has nobody to call
    assert text(deep) == "done"


@pytest.mark.requirement("F1")
def test_the_run_stands_below_the_callers_span(tmp_path: Path) -> None:
    """Its trace is the caller's, across park and resume; nothing of the protocol's package stands between."""
    house = House.build(tmp_path, AGENTS, *PAY)
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    meta: Any = {"traceparent": f"00-{trace}-{span}-01"}

    async def main() -> CallToolResult:
        async with served(house, "http", "2026-07-28") as client:
            waiting = await client.call_tool("boss", TASK, meta=meta)
            run = (waiting.meta or {})["orchestrator/run"]
            await anyio.to_thread.run_sync(lambda: orchestrator("approve", run, folder=tmp_path))
            return await client.call_tool("run_result", {"run": run})

    result = anyio.run(main)
    assert text(result) == "all done"
    assert (result.meta or {})["orchestrator/spent"]["trace_id"] == trace
    spans = house.spans
    assert {each["traceId"] for each in spans} == {trace}
    first, second = (each for each in spans if each["name"] == "invoke_workflow boss")
    assert first["parentSpanId"] == span
    assert second["parentSpanId"] == first["spanId"]
    assert not [each["name"] for each in spans if each["name"].startswith(("tools/call", "MCP"))]


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_parks_what_runs_and_the_server_ends_well(tmp_path: Path, number: int) -> None:
    """The caller gets a reply that says so; the run can be resumed."""
    agents, hang = {"lone": "tools: [fx__hang]"}, {"calls": [call("fx__hang", text="a")]}
    house = House.build(tmp_path, agents, hang, settings="[serve]\ngrace = 0\n")
    pipe = bell(tmp_path)

    async def main() -> CallToolResult:
        house.start()
        assert house.process is not None
        async with house.client("http", "2025-11-25") as client:
            replies: list[CallToolResult] = []

            async def ask() -> None:
                replies.append(await client.call_tool("lone", TASK))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await rung(pipe)
                house.process.send_signal(number)
            return replies[0]

    reply = anyio.run(main)
    assert house.process is not None
    house.process.communicate(timeout=60)  # closes its pipes as well
    assert house.process.returncode == 0
    os.close(pipe)
    assert "was interrupted and can go on" in text(reply)
    assert house.statuses == ["parked"]


@pytest.mark.requirement("E3")
@pytest.mark.parametrize("way", ["signal", "end of input"])
def test_a_server_on_stdio_ends_with_its_host(tmp_path: Path, way: str) -> None:
    """On a signal the host still gets its reply. Nothing but the protocol is ever on stdout."""
    agents, hang = {"lone": "tools: [fx__hang]"}, {"calls": [call("fx__hang", text="a")]}
    house = House.build(tmp_path, agents, hang, settings="[serve]\ngrace = 0\n")
    pipe = bell(tmp_path)
    with house.raw() as process:
        assert process.stdin is not None
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        params = {"name": "lone", "arguments": TASK}
        for message in (
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": params},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        anyio.run(rung, pipe)
        if way == "signal":
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        out, err = process.communicate(timeout=60)
    os.close(pipe)
    messages = [json.loads(line) for line in out.splitlines()]
    assert (process.returncode, err) == (0, "")
    assert house.effects == ["hang", "cancelled"]
    if way == "signal":
        assert "was interrupted and can go on" in messages[-1]["result"]["content"][0]["text"]
    assert house.statuses == ["parked" if way == "signal" else "cancelled"]
