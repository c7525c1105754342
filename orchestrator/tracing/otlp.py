"""Spans to a collector, by the exporters of OpenTelemetry's SDK: 60 to 130 ms to import, in the writing thread."""

import logging
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version
from opentelemetry.trace import Status, StatusCode

from orchestrator.tracing.spans import Span

_SCOPE = InstrumentationScope("orchestrator-mcp")
_SDK = {
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.version": sdk_version,
}


class Collector:
    """`endpoint` is complete, with the path for HTTP; `resource` is said of every service.

    Headers, time-outs, certificates and compression are read by the exporter itself, from the process's environment.
    """

    def __init__(self, endpoint: str, resource: Mapping[str, str], *, grpc: bool) -> None:
        exporters = logging.getLogger("opentelemetry.exporter")
        exporters.handlers, exporters.propagate = [_FirstLine(endpoint)], False
        self._exporter = _exporter(endpoint, grpc)
        self._resource = resource

    def write(self, spans: Sequence[Span]) -> None:
        resources = {
            service: Resource({**_SDK, **self._resource, "service.name": service})
            for service in {span.service for span in spans}
        }
        self._exporter.export([_readable(span, resources[span.service]) for span in spans])


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent if span.parent.is_valid else None,
        resource=resource,
        attributes=span.attributes,
        events=[Event(name, attributes, at) for name, at, attributes in span.events],
        kind=span.kind,
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR, span.error),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=_SCOPE,
    )


def _exporter(endpoint: str, grpc: bool) -> SpanExporter:
    if grpc:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(endpoint=endpoint)


class _FirstLine(logging.Handler):
    """Of all that exporters log, passes on the first warning."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint

    def emit(self, record: logging.LogRecord) -> None:
        self.setLevel(logging.CRITICAL + 1)
        logging.getLogger("orchestrator.tracing").warning(
            "spans do not reach %s: %s", self._endpoint, record.getMessage()
        )
