"""Orchestrators that call each other's agents, as real processes: one budget, one trace, one sum."""

import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.serving.chain import TOKENS, USAGE, Office, serving
from tests.support.command import call, end, read_pipe, record
from tests.support.processes import give
from tests.tracing.receiver import http_receiver

CALLS_LEAF = call("inner__leaf", task="pay")
CALLS_MID = call("inner__mid", task="let it pay")


def chain(
    folder: Path, *, nested: bool = False, pipe: bool = False, env: Mapping[str, str] = {}
) -> tuple[Office, Office, Office]:
    """The top one calls `mid` of the middle one, which calls `leaf` of the inner one, which pays."""
    pays = [
        {"agent": "leaf", "text": "I pay.", "calls": [call("fx__pay", text="5")]},
        {"agent": "leaf", "text": "Paid."},
    ]
    inner = Office(folder / "inner", {"leaf": "tools: [fx__*]"}, pays, env=env)
    asks = [{"agent": "mid", "text": "", "calls": [CALLS_LEAF]}, {"agent": "mid", "text": "It has paid."}]
    middle = Office(folder / "middle", {"mid": "tools: [inner__*]"}, asks, below=inner, env=env)
    top = [{"agent": "top", "text": "", "calls": [CALLS_MID]}, {"agent": "top", "text": "All is paid."}]
    agents = {"top": "tools: [inner__*]"}
    if nested:
        agents = {"boss": "tools: []\nagents: [top]", **agents}
        boss: list[dict[str, Any]] = [
            {"agent": "boss", "text": "", "calls": [call("agents__top", task="go")]},
            {"agent": "boss", "text": "The top says so."},
        ]
        top = [*boss, *top]
    return Office(folder / "top", agents, top, below=middle, env=env, pipe=pipe), middle, inner


@pytest.mark.requirement("A3", "E4", "F1")
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_call_that_waits_three_processes_down_is_approved_at_the_top_after_all_were_killed(
    tmp_path: Path, verdict: str, nested: bool
) -> None:
    with http_receiver() as receiver:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        top, middle, inner = chain(tmp_path, nested=nested, env=env)
        with serving(inner, middle):
            parked = top.run()
            assert parked.code == 4, parked.err
            (request,) = parked.json["approvals"]
            assert request["call"] == ("t1.1/t1.1" if nested else "t1.1")
            assert "leaf wants to call fx__pay" in request["reason"]
            agents = 4 if nested else 3
            assert parked.json["usage"]["input_tokens"] + parked.json["usage"]["output_tokens"] == agents * TOKENS
            middle.kill()
            inner.kill()
        run, trace = parked.json["run_id"], parked.json["trace_id"]
        with serving(inner, middle):
            answer = ["--deny", "--note", "too much"] if verdict == "deny" else []
            approved = top.command("approve", run, *answer)
            assert approved.code == 0, approved.err
            ended = top.command("resume", run, "--json")
            assert ended.code == 0, ended.err
        assert inner.effects == (["pay"] if verdict == "approve" else [])
        usage = ended.json["usage"]
        assert usage["input_tokens"] + usage["output_tokens"] == 2 * agents * TOKENS
        assert usage["model_calls"] == 2 * agents
        assert usage["tool_calls"] == agents - (verdict == "deny")
        assert ended.json["own_usage"]["model_calls"] == 2
        shown = top.command("runs", "show", run, "--json")
        assert shown.json["usage"] == usage
        assert ended.json["trace_id"] == trace
    spans = {
        span.span_id: span for span in receiver.spans if span.scope != "mcp-python-sdk"
    }  # those tell of connections
    assert {span.trace_id for span in spans.values()} == {trace}
    # A busy machine's collector may be too slow for the last ones, which are kept then.
    found = [(span.parent_id, span.span_id, span.name, span.attributes) for span in spans.values()]
    found += [(span["parentSpanId"], span["spanId"], span["name"], span["attributes"]) for span in top.spans]
    first, last = (each for each in found if each[2] == f"invoke_workflow {next(iter(top.agents))}")
    assert (first[0], last[0]) == ("", first[1])
    for name, count in usage.items():
        assert last[3][f"orchestrator.tree.{name}"] == count
        assert last[3][f"orchestrator.own.{name}"] == ended.json["own_usage"][name]
    assert first[3]["orchestrator.tree.model_calls"] == agents
    names = {span.name for span in spans.values()}
    assert {"invoke_agent leaf", "invoke_agent mid", "invoke_agent top", "execute_tool fx__pay"} <= names


