"""The pipes of a stdio server: JSON-RPC, one message a line.

Reading is linear in a line's length, so that a result of 20 MB does not stall the other runs. A line that does not end
costs the connection, not our memory. What is no message is passed over, and said once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from orchestrator.tools.process import Process

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

logger = logging.getLogger(__name__)

CHUNK = 1 << 16

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one message; as much as one event of a server at a URL may have."""


class LineTooLong(Exception):
    """A line has more bytes than any message may have."""


@asynccontextmanager
async def pipes(
    process: Process, lost: Callable[[str], None], longest: int = LONGEST_LINE
) -> "AsyncGenerator[TransportStreams]":
    """The transport that a `Client` takes. Leaving it closes the pipes, not the process.

    `lost` is called when the server closes them, or is given up, before any call in flight is told. `longest` is the
    limit of a line, in bytes.
    """
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reader, writer, close = await _connect(process)
    process.listen()

    async def read() -> None:
        async with to_session:
            try:
                await _feed(to_session, process, lines(reader, longest))
                await process.ending()
            except LineTooLong:
                process.fault = f"it wrote a line of more than {longest:,} bytes to its standard output"

    async def write() -> None:
        async with from_session:
            async for item in from_session:
                writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()

    async def guarded(work: Any) -> None:
        # A broken pipe on either side is the end of the connection, which the session sees as its streams' end.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                await work()
            except OSError:
                await process.ending()
        lost(process.obituary("it closed its output"))
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


async def _feed(
    to_session: ObjectSendStream[SessionMessage | Exception], process: Process, written: AsyncIterator[bytes]
) -> None:
    async for line in written:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            _noise(process, line)
            continue
        await to_session.send(SessionMessage(message))


def _noise(process: Process, line: bytes) -> None:
    if line.strip() and not process.noise:
        process.noise = line[:200].decode("utf-8", "replace")
        logger.warning("server %s writes to its standard output what is not JSON-RPC: %s", process.name, process.noise)


async def _connect(process: Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]]:
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


async def lines(reader: asyncio.StreamReader, longest: int) -> AsyncIterator[bytes]:
    """Lines, each byte looked at once. Raises `LineTooLong`."""
    parts: list[bytes] = []
    size = 0
    while chunk := await reader.read(CHUNK):
        head, newline, rest = chunk.partition(b"\n")
        parts.append(head)
        size += len(head)
        while newline:
            yield b"".join(parts)
            head, newline, rest = rest.partition(b"\n")
            parts, size = [head], len(head)
        if size > longest:
            raise LineTooLong
    if parts and parts != [b""]:
        yield b"".join(parts)
