"""`replay`: a run again, from its journal; on from one of its steps; or its spans, to a collector."""

import os
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from orchestrator.cli.drawing import Paper, lines
from orchestrator.cli.interrupts import parking
from orchestrator.cli.listing import looking, open_journal, resolve_run
from orchestrator.cli.progress import say
from orchestrator.cli.running import options, overlaid, report, run_options, watching
from orchestrator.errors import ConfigurationError, UnknownRun
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator

if TYPE_CHECKING:
    from orchestrator.runtime.journal import SqliteJournal
    from orchestrator.runtime.replay import ReplayedRun

PROMPT = "-- Enter goes on, q ends --"


async def replay(arguments: Namespace) -> int:
    """Shows a run, unless it is to be run on or sent."""
    if arguments.step and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigurationError("--step stops for someone at a terminal, and there is none")
    if arguments.start is not None:
        return await _run_on(arguments)
    if arguments.otlp is not None:
        return await _send(arguments)
    looking(arguments)
    run = await read_run(arguments)
    if arguments.json:
        print(run.model_dump_json())
    elif arguments.svg is not None:
        from orchestrator.cli.picture import picture  # noqa: PLC0415

        arguments.svg.write_text(picture(run), encoding="utf-8")
        print(arguments.svg)
    else:
        await show_run(run, stepwise=arguments.step)
    return 0


async def read_run(arguments: Namespace) -> "ReplayedRun":
    from orchestrator.prompts import add_requests  # noqa: PLC0415 - imports the core
    from orchestrator.runtime.journal import root_of  # noqa: PLC0415
    from orchestrator.runtime.replay import replay  # noqa: PLC0415

    async with _journal(arguments) as journal:
        run_id = await resolve_run(journal, arguments.run_id)
        tree = await journal.tree(root_of(run_id))
        if run_id not in tree:
            raise UnknownRun(f"there is no run {run_id!r} in {journal.path}; `orchestrator runs` lists those here")
        run = replay(run_id, tree)
        if arguments.prompts and not await add_requests(run, tree, journal):
            say("warning: a model of this run is not configured here as it was then; its settings are left out")
        return run


@asynccontextmanager
async def _journal(arguments: Namespace) -> AsyncGenerator["SqliteJournal"]:
    """The journal to read: our own, or a file from elsewhere, which stays as it is."""
    from orchestrator.runtime.journal import SqliteJournal  # noqa: PLC0415

    file = arguments.journal
    if file is not None and not file.is_file():
        raise ConfigurationError(f"--journal: there is no file {file}")
    journal = open_journal(options(arguments)) if file is None else SqliteJournal(file, read_only=True)
    try:
        yield journal
    finally:
        await journal.aclose()


async def show_run(run: "ReplayedRun", *, stepwise: bool) -> None:
    paper = Paper()
    for line in lines(run):
        paper.put(line)
        if stepwise and line.stop:
            print(PROMPT, end=" ", flush=True)
            await anyio.wait_readable(sys.stdin)
            typed = os.read(sys.stdin.fileno(), 1 << 16)
            if not typed or typed.strip().lower() in (b"q", b"quit"):
                return


async def _run_on(arguments: Namespace) -> int:
    """A new run from a step of this one, with the settings that this one had unless flags say otherwise."""
    from orchestrator.runtime.forking import fork_of  # noqa: PLC0415

    async with _journal(arguments) as journal:
        run_id = await resolve_run(journal, arguments.run_id)
        started = (await fork_of(journal, run_id, arguments.start)).started  # what is wrong is said before all else
        chosen = options(arguments)
        if arguments.journal is None and started.settings:
            chosen = overlaid(Options.recorded(await journal.body(started.settings)), arguments)
        say(f"runs on from step {arguments.start} of run {run_id}; what was done after it there is not undone")
        with watching(arguments) as (watch, progress):
            async with Orchestrator(chosen, agent=started.agent) as orchestrator:
                with parking(orchestrator.park):
                    told = run_options(arguments, progress)
                    result = await orchestrator.rerun(
                        run_id, arguments.start, source=journal, options=told, on_event=watch
                    )
            progress.close()
    return report(result, arguments, orchestrator.settings)


async def _send(arguments: Namespace) -> int:
    """The spans of a run, from the files of this machine."""
    from orchestrator.tracing.sending import send_trace  # noqa: PLC0415 - the SDK

    async with _journal(arguments) as journal:
        run_id = await resolve_run(journal, arguments.run_id)
        events = await journal.read(run_id)
    started = next((event for event in events if event.type == "run.started"), None)
    if started is None:
        raise UnknownRun(f"there is no run {run_id!r}; `orchestrator runs` lists them")
    folder = options(arguments).store() / "traces"
    sent = await anyio.to_thread.run_sync(send_trace, folder, started.trace_id, arguments.otlp, os.environ)
    print(f"{sent.spans} spans of trace {started.trace_id} were sent to {sent.endpoint}")
    return 0
