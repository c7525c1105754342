"""Spans to a collector: OpenTelemetry's SDK, one provider a service, one processor and one exporter for all of them.

The providers are not registered globally, so the MCP SDK's own client spans, which would double ours, do not appear
while it still sends our context along. A collector that is not there costs one line and at most two seconds at the end.

Endpoint, protocol, headers and batching are taken from the environment that is given; time-outs, certificates,
compression, sampling and limits are read by the SDK itself, from the process's own.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.version import __version__ as sdk_version

from orchestrator.tracing.conventions import SCOPE, SERVICE_NAME
from orchestrator.tracing.environment import Otlp
from orchestrator.tracing.ids import new_span_id, new_trace_id

DEADLINE = 2.0
"""Seconds for sending what is left; kept here, since the SDK's `force_flush` ignores the limit it is given."""

_GRACE = 0.5
_NOISY = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.common._internal",
    "opentelemetry.exporter.otlp.proto.common._internal.trace_encoder",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http._common",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
_logger = logging.getLogger("orchestrator.tracing")


class OtlpExport:
    """Gives the tracer of each service, and sends what they record. `resource` is said of every service."""

    def __init__(self, settings: Otlp, resource: Mapping[str, str]) -> None:
        _quiet(settings.endpoint)
        self._resource = {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": sdk_version,
            **resource,
        }
        self._exporter = _LateExporter(lambda: _exporter(settings))
        self._processor = SynchronousMultiSpanProcessor()
        self._processor.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=settings.queue,
                schedule_delay_millis=settings.delay_ms,
                max_export_batch_size=min(settings.batch, settings.queue),
            )
        )
        self._used = False

    def source(self, service: str) -> Tracer:
        """A new provider's tracer: ask once a service."""
        self._used = True
        # Not `Resource.create`, which goes through all installed packages for detectors (4 ms).
        provider = TracerProvider(
            resource=_Resource({**self._resource, SERVICE_NAME: service}),
            shutdown_on_exit=False,
            active_span_processor=self._processor,
            id_generator=_Ids(),
        )
        return provider.get_tracer(SCOPE)  # pyright: ignore[reportReturnType]  # a no-op when the SDK is disabled

    def close(self) -> None:
        """Sends what is left within `DEADLINE`; what is not sent by then is dropped. Blocks."""
        if self._used and self._exporter.open():
            _within(DEADLINE, self._processor.force_flush)
        # In this order: a processor that is shut down first goes on trying for up to 30 seconds.
        self._exporter.shutdown()
        _within(_GRACE, self._processor.shutdown)


class _LateExporter(SpanExporter):
    """Builds the exporter in the sending thread, at the first batch: importing one takes 40 to 110 ms."""

    def __init__(self, build: Callable[[], SpanExporter]) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._exporter: SpanExporter | None = None
        self._closed = False

    def open(self) -> SpanExporter | None:
        """None when it cannot be built, or is closed."""
        with self._lock:
            if self._exporter is None and not self._closed:
                try:
                    self._exporter = self._build()
                except Exception as error:  # noqa: BLE001  # whatever it is, a run does not fail of it
                    self._closed = True
                    _logger.warning("spans are not sent, the exporter could not be made: %s", error)
            return None if self._closed else self._exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        exporter = self.open()
        return SpanExportResult.FAILURE if exporter is None else exporter.export(spans)

    def shutdown(self) -> None:
        with self._lock:
            first, self._closed = not self._closed, True
        if first and self._exporter is not None:
            self._exporter.shutdown()


class _Resource(Resource):
    """Hashes itself once: the encoder asks for each span, and the SDK's hash is a dump to JSON."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class _Ids(IdGenerator):
    def generate_span_id(self) -> int:
        return new_span_id()

    def generate_trace_id(self) -> int:
        return new_trace_id()

    def is_trace_id_random(self) -> bool:
        return True


class _OneLine(logging.Filter):
    """Stops what exporters log, and says it in one line the first time."""

    endpoint = ""
    said = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING and not self.said:
            self.said = True
            _logger.warning("spans do not reach %s: %s", self.endpoint, record.getMessage())
        return False


_one_line = _OneLine()


def _quiet(endpoint: str) -> None:
    _one_line.endpoint = endpoint
    for name in _NOISY:
        logging.getLogger(name).addFilter(_one_line)


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Waits so long and no longer; a daemon, so that it does not hold up the interpreter's end either."""
    thread = threading.Thread(target=work, name="orchestrator-spans-end", daemon=True)
    thread.start()
    thread.join(seconds)


def _exporter(settings: Otlp) -> SpanExporter:
    if settings.grpc:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc  # noqa: PLC0415

        return Grpc(endpoint=settings.endpoint, headers=dict(settings.headers) or None)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http  # noqa: PLC0415

    return Http(endpoint=settings.endpoint, headers=dict(settings.headers) or None)
