"""Spans to a collector, by the exporters of OpenTelemetry's SDK: 60 to 130 ms to import, in the writing thread."""

import logging
import socket
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version
from opentelemetry.trace import Status, StatusCode

from orchestrator.errors import OrchestratorError
from orchestrator.tracing.environment import LOOPBACK
from orchestrator.tracing.spans import Span

_SCOPE = InstrumentationScope("orchestrator-mcp")
_SDK = {
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.version": sdk_version,
}


class Unsent(OrchestratorError):
    """A collector did not take spans; the message names it and says why."""


class Collector:
    """`endpoint` is complete, with the path for HTTP; `resource` is said of every service.

    Headers, time-outs, certificates and compression are read by the exporter itself, from the process's environment.
    """

    def __init__(self, endpoint: str, resource: Mapping[str, str], *, grpc: bool) -> None:
        exporters = logging.getLogger("opentelemetry.exporter")
        self._log = _LastLine()
        exporters.handlers, exporters.propagate = [self._log], False
        self._endpoint = endpoint
        self._exporter = _exporter(endpoint, grpc)
        self._resource = resource
        self._there = False

    def write(self, spans: Sequence[Span]) -> None:
        """Returns when the collector has taken them. Raises `Unsent`."""
        if not self._there:
            self._knock()
        resources = {
            service: Resource({**_SDK, **self._resource, "service.name": service})
            for service in {span.service for span in spans}
        }
        sent = self._exporter.export([_readable(span, resources[span.service]) for span in spans])
        self._there = sent is SpanExportResult.SUCCESS
        if not self._there:
            raise Unsent(f"spans do not reach {self._endpoint}: {self._log.text or 'it gives no reason'}")

    def _knock(self) -> None:
        """Finds out at once that no collector runs on this machine; the exporter would try for ten seconds."""
        url = urlsplit(self._endpoint)
        if url.hostname not in LOOPBACK:
            return
        try:
            port = url.port or (443 if url.scheme == "https" else 80)
            socket.create_connection((url.hostname, port), timeout=1).close()
        except (OSError, ValueError) as error:
            raise Unsent(f"spans do not reach {self._endpoint}: {error}") from error


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


class _LastLine(logging.Handler):
    """Of all that exporters log, remembers the last: they say why, and we say it once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
