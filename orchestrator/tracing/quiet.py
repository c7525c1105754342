"""Keeps the MCP SDK from opening a client span of its own inside ours, where a user's provider would record both.

The conventions ask for one span a tool call. The SDK offers no switch; a sampler would tell the server that nobody
records, and a span processor would orphan the server's span. So its tracer is wrapped, once a process, at the first
provider that a user has set. What the user's own clients do outside our scopes is traced as before.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mcp.shared import _otel
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Tracer, get_current_span

from orchestrator.tracing.port import INSIDE


class _Quiet(Tracer):
    """The SDK's tracer, but silent for requests that go out inside a scope of ours: those are that scope's span."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start_span(self, *args: Any, **more: Any) -> Span:
        return self._tracer.start_span(*args, **more)

    def start_as_current_span(self, *args: Any, **more: Any) -> AbstractContextManager[Span]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if INSIDE.get() and more.get("kind") is SpanKind.CLIENT:
            return nullcontext(NonRecordingSpan(get_current_span().get_span_context()))
        return self._tracer.start_as_current_span(*args, **more)


def quieten() -> None:
    """Wraps the SDK's tracer; doing so twice is doing it once."""
    tracer: Tracer = _otel._tracer  # pyright: ignore[reportPrivateUsage]
    if not isinstance(tracer, _Quiet):
        _otel._tracer = _Quiet(tracer)  # pyright: ignore[reportPrivateUsage]
