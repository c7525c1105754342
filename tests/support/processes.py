"""Processes of their own for what a test kills, stops or starts twice. A new one takes a fifth of a second."""

import multiprocessing
import os
import select
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

SECONDS = 120
"""Until a process counts as hanging; on a busy machine they are slow."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.behaviour.spine", "tests.behaviour.crash", "orchestrator.assembly"])


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a function of some module; the process's exit code is what it gives to `sys.exit`, or 0."""
    process = _FORKS.Process(target=work, args=arguments)
    process.start()
    return process


def end(process: BaseProcess) -> int:
    """Waits for the end. The exit code of a killed process is the signal's number, negative."""
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        raise AssertionError("the process hangs")
    return process.exitcode


def in_new_process(work: Callable[..., None], *arguments: Any) -> int:
    return end(start(work, *arguments))


def give(fifo: str | os.PathLike[str], text: str = "go\n") -> None:
    """Writes into a named pipe as soon as somebody reads it."""
    with open(fifo, "w") as file:
        file.write(text)


def take(fifo: str | os.PathLike[str]) -> str:
    """Waits until somebody has written into a named pipe; gives a line."""
    with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as file:
        ready, _, _ = select.select([file], [], [], SECONDS)
        assert ready, f"nobody writes into {fifo}"
        return file.readline()
