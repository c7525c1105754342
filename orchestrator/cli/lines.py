"""Lines that a person types: edited and completed at a terminal, read as they are elsewhere.

Nothing holds the event loop meanwhile, so that servers stay connected while a person thinks.
"""

import codecs
import io
import os
import sys
import termios
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

import anyio.to_thread


class Lines(Protocol):
    """Where lines come from; `terminal` says whether a person sees what is printed."""

    terminal: bool

    async def next(self, names: Sequence[str]) -> str | None:
        """The next line; None at the end. `names` are what may be completed."""
        ...


def lines(prompt: str) -> Lines:
    """Of a terminal, when all three streams are it; else of standard input, without a prompt."""
    at_terminal = all(os.isatty(number) for number in (0, 1, 2))
    return TerminalLines(prompt) if at_terminal else PlainLines()


class TerminalLines:
    """By Python's own `readline`, whose history is that of this conversation."""

    terminal = True

    def __init__(self, prompt: str) -> None:
        import readline  # noqa: PLC0415 - only a terminal needs it, and importing it may write to one

        self._prompt = prompt
        self._names: Sequence[str] = ()
        self._readline = readline
        cast("io.TextIOWrapper", sys.stdin).reconfigure(errors="replace")
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._completed)
        if "libedit" in (readline.__doc__ or ""):
            readline.parse_and_bind("bind ^I rl_complete")
        else:
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind(r'"\C-c": "\C-e\C-u\C-m"')  # an empty line: what was typed is thrown away

    async def next(self, names: Sequence[str]) -> str | None:
        self._names = names
        with _without_interrupts():
            try:
                return await anyio.to_thread.run_sync(input, self._prompt, abandon_on_cancel=True)
            except EOFError:
                print()
                return None

    def _completed(self, text: str, state: int) -> str | None:
        """Commands where a line begins, else names."""
        first = self._readline.get_begidx() == 0 and text.startswith("/")
        fitting = [name for name in self._names if name.startswith(text) and (first or not name.startswith("/"))]
        return fitting[state] + " " if state < len(fitting) else None


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Ctrl-C is a key like any other while a line is edited: a signal could not reach the thread that reads it."""
    before = termios.tcgetattr(sys.stdin)
    changed = termios.tcgetattr(sys.stdin)
    changed[6][termios.VINTR] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class PlainLines:
    """Of a pipe or a file."""

    terminal = False

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._held = ""
        self._ended = False

    async def next(self, names: Sequence[str]) -> str | None:
        del names
        while "\n" not in self._held and not self._ended:
            chunk = await anyio.to_thread.run_sync(_read, abandon_on_cancel=True)
            self._held += self._decoder.decode(chunk, final=not chunk)
            self._ended = not chunk
        if not self._held:
            return None
        line, _, self._held = self._held.partition("\n")
        return line.removesuffix("\r")


def _read() -> bytes:
    try:
        return os.read(0, 1 << 16)
    except OSError:  # it was closed before we came
        return b""
