"""A real Jaeger takes the trace of a run and gives it back by its query API. Requirements F1, F2."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from orchestrator.tracing import links
from tests.cli.test_main_job import RECORDING, SYSTEMS, TASK, workspace
from tests.support import jaeger
from tests.support.command import ROOT, orchestrator
from tests.support.foreign import Missing
from tests.support.model_server import model_server, playing
from tests.tracing.receiver import Received, Receiver, tree

pytestmark = [pytest.mark.xdist_group("jaeger"), pytest.mark.requirement("F1", "F2")]

REPORT = "From examples/tickets.csv write the weekly report as Markdown with a chart"
NEEDED = "TESTS_NEED_JAEGER"
"""With this variable, `.ci/run` says that a missing Jaeger is a failure."""

PRICED = """
[models.played]
base_url = "{url}"
prices = {{ input = 2.5, output = 10, cached = 1.25 }}
[telemetry]
trace_url = "{page}/trace/{{trace_id}}"
"""


@pytest.fixture(scope="session")
def collector() -> Iterator[jaeger.Jaeger]:
    try:
        program = jaeger.binary() if NEEDED in os.environ else jaeger.built()
    except Missing as error:
        if NEEDED in os.environ:
            pytest.fail(str(error))
        pytest.skip(f"no Jaeger: {error}")
    with jaeger.running(program, jaeger.Ports.free()) as running:
        yield running


def read(collector: jaeger.Jaeger, trace_id: str) -> list[Received]:
    """The spans of a trace as Jaeger gives them, servers' spans included."""
    receiver = Receiver("")
    receiver.take(ParseDict(collector.trace(trace_id), TracesData()))
    return receiver.spans


def environment(collector: jaeger.Jaeger, protocol: str) -> dict[str, str]:
    endpoint = collector.grpc if protocol == "grpc" else collector.http
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


def ours(spans: Sequence[Received]) -> list[Received]:
    return [span for span in spans if not span.name.startswith("tools/call")]


def summed(spans: Sequence[Received], attribute: str) -> Any:
    return sum(span.attributes.get(attribute, 0) for span in spans if span.name.startswith("chat "))


