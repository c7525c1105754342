"""Orchestrators that call each other's agents when something goes wrong between them: one run, one trace, one sum."""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.serving.chain import TOKENS, Office, serving
from tests.serving.relay import Relay, relay
from tests.serving.served import bell, rung
from tests.support.command import call

ASKING = Path(__file__).parents[1] / "support" / "asking_server.py"
ALLOW = '[policy]\nallow = ["*"]\n'


def tokens(found: Any) -> int:
    return found["usage"]["input_tokens"] + found["usage"]["output_tokens"]


def runs_of(office: Office) -> list[Any]:
    """All runs that an office's journal has, as `runs show --json` gives them."""
    rows = office.command("runs", "--json").json
    return [office.command("runs", "show", row["run_id"], "--json").json for row in rows]


@pytest.mark.requirement("A3")
def test_calls_at_once_stay_within_the_limit_at_the_top_and_add_up(tmp_path: Path) -> None:
    """Three calls of the middle one go as far as they may; the inner ones are told their shares. One of them fails."""
    limit = 9_000
    look = {"agent": "leaf", "calls": [call("fx__look", text="x")]}
    looks = [{**look, "task": task, "turn": turn} for task in ("aa", "cc") for turn in range(1, 40)]
    fails = [{**look, "task": "bb", "turn": turn} for turn in (1, 2)]
    varied = [{**each, "calls": [call("fx__look", text=f"{n}")]} for n, each in enumerate([*looks, *fails])]
    inner = Office(tmp_path / "inner", {"leaf": "tools: [fx__*]\nlimits: {steps: 40}"}, varied)
    three = {"agent": "mid", "calls": [call("inner__leaf", task=task) for task in ("aa", "bb", "cc")]}
    middle = Office(tmp_path / "middle", {"mid": "tools: [inner__*]"}, [three, {"agent": "mid"}], below=inner)
    replies = [{"agent": "top", "calls": [call("inner__mid", task="all")]}, {"agent": "top", "text": "All done."}]
    top = Office(tmp_path / "top", {"top": "tools: [inner__*]"}, replies, below=middle)
    with serving(inner, middle):
        ended = top.run("--max-tokens", limit)
    assert ended.code in (0, 3), ended.err
    leaves, (mid,) = runs_of(inner), runs_of(middle)
    assert sorted(leaf["stop_reason"] for leaf in leaves) == ["error", "max_tokens", "max_tokens"]
    below = sum(map(tokens, leaves))
    own = [found["own_usage"]["input_tokens"] + found["own_usage"]["output_tokens"] for found in (ended.json, mid)]
    assert tokens(mid) == own[1] + below
    assert tokens(ended.json) == sum(own) + below <= limit
    assert max(map(tokens, leaves)) <= (limit - 2 * TOKENS) / 3


def paying(folder: Path, *more: dict[str, Any]) -> Office:
    """Its one agent pays, does more, and says so."""
    replies = [{"calls": [call("fx__pay", text="5")]}, *more, {"text": "Paid."}]
    return Office(
        folder / "inner", {"leaf": "tools: [fx__*]"}, [{"agent": "leaf", **each} for each in replies], settings=ALLOW
    )


def calling(folder: Path, below: Office, **more: Any) -> Office:
    replies = [{"agent": "top", "calls": [call("inner__leaf", task="pay")]}, {"agent": "top", "text": "It is paid."}]
    return Office(folder / "top", {"top": "tools: [inner__*]"}, replies, below=below, **more)


@pytest.mark.requirement("A3", "H1")
def test_a_reply_that_is_lost_is_collected_and_nothing_is_done_twice(tmp_path: Path) -> None:
    inner = paying(tmp_path, {"calls": [call("fx__wait", ms=300)]})
    (inner.folder / "orchestrator.toml").write_text(f"{ALLOW}[serve]\nanswer_within = 0.1\n")
    with serving(inner), relay(inner.port, lose=lambda _: gate.lost == 0) as gate:
        ended = calling(tmp_path, inner, gateway=gate.port).run("--max-tokens", 100_000)
    assert ended.code == 0, ended.err
    assert (gate.lost, len(gate.calls), inner.effects) == (1, 2, ["pay", "wait"])
    first, second = ({**params["_meta"]} for params in gate.calls)
    assert first["orchestrator/key"] == second["orchestrator/key"]
    assert (tokens(ended.json), ended.json["usage"]["tool_calls"]) == (5 * TOKENS, 3)
    (found,) = runs_of(inner)
    assert found["trace_id"] == ended.json["trace_id"]


@pytest.mark.requirement("A3", "H1", "F1")
@pytest.mark.parametrize("pipe", [False, True], ids=["http", "pipe"])
def test_a_caller_that_was_killed_finds_the_run_again(tmp_path: Path, pipe: bool) -> None:
    """In the middle of a tool's call, three processes down from whoever asked for it."""
    inner = paying(tmp_path, {"calls": [call("fx__hang", text="x")]})
    top = calling(tmp_path, inner, pipe=pipe)
    pipe_of_bell = bell(inner.folder)
    with serving(*([] if pipe else [inner])):
        begun = top.begin(*top.job)
        with begun:
            anyio.run(rung, pipe_of_bell)
            begun.kill()
        (inner.folder / "ledger.free").touch()
        (row,) = top.command("runs", "--json").json
        ended = top.command("resume", row["run_id"], "--json")
    os.close(pipe_of_bell)
    assert ended.code == 0, ended.err
    assert [effect for effect in inner.effects if effect != "cancelled"] == ["pay", "hang", "hang"]
    (found,) = runs_of(inner)
    assert (found["status"], found["trace_id"]) == ("finished", ended.json["trace_id"])
    assert tokens(ended.json) == 5 * TOKENS == 2 * TOKENS + tokens(found)


