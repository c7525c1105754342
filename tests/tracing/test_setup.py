"""What the environment chooses, what is imported for it, and what a collector that is not there costs. F2."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from orchestrator.tracing.port import NullTracer, TraceContext
from orchestrator.tracing.setup import Environment, make_tracer

from .runs import trace_team

ROOT = Path(__file__).parents[2]

RUNS = """
import sys, os, pathlib, anyio
import opentelemetry.exporter.otlp.proto.grpc.trace_exporter, opentelemetry.exporter.otlp.proto.http.trace_exporter
from orchestrator.tracing import otlp, spans
from tests.tracing.runs import make_tracer, many
spans.DEADLINE = float(sys.argv[3])
anyio.run(many, make_tracer(pathlib.Path(sys.argv[1]), os.environ), int(sys.argv[2]))
"""


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The time-out is far above what is promised; it only keeps a hanging test from hanging for ever."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={"PATH": "", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_tracing_can_be_turned_off_and_runs_have_trace_ids_all_the_same(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    tracer = make_tracer(tmp_path, environ)
    assert isinstance(tracer, NullTracer)
    place = trace_team(tracer)
    assert re.fullmatch("[0-9a-f]{32} [0-9a-f]{16}", f"{place.trace_id} {place.span_id}")
    assert trace_team(tracer, place) == place
    anyio.run(tracer.aclose)
    assert list(tmp_path.iterdir()) == []


def test_empty_and_broken_variables_count_as_unset() -> None:
    environment = Environment(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": " ",
            "OTEL_SDK_DISABLED": "",
            "OTEL_SERVICE_NAME": "",
            "OTEL_RESOURCE_ATTRIBUTES": "nonsense,=x,a=b%2Cc,service.name=named",
            "OTEL_BSP_SCHEDULE_DELAY": "soon",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0",
        }
    )
    assert not environment.disabled
    assert environment.endpoint == ""
    assert (environment.service, environment.resource) == ("named", {"a": "b,c", "service.name": "named"})
    assert (environment.batch, environment.delay) == (64, 1)


@pytest.mark.parametrize(
    ("environ", "endpoint", "grpc"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces", False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://c/x", False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://c", True),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            "http://c/v1/traces",
            False,
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces", False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://localhost:4317", True),
    ],
)
def test_where_spans_are_sent(environ: dict[str, str], endpoint: str, grpc: bool) -> None:
    read = Environment(environ)
    assert (read.endpoint, read.grpc) == (endpoint, grpc)


def test_batching_follows_the_environment() -> None:
    read = Environment({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "200"})
    assert (read.batch, read.delay) == (10, 0.2)


@pytest.mark.parametrize(
    ("value", "captured"),
    [("true", True), ("SPAN_ONLY", True), ("span_and_event", True), ("", False), ("EVENT_ONLY", False), ("0", False)],
)
def test_content_is_captured_when_asked_for(value: str, captured: bool) -> None:
    environment = Environment({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value})
    assert environment.capture is captured


def test_no_sdk_is_imported_before_something_is_sent(tmp_path: Path) -> None:
    code = """
import sys, pathlib, anyio
from tests.tracing.runs import make_tracer, trace_team
HEAVY = {"opentelemetry.sdk", "grpc", "requests"}
def loaded(): return sorted(HEAVY & set(sys.modules))
tracer = make_tracer(pathlib.Path(sys.argv[1]), {})
trace_team(tracer); anyio.run(tracer.aclose); print(loaded())
tracer = make_tracer(pathlib.Path(sys.argv[1]), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}); print(loaded())
"""
    done = python(code, str(tmp_path))
    assert (done.stderr, done.stdout.splitlines()) == ("", ["[]", "[]"])


def test_a_users_own_provider_is_used_and_nothing_is_added_to_it(tmp_path: Path) -> None:
    code = """
import json, sys, pathlib, anyio
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.tracing.runs import make_tracer, trace_team
exporter = InMemorySpanExporter()
provider = TracerProvider(resource=Resource({"service.name": "theirs"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = make_tracer(pathlib.Path(sys.argv[1]), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
with trace.get_tracer("theirs").start_as_current_span("request"):
    trace_team(tracer)
anyio.run(tracer.aclose)
spans = {span.name: span for span in exporter.get_finished_spans()}
root = spans["invoke_workflow supervisor"]
print(json.dumps([len(spans), root.parent.span_id == spans["request"].context.span_id,
    sorted({span.resource.attributes["service.name"] for span in spans.values()})]))
"""
    done = python(code, str(tmp_path))
    assert done.stderr == ""
    assert json.loads(done.stdout) == [8, True, ["theirs"]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("F2")
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("listening", [False, True], ids=["refused", "never-answers"])
def test_a_dead_collector_neither_holds_up_the_end_nor_is_noisy_nor_costs_a_span(
    protocol: str, listening: bool, tmp_path: Path
) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        if listening:
            dead.listen()
        done = python(
            RUNS,
            str(tmp_path),
            "500",
            "0.5",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{dead.getsockname()[1]}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            # Past the test's time-out: only our own deadline can end this in time.
            OTEL_EXPORTER_OTLP_TIMEOUT="600",
        )
    assert (done.returncode, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    kept = tmp_path / "traces" / "spans.jsonl"
    assert line.startswith("spans ")
    assert f"kept in {kept}" in line
    assert len({json.loads(span)["spanId"] for span in kept.read_bytes().splitlines()}) == 3500


def test_an_exporter_that_cannot_be_made_fails_no_run(tmp_path: Path) -> None:
    done = python(
        RUNS,
        str(tmp_path),
        "2",
        "60",
        OTEL_EXPORTER_OTLP_ENDPOINT="https://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
        OTEL_EXPORTER_OTLP_TIMEOUT="soon",
    )
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_is_none_starts_a_new_trace(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {})
    place = trace_team(tracer, TraceContext(trace_id="0" * 32, span_id="0" * 16))
    assert int(place.trace_id, 16)
    anyio.run(tracer.aclose)