def named(spans: Sequence[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]


def main_job(model: str) -> list[Any]:
    """Services and names, children in the order of their names."""
    chat = f"chat {model}"

    def agent(name: str, tools: Sequence[str], thoughts: int) -> list[Any]:
        inner = [[name, chat]] * thoughts + [[name, f"execute_tool {tool}"] for tool in tools]
        return ["supervisor", f"execute_tool agents__{name}", [name, f"invoke_agent {name}", *inner]]

    analyst = agent("analyst", ["tables__describe_table", "tables__query_table"], 3)
    charts = agent("chart-maker", ["charts__draw_chart"], 2)
    top = ["supervisor", "invoke_agent supervisor", *[["supervisor", chat]] * 3, analyst, charts]
    return ["orchestrator", "invoke_workflow supervisor", top]


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_main_job_is_one_tree_whose_money_adds_up(collector: jaeger.Jaeger, protocol: str, tmp_path: Path) -> None:
    folder = workspace(tmp_path)
    with model_server(playing(RECORDING, SYSTEMS)) as server:
        (folder / "orchestrator.toml").write_text(PRICED.format(url=server.url, page=collector.page))
        env = environment(collector, protocol)
        ended = orchestrator("run", TASK, "--model", "played", "--json", folder=folder, env=env)
    assert (ended.code, "spans" in ended.err) == (0, False), ended.err
    result = ended.json
    spans = read(collector, result["trace_id"])
    assert tree(ours(spans)) == [main_job("played")]
    (root,) = [span for span in spans if not span.parent_id]
    ids = {span.span_id for span in spans}
    assert all(span.parent_id in ids for span in spans if span is not root), "nothing hangs in the air"
    for kind in ("input_tokens", "output_tokens"):
        assert summed(spans, f"gen_ai.usage.{kind}") == root.attributes[f"orchestrator.tree.{kind}"]
        assert root.attributes[f"orchestrator.tree.{kind}"] == result["usage"][kind]
    assert root.attributes["orchestrator.tree.model_calls"] == len(named(spans, "chat played")) == 8
    assert result["cost"] == {
        "amount": pytest.approx(summed(spans, "gen_ai.usage.cost.amount")),
        "currency": "USD",
        "known": True,
    }
    assert root.attributes["orchestrator.cost.amount"] == pytest.approx(result["cost"]["amount"])
    assert result["cost"]["amount"] > 0
    if protocol != "grpc":  # servers of their own send by HTTP alone
        assert {span.service for span in named(spans, "tools/call draw_chart")} == {"charts"}
    assert {"supervisor", "analyst", "chart-maker"} <= set(collector.services())


def test_the_recorded_job_says_that_its_price_is_unknown_and_prints_the_link(
    collector: jaeger.Jaeger, tmp_path: Path
) -> None:
    folder = workspace(tmp_path)
    (folder / "orchestrator.toml").write_text(PRICED.format(url="http://127.0.0.1:9", page=collector.page))
    env = environment(collector, "http/protobuf")
    ended = orchestrator("run", TASK, "--model", f"scripted:{RECORDING}", folder=folder, env=env)
    assert ended.code == 0, ended.err
    *_, closing, link = ended.err.splitlines()
    trace_id = closing.rpartition("trace ")[2]
    assert link == f"{collector.page}/trace/{trace_id}"
    spans = read(collector, trace_id)
    assert tree(ours(spans)) == [main_job("recorded:sales")]
    assert {span.attributes["orchestrator.cost.known"] for span in named(spans, "chat recorded:sales")} == {False}


def test_spans_that_nobody_took_are_sent_later_and_twice_does_no_harm(collector: jaeger.Jaeger, tmp_path: Path) -> None:
    folder = workspace(tmp_path)
    dead = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    ended = orchestrator("run", TASK, "--model", f"scripted:{RECORDING}", "--json", folder=folder, env=dead)
    (warning,) = [line for line in ended.err.splitlines() if "127.0.0.1:9" in line]
    assert warning.startswith("warning: spans do not reach http://127.0.0.1:9/v1/traces: ")
    assert "`orchestrator replay ID --otlp` sends them later" in warning
    for _ in range(2):
        sent = orchestrator("replay", "last", "--otlp", collector.http, folder=folder)
        assert sent.out.startswith("17 spans of trace "), sent.err
    spans = read(collector, ended.json["trace_id"])
    assert tree(spans) == [main_job("recorded:sales")], "each is shown once"


def test_a_run_that_was_parked_and_resumed_by_new_processes_is_one_trace(
    collector: jaeger.Jaeger, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    env = environment(collector, "http/protobuf")
    model = f"scripted:{ROOT / 'examples' / 'recordings' / 'tickets.jsonl'}"
    ended = orchestrator("run", REPORT, "--model", model, "--json", folder=tmp_path, env=env)
    sittings = 1
    while ended.code == 4:
        assert orchestrator("approve", "last", "--all", folder=tmp_path, env=env).code == 0
        ended = orchestrator("resume", "last", "--json", folder=tmp_path, env=env)
        sittings += 1
    assert (ended.code, sittings > 1) == (0, True), ended.err
    spans = read(collector, ended.json["trace_id"])
    (first,) = [span for span in spans if not span.parent_id]
    assert first.name == "invoke_workflow supervisor"
    later = [span for span in named(spans, first.name) if span is not first]
    assert [span.parent_id for span in later] == [first.span_id] * (sittings - 1)
    assert summed(spans, "gen_ai.usage.input_tokens") == ended.json["usage"]["input_tokens"]
    totals = [span.attributes["orchestrator.tree.input_tokens"] for span in (first, *later)]
    assert max(totals) == ended.json["usage"]["input_tokens"], "the last sitting has the totals so far"
    assert len(set(totals)) == sittings


def test_without_an_engine_and_without_go_it_is_said_what_to_install(tmp_path: Path) -> None:
    env = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.jaeger"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: Jaeger cannot be built, since `go` is not on PATH: {jaeger.HOW}\n"


def test_a_link_is_only_to_a_page_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    local = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    with socket.create_server(("127.0.0.1", 0)) as page:
        guessed = f"http://127.0.0.1:{page.getsockname()[1]}/trace/{{trace_id}}"
        monkeypatch.setattr(links, "JAEGER", guessed)
        assert links.trace_link("abc", None, local) == guessed.replace("{trace_id}", "abc")
        assert links.trace_link("abc", "https://j.example/{trace_id}", local) == "https://j.example/abc"
        assert links.trace_link("abc", None, {}) is None, "spans lie in a file"
        assert links.trace_link("abc", None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.example"}) is None
    assert links.trace_link("abc", None, local) is None, "nobody listens there"
