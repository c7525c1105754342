"""Events and journals for the tests of journals, and the processes that those start."""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from orchestrator.errors import Fenced, JournalError
from orchestrator.events import JournalEvent, Limits, RunStarted, ToolResult
from orchestrator.runtime.journal import Claim, Journal, SqliteJournal


def started(run: str = "r", *, at: float = 1.0, task: str = "the job", **more: Any) -> RunStarted:
    hashes = {"system": "s", "tools": "t", "trace_id": "1", "span_id": "2"}
    facts = {"model": "m", "limits": Limits(), "max_output_tokens": 9, **hashes, **more}
    return RunStarted(seq=1, at=at, run=run, agent="a", task=task, **facts)


def observed(seq: int, text: str = "", run: str = "r", *, at: float = 2.0) -> ToolResult:
    return ToolResult(seq=seq, at=at, run=run, agent="a", call="t1.1", tool="x", observation=text)


async def many(journal: Journal, run: str, count: int, *, first: int = 1) -> Claim:
    """Claims a run and writes so many events, one append each."""
    claim = await journal.claim(run)
    events: list[JournalEvent] = [started(run), *(observed(seq, f"{seq}", run) for seq in range(2, first + count))]
    for event in events[first - 1 :]:
        await journal.append(claim, [event])
    return claim


def taken(path: Path, runs: list[str]) -> None:
    """A process of its own that writes ten events into each of these runs, all at once."""

    async def work() -> None:
        journal = SqliteJournal(path)
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(many, journal, run, 10)
        await journal.aclose()

    anyio.run(work)


def fill(path: Path, bytes_allowed: int) -> None:
    """Writes 20 kB events until the disk is full, says on a file beside it how many were acknowledged, and goes on.

    It ends with 0 if the journal said that it is full, and if the next append, which fits, was well again.
    """

    async def work() -> None:
        journal = SqliteJournal(path)
        claim = await many(journal, "r", 1)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, resource.RLIM_INFINITY))
        acknowledged = 1
        try:
            while acknowledged < 10_000:
                await journal.append(claim, [observed(acknowledged + 1, "x" * 20_000)])
                acknowledged += 1
        except Fenced:
            sys.exit(2)
        except JournalError as error:
            (path.parent / "told").write_text(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await journal.append(claim, [observed(acknowledged + 1, "after")])
        (path.parent / "acknowledged").write_text(str(acknowledged + 1))
        await journal.aclose()

    anyio.run(work)


def locked_out(path: Path) -> None:
    """Tries a journal in a folder that may not be written, as somebody who is not root; notes what it was told."""
    with (path.parent / "told").open("w") as told:

        async def work() -> None:
            await asyncio.to_thread(int)  # what is imported for it must be there before we may read nothing
            path.parent.chmod(0o500)
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            journal = SqliteJournal(path)
            for attempt in (journal.runs(), journal.claim("r")):
                try:
                    await attempt
                except JournalError as error:
                    told.write(("cannot be read" if "cannot be read" in str(error) else "cannot be opened") + "\n")
            await journal.aclose()

        anyio.run(work)
