"""Whether a run did what its task asks: rules over its answer, its calls and its files."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import anyio
import anyio.to_process

from orchestrator.evaluation.suite import Checks
from orchestrator.events import PublicEvent, ToolCallEvent, ToolResultEvent
from orchestrator.runtime.result import RunResult

_PATIENCE: Final = 5.0
"""Seconds for a pattern to be looked for: some take longer than anybody lives, and cannot be interrupted."""

_THOUSANDS = re.compile(r"(?<=\d)[,'’\u00a0\u202f](?=\d{3}(?!\d))")

Files = Mapping[Path, tuple[int, int]]
"""Size in bytes and time of the last change, in nanoseconds, by path."""


@dataclass(slots=True)
class Calls:
    """The tools that the agents of a run called, and those whose calls worked. Pass it as `on_event`."""

    called: set[str] = field(default_factory=set[str])
    worked: set[str] = field(default_factory=set[str])

    def __call__(self, event: PublicEvent) -> None:
        if isinstance(event, ToolCallEvent):
            self.called.add(event.tool)
        elif isinstance(event, ToolResultEvent) and not event.is_error:
            self.worked.add(event.tool)


def files_of(folder: Path, globs: Iterable[str]) -> Files:
    """The files that these globs find now."""
    found = {path for glob in globs for path in folder.glob(glob) if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path in found for stat in (path.stat(),)}


def problems(checks: Checks, result: RunResult, calls: Calls, folder: Path, before: Files) -> list[str]:
    """What is not as it must be, but for `unmatched`; `before` are the files that were there when the run began."""
    if result.status != "finished":
        return [f"the run {result.status}: {result.stop_reason}"]
    answer = _plain(result.answer)
    found = [f"the answer does not contain {text!r}" for text in checks.contains if _plain(text) not in answer]
    found += [f"the answer contains {text!r}" for text in checks.not_contains if _plain(text) in answer]
    found += [f"no call of {glob} worked" for glob in checks.calls if not _any(calls.worked, glob)]
    found += [f"{glob} was called" for glob in checks.not_calls if _any(calls.called, glob)]
    made = {path for path, facts in files_of(folder, checks.files).items() if before.get(path) != facts}
    return found + [f"no file {glob} was made" for glob in checks.files if not made.intersection(folder.glob(glob))]


async def unmatched(pattern: str | None, answer: str) -> list[str]:
    """Why an answer is not as a pattern wants it."""
    if pattern is None:
        return []
    with anyio.move_on_after(_PATIENCE):
        # In a process, which can be killed; its own code needs nothing of ours there.
        found = await anyio.to_process.run_sync(re.findall, pattern, answer, cancellable=True)
        return [] if found else [f"the answer does not match {pattern!r}"]
    return [f"{pattern!r} takes more than {_PATIENCE:g} s to look for; it tries too many ways"]


def _plain(text: str) -> str:
    return _THOUSANDS.sub("", " ".join(text.split())).casefold()


def _any(names: Iterable[str], glob: str) -> bool:
    return any(fnmatchcase(name, glob) for name in names)
