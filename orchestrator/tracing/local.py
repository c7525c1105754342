"""Spans for the local file, on OpenTelemetry's API alone.

The SDK would cost 23 ms at every start and 23 µs a span, for sampling, limits and resources that a file of one's own
has no use for. Every span is recorded here, whatever a caller's sampling says; its flag is passed on as it came.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AnyValue, Attributes
from pydantic_core import to_json

from orchestrator.tracing.ids import new_span_id, new_trace_id

_ROOT_FLAGS = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)


class LocalSpan(Span):
    """A span that hands itself to `done` when it ends and is not changed thereafter."""

    __slots__ = (
        "_attributes",
        "_context",
        "_done",
        "_end",
        "_events",
        "_kind",
        "_name",
        "_parent",
        "_service",
        "_start",
        "_status",
    )

    def __init__(
        self,
        name: str,
        service: str,
        kind: SpanKind,
        parent: SpanContext,
        attributes: Attributes,
        done: Callable[["LocalSpan"], None],
    ) -> None:
        self._name = name
        self._service = service
        self._kind = kind
        self._attributes: dict[str, AnyValue] = dict(attributes) if attributes else {}
        self._done = done
        self._events: list[tuple[str, int, Attributes]] = []
        self._status: tuple[StatusCode, str | None] = (StatusCode.UNSET, None)
        self._end: int | None = None
        self._parent = parent if parent.is_valid else None
        self._context = SpanContext(
            parent.trace_id if parent.is_valid else new_trace_id(),
            new_span_id(),
            is_remote=False,
            trace_flags=parent.trace_flags if parent.is_valid else _ROOT_FLAGS,
            trace_state=parent.trace_state,
        )
        self._start = time.time_ns()

    def end(self, end_time: int | None = None) -> None:
        if self._end is None:
            self._end = end_time or time.time_ns()
            self._done(self)

    def get_span_context(self) -> SpanContext:
        return self._context

    def is_recording(self) -> bool:
        return self._end is None

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        if self._end is None:
            self._attributes.update(attributes)

    def set_attribute(self, key: str, value: AnyValue) -> None:
        if self._end is None:
            self._attributes[key] = value

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        if self._end is None:
            self._events.append((name, timestamp or time.time_ns(), dict(attributes) if attributes else None))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        del context, attributes

    def update_name(self, name: str) -> None:
        if self._end is None:
            self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        if self._end is None:
            code = status if isinstance(status, StatusCode) else status.status_code
            self._status = (code, description if isinstance(status, StatusCode) else status.description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        facts = {"exception.type": type(exception).__qualname__, "exception.message": str(exception)}
        self.add_event("exception", {**facts, **(attributes or {})}, timestamp)

    def line(self) -> bytes:
        """One line of the file, field names as in OTLP's JSON; times are nanoseconds since the epoch, as text."""
        context = self._context
        code, message = self._status
        fields: dict[str, Any] = {
            "traceId": format(context.trace_id, "032x"),
            "spanId": format(context.span_id, "016x"),
            "parentSpanId": format(self._parent.span_id, "016x") if self._parent else "",
            "name": self._name,
            "kind": self._kind.name,
            "service": self._service,
            "startTimeUnixNano": str(self._start),
            "endTimeUnixNano": str(self._end),
            "attributes": self._attributes,
            "events": [
                {"name": name, "timeUnixNano": str(at), "attributes": facts or {}} for name, at, facts in self._events
            ],
            "status": {"code": code.name, "message": message} if message else {"code": code.name},
        }
        return to_json(fields, inf_nan_mode="null", serialize_unknown=True) + b"\n"


class LocalSource:
    """Starts the spans of one service."""

    def __init__(self, service: str, done: Callable[[LocalSpan], None]) -> None:
        self._service = service
        self._done = done

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
    ) -> LocalSpan:
        parent = trace.get_current_span(context).get_span_context()
        return LocalSpan(name, self._service, kind, parent, attributes, self._done)
