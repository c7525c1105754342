"""MCP on the process's own stdin and stdout, until the input ends.

The pipes are read by the event loop rather than by a thread: a thread that waits for a line could not be stopped.
What anything else writes to stdout goes to stderr.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from orchestrator.config import ServeSettings
from orchestrator.errors import ConfigurationError
from orchestrator.serving.agents import Serving
from orchestrator.tasks import background
from orchestrator.tools.stdio import CHUNK, LONGEST_LINE, LineTooLong, lines

logger = logging.getLogger(__name__)

LAST_WORDS = 2.0
"""Seconds for replies to be written when the server stops."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(serving: Serving, settings: ServeSettings, stop: anyio.Event) -> None:
    """Serves one client until it closes the pipe, or `stop` is set and what is under way has had its time."""
    del settings
    server, ending, open_requests = serving.server(), anyio.CancelScope(), _Open()
    async with _own_pipes(open_requests) as (incoming, outgoing), background() as group:

        async def until_stopped() -> None:
            await stop.wait()
            await serving.drain()
            with anyio.move_on_after(LAST_WORDS):
                await open_requests.answered.wait()
            ending.cancel()

        group.start_soon(until_stopped)
        with ending:
            await server.run(incoming, outgoing, server.create_initialization_options())
        group.cancel_scope.cancel()


class _Open:
    """The requests that have no answer yet, in what was read and written."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self.answered = anyio.Event()
        self.answered.set()

    def read(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
            if self.answered.is_set():
                self.answered = anyio.Event()

    def written(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._ids.discard(message.id)
            if not self._ids:
                self.answered.set()


@asynccontextmanager
async def _own_pipes(open_requests: _Open) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reader, writer = await _connect()

    async def read() -> None:
        async with to_session:
            async for line in lines(reader, LONGEST_LINE):
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError as error:
                    await to_session.send(error)  # the session deals with it
                    continue
                open_requests.read(message)
                await to_session.send(SessionMessage(message))

    async def write() -> None:
        async with from_session:
            async for item in from_session:
                writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
                open_requests.written(item.message)

    async with background() as group:
        group.start_soon(_guarded, read)
        group.start_soon(_guarded, write)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    """The end of a pipe, on either side, is the end of the connection."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        try:
            await work()
        except LineTooLong:
            logger.error("the client wrote a line of more than %s bytes; the connection is closed", f"{LONGEST_LINE:,}")


async def _connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Takes the process's pipes; from now on, 0 is empty and 1 is stderr for everything else in it."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK * 4)
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(wire_in, "rb", 0))
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(wire_out, "wb", 0)
        )
    except ValueError as error:  # a file
        raise ConfigurationError(
            f"--stdio speaks MCP through pipes, with the program that starts it: {error}"
        ) from error
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)
