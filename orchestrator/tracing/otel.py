"""The tracer port on OpenTelemetry spans.

Only OpenTelemetry's API is used here, which the MCP SDK has loaded anyway; what a span becomes is decided by the span
source: lines of a local file (`local`), OTLP (`export`), or a provider that the user has set. Each scope's span is the
current one of its context while it is open, so that the MCP SDK sends it along in `_meta` and a user's own spans nest.

With `capture`, arguments and results of tools go into spans as JSON. They are NOT masked yet: secrets and personal data
in them reach whoever reads the spans. Without it they stay out, and so do the texts of failed tools. Messages of failed
model calls and of exceptions are always there, as the status of their span, and are not masked yet either.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

import anyio
import anyio.to_thread
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.util.types import Attributes as OtelAttributes

from orchestrator.tracing import conventions as names
from orchestrator.tracing.attributes import Attributes, cost_event, failure, of_chat, of_outcome, of_run, of_tool
from orchestrator.tracing.content import clean
from orchestrator.tracing.environment import DEFAULT_SERVICE
from orchestrator.tracing.port import ChatFacts, ChatOutcome, Outcome, RunFacts, Scope, ToolFacts, TraceContext

_CANCELLED = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})
"""How asyncio, trio and an abandoned generator say it."""

_entered: ContextVar[None] = ContextVar("orchestrator_scope_entered")
"""Tells whether a scope is left in the context it was entered in; OpenTelemetry logs an error when it is not."""


class SpanSource(Protocol):
    """The part of an OpenTelemetry `Tracer` that is used."""

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: OtelAttributes = None,
    ) -> Span: ...


class OtelTracer:
    """See `Tracer`. `source` gives the span source of a service; `close` sends what is left and may block.

    A service is an agent's name, or always `service` when `service_per_agent` is false; the workflow's is `service`.
    """

    def __init__(
        self,
        source: Callable[[str], SpanSource],
        close: Callable[[], None] | None = None,
        *,
        service: str = DEFAULT_SERVICE,
        service_per_agent: bool = True,
        capture: bool = False,
    ) -> None:
        self._source = source
        self._close = close
        self._service = service
        self._service_per_agent = service_per_agent
        self._capture = capture
        self._sources: dict[str, SpanSource] = {}

    def workflow(self, facts: RunFacts, first: TraceContext | None = None) -> AbstractContextManager[Scope]:
        return self._scope(
            self._service,
            f"{names.INVOKE_WORKFLOW} {facts.agent}",
            of_run(facts, names.INVOKE_WORKFLOW),
            parent=None if first is None else _remote(first),
        )

    def agent(self, facts: RunFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, f"{names.INVOKE_AGENT} {facts.agent}", of_run(facts, names.INVOKE_AGENT))

    def chat(self, facts: ChatFacts) -> AbstractContextManager[Scope]:
        return self._scope(facts.agent, f"{names.CHAT} {facts.model}", of_chat(facts), kind=SpanKind.CLIENT)

    def tool(self, facts: ToolFacts) -> AbstractContextManager[Scope]:
        attributes = of_tool(facts, self._capture)
        return self._scope(facts.agent, f"{names.EXECUTE_TOOL} {attributes[names.TOOL_NAME]}", attributes)

    async def aclose(self) -> None:
        if self._close is None:
            return
        # A shield, since this is where a cancelled run ends too; `close` keeps its own deadline. An own limiter, since
        # the common one may be full of threads that hang.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close, limiter=anyio.CapacityLimiter(1))

    def _scope(
        self,
        service: str,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Context | None = None,
    ) -> "_Scope":
        if not self._service_per_agent:
            service = self._service
        source = self._sources.get(service)
        if source is None:
            source = self._sources[service] = self._source(service)
        return _Scope(source, name, attributes, kind, parent, self._capture)


class _Scope:
    """One span: started and made current on entering, ended on leaving."""

    __slots__ = (
        "_attributes",
        "_capture",
        "_entered",
        "_kind",
        "_name",
        "_parent",
        "_source",
        "_span",
        "_token",
        "_told",
    )

    def __init__(
        self,
        source: SpanSource,
        name: str,
        attributes: Attributes,
        kind: SpanKind,
        parent: Context | None,
        capture: bool,
    ) -> None:
        self._source = source
        self._name = name
        self._attributes = attributes
        self._kind = kind
        self._parent = parent
        self._capture = capture
        self._told: bool | None = None
        """None until the outcome is told; then whether it was a good one."""

    def __enter__(self) -> "_Scope":
        self._span = self._source.start_span(self._name, self._parent, self._kind, self._attributes)
        self._token = otel_context.attach(trace.set_span_in_context(self._span, self._parent))
        self._entered = _entered.set(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            _entered.reset(self._entered)
        except ValueError:
            pass  # an abandoned generator, closed by another task: there is nothing to take back in its context
        else:
            otel_context.detach(self._token)
        if error is not None and self._told is not False:
            self._fail(*_described(error))
        elif self._told is None:
            self._fail(names.ERROR_OTHER, "left without an outcome")
        self._span.end()

    @property
    def context(self) -> TraceContext:
        context = self._span.get_span_context()
        return TraceContext(trace_id=format(context.trace_id, "032x"), span_id=format(context.span_id, "016x"))

    def settle(self, outcome: Outcome) -> None:
        self._told = True
        if not self._span.is_recording():
            return
        self._span.set_attributes(of_outcome(outcome, self._capture))
        if isinstance(outcome, ChatOutcome) and (outcome.usage.tokens or outcome.error is None):
            self._span.add_event(names.EVENT_COST, cost_event(outcome))
        failed = failure(outcome, self._capture)
        if failed is not None:
            self._fail(failed.kind, failed.message)

    def note(self, name: str, facts: Mapping[str, str | int | float | bool]) -> None:
        if self._span.is_recording():
            self._span.add_event(
                name, {key: clean(fact) if isinstance(fact, str) else fact for key, fact in facts.items()}
            )

    def _fail(self, kind: str, message: str) -> None:
        self._told = False
        self._span.set_attribute(names.ERROR_TYPE, kind)
        self._span.set_status(StatusCode.ERROR, message)


def _described(error: BaseException) -> tuple[str, str]:
    """Kind and message of an exception."""
    error = _single(error)
    name = type(error).__name__
    if name in _CANCELLED:
        return names.ERROR_CANCELLED, names.ERROR_CANCELLED
    return name, clean(f"{name}: {error}")


def _single(error: BaseException) -> BaseException:
    """What is inside a group of one, as task groups make them."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return _single(inner[0]) if issubclass(type(error), BaseExceptionGroup) and len(inner) == 1 else error


def _remote(place: TraceContext) -> Context:
    parent = SpanContext(
        int(place.trace_id, 16), int(place.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
    return trace.set_span_in_context(NonRecordingSpan(parent))
