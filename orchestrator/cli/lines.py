"""Lines that a person types: edited and completed at a terminal, read as they are elsewhere.

Nothing holds the event loop meanwhile, so that servers stay connected while a person thinks.
"""

import asyncio
import codecs
import io
import os
import sys
import termios
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar, cast

_T = TypeVar("_T")


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
                return await _typed(lambda: input(self._prompt))
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
            chunk = await _typed(_read)
            self._held += self._decoder.decode(chunk, final=not chunk)
            self._ended = not chunk
        if not self._held:
            return None
        line, _, self._held = self._held.partition("\n")
        return line.removesuffix("\r")


async def _typed(read: Callable[[], _T]) -> _T:
    """What `read` gives, in a thread that nobody waits for when the chat is ended instead."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else result())

    def work() -> None:
        try:
            found = read()
        except Exception as error:  # noqa: BLE001 - it is raised where the line is waited for
            settle(lambda error=error: future.set_exception(error))
        else:
            settle(lambda: future.set_result(found))

    threading.Thread(target=work, name="lines", daemon=True).start()
    return await future


def _read() -> bytes:
    try:
        return os.read(0, 1 << 16)
    except OSError:  # it was closed before we came
        return b""
