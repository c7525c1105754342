"""The file in which spans lie when nobody collects them: `<home>/traces/spans.jsonl`, a span a line.

A thread of its own writes, so that a slow disk never stops the loop. Several processes may append at once: each batch
is a single write to a file opened for appending. A full file is renamed `spans.<time>.jsonl`; the newest few are kept.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Protocol

MAX_BYTES = 100_000_000
KEEP = 3
DEADLINE = 2.0
"""Seconds that closing may take, when the disk hangs."""

_QUEUE = 8_192
_logger = logging.getLogger("orchestrator.tracing")


class Line(Protocol):
    """What can be written; it is put in words by the writing thread, not by the loop."""

    def line(self) -> bytes: ...


class RotatingFile:
    """Appends to `path`, which only its owner may read; keeps `keep` full ones beside it."""

    def __init__(self, path: Path, *, limit: int = MAX_BYTES, keep: int = KEEP) -> None:
        self.path = path
        self._limit = limit
        self._keep = keep

    def append(self, data: bytes) -> None:
        """Raises:
        OSError: the file could not be opened or written.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Opened for each batch: another process may have renamed it since.
        file = self._open()
        try:
            size = os.fstat(file).st_size
            if size and size + len(data) > self._limit:
                self._rotate(file)
                os.close(file)
                file = self._open()
            os.write(file, data)
        finally:
            os.close(file)

    def full_files(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}"))

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _rotate(self, file: int) -> None:
        try:
            # Between these two lines another process may rotate as well; then a small file is renamed, nothing is lost.
            if os.stat(self.path).st_ino == os.fstat(file).st_ino:
                self.path.rename(self.path.with_name(f"{self.path.stem}.{time.time_ns()}{self.path.suffix}"))
            for old in self.full_files()[: -self._keep]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _logger.debug("%s was not rotated: %s", self.path, error)


class SpanFile:
    """Takes spans from any thread and writes them a batch at a time, at the latest `delay` seconds after the first."""

    def __init__(self, file: RotatingFile, *, batch: int = 64, delay: float = 1.0) -> None:
        self._file = file
        self._batch = batch
        self._delay = delay
        self._queue: deque[Line] = deque(maxlen=_QUEUE)
        self._some = threading.Event()
        self._enough = threading.Event()
        self._closed = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def put(self, span: Line) -> None:
        if self._closed:
            return
        queue = self._queue
        queue.append(span)
        if not self._some.is_set():
            self._some.set()
            if self._thread is None:
                self._start()
        if len(queue) >= self._batch and not self._enough.is_set():
            self._enough.set()

    def close(self) -> None:
        """Writes what is left."""
        self._closed = True
        self._some.set()
        self._enough.set()
        if self._thread is not None:
            self._thread.join(DEADLINE)
            atexit.unregister(self.close)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="orchestrator-spans", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _work(self) -> None:
        while not self._closed:
            self._some.wait()
            self._enough.wait(self._delay)
            self._some.clear()
            self._enough.clear()
            while self._queue:
                self._write([self._queue.popleft() for _ in range(min(len(self._queue), self._batch))])

    def _write(self, spans: list[Line]) -> None:
        try:
            self._file.append(b"".join([_line(span) for span in spans]))
        except OSError as error:
            if not self._warned:
                self._warned = True
                _logger.warning("spans could not be written to %s: %s", self._file.path, error)


def _line(span: Line) -> bytes:
    try:
        return span.line()
    except ValueError as error:
        _logger.debug("a span could not be put in JSON: %s", error)
        return b""
