"""Spans of our own, made on OpenTelemetry's API alone, and the box in which they wait to be written.

The SDK would cost 23 ms at every start and 23 µs a span, for what a file or one collector has no use for.
"""

import atexit
import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from orchestrator.tracing.attributes import Attributes

SCOPE = "orchestrator-mcp"
DEADLINE = 2.0
"""Seconds that closing may take, when a disk hangs or a collector does not answer."""

_logger = logging.getLogger("orchestrator.tracing")

# Ids come from a generator of their own: those of `random` itself, as the SDK's, repeat in every process that seeds it.
_random = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


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


class Spans(Protocol):
    """Where a tracer's spans go."""

    def begin(self, span: Span, parent: Context | None) -> trace.Span:
        """Finds its place in the trace; what is returned becomes the current span of OpenTelemetry's context."""
        ...

    def end(self, span: Span, current: trace.Span) -> None: ...

    def close(self) -> None:
        """Sends what is left; may block for `DEADLINE`."""
        ...


class Writer(Protocol):
    """Called in the box's thread, but for `stop`. `target` is where spans go, as people know it."""

    target: str

    def write(self, spans: Sequence[Span]) -> None: ...

    def stop(self) -> None:
        """Makes a `write` that hangs give up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Which spans are kept: as the caller's when `parent_based` and there is one, else this share of all traces."""

    parent_based: bool = True
    ratio: float = 1.0

    def keeps(self, trace_id: int, parent: SpanContext) -> bool:
        if self.parent_based and parent.is_valid:
            return parent.trace_flags.sampled
        return trace_id & (1 << 64) - 1 < self.ratio * (1 << 64)


class OwnSpans:
    """See `Spans`. Without `sampling` every span is kept, and a caller's flag is passed on as it came."""

    def __init__(self, box: "Box", sampling: Sampling | None = None) -> None:
        self._box = box
        self._sampling = sampling

    def begin(self, span: Span, parent: Context | None) -> trace.Span:
        above = span.parent = trace.get_current_span(parent).get_span_context()
        trace_id = above.trace_id or _random.getrandbits(128) or 1
        if self._sampling is None:
            flags = above.trace_flags if above.is_valid else TraceFlags.SAMPLED
        else:
            flags = TraceFlags.SAMPLED if self._sampling.keeps(trace_id, above) else TraceFlags.DEFAULT
        span.context = SpanContext(
            trace_id,
            _random.getrandbits(64) or 1,
            is_remote=False,
            trace_flags=TraceFlags(flags | TraceFlags.RANDOM_TRACE_ID),
            trace_state=above.trace_state,
        )
        return NonRecordingSpan(span.context)

    def end(self, span: Span, current: trace.Span) -> None:
        del current
        if self._sampling is None or span.context.trace_flags.sampled:
            self._box.put(span)

    def close(self) -> None:
        self._box.close()


class Box:
    """Takes spans from any thread; one of its own writes them a batch at a time, after `delay` seconds at the latest.

    The writer is made in that thread, at the first batch, since importing an exporter takes long. What cannot be
    written is said once and dropped.
    """

    def __init__(self, make: Callable[[], Writer], *, batch: int = 64, delay: float = 1.0, size: int = 8_192) -> None:
        self._make = make
        self._batch = batch
        self._delay = delay
        self._spans: deque[Span] = deque(maxlen=size)
        self._wake = threading.Event()
        self._closed = False
        self._writer: Writer | None = None
        self._warned = False
        self._thread: threading.Thread | None = None

    def put(self, span: Span) -> None:
        if self._closed:
            return
        self._spans.append(span)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="orchestrator-spans", daemon=True)
            self._thread.start()
            atexit.register(self.close)
        if len(self._spans) >= self._batch and not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Writes what is left within `DEADLINE`; what is not written by then is dropped. Blocks."""
        self._closed = True
        self._wake.set()
        if self._thread is None:
            return
        self._thread.join(DEADLINE)
        self._spans.clear()
        if self._writer is not None:
            self._writer.stop()
        atexit.unregister(self.close)

    def _work(self) -> None:
        closed = False
        while not closed:
            self._wake.wait(self._delay)
            self._wake.clear()
            closed = self._closed  # read before the box is emptied, so that nothing put before it is left behind
            while spans := [self._spans.popleft() for _ in range(min(len(self._spans), self._batch))]:
                self._write(spans)

    def _write(self, spans: list[Span]) -> None:
        try:
            if self._writer is None:
                self._writer = self._make()
            self._writer.write(spans)
        except Exception as error:  # noqa: BLE001  # whatever it is, a run does not fail of it
            if not self._warned:
                self._warned = True
                _logger.warning("spans are lost: %s", error)
