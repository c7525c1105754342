"""The log: what runs do, a JSON line a step, and what our package warns of, in `<home>/logs/<day>.jsonl`.

The standard library's queue handlers neither count what they drop nor end within a bound, and its rotating files are
for one process alone.
"""

import logging
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from pydantic_core import to_json

from orchestrator.masking import mask
from orchestrator.tracing.content import capped_json, clean, head, parsed
from orchestrator.tracing.files import LineFile

DEADLINE = 1.0
"""Seconds that closing may take when a disk hangs."""

KEPT = 7 * 86_400
"""Seconds for which a file is kept after its last line."""

_DELAY = 0.5
"""Seconds for which lines are gathered for one write."""

_WAITING = 4_096
"""Lines that wait for a slow disk; what comes then is left out, and counted."""

_READ, _SHOWN = 2_000, 300
"""Characters of a value that are masked, and those of them that are written: it is a summary."""

_CONTENT = frozenset({"task", "text", "arguments", "result", "answer", "note"})
_OURS = frozenset({"level", "event", "run_id", "trace_id", "call", "previous", "state"})
"""Words and numbers of ours, in which there is nothing to hide."""

_logger = logging.getLogger("orchestrator.tracing")
_package = logging.getLogger("orchestrator")
_about: ContextVar[Mapping[str, str] | None] = ContextVar("orchestrator_log_about", default=None)


@contextmanager
def about(run_id: str, trace_id: str) -> Generator[None]:
    """What is warned of in this block, and in tasks that begin in it, is about this run."""
    token = _about.set({"run_id": run_id, "trace_id": trace_id})
    try:
        yield
    finally:
        _about.reset(token)


class Log:
    """Lines that a thread writes. Adding one never waits, and no trouble in writing reaches who adds it.

    Several processes may share `folder`. Each UTC day has its file, one above `limit` bytes is set aside, and those of
    more than seven days ago are removed. Without `content`, what is said, sent and answered is left out.
    """

    def __init__(self, folder: Path, *, content: bool = True, limit: int = 100_000_000) -> None:
        self._folder = folder
        self._content = content
        self._limit = limit
        self._day = ""
        self._lines: list[Mapping[str, Any]] = []
        self._lost = 0
        self._warned = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._handler = _Handler(self)
        _package.addHandler(self._handler)

    def add(self, line: Mapping[str, Any]) -> None:
        """`at` is in seconds since the epoch; a line is not to be changed afterwards."""
        with self._lock:
            if len(self._lines) >= _WAITING or self._closing.is_set():
                self._lost += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="orchestrator-log", daemon=True)
                self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    async def aclose(self) -> None:
        # As the tracer's: this is where a cancelled run ends too, and the common threads may all hang.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close, limiter=anyio.CapacityLimiter(1))

    def close(self) -> None:
        """Blocks while what is left is written, but no longer than `DEADLINE`."""
        _package.removeHandler(self._handler)
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(DEADLINE)
            if self._thread.is_alive():
                self._warn(f"the folder {self._folder} took nothing for {DEADLINE:g} seconds")

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._closing.wait(_DELAY)
            self._wake.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            lines, self._lines = self._lines, []
            lost, self._lost = self._lost, 0
        if lost:
            lines.append({"at": time.time(), "level": "warning", "event": "log.lost", "count": lost})
        if not lines:
            return
        try:
            self._append(b"".join([self._encoded(line) for line in lines]))
        except Exception as error:  # noqa: BLE001  # whatever it is, a run does not fail of it
            with self._lock:
                self._lost += len(lines)
            self._warn(str(error))

    def _append(self, data: bytes) -> None:
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        if day != self._day:
            _remove_old(self._folder)
            self._day = day
        LineFile(self._folder / f"{day}.jsonl", limit=self._limit).append(data)

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            _logger.warning("runs go on without a log: %s", problem)

    def _encoded(self, line: Mapping[str, Any]) -> bytes:
        at = datetime.fromtimestamp(line["at"], UTC).isoformat(timespec="milliseconds")
        shown = {
            name: value if name in _OURS else _end(value) if name == "traceback" else _summary(value)
            for name, value in line.items()
            if name != "at" and (self._content or name not in _CONTENT)
        }
        return to_json({"at": at, **shown}, inf_nan_mode="null") + b"\n"


def _summary(value: Any) -> Any:
    """A value on one line, masked before it is cut: half a secret is not seen to be one. JSON is read, so as to be
    masked by its names."""
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else capped_json(value, _READ)
    if len(text) > _READ:
        whole = parsed(text)
        text = head(text, _READ) if whole is text else capped_json(whole, _READ)
    return clean(mask(text), _SHOWN)


def _end(text: str) -> str:
    """The end of a traceback, which says most."""
    return mask(text[-20_000:])[-4_000:]


def _remove_old(folder: Path) -> None:
    for path in folder.glob("????-??-??*.jsonl"):
        with suppress(OSError):  # another process was quicker
            if path.lstat().st_mtime < time.time() - KEPT:
                path.unlink()


class _Handler(logging.Handler):
    """Warnings and errors of our package, with the run that they are about where there is one."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        others = _handlers(record.name)
        if logging.lastResort and others[0] is self and all(isinstance(other, _Handler) for other in others):
            logging.lastResort.handle(record)  # as Python does where nobody handles it, so as if we were not here
        try:
            line = {"at": record.created, "level": record.levelname.lower(), "event": "log", **(_about.get() or {})}
            trouble = {"traceback": _format.formatException(record.exc_info)} if record.exc_info else {}
            self._log.add({**line, "logger": record.name, "message": record.getMessage(), **trouble})
        except Exception:  # noqa: BLE001  # arguments that do not fit the message: told as `logging` tells it
            self.handleError(record)


_format = logging.Formatter()


def _handlers(name: str) -> list[logging.Handler]:
    """All that a logger of this name tells."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found
