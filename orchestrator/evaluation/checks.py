"""Whether a run did what its task asks: rules over its answer, its calls and its files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.evaluation.suite import Checks
from orchestrator.events import PublicEvent, ToolCallEvent, ToolResultEvent
from orchestrator.runtime.result import RunResult

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
    """What is not as it must be; `before` are the files that were there when the run began."""
    if result.status != "finished":
        return [f"the run {result.status}: {result.stop_reason}"]
    answer = _plain(result.answer)
    found = [f"the answer does not contain {text!r}" for text in checks.contains if _plain(text) not in answer]
    found += [f"the answer contains {text!r}" for text in checks.not_contains if _plain(text) in answer]
    if checks.matches is not None and not re.search(checks.matches, result.answer):
        found.append(f"the answer does not match {checks.matches!r}")
    found += [f"no call of {glob} worked" for glob in checks.calls if not _any(calls.worked, glob)]
    found += [f"{glob} was called" for glob in checks.not_calls if _any(calls.called, glob)]
    made = {path for path, facts in files_of(folder, checks.files).items() if before.get(path) != facts}
    return found + [f"no file {glob} was made" for glob in checks.files if not made.intersection(folder.glob(glob))]


def _plain(text: str) -> str:
    return _THOUSANDS.sub("", " ".join(text.split())).casefold()


def _any(names: Iterable[str], glob: str) -> bool:
    return any(fnmatchcase(name, glob) for name in names)


def shortened(found: Sequence[str]) -> str:
    """Why a run was not right, in a line."""
    return " · ".join(" ".join(each.split())[:300] for each in found)
