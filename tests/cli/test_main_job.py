"""The main job from end to end: a recorded model and then one over HTTP; everything else is real."""

import csv
import json
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.testing import SqliteJournal
from tests.support.command import ROOT, Ended, orchestrator
from tests.support.model_server import ModelServer, model_server, playing
from tests.tracing.receiver import Receiver, http_receiver

pytestmark = pytest.mark.xdist_group("main job")

TASK = "Read examples/sales.csv, total each month's sales, draw a line chart and save it"
RECORDING = ROOT / "examples" / "recordings" / "sales.jsonl"
AGENTS = ["analyst", "chart-maker", "supervisor"]
SYSTEMS = {
    "supervisor": "You are the supervisor",
    "analyst": "You answer questions about tables",
    "chart-maker": "You draw charts",
}
EVENTS = {"text_delta", "tool_call", "tool_result", "final_answer", "approval", "usage", "state", "error"}
STATES = {"PLANNING", "THINKING", "ACTING", "OBSERVING", "WAITING", "FINISHED", "FAILED"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of the job in a folder of its own."""

    folder: Path
    ended: Ended

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text("utf-8").splitlines()]

    def journal(self) -> dict[str, list[Any]]:
        async def read() -> dict[str, list[Any]]:
            journal = SqliteJournal(self.folder / "home" / "journal.sqlite")
            try:
                (row,) = await journal.runs()
                return {run: list(events) for run, events in (await journal.tree(row.run_id)).items()}
            finally:
                await journal.aclose()

        return anyio.run(read)


def workspace(base: Path) -> Path:
    shutil.copytree(ROOT / "examples", base / "examples")
    return base


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = workspace(tmp_path_factory.mktemp("recorded"))
    ended = orchestrator("run", TASK, "--model", f"scripted:{RECORDING}", "--events", "events.jsonl", folder=folder)
    return Job(folder=folder, ended=ended)


@dataclass(frozen=True, kw_only=True)
class Served(Job):
    """The same over HTTP, traced by a collector."""

    server: ModelServer
    spans: Receiver


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = workspace(tmp_path_factory.mktemp("served"))
    with model_server(playing(RECORDING, SYSTEMS)) as server, http_receiver() as spans:
        env = {
            **server.env,
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        ended = orchestrator("run", TASK, "--model", "openai:played", "--json", folder=folder, env=env, module=True)
    return Served(folder=folder, ended=ended, server=server, spans=spans)


def monthly_totals() -> dict[str, Decimal]:
    """By the standard library alone: what the answer must hold, to the cent."""
    totals: dict[str, Decimal] = defaultdict(Decimal)
    with (ROOT / "examples" / "sales.csv").open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            if "/" in row["date"]:
                month, _, year = row["date"].split("/")
            else:
                year, month, _ = row["date"].split("-")
            totals[f"{year}-{int(month):02}"] += Decimal(row["amount"].replace(",", "") or "0")
    return dict(totals)


def assert_right(answer: str) -> None:
    totals = monthly_totals()
    assert len(totals) == 12
    lines = answer.replace(",", "").splitlines()
    for month, total in totals.items():
        (line,) = [line for line in lines if month in line]
        assert f"{total:.2f}" in line, f"{month} should be {total}: {line}"
    assert f"{sum(totals.values()):.2f}" in answer.replace(",", "")


def assert_picture(folder: Path) -> None:
    data = (folder / "out" / "monthly-sales-2025.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert width >= 400
    assert height >= 200


@pytest.mark.requirement("E2")
def test_the_answer_is_right_to_the_cent(recorded: Job) -> None:
    assert recorded.ended.code == 0, recorded.ended.err
    assert_right(recorded.ended.out)
    assert "out/monthly-sales-2025.png" in recorded.ended.out


def test_what_the_tools_found_is_what_the_recording_says(recorded: Job) -> None:
    """The model is a recording; its numbers must be those that the real servers gave, or it is no demonstration."""
    (query,) = [e for e in recorded.events if e["type"] == "tool_result" and e["tool"] == "tables__query_table"]
    rows = json.loads(query["observation"])["rows"]
    found = {row["month"]: Decimal(str(row["total"])) for row in rows}
    assert found == monthly_totals()


def test_the_chart_is_a_picture(recorded: Job) -> None:
    assert_picture(recorded.folder)


def test_progress_says_who_did_what_on_stderr(recorded: Job) -> None:
    *lines, closing = recorded.ended.err.splitlines()
    assert lines[0].startswith("supervisor → analyst ")
    assert "  analyst ✓ tables__query_table" in recorded.ended.err
    assert lines[-1] == "supervisor answered"
    assert "8 model calls · 5 tool calls" in closing
    trace_id = recorded.events[0]["trace_id"]
    assert closing.endswith(f"run {recorded.events[0]['run_id']} · trace {trace_id}")


@pytest.mark.requirement("A11")
def test_events_are_json_lines_with_the_fixed_names(recorded: Job) -> None:
    events = recorded.events
    assert {event["type"] for event in events} <= EVENTS
    assert {"text_delta", "tool_call", "tool_result", "final_answer", "usage", "state"} <= {e["type"] for e in events}
    for event in events:
        assert {"run_id", "agent", "step", "trace_id", "type"} <= set(event)
    assert len({event["trace_id"] for event in events}) == 1
    assert {event["state"] for event in events if event["type"] == "state"} <= STATES
    finals = [event for event in events if event["type"] == "final_answer"]
    assert [final["agent"] for final in finals] == ["analyst", "chart-maker", "supervisor"]
    assert finals[-1]["answer"] + "\n" == recorded.ended.out


def test_every_call_has_one_result_and_deltas_make_the_answer(recorded: Job) -> None:
    events = recorded.events
    calls = [(e["run_id"], e["call"], e["tool"]) for e in events if e["type"] == "tool_call"]
    results = [(e["run_id"], e["call"], e["tool"]) for e in events if e["type"] == "tool_result"]
    assert sorted(calls) == sorted(results)
    assert len(set(calls)) == 5
    root = events[0]["run_id"]
    text = "".join(e["text"] for e in events if e["type"] == "text_delta" and e["run_id"] == root and e["step"] == 3)
    assert text + "\n" == recorded.ended.out


def test_the_journal_holds_three_runs(recorded: Job) -> None:
    tree = recorded.journal()
    root = min(tree, key=len)
    assert sorted(run.removeprefix(root) for run in tree) == ["", "/t1.1", "/t2.1"]
    assert sorted(events[0].agent for events in tree.values()) == AGENTS
    for events in tree.values():
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert (events[0].type, events[-1].type) == ("run.started", "run.finished")


@pytest.mark.requirement("F1", "F2")
def test_the_span_file_holds_one_trace(recorded: Job) -> None:
    lines = (recorded.folder / "home" / "traces" / "spans.jsonl").read_text("utf-8").splitlines()
    spans = [json.loads(line) for line in lines]
    assert {span["traceId"] for span in spans} == {recorded.events[0]["trace_id"]}
    assert {span["service"] for span in spans} >= set(AGENTS)
    by_id = {span["spanId"]: span for span in spans}
    roots = [span for span in spans if span.get("parentSpanId") not in by_id]
    assert [span["name"].split()[0] for span in roots] == ["invoke_workflow"]
    for agent in ("analyst", "chart-maker"):
        (invoked,) = [span for span in spans if span["name"] == f"invoke_agent {agent}"]
        assert by_id[invoked["parentSpanId"]]["name"] == f"execute_tool agents__{agent}"


def test_runs_lists_it_and_shows_it(recorded: Job) -> None:
    listed = orchestrator("runs", "--json", folder=recorded.folder)
    (row,) = listed.json
    assert list(row) == ["run_id", "status", "agent", "task", "started_at", "ended_at"]
    assert (row["status"], row["agent"], row["task"]) == ("finished", "supervisor", TASK)
    shown = orchestrator("runs", "show", "last", "--json", folder=recorded.folder)
    assert shown.code == 0
    assert shown.err == ""
    assert shown.json["run_id"] == row["run_id"]
    assert_right(shown.json["answer"])
    child = shown.json["steps"][0]["actions"][0]["run_id"]
    inner = orchestrator("runs", "show", child.replace("/", "~"), "--json", folder=recorded.folder).json
    assert (inner["run_id"], inner["agent"]) == (child, "analyst")
    assert [action["tool"] for step in inner["steps"] for action in step["actions"]] == [
        "tables__describe_table",
        "tables__query_table",
    ]


def test_the_tree_is_shown_to_people(recorded: Job) -> None:
    shown = orchestrator("runs", "show", "last", folder=recorded.folder)
    lines = shown.out.splitlines()
    assert lines[1].startswith("supervisor  3 thoughts")
    assert [line.strip().split("  ")[0] for line in lines[2:9]] == [
        "✓ agents__analyst",
        "analyst",
        "✓ tables__describe_table",
        "✓ tables__query_table",
        "✓ agents__chart-maker",
        "chart-maker",
        "✓ charts__draw_chart",
    ]
    assert shown.out.endswith(recorded.ended.out)


def picture(path: Path) -> tuple[list[str], list[int]]:
    """An SVG of a run without what the clock moves, and its counts of tokens."""
    lines = path.read_text("utf-8").splitlines()
    still = [re.sub(r">[^<]*<", "><", line) if "tokens" in line else line for line in lines if " time" not in line]
    counts = [
        int(n.replace(",", "")) for line in lines if "tokens" in line for n in re.findall(r"[\d,]+(?= \+|<)", line)
    ]
    return still, counts


@pytest.mark.requirement("F6")
def test_the_picture_of_the_readme_is_this_run(recorded: Job) -> None:
    """When this fails: `make demo`, then `orchestrator replay last --svg docs/images/sales-run.svg`, and look at it."""
    assert orchestrator("replay", "last", "--svg", "run.svg", folder=recorded.folder).code == 0
    drawn, tokens = picture(recorded.folder / "run.svg")
    shown, counted = picture(ROOT / "docs" / "images" / "sales-run.svg")
    assert drawn == shown
    assert tokens == pytest.approx(counted, rel=0.05), "only paths may change how many tokens there are"
    assert len(tokens) > 10


@pytest.mark.requirement("B1")
def test_the_same_over_http(served: Served) -> None:
    assert served.ended.code == 0, served.ended.err
    assert_right(served.ended.json["answer"])
    assert_picture(served.folder)
    assert served.server.paths == {"/v1/chat/completions"}
    assert served.server.keys == {"Bearer sk-loopback"}
    assert {body["model"] for body in served.server.seen} == {"played"}
    assert len(served.server.seen) == 8
    assert served.ended.json["usage"] == {
        "input_tokens": 800,
        "output_tokens": 80,
        "cached_tokens": 320,
        "model_calls": 8,
        "tool_calls": 5,
    }


@pytest.fixture(scope="module")
def anthropic(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The same at Anthropic's API: another word on the command line."""
    folder = workspace(tmp_path_factory.mktemp("anthropic"))
    with model_server(playing(RECORDING, SYSTEMS)) as server, http_receiver() as spans:
        env = {**server.env, "OTEL_EXPORTER_OTLP_ENDPOINT": spans.endpoint}
        env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
        ended = orchestrator("run", TASK, "--model", "anthropic:played", "--json", folder=folder, env=env)
    return Served(folder=folder, ended=ended, server=server, spans=spans)


@pytest.mark.requirement("B1", "B2")
def test_the_same_at_anthropics_api(anthropic: Served) -> None:
    assert anthropic.ended.code == 0, anthropic.ended.err
    assert_right(anthropic.ended.json["answer"])
    assert_picture(anthropic.folder)
    assert anthropic.server.paths == {"/v1/messages"}
    assert anthropic.server.keys == {"sk-loopback"}
    assert len(anthropic.server.seen) == 8
    assert anthropic.ended.json["usage"] == {
        "input_tokens": 800,
        "output_tokens": 80,
        "cached_tokens": 320,
        "model_calls": 8,
        "tool_calls": 5,
    }


CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("vendor", "end"), [("served", b'],"tools":'), ("anthropic", b'],"stream":')])
def test_a_prefix_of_a_prompt_stays_as_it_was(vendor: str, end: bytes, request: pytest.FixtureRequest) -> None:
    """What the vendor caches: each request of an agent begins with the bytes of the one before, its tools included.

    The supervisor's run of specialists lies between two of its requests.
    """
    job: Served = request.getfixturevalue(vendor)
    before: dict[Any, tuple[bytes, Any]] = {}
    pairs = 0
    for raw, body in zip(job.server.raw, job.server.seen, strict=True):
        agent = str(body["messages"][0]["content"]) if vendor == "served" else body["system"][0]["text"]
        history = raw.replace(CACHE_MARK, b"").rpartition(end)[0]
        assert raw.count(CACHE_MARK) == (0 if vendor == "served" else min(3, 1 + len(body["messages"]) // 2 + 1))
        if agent in before:
            pairs += 1
            assert history.startswith(before[agent][0])
            assert body["tools"] == before[agent][1]
        before[agent] = history, body["tools"]
    assert (pairs, len(before)) == (5, 3)
    chats = [span for span in job.spans.spans if span.name == "chat played"]
    assert {span.attributes["gen_ai.usage.cache_read.input_tokens"] for span in chats} == {40}
    written = 0 if vendor == "served" else 10
    assert {span.attributes.get("gen_ai.usage.cache_creation.input_tokens", 0) for span in chats} == {written}


@pytest.mark.requirement("F1")
def test_one_trace_over_agents_and_the_servers_processes(served: Served) -> None:
    spans = served.spans.spans
    trace_id = served.ended.json["trace_id"]
    assert {span.trace_id for span in spans if span.service in AGENTS} == {trace_id}
    by_id = {span.span_id: span for span in spans}
    for server, tool in (("tables", "query_table"), ("charts", "draw_chart")):
        (inside,) = [span for span in spans if span.service == server and span.name == f"tools/call {tool}"]
        assert inside.trace_id == trace_id
        outside = by_id[inside.parent_id]
        assert outside.name == f"execute_tool {server}__{tool}"
        assert outside.service in AGENTS
    roots = [span for span in spans if span.trace_id == trace_id and span.parent_id not in by_id]
    assert [span.name.split()[0] for span in roots] == ["invoke_workflow"]
