"""Questions to whoever sits at the terminal before a run begins: values that servers need, yes or no."""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from getpass import getpass

from orchestrator.cli.progress import printable
from orchestrator.config import Input
from orchestrator.config.expand import Unresolved


def ask(wanted: Input) -> str:
    """Asks for a value of `${input:…}`; a secret one is not shown while it is typed. Raises `Unresolved`."""
    about = f" ({printable(wanted.description)})" if wanted.description else ""
    default = f" [{printable(wanted.default)}]" if wanted.default and not wanted.secret else ""
    question = f"{printable(wanted.id)}{about}{default}: "
    with _interruptible():
        try:
            typed = getpass(question, sys.stderr) if wanted.secret else _line(question)
        except EOFError:
            raise Unresolved(f"the input `{wanted.id}` was asked for and not given.") from None
    return typed or wanted.default or ""


def yes(question: str) -> bool:
    """Asks for a yes; anything else, the end of the terminal too, is a no."""
    with _interruptible():
        try:
            return _line(f"{question} [y/N] ").strip().lower() in ("y", "yes", "是")
        except EOFError:
            return False


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.rstrip("\n")


@contextmanager
def _interruptible() -> Generator[None]:
    """Ctrl-C ends the command at a question: nothing runs yet, and the loop, which would park what does, waits too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
