"""OpenTelemetry's environment variables that are read here, as one value. Nothing of OpenTelemetry is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from orchestrator.tracing.conventions import SERVICE_NAME

DEFAULT_SERVICE = "orchestrator"

_CAPTURING = frozenset({"true", "span_only", "span_and_event"})
_BATCH = 64
_BATCH_WITH_CONTENT = 32
"""Two captured attributes of 32 kB a span stay below the 4 MiB that a gRPC collector takes at once."""
_DELAY_MS = 1_000
_QUEUE = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Otlp:
    """Where spans are sent. `endpoint` is complete, with the path for HTTP."""

    endpoint: str
    grpc: bool
    headers: Mapping[str, str]
    batch: int
    delay_ms: int
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`otlp` is None when spans stay on this machine. `resource` is OTEL_RESOURCE_ATTRIBUTES without the service."""

    enabled: bool
    service: str
    capture: bool
    batch: int
    delay_ms: int
    otlp: Otlp | None
    resource: Mapping[str, str] = field(default_factory=dict[str, str])


def read_environment(environ: Mapping[str, str]) -> TraceSettings:
    """Empty values count as unset, and numbers that are none as well."""
    exporter = _text(environ, "OTEL_TRACES_EXPORTER").lower()
    resource = _pairs(_text(environ, "OTEL_RESOURCE_ATTRIBUTES"))
    named = resource.pop(SERVICE_NAME, "")
    capture = _text(environ, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").lower() in _CAPTURING
    batch = _number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH_WITH_CONTENT if capture else _BATCH)
    delay = _number(environ, "OTEL_BSP_SCHEDULE_DELAY", _DELAY_MS)
    return TraceSettings(
        enabled=_text(environ, "OTEL_SDK_DISABLED").lower() != "true" and exporter != "none",
        service=_text(environ, "OTEL_SERVICE_NAME") or named or DEFAULT_SERVICE,
        capture=capture,
        batch=batch,
        delay_ms=delay,
        otlp=_otlp(environ, exporter == "otlp", batch, delay),
        resource=resource,
    )


def _otlp(environ: Mapping[str, str], wanted: bool, batch: int, delay_ms: int) -> Otlp | None:
    """Where `OTEL_TRACES_EXPORTER=otlp` asks for it without an endpoint, the endpoint is the convention's default."""
    protocol = _text(environ, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or _text(environ, "OTEL_EXPORTER_OTLP_PROTOCOL")
    grpc = protocol.lower() == "grpc"
    whole = _text(environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    base = _text(environ, "OTEL_EXPORTER_OTLP_ENDPOINT")
    if not (whole or base):
        if not wanted:
            return None
        base = "http://localhost:4317" if grpc else "http://localhost:4318"
    headers = _text(environ, "OTEL_EXPORTER_OTLP_TRACES_HEADERS") or _text(environ, "OTEL_EXPORTER_OTLP_HEADERS")
    return Otlp(
        endpoint=whole or (base if grpc else f"{base.removesuffix('/')}/v1/traces"),
        grpc=grpc,
        headers={name.lower(): value for name, value in _pairs(headers).items()},
        batch=batch,
        delay_ms=delay_ms,
        queue=_number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", _QUEUE),
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = _text(environ, name)
    return int(text) if text.isdecimal() and int(text) > 0 else default


def _pairs(text: str) -> dict[str, str]:
    """`name=value,name=value`, both percent-encoded; what is no pair is left out."""
    split = [part.partition("=") for part in text.split(",")]
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in split if equals and name.strip()}
