"""A stdio server's process.

It is started by the standard library alone, so that servers can come up while the MCP package is still being imported.
It leads a process group of its own, and the whole group ends with it.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.tools.orphans import Watcher, end_group

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""What a server sees of our environment unless its configuration names more."""

GRACE_SECONDS = 2.0
"""How long a server may take to end after its input closes, and again after SIGTERM (the MCP lifecycle's order)."""

LAST_MOMENT = 1.0
"""Seconds that a server may take from closing its output to its end, until we say that it runs without an output."""

TAIL = 1 << 16
"""Bytes of a server's standard error that are kept: the last ones."""


@dataclass(slots=True, kw_only=True)
class Process:
    """A running server. `noise` is the first line on its output that was not JSON-RPC, `fault` why we gave it up."""

    name: str
    popen: subprocess.Popen[bytes]
    ended: Callable[[], None] = lambda: None
    noise: str = ""
    fault: str = ""
    _tail: bytearray = field(default_factory=bytearray, repr=False)
    _closed: bool = field(default=False, repr=False)

    def listen(self) -> None:
        """Reads the server's standard error from now on, so that one that writes much there is never held up."""
        asyncio.get_running_loop().add_reader(self._stderr, self._drain)

    def last_words(self, lines: int = 5) -> str:
        """The end of what the server wrote to its standard error."""
        if not self._closed:
            self._drain()
        return "\n".join(self._tail[-4096:].decode("utf-8", "replace").strip().splitlines()[-lines:])

    @property
    def kept(self) -> int:
        """Bytes of its standard error that are held here."""
        return len(self._tail)

    def obituary(self, otherwise: str) -> str:
        """Why it is lost to us, with its last words; `otherwise` is what is said while it still runs."""
        code = self.popen.poll()
        problem = self.fault or (otherwise if code is None else f"its process ended with exit code {code}")
        words = self.last_words()
        return f"{problem}. Its last lines: {words}" if words else problem

    async def ending(self) -> None:
        """Waits a moment for the end of a process that has closed a pipe: its exit code comes after its pipes' end."""
        await asyncio.to_thread(self._has_ended, LAST_MOMENT)

    async def close(self) -> None:
        """Ends the server and everything it started: close its input, then SIGTERM, then SIGKILL to its group."""
        if self._closed:
            return
        self._closed = True
        if self.popen.stdin is not None:
            with suppress(OSError):
                self.popen.stdin.close()
        for stronger in (signal.SIGTERM, signal.SIGKILL):
            if await asyncio.to_thread(self._has_ended, GRACE_SECONDS):
                break
            end_group(self.popen.pid, stronger)
        await asyncio.to_thread(self.popen.wait)
        end_group(self.popen.pid, signal.SIGKILL)
        self.ended()
        self._drain()
        asyncio.get_running_loop().remove_reader(self._stderr)
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def _stderr(self) -> int:
        assert self.popen.stderr is not None
        return self.popen.stderr.fileno()

    def _drain(self) -> None:
        """Takes what stands in the pipe, a megabyte at most: others want their turn."""
        for _ in range(16):
            try:
                chunk = os.read(self._stderr, TAIL)
            except BlockingIOError:
                return
            if not chunk:
                with suppress(RuntimeError):  # asked before any loop runs
                    asyncio.get_running_loop().remove_reader(self._stderr)
                return
            self._tail += chunk
            del self._tail[:-TAIL]

    def _has_ended(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)
        return self.popen.returncode is not None


def spawn(
    name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path | None, watcher: Watcher | None = None
) -> Process:
    """Starts a server's process; `watcher` ends it should we not be able to. Raises OSError when it cannot start."""
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    popen = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=inherited | dict(env),
        cwd=cwd,
        start_new_session=True,
        bufsize=0,
    )
    assert popen.stderr is not None
    os.set_blocking(popen.stderr.fileno(), False)
    if watcher is None:
        return Process(name=name, popen=popen)
    watcher.watch(popen.pid)
    return Process(name=name, popen=popen, ended=lambda: watcher.release(popen.pid))
