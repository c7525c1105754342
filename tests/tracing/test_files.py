"""Spans on this machine: one line each, whole lines from several processes, rotation, private. Requirement F2."""

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from opentelemetry.trace import INVALID_SPAN, SpanKind

from orchestrator.tracing.files import SpanFile
from orchestrator.tracing.setup import make_tracer
from orchestrator.tracing.spans import OwnSpans, Span

from .runs import many, trace_team

SCRIPT = ["-m", "tests.tracing.runs"]
ROOT = Path(__file__).parents[2]


def spans_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def full_files(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.glob("spans.*.jsonl"))


def test_each_span_is_a_line_with_otlps_names(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {})
    place = trace_team(tracer)
    anyio.run(tracer.aclose)
    spans = spans_of(tmp_path / "traces" / "spans.jsonl")
    assert [span["name"] for span in spans] == [
        "chat gpt-5",
        "chat gpt-5-mini",
        "execute_tool files__read",
        "invoke_agent analyst",
        "execute_tool analyst",
        "invoke_agent supervisor",
        "invoke_workflow supervisor",
    ]
    *_, root = spans
    assert {span["traceId"] for span in spans} == {place.trace_id}
    assert (root["spanId"], root["parentSpanId"], root["service"]) == (place.span_id, "", "orchestrator")
    chat = spans[0]
    assert (chat["service"], chat["kind"], chat["status"]) == ("supervisor", "CLIENT", {"code": "UNSET"})
    assert chat["parentSpanId"] == spans[5]["spanId"]
    assert chat["attributes"]["gen_ai.usage.cost.amount"] == 0.25
    assert [event["name"] for event in chat["events"]] == ["retry", "cost"]
    assert chat["events"][1]["attributes"] == {"amount": 0.25, "run_total": 0.25, "tokens": 120}
    assert int(root["startTimeUnixNano"]) <= int(chat["startTimeUnixNano"]) <= int(chat["endTimeUnixNano"])


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {})
    trace_team(tracer)
    anyio.run(tracer.aclose)
    assert stat.S_IMODE((tmp_path / "traces" / "spans.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "traces").stat().st_mode) == 0o700


def test_one_service_for_all_can_be_had(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {"OTEL_SERVICE_NAME": "shop"}, service_per_agent=False)
    trace_team(tracer)
    anyio.run(tracer.aclose)
    assert {span["service"] for span in spans_of(tmp_path / "traces" / "spans.jsonl")} == {"shop"}


def test_a_resumed_run_keeps_its_trace_id(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {})
    first = trace_team(tracer)
    second = trace_team(tracer, first)
    anyio.run(tracer.aclose)
    spans = spans_of(tmp_path / "traces" / "spans.jsonl")
    assert {span["traceId"] for span in spans} == {first.trace_id}
    assert (spans[-1]["spanId"], spans[-1]["parentSpanId"]) == (second.span_id, first.span_id)


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, *SCRIPT, str(tmp_path), "100"], cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    anyio.run(many, make_tracer(tmp_path, {}), 100)
    for writer in writers:
        assert writer.communicate(timeout=60) == (None, b"")
    spans = spans_of(tmp_path / "traces" / "spans.jsonl")
    assert len({span["spanId"] for span in spans}) == len(spans) == 3 * 100 * 7


def test_an_interpreter_that_ends_without_closing_still_writes(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tests.tracing.runs import make_tracer, trace_team;"
        "trace_team(make_tracer(pathlib.Path(sys.argv[1]), {}))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    assert len(spans_of(tmp_path / "traces" / "spans.jsonl")) == 7


def test_a_full_file_is_set_aside_and_the_newest_are_kept(tmp_path: Path) -> None:
    file = SpanFile(tmp_path / "spans.jsonl", limit=100, keep=3)
    for number in range(20):
        file.append(b"%039d\n" % number)
    assert [path.read_text().split() for path in [*full_files(tmp_path), file.path]] == [
        [f"{number:039d}", f"{number + 1:039d}"] for number in (12, 14, 16, 18)
    ]


def test_a_batch_larger_than_the_limit_is_written_all_the_same(tmp_path: Path) -> None:
    file = SpanFile(tmp_path / "spans.jsonl", limit=10, keep=3)
    file.append(b"x" * 100)
    assert file.path.stat().st_size == 100
    assert full_files(tmp_path) == []


def test_rotating_from_several_threads_loses_no_line(tmp_path: Path) -> None:
    files = [SpanFile(tmp_path / "spans.jsonl", limit=2_000, keep=1_000) for _ in range(4)]

    def write(number: int, file: SpanFile) -> None:
        for line in range(200):
            file.append(b"%d-%d\n" % (number, line))

    threads = [threading.Thread(target=write, args=pair) for pair in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for path in [*full_files(tmp_path), files[0].path] for line in path.read_text().split()]
    assert sorted(lines) == sorted(f"{number}-{line}" for number in range(4) for line in range(200))


def test_a_batch_is_one_write_and_does_not_wait_for_the_end() -> None:
    written = threading.Event()
    batches: list[int] = []

    def write(spans: Sequence[Span]) -> None:
        batches.append(len(spans))
        written.set()

    spans = OwnSpans(lambda: write, batch=4, delay=3_600, share=None)
    for _ in range(4):
        spans.end(Span(service="s", name="n", kind=SpanKind.INTERNAL, attributes={}), INVALID_SPAN)
    assert written.wait(60)
    spans.close()
    assert batches == [4]


def test_a_disk_that_cannot_be_written_costs_one_line_and_no_run(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "traces").write_text("a file where the folder should be")
    tracer = make_tracer(tmp_path, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"})
    trace_team(tracer)
    trace_team(tracer)
    anyio.run(tracer.aclose)
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert str(tmp_path / "traces") in record.getMessage()


def test_what_ends_after_closing_is_left_out(tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {})
    anyio.run(tracer.aclose)
    trace_team(tracer)
    anyio.run(tracer.aclose)
    assert not (tmp_path / "traces").exists()
