"""What a span is while it is recorded, and where it goes: to a thread of our own that writes it, or to the user's SDK.

Our own need OpenTelemetry's API alone; the SDK would cost 23 ms at every start and 23 µs a span. No provider is set
globally for them, so the MCP SDK's client spans, which would double ours, do not appear; it still sends our context.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from orchestrator.masking import mask
from orchestrator.tracing.attributes import Attributes

DEADLINE = 2.0
"""Seconds that closing may take, when a disk hangs or a collector does not answer."""

PAUSE = 30.0
"""Seconds for which a collector that failed is left alone: each try may take ten, and spans would pile up meanwhile."""

_ROOT_FLAGS = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
_logger = logging.getLogger("orchestrator.tracing")


@dataclass(slots=True, kw_only=True, eq=False)
class Span:
    """`error` says what went wrong, None when nothing did. Times are nanoseconds since the epoch."""

    service: str
    name: str
    kind: SpanKind
    attributes: Attributes
    events: list[tuple[str, int, Attributes]] = field(default_factory=list[tuple[str, int, Attributes]])
    error: str | None = None
    start: int = 0
    end: int = 0
    context: SpanContext = INVALID_SPAN_CONTEXT
    parent: SpanContext = INVALID_SPAN_CONTEXT


class SpareFile(Protocol):
    """Where spans go that nobody takes."""

    @property
    def path(self) -> Path: ...

    def write(self, spans: Sequence[Span]) -> None:
        """Raises OSError."""
        ...


def hide(span: Span) -> None:
    """Masks what a span says, in place."""
    span.name = mask(span.name)
    span.attributes = _hidden(span.attributes)
    span.events = [(name, at, _hidden(attributes)) for name, at, attributes in span.events]
    span.error = span.error and mask(span.error)


def _hidden(attributes: Attributes) -> Attributes:
    return {
        name: mask(value)
        if isinstance(value, str)
        else [mask(each) for each in value]
        if isinstance(value, list)
        else value
        for name, value in attributes.items()
    }


class UsersSpans:
    """Spans of a provider that the user has set; sending them is the user's affair.

    They are masked where they are made, since the user's provider takes them there.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def begin(self, span: Span, parent: Context | None) -> trace.Span:
        hide(span)
        attributes, span.attributes = span.attributes, {}
        return self._tracer.start_span(span.name, parent, span.kind, attributes)

    def end(self, span: Span, current: trace.Span) -> None:
        hide(span)
        current.set_attributes(span.attributes)
        for name, at, attributes in span.events:
            current.add_event(name, attributes, at)
        if span.error is not None:
            current.set_status(StatusCode.ERROR, span.error)
        current.end()

    def close(self) -> None: ...


class OwnSpans:
    """Spans that a thread writes a batch at a time, after `delay` seconds at the latest.

    `make` gives what writes them; it is called in that thread, at the first batch, since importing an exporter takes
    long. What it raises an error for goes to `spare`, or is lost without one; the same holds for what is not written
    within `DEADLINE` of closing. `share` of the traces that begin here are kept, and a caller's decision is followed;
    None keeps every span.
    """

    def __init__(
        self,
        make: Callable[[], Callable[[Sequence[Span]], None]],
        spare: SpareFile | None = None,
        *,
        batch: int,
        delay: float,
        share: float | None,
    ) -> None:
        self._make = make
        self._spare = spare
        self._batch = batch
        self._delay = delay
        self._share = share
        self._ended: deque[Span] = deque(maxlen=8_192)
        self._held: Sequence[Span] = ()
        self._taking = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._late = False
        self._warned = False
        self._again_at = 0.0
        self._thread: threading.Thread | None = None

    def begin(self, span: Span, parent: Context | None) -> trace.Span:
        """Finds its place in the trace; what is returned becomes the current span of OpenTelemetry's context."""
        above = span.parent = trace.get_current_span(parent).get_span_context()
        trace_id, flags = above.trace_id, above.trace_flags
        if not above.is_valid:
            trace_id, flags = _new_id(16), _ROOT_FLAGS
            if self._share is not None and trace_id % (1 << 64) >= self._share * (1 << 64):
                flags = TraceFlags(TraceFlags.RANDOM_TRACE_ID)
        span.context = SpanContext(
            trace_id, _new_id(8), is_remote=False, trace_flags=flags, trace_state=above.trace_state
        )
        return NonRecordingSpan(span.context)

    def end(self, span: Span, current: trace.Span) -> None:
        if self._closed or not (self._share is None or span.context.trace_flags.sampled):
            return
        self._ended.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="orchestrator-spans", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        if len(self._ended) >= self._batch and not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Blocks while what is left is written; whoever hangs is not waited for longer than `DEADLINE`."""
        self._closed = True
        self._wake.set()
        if self._thread is None:
            return
        self._thread.join(DEADLINE)
        with self._taking:
            self._late = True
            left = [*self._held, *self._ended]
            self._ended.clear()
        if left:
            self._put_aside(left, TimeoutError(f"spans were not taken within {DEADLINE:g} seconds"))
        atexit.unregister(self.close)

    def _work(self) -> None:
        write: Callable[[Sequence[Span]], None] | None = None
        closed = False
        while not closed:
            self._wake.wait(self._delay)
            self._wake.clear()
            closed = self._closed  # read before the rest is written, so that nothing from before it is left behind
            while spans := self._take():
                try:
                    if time.monotonic() < self._again_at:
                        self._put_aside(spans)
                        continue
                    for span in spans:
                        hide(span)
                    write = write or self._make()
                    write(spans)
                except Exception as error:  # noqa: BLE001  # whatever it is, a run does not fail of it
                    self._again_at = time.monotonic() + PAUSE
                    if not self._late:
                        self._put_aside(spans, error)

    def _take(self) -> Sequence[Span]:
        """The next batch. While it is held here, closing puts it aside when it becomes late."""
        with self._taking:
            count = 0 if self._late else min(len(self._ended), self._batch)
            self._held = [self._ended.popleft() for _ in range(count)]
            return self._held

    def _put_aside(self, spans: Sequence[Span], error: Exception | None = None) -> None:
        """Keeps spans that were not taken, and says so at the first ones."""
        fate = "they are lost"
        if self._spare is not None:
            for span in spans:
                hide(span)
            try:
                self._spare.write(spans)
                fate = f"they are kept in {self._spare.path}; `orchestrator replay ID --otlp` sends them later"
            except OSError as failed:
                fate = f"they are lost: {failed}"
        if error is not None:
            _logger.log(logging.DEBUG if self._warned else logging.WARNING, "%s; %s", error, fate)
            self._warned = True


Spans = OwnSpans | UsersSpans


def _new_id(size: int) -> int:
    """From the system: the ids that the SDK takes from `random` repeat in every process that seeds it."""
    return int.from_bytes(os.urandom(size)) or 1
