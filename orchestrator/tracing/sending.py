"""Spans of the local files to a collector, later: the same ids and times, as if it had been there."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from orchestrator.errors import ConfigurationError
from orchestrator.tracing.environment import Environment
from orchestrator.tracing.files import span_files
from orchestrator.tracing.otlp import Collector
from orchestrator.tracing.spans import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    spans: int
    endpoint: str


def send_trace(folder: Path, trace_id: str, endpoint: str, environ: Mapping[str, str]) -> Sent:
    """Sends every span of a trace, a batch at a time. `endpoint` goes before what the environment says; empty is none.

    Raises:
        ConfigurationError: no collector is named, or there are no such spans.
        Unsent: the collector did not take them.
    """
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ""} if endpoint else {}
    environment = Environment({**environ, **named})
    if not environment.endpoint:
        raise ConfigurationError("--otlp: no collector is named; give its address, or OTEL_EXPORTER_OTLP_ENDPOINT")
    spans = _spans(folder, trace_id)
    collector = Collector(environment.endpoint, environment.resource, grpc=environment.grpc)
    count = 0
    while batch := list(islice(spans, environment.batch)):
        collector.write(batch)
        count += len(batch)
    if not count:
        raise ConfigurationError(
            f"no spans of trace {trace_id} lie in {folder}: they were sent, or have been rotated out"
        )
    return Sent(spans=count, endpoint=environment.endpoint)


def _spans(folder: Path, trace_id: str) -> Iterator[Span]:
    """Of all the files, oldest first; a line at a time, and only the trace's are read."""
    mark = f'"traceId":"{trace_id}"'.encode()
    for path in span_files(folder):
        with path.open("rb") as file:
            yield from (_span(json.loads(line)) for line in file if mark in line and line.endswith(b"}\n"))


def _span(fields: Mapping[str, Any]) -> Span:
    """What `files` has written."""
    trace = int(fields["traceId"], 16)

    def place(span: str) -> SpanContext:
        return SpanContext(trace, int(span or "0", 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    status = fields["status"]
    return Span(
        service=fields["service"],
        name=fields["name"],
        kind=SpanKind[fields["kind"]],
        attributes=fields["attributes"],
        events=[(event["name"], int(event["timeUnixNano"]), event["attributes"]) for event in fields["events"]],
        error=status.get("message", "") if status["code"] == "ERROR" else None,
        start=int(fields["startTimeUnixNano"]),
        end=int(fields["endTimeUnixNano"]),
        context=place(fields["spanId"]),
        parent=place(fields["parentSpanId"]),
    )
