"""Chooses where a run's spans go. OpenTelemetry is imported when there is something to trace, its SDK only to send."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.tracing.environment import TraceSettings, read_environment
from orchestrator.tracing.port import NullTracer, Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


def make_tracer(home: Path, environ: Mapping[str, str], *, service_per_agent: bool = True) -> Tracer:
    """The tracer that the environment asks for:

    - none, with OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none;
    - the user's own, where an SDK provider is set globally by now: one service, and closing is the user's affair;
    - OTLP, with OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_TRACES_EXPORTER=otlp;
    - else the file `<home>/traces/spans.jsonl`.

    Each agent is a service of its own, and the workflow's is OTEL_SERVICE_NAME or `orchestrator`; with
    `service_per_agent` false all are that one. OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT puts what tools are
    given and answer into spans, unmasked: see `otel`.
    """
    settings = read_environment(environ)
    if not settings.enabled:
        return NullTracer()
    provider = _users_provider()
    if provider is not None:
        return _on_users(provider, settings)
    if settings.otlp is not None:
        return _to_collector(settings, service_per_agent)
    return _to_file(home / "traces" / "spans.jsonl", settings, service_per_agent)


def _users_provider() -> "TracerProvider | None":
    from opentelemetry.trace import get_tracer_provider  # noqa: PLC0415  # only when there is something to trace

    provider = get_tracer_provider()
    # Not imported for the question: who has set an SDK provider has imported it.
    sdk = sys.modules.get("opentelemetry.sdk.trace")
    if sdk is None or not isinstance(provider, sdk.TracerProvider):
        return None
    return cast("TracerProvider", provider)


def _on_users(provider: "TracerProvider", settings: TraceSettings) -> Tracer:
    from orchestrator.tracing.conventions import SCOPE  # noqa: PLC0415
    from orchestrator.tracing.otel import OtelTracer  # noqa: PLC0415

    tracer = provider.get_tracer(SCOPE)
    return OtelTracer(lambda _: tracer, service_per_agent=False, capture=settings.capture)


def _to_collector(settings: TraceSettings, service_per_agent: bool) -> Tracer:
    from orchestrator.tracing.export import OtlpExport  # noqa: PLC0415  # the SDK, 23 ms
    from orchestrator.tracing.otel import OtelTracer  # noqa: PLC0415

    assert settings.otlp is not None
    export = OtlpExport(settings.otlp, settings.resource)
    return OtelTracer(
        export.source,
        export.close,
        service=settings.service,
        service_per_agent=service_per_agent,
        capture=settings.capture,
    )


def _to_file(path: Path, settings: TraceSettings, service_per_agent: bool) -> Tracer:
    from orchestrator.tracing.files import RotatingFile, SpanFile  # noqa: PLC0415
    from orchestrator.tracing.local import LocalSource  # noqa: PLC0415
    from orchestrator.tracing.otel import OtelTracer  # noqa: PLC0415

    spans = SpanFile(RotatingFile(path), batch=settings.batch, delay=settings.delay_ms / 1_000)
    return OtelTracer(
        lambda service: LocalSource(service, spans.put),
        spans.close,
        service=settings.service,
        service_per_agent=service_per_agent,
        capture=settings.capture,
    )
