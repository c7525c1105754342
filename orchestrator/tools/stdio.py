"""A stdio server's process and its pipes.

The process is started by the standard library alone, so that servers can come up while the MCP package is still being
imported; `pipes` then carries JSON-RPC lines for a `Client`. Reading is linear in a line's length: a result of
20 MB does not stall the other runs. The process leads a group of its own, and the whole group ends with it.
"""

import asyncio
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

logger = logging.getLogger(__name__)

INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""What a server sees of our environment unless its configuration names more."""

GRACE_SECONDS = 2.0
"""How long a server may take to end after its input closes, and again after SIGTERM (the MCP lifecycle's order)."""

CHUNK = 1 << 16


@dataclass(slots=True, kw_only=True)
class Process:
    """A running server. `noise` is the first line on its output that was not JSON-RPC."""

    name: str
    popen: subprocess.Popen[bytes]
    stderr: IO[bytes]
    noise: str = ""
    _closed: bool = field(default=False, repr=False)

    def last_words(self, lines: int = 5) -> str:
        """The end of what the server wrote to its standard error."""
        end = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, end - 4096))
        return "\n".join(self.stderr.read().decode("utf-8", "replace").strip().splitlines()[-lines:])

    async def close(self) -> None:
        """Ends the server and everything it started: close its input, then SIGTERM, then SIGKILL to its group."""
        if self._closed:
            return
        self._closed = True
        if self.popen.stdin is not None:
            with suppress(OSError):
                self.popen.stdin.close()
        for stronger in (signal.SIGTERM, signal.SIGKILL):
            if await asyncio.to_thread(self._ended, GRACE_SECONDS):
                break
            self._signal(stronger)
        await asyncio.to_thread(self.popen.wait)
        self._signal(signal.SIGKILL)
        for pipe in (self.popen.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def _ended(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)
        return self.popen.returncode is not None

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)


def spawn(name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> Process:
    """Starts a server's process. Raises OSError when it cannot be started."""
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    try:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=inherited | dict(env),
            cwd=cwd,
            start_new_session=True,
            bufsize=0,
        )
    except BaseException:
        stderr.close()
        raise
    return Process(name=name, popen=popen, stderr=stderr)


@asynccontextmanager
async def pipes(process: Process, lost: Callable[[], None]) -> "AsyncGenerator[TransportStreams]":
    """The transport that a `Client` takes. Leaving it closes the pipes, not the process.

    `lost` is called when the server closes them, before any call in flight is told.
    """
    # Imported here, and not above, so that `spawn` does not wait for the MCP package.
    import anyio  # noqa: PLC0415
    from mcp.shared.message import SessionMessage  # noqa: PLC0415
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reader, writer, close = await _connect(process)

    async def read() -> None:
        async with to_session:
            async for line in _lines(reader):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    _noise(process, line)
                    continue
                await to_session.send(SessionMessage(message))

    async def write() -> None:
        async with from_session:
            async for item in from_session:
                writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()

    async def guarded(work: Any) -> None:
        # A broken pipe on either side is the end of the connection, which the session sees as its streams' end.
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await work()
        lost()
        await to_session.aclose()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(guarded, read)
            group.start_soon(guarded, write)
            try:
                yield incoming, outgoing
            finally:
                group.cancel_scope.cancel()
    finally:
        close()
        for stream in (to_session, incoming, outgoing, from_session):
            stream.close()


def _noise(process: Process, line: bytes) -> None:
    if line.strip() and not process.noise:
        process.noise = line[:200].decode("utf-8", "replace")
        logger.warning("server %s writes to its standard output what is not JSON-RPC: %s", process.name, process.noise)


async def _connect(process: Process) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]":
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK * 4)
    read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.popen.stdout)
    write_transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.popen.stdin
    )
    writer = asyncio.StreamWriter(write_transport, protocol, None, loop)

    def close() -> None:
        if not write_transport.is_closing():  # a process that has gone closed it already
            write_transport.abort()
        read_transport.close()

    return reader, writer, close


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length, each byte looked at once."""
    parts: list[bytes] = []
    while chunk := await reader.read(CHUNK):
        head, newline, rest = chunk.partition(b"\n")
        parts.append(head)
        while newline:
            yield b"".join(parts)
            head, newline, rest = rest.partition(b"\n")
            parts = [head]
    if parts and parts != [b""]:
        yield b"".join(parts)
