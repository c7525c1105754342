"""The tracer port on OpenTelemetry's API, which the MCP SDK has loaded anyway.

Each scope's span is the current one of its context while it is open, so that the MCP SDK sends it along in `_meta` and
a user's own spans nest.

With `capture`, arguments and results of tools go into spans as JSON. Without it they stay out, and so do the texts of
failed tools. Messages of failed model calls and of exceptions are always there, as the status of their span. All of it
is masked before it leaves the process or reaches the file.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType

import anyio
import anyio.to_thread
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from orchestrator.tracing import attributes as words
from orchestrator.tracing.attributes import Attributes
from orchestrator.tracing.content import clean
from orchestrator.tracing.metrics import Metrics
from orchestrator.tracing.port import (
    INSIDE,
    ChatFacts,
    ChatOutcome,
    Outcome,
    PlanFacts,
    RunFacts,
    Scope,
    ToolFacts,
    TraceContext,
)
from orchestrator.tracing.spans import DEADLINE, Span, Spans

_LONGEST_NAME = 64
"""Characters of a tool's name in a span's: no offered one is longer, and what a model makes up may be."""

_CANCELLED = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})
"""How asyncio, trio and an abandoned generator say it."""


class OtelTracer:
    """See `Tracer`. The service of a workflow is `service`; any other scope's is its agent, if `service_per_agent`."""

    def __init__(
        self,
        spans: Spans,
        *,
        service: str,
        service_per_agent: bool,
        capture: bool,
        metrics: Metrics | None = None,
    ) -> None:
        self._spans = spans
        self._metrics = metrics
        self._service = service
        self._service_per_agent = service_per_agent
        self._capture = capture

    def workflow(self, facts: RunFacts, first: TraceContext | None = None) -> AbstractContextManager[Scope]:
        attributes = words.of_run(facts, "invoke_workflow", capture=False)
        return self._scope(self._service, facts.agent, attributes, None if first is None else _remote(first))

    def agent(self, facts: RunFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, facts.agent, words.of_run(facts, "invoke_agent", self._capture))

    def plan(self, facts: PlanFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, facts.agent, words.of_plan(facts))

    def chat(self, facts: ChatFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, facts.model, words.of_chat(facts))

    def tool(self, facts: ToolFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, clean(facts.tool), words.of_tool(facts, self._capture))

    async def aclose(self) -> None:
        # A shield, since this is where a cancelled run ends too; `close` keeps its own deadline. An own limiter, since
        # the common one may be full of threads that hang.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close, limiter=anyio.CapacityLimiter(1))

    def _close(self) -> None:
        began = time.monotonic()
        sending = self._metrics.closing() if self._metrics is not None else None
        self._spans.close()
        if sending is not None:
            sending.join(max(0.0, DEADLINE - (time.monotonic() - began)))

    def _scope(self, service: str, target: str, attributes: Attributes, parent: Context | None = None) -> "_Scope":
        operation = attributes["gen_ai.operation.name"]
        span = Span(
            service=service if self._service_per_agent else self._service,
            name=f"{operation} {target[:_LONGEST_NAME]}",
            kind=SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL,
            attributes=attributes,
        )
        return _Scope(self._spans, span, self._capture, parent, self._metrics)


class _Scope:
    """One span: begun and made current on entering, ended on leaving."""

    __slots__ = (
        "_capture",
        "_current",
        "_entered",
        "_facts",
        "_metrics",
        "_parent",
        "_settled",
        "_span",
        "_spans",
        "_token",
    )

    def __init__(
        self, spans: Spans, span: Span, capture: bool, parent: Context | None, metrics: Metrics | None
    ) -> None:
        self._spans = spans
        self._metrics = metrics
        self._facts = span.attributes  # a provider of the user's takes them, and gets what is added later apart
        self._span = span
        self._capture = capture
        self._parent = parent
        self._settled = False

    def __enter__(self) -> "_Scope":
        self._span.start = time.time_ns()
        self._current = self._spans.begin(self._span, self._parent)
        self._token = otel_context.attach(trace.set_span_in_context(self._current, self._parent))
        self._entered = INSIDE.set(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            INSIDE.reset(self._entered)  # OpenTelemetry would log an error where this one raises
        except ValueError:
            pass  # an abandoned generator, closed by another task: there is nothing to take back in its context
        else:
            otel_context.detach(self._token)
        if error is not None and self._span.error is None:
            self._fail(*_described(error))
        elif error is None and not self._settled:
            self._fail("_OTHER", "left without an outcome")
        self._span.end = time.time_ns()
        self._spans.end(self._span, self._current)
        if self._metrics is not None:
            self._metrics.record(self._facts | self._span.attributes, (self._span.end - self._span.start) / 1e9)

    @property
    def context(self) -> TraceContext:
        context = self._current.get_span_context()
        return TraceContext(trace_id=format(context.trace_id, "032x"), span_id=format(context.span_id, "016x"))

    def settle(self, outcome: Outcome) -> None:
        self._settled = True
        self._span.attributes.update(words.of_outcome(outcome, self._capture))
        if isinstance(outcome, ChatOutcome) and (cost := words.cost_event(outcome)):
            self._span.events.append(("cost", time.time_ns(), cost))
        failed = words.failure(outcome, self._capture)
        if failed is not None:
            self._fail(*failed)

    def note(self, name: str, facts: Mapping[str, str | int | float | bool]) -> None:
        attributes: Attributes = {key: clean(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}
        self._span.events.append((name, time.time_ns(), attributes))

    def _fail(self, kind: str, message: str) -> None:
        self._span.attributes["error.type"] = kind
        self._span.error = message


def _described(error: BaseException) -> tuple[str, str]:
    """Kind and message. A group of one, as task groups make them, is what is inside."""
    match error:
        case BaseExceptionGroup(exceptions=(inner,)):
            return _described(inner)
        case _:
            name = type(error).__name__
            return ("cancelled", "cancelled") if name in _CANCELLED else (name, clean(f"{name}: {error}"))


def _remote(place: TraceContext) -> Context:
    """A place that another sitting, perhaps of another process, was given."""
    flags = TraceFlags(TraceFlags.SAMPLED)
    parent = SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(parent))
