"""Chooses where a run's spans go. OpenTelemetry's SDK is imported only to send them."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

from orchestrator.tracing.files import SpanFile
from orchestrator.tracing.otel import OtelTracer
from orchestrator.tracing.port import NullTracer, Tracer
from orchestrator.tracing.spans import OwnSpans, Span, Spans, UsersSpans

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CAPTURING = ("true", "span_only", "span_and_event")
_BATCH = 64
_BATCH_WITH_CONTENT = 32
"""Two captured attributes of 32 kB a span stay below the 4 MiB that a gRPC collector takes at once."""


def make_tracer(home: Path, environ: Mapping[str, str], *, service_per_agent: bool = True) -> Tracer:
    """The tracer that the environment asks for:

    - none, with OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none;
    - the user's own, where a provider is set globally by now: one service, and closing is the user's affair;
    - OTLP, with OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp;
    - else, and for what no collector takes, the file `<home>/traces/spans.jsonl`.

    Each agent is a service of its own, and the workflow's is OTEL_SERVICE_NAME or `orchestrator`; with
    `service_per_agent` false all are that one. OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT puts what tools are
    given and answer into spans, unmasked: see `otel`.
    """
    environment = Environment(environ)
    if environment.disabled:
        return NullTracer()
    return OtelTracer(
        _users_spans() or _own_spans(home / "traces" / "spans.jsonl", environment),
        service=environment.service,
        service_per_agent=service_per_agent,
        capture=environment.capture,
    )


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


def _users_spans() -> Spans | None:
    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None  # nobody has set one
    return UsersSpans(provider.get_tracer("orchestrator-mcp"))


def _own_spans(path: Path, environment: Environment) -> Spans:
    def collector() -> Callable[[Sequence[Span]], None]:
        from orchestrator.tracing.otlp import Collector  # noqa: PLC0415  # the SDK

        return Collector(environment.endpoint, environment.resource, grpc=environment.grpc).write

    batch, delay = environment.batch, environment.delay
    if environment.endpoint:
        return OwnSpans(collector, SpanFile(path), batch=batch, delay=delay, share=environment.share)
    return OwnSpans(lambda: SpanFile(path).write, batch=batch, delay=delay, share=None)
