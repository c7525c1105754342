"""What OpenTelemetry's variables say, read by ourselves: the SDK that usually reads them is not imported."""

import contextlib
from collections.abc import Mapping
from urllib.parse import unquote

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CAPTURING = ("true", "span_only", "span_and_event")
_BATCH = 64
_BATCH_WITH_CONTENT = 32
"""Two captured attributes of 32 kB a span stay below the 4 MiB that a gRPC collector takes at once."""


class Environment:
    """OpenTelemetry's variables. Empty values count as unset, and numbers that are none as well."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.exporter = self.text("OTEL_TRACES_EXPORTER").lower()
        self.disabled = self.text("OTEL_SDK_DISABLED").lower() == "true" or self.exporter == "none"
        self.capture = self.text("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").lower() in _CAPTURING
        protocol = self.text("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", self.text("OTEL_EXPORTER_OTLP_PROTOCOL"))
        self.grpc = protocol.lower() == "grpc"
        self.resource = _pairs(self.text("OTEL_RESOURCE_ATTRIBUTES"))
        self.service = self.text("OTEL_SERVICE_NAME", self.resource.get("service.name", "orchestrator"))
        self.batch = self.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH_WITH_CONTENT if self.capture else _BATCH)
        self.delay = self.number("OTEL_BSP_SCHEDULE_DELAY", 1_000) / 1_000

    def text(self, name: str, default: str = "") -> str:
        return self._environ.get(name, "").strip() or default

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        return int(text) if text.isdecimal() and int(text) > 0 else default

    @property
    def endpoint(self) -> str:
        """Complete, with the path for HTTP; empty when spans stay on this machine."""
        usual = f"http://localhost:{4317 if self.grpc else 4318}" if self.exporter == "otlp" else ""
        base = self.text("OTEL_EXPORTER_OTLP_ENDPOINT", usual)
        if base and not self.grpc:
            base = base.removesuffix("/") + "/v1/traces"
        return self.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", base)

    @property
    def wants_metrics(self) -> bool:
        exporter = self.text("OTEL_METRICS_EXPORTER").lower()
        return exporter == "otlp" or (exporter == "" and bool(self.text("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")))

    @property
    def headers(self) -> dict[str, str]:
        """What goes with each request to the collector; may hold secrets."""
        return _pairs(self.text("OTEL_EXPORTER_OTLP_TRACES_HEADERS", self.text("OTEL_EXPORTER_OTLP_HEADERS")))

    @property
    def share(self) -> float:
        """Of the traces that begin here, those to send; a sampler is taken for its `parentbased_` form."""
        sampler = self.text("OTEL_TRACES_SAMPLER").lower()
        if sampler.endswith("traceidratio"):
            with contextlib.suppress(ValueError):
                return float(self.text("OTEL_TRACES_SAMPLER_ARG"))
        return 0.0 if sampler.endswith("always_off") else 1.0


def _pairs(text: str) -> dict[str, str]:
    """`name=value,name=value`, both percent-encoded; what is no pair is left out."""
    split = [part.partition("=") for part in text.split(",")]
    return {unquote(name.strip()): unquote(value.strip()) for name, equals, value in split if equals and name.strip()}
