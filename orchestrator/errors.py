"""Every error that leaves the library, as one tree.

    OrchestratorError
    ├── ConfigurationError      what the user wrote is wrong; nothing was started (exit 2)
    │   └── UnknownRun          no such run in the journal
    ├── ModelError              a model could not answer; `kind` says why
    ├── ToolUnavailable         a server is down or was never up; the loop turns it into an observation
    ├── JournalError            the journal could not be read or written
    │   ├── Fenced              another process drives this run now
    │   └── UnknownEvent        the journal was written by a newer version
    └── RunBusy                 another process drives this run and its lease is alive

A message says what was wrong, where, and what to do. Failures of a tool are not here: they are observations that the
model reads. Limits are not here either: they end a run with its best partial result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ModelErrorKind = Literal[
    "authentication",
    "bad_request",
    "context_overflow",
    "rate_limit",
    "overloaded",
    "connection",
    "broken_stream",
    "not_found",
    "unscripted",
]
RETRYABLE: frozenset[str] = frozenset({"rate_limit", "overloaded", "connection", "broken_stream"})


class OrchestratorError(Exception):
    """Base of all errors of this package."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file: where, what, and how to mend it. Lines and columns count from 1."""

    message: str
    file: Path | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.message}" if place else self.message


class ConfigurationError(OrchestratorError):
    """What the user wrote cannot be used. `problems` lists everything found, not only the first."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems: Sequence[Problem] = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnknownRun(ConfigurationError):
    """The journal holds no run of this id."""


class ModelError(OrchestratorError):
    """A model request failed. `kind` decides what happens next; `retry_after`, in seconds, is the server's word."""

    def __init__(
        self, kind: ModelErrorKind, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        self.kind: ModelErrorKind = kind
        self.status = status
        self.retry_after = retry_after
        super().__init__(message)

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


class ToolUnavailable(OrchestratorError):
    """A tool's server is not there. `server` is its configured name."""

    def __init__(self, server: str, message: str) -> None:
        self.server = server
        super().__init__(message)


class JournalError(OrchestratorError):
    """The journal could not be read or written."""


class Fenced(JournalError):
    """Another process has claimed this run since; whatever this one does now must not be recorded."""


class UnknownEvent(JournalError):
    """The journal holds an event that this version does not know; going on would be guessing."""


class RunBusy(OrchestratorError):
    """Another live process drives this run."""
