"""Runs one command and turns how it ended into an exit code. Answers go to stdout, everything else to stderr."""

import asyncio
import io
import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping

import anyio

from orchestrator.cli import (
    INTERRUPTED,
    approving,
    chat,
    doctor,
    evaluating,
    init,
    listing,
    login,
    notes,
    replaying,
    running,
    serving,
)
from orchestrator.cli.interrupts import on_interrupt
from orchestrator.cli.progress import printable, say
from orchestrator.errors import ConfigurationError, OrchestratorError
from orchestrator.masking import mask

FAILED, USAGE = 1, 2

COMMANDS: Mapping[str, Callable[[Namespace], Awaitable[int]]] = {
    "run": running.run,
    "chat": chat.chat,
    "resume": running.resume,
    "approve": approving.approve,
    "tools": listing.tools,
    "login": login.login,
    "agents": listing.agents,
    "doctor": doctor.doctor,
    "init": init.init,
    "eval": evaluating.evaluate,
    "runs": listing.runs,
    "notes": notes.notes,
    "replay": replaying.replay,
    "serve": serving.serve,
}


def perform(arguments: Namespace) -> int:
    """Runs one command and returns its exit code; what the user has to mend is exit 2."""
    _write_anything()
    logging.basicConfig(handlers=[_ToStderr()], level=logging.WARNING, format="warning: %(message)s")
    # What goes wrong with a server is ours to tell, in one line; the MCP package would add its tracebacks.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    try:
        code = anyio.run(_interruptible, COMMANDS[arguments.command], arguments)
        sys.stdout.flush()  # here, where a reader that has gone can still be dealt with
        return code
    except ConfigurationError as error:
        for problem in error.problems:
            say(f"error: {problem}")
        return USAGE
    except OrchestratorError as error:
        say(f"error: {error}")
        return FAILED
    except OSError as error:
        # Whoever read our output has gone, or there is no room for it; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            where = f"{error.filename}: " if error.filename else ""
            say(f"error: {where}{error.strerror or error}")
        return FAILED


def _write_anything() -> None:
    """What others read is UTF-8 whatever the locale; what a terminal cannot show is `?` there, and no traceback."""
    # A process that was started with one of them closed has None there.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


class _ToStderr(logging.Handler):
    """Writes to standard error as it is then: while a line moves at the bottom of a terminal, another stands for it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(mask(self.format(record))), file=sys.stderr)


async def _interruptible(command: Callable[[Namespace], Awaitable[int]], arguments: Namespace) -> int:
    """The first Ctrl-C, or SIGTERM, parks the run and closes what was opened; the second ends the process at once."""
    with anyio.CancelScope() as scope:
        signalled = interrupted = False

        def interrupt() -> None:
            nonlocal signalled, interrupted
            if signalled:
                os._exit(INTERRUPTED)
            signalled = True
            interrupted = on_interrupt(scope.cancel)

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupt)
        code = await command(arguments)
        return INTERRUPTED if interrupted else code
    return INTERRUPTED