@pytest.mark.requirement("A3", "F1")
def test_a_tree_over_three_processes_is_one_branch_and_adds_up(tmp_path: Path) -> None:
    """The sittings of those that waited for the yes lie below their first one, and the last one has all totals."""
    top, middle, inner = chain(tmp_path, pipe=True)
    with serving(inner):
        ended = top.run("--approve", "all")
    assert ended.code == 0, ended.err
    assert inner.effects == ["pay"]
    usage = ended.json["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == 6 * TOKENS
    assert (usage["model_calls"], usage["tool_calls"]) == (6, 3)
    spans = [span for office in (top, middle, inner) for span in office.spans]
    assert {span["traceId"] for span in spans} == {ended.json["trace_id"]}
    places = {span["spanId"]: span for span in spans}
    way = [span for span in spans if span["name"] == "execute_tool fx__pay"]
    while way[-1]["parentSpanId"]:
        way.append(places[way[-1]["parentSpanId"]])
    called = [["execute_tool inner__leaf"], ["execute_tool inner__mid"], []]
    agents = [[f"invoke_agent {name}", f"invoke_workflow {name}"] for name in ("leaf", "mid", "top")]
    levels = [name for pair in zip(agents, called, strict=True) for names in pair for name in names]
    assert list(dict.fromkeys(span["name"] for span in way[1:])) == levels
    for number, name in enumerate(("leaf", "mid", "top"), 1):
        *_, facts = (span["attributes"] for span in spans if span["name"] == f"invoke_workflow {name}")
        assert facts["orchestrator.tree.input_tokens"] == number * 2 * USAGE["input_tokens"]
        assert (facts["orchestrator.tree.model_calls"], facts["orchestrator.own.model_calls"]) == (2 * number, 2)


def statuses(office: Office) -> list[str]:
    return [row["status"] for row in office.command("runs", "--json").json]


@pytest.mark.requirement("E3", "H1")
@pytest.mark.parametrize(
    ("leave", "pipe"), [("cancelled", False), ("cancelled", True), ("parked", False), ("killed", True)]
)
def test_what_is_cancelled_for_good_ends_three_processes_down(tmp_path: Path, leave: str, pipe: bool) -> None:
    """And what only parks or dies leaves runs that are found again by the same calls."""
    top, middle, inner = chain(tmp_path, pipe=pipe)
    hang = {"agent": "leaf", "text": "I hang.", "calls": [call("fx__hang", text="5")]}
    record(inner.folder / "model.jsonl", hang, {"agent": "leaf", "text": "It goes on."})
    bell = inner.folder / "ledger.bell"
    os.mkfifo(bell)
    with serving(inner, top) if pipe else serving(inner, middle, top):
        with httpx2.Client(base_url=f"http://127.0.0.1:{top.port}", timeout=60) as client:
            run = client.post("/api/runs", json={"agent": "top", "input": {"task": "go"}}).json()["run_id"]
            read_pipe(bell)
            if leave == "cancelled":
                assert client.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
        if leave == "killed":
            top.kill()
        elif leave == "parked":
            top.end()
        while inner.effects != ["hang", "cancelled"]:
            select.select([], [], [], 0.1)
    offices = (top, middle, inner)
    if leave == "cancelled":
        assert [statuses(office) for office in offices] == [["cancelled"]] * 3
        return
    assert [statuses(office) for office in offices[1:]] == [["parked"]] * 2
    bell.unlink()
    os.mkfifo(inner.folder / "ledger.gate")
    with serving(inner) if pipe else serving(inner, middle):
        resumed = top.begin("resume", run, "--json")
        give(inner.folder / "ledger.gate")
        ended = end(resumed)
    assert ended.code == 0, ended.err
    assert [statuses(office) for office in offices] == [["finished"]] * 3


@pytest.mark.requirement("E3", "E4")
def test_a_run_that_waits_is_cancelled_three_processes_down(tmp_path: Path) -> None:
    offices = top, middle, inner = chain(tmp_path)
    with serving(inner, middle, top), httpx2.Client(base_url=f"http://127.0.0.1:{top.port}", timeout=60) as client:
        run = client.post("/api/runs", json={"agent": "top", "input": {"task": "go"}}).json()["run_id"]
        while client.get(f"/api/runs/{run}").json()["status"] == "running":
            select.select([], [], [], 0.1)
        assert [statuses(office) for office in offices] == [["parked"]] * 3
        assert client.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
        assert [statuses(office) for office in offices] == [["cancelled"]] * 3
    assert inner.effects == []