@pytest.mark.requirement("A3")
def test_a_share_counts_whole_when_nobody_can_say_any_more_what_came_of_it(tmp_path: Path) -> None:
    """The caller was killed in the middle of a call, and finds the other one gone: it may have used all of that."""
    inner = paying(tmp_path, {"calls": [call("fx__hang", text="x")]})
    top = calling(tmp_path, inner)
    pipe = bell(inner.folder)
    with serving(inner), top.begin(*top.job, "--max-tokens", 50_000) as begun:
        anyio.run(rung, pipe)
        begun.kill()
        inner.kill()
    os.close(pipe)
    (row,) = top.command("runs", "--json").json
    ended = top.command("resume", row["run_id"], "--json")
    assert (ended.code, ended.json["stop_reason"]) == (3, "max_tokens"), ended.err
    assert "unavailable" in ended.json["steps"][0]["actions"][0]["observation"]
    assert tokens(ended.json) == TOKENS


@pytest.mark.requirement("E4", "C7")
@pytest.mark.parametrize("older", [False, True], ids=["2026-07-28", "2025-11-25"])
def test_what_a_server_asks_three_processes_down_is_answered_at_the_top(tmp_path: Path, older: bool) -> None:
    """A form and a page, in the era that the processes speak with each other. Each tool runs once."""
    asks = [{"calls": [call("ask__book", city="Rome")]}, {"calls": [call("ask__page")]}, {"text": "Booked."}]
    leaf = [{"agent": "leaf", **each} for each in asks]
    server = {"command": sys.executable, "args": [str(ASKING), str(tmp_path / "asked")]}
    inner = Office(tmp_path / "inner", {"leaf": "tools: [ask__*]"}, leaf, settings=ALLOW, more={"ask": server})
    with ExitStack() as stack:
        gates: list[Relay] = [stack.enter_context(relay(inner.port, older=older))]
        mid = [{"agent": "mid", "calls": [call("inner__leaf", task="book")]}, {"agent": "mid", "text": "It is booked."}]
        middle = Office(tmp_path / "middle", {"mid": "tools: [inner__*]"}, mid, below=inner, gateway=gates[0].port)
        gates.append(stack.enter_context(relay(middle.port, older=older)))
        over = [{"agent": "top", "calls": [call("inner__mid", task="go")]}, {"agent": "top", "text": "All booked."}]
        top = Office(tmp_path / "top", {"top": "tools: [inner__*]"}, over, below=middle, gateway=gates[1].port)
        stack.enter_context(serving(inner, middle))
        parked = top.run()
        run = parked.json["run_id"]
        (form,) = parked.json["approvals"]
        assert (form["call"], "seats" in form["input"]["schema"]["properties"]) == ("t1.1", True)
        answered = top.command("approve", run, "--arguments", '{"seats": 2}')
        assert answered.code == 0, answered.err
        (page,) = top.command("resume", run, "--json").json["approvals"]
        assert page["input"]["url"] == "https://bank.example@evil.example/login"
        assert top.command("approve", run).code == 0
        ended = top.command("resume", run, "--json")
    assert (ended.code, ended.json["answer"]) == (0, "All booked."), ended.err
    lines = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert [line for line in lines if "asked" not in line] == [{"booked": "Rome", "seats": 2}, {"page": "accept"}]
    assert tokens(ended.json) == 7 * TOKENS
    assert [len(runs_of(office)) for office in (top, middle, inner)] == [1, 1, 1]
    met = {params["_meta"].get("io.modelcontextprotocol/protocolVersion") for gate in gates for params in gate.calls}
    assert met == ({None} if older else {"2026-07-28"})


@pytest.mark.requirement("E4")
def test_a_no_is_told_to_the_agent_that_asked_in_the_older_protocol_too(tmp_path: Path) -> None:
    """Its run goes on with that, rather than to wait for ever."""
    inner = paying(tmp_path)
    (inner.folder / "orchestrator.toml").write_text("")
    with serving(inner), relay(inner.port, older=True) as gate:
        top = calling(tmp_path, inner, gateway=gate.port)
        parked = top.run()
        assert parked.code == 4, parked.err
        run = parked.json["run_id"]
        assert top.command("approve", run, "--deny", "--note", "too much").code == 0
        ended = top.command("resume", run, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["steps"][0]["actions"][0]["observation"].endswith("Paid.")
    (found,) = runs_of(inner)
    assert (found["status"], inner.effects) == ("finished", [])
    assert "too much" in found["steps"][0]["actions"][0]["observation"]
    assert tokens(ended.json) == 4 * TOKENS
