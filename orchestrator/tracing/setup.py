"""Chooses where a run's spans go. OpenTelemetry's SDK is imported only to send them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

from orchestrator.tracing.environment import Environment
from orchestrator.tracing.files import SPANS, SpanFile
from orchestrator.tracing.metrics import make_metrics
from orchestrator.tracing.otel import OtelTracer
from orchestrator.tracing.port import NullTracer, Tracer
from orchestrator.tracing.quiet import quieten
from orchestrator.tracing.spans import OwnSpans, Span, Spans, UsersSpans


def make_tracer(home: Path, environ: Mapping[str, str], *, service_per_agent: bool = True) -> Tracer:
    """The tracer that the environment asks for:

    - none, with OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none;
    - the user's own, where a provider is set globally by now: one service, and closing is the user's affair;
    - OTLP, with OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp;
    - else, and for what no collector takes, the file `<home>/traces/spans.jsonl`.

    Each agent is a service of its own, and the workflow's is OTEL_SERVICE_NAME or `orchestrator`; with
    `service_per_agent` false all are that one. OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT puts what tools are
    given and answer into spans.
    """
    environment = Environment(environ)
    if environment.disabled:
        return NullTracer()
    return OtelTracer(
        _users_spans() or _own_spans(home / "traces" / SPANS, environment),
        service=environment.service,
        service_per_agent=service_per_agent,
        capture=environment.capture,
        metrics=make_metrics(environment),
    )


def _users_spans() -> Spans | None:
    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None  # nobody has set one
    quieten()
    return UsersSpans(provider.get_tracer("orchestrator-mcp"))


def _own_spans(path: Path, environment: Environment) -> Spans:
    def collector() -> Callable[[Sequence[Span]], None]:
        from orchestrator.tracing.otlp import Collector  # noqa: PLC0415  # the SDK

        return Collector(environment.endpoint, environment.resource, grpc=environment.grpc).write

    batch, delay = environment.batch, environment.delay
    if environment.endpoint:
        return OwnSpans(collector, SpanFile(path), batch=batch, delay=delay, share=environment.share)
    return OwnSpans(lambda: SpanFile(path).write, batch=batch, delay=delay, share=None)
