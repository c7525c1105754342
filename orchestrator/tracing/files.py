"""Files of lines, and the one in which spans lie when nobody collects them: `<home>/traces/spans.jsonl`."""

import contextlib
import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from orchestrator.config.folders import make_private
from orchestrator.tracing.spans import Span

SPANS = "spans.jsonl"


class LineFile:
    """Appends to `path`, which only its owner may read. Several processes may: each batch is a single write.

    A file that would grow above `limit` bytes is renamed `<name>.<time>.jsonl`; the newest `keep` of them are kept, or
    all.
    """

    def __init__(self, path: Path, *, limit: int, keep: int | None = None) -> None:
        self.path = path
        self._limit = limit
        self._keep = keep

    def append(self, data: bytes) -> None:
        """Raises:
        OSError: the file could not be opened or wholly written.
        """
        make_private(self.path.parent)
        with contextlib.suppress(OSError):  # there is none, or another process was quicker
            if 0 < self.path.stat().st_size > self._limit - len(data):
                self._rotate()
        # Opened for each batch: another process may have renamed it since.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        finally:
            os.close(file)

    def _rotate(self) -> None:
        # Another process may have done so a moment ago; then a small file is renamed as well, and nothing is lost.
        self.path.rename(self.path.with_name(f"{self.path.stem}.{time.time_ns()}{self.path.suffix}"))
        if self._keep is not None:
            for old in _rotated(self.path)[: -self._keep]:
                old.unlink(missing_ok=True)


class SpanFile(LineFile):
    def __init__(self, path: Path, *, limit: int = 100_000_000, keep: int = 3) -> None:
        super().__init__(path, limit=limit, keep=keep)

    def write(self, spans: Sequence[Span]) -> None:
        """Raises:
        OSError: the file could not be opened or written.
        """
        self.append(b"".join([_line(span) for span in spans]))


def span_files(folder: Path) -> list[Path]:
    """All files of spans that lie in `<home>/traces`, oldest first."""
    path = folder / SPANS
    return [*_rotated(path), *([path] if path.exists() else [])]


def _rotated(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))


def _line(span: Span) -> bytes:
    """Field names as in OTLP's JSON; times are nanoseconds since the epoch, as text."""
    fields: dict[str, Any] = {
        "traceId": format(span.context.trace_id, "032x"),
        "spanId": format(span.context.span_id, "016x"),
        "parentSpanId": format(span.parent.span_id, "016x") if span.parent.is_valid else "",
        "name": span.name,
        "kind": span.kind.name,
        "service": span.service,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": span.attributes,
        "events": [{"name": name, "timeUnixNano": str(at), "attributes": facts} for name, at, facts in span.events],
        "status": {"code": "UNSET"} if span.error is None else {"code": "ERROR", "message": span.error},
    }
    return to_json(fields, inf_nan_mode="null") + b"\n"
