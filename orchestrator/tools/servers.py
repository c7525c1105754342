"""One MCP server and the task that owns it.

A `Client` must be left by the task that entered it, so each server has an owner task that does nothing else; calls
come from any task. The owner's end is the server's death: calls answer "unavailable", and the next one starts it anew.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

import anyio
import anyio.abc
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, Tool

from orchestrator.config import ServerSettings
from orchestrator.errors import ToolUnavailable
from orchestrator.tools.stdio import Process, pipes
from orchestrator.tracing.port import INSIDE

logger = logging.getLogger(__name__)

Lost = Callable[[], None]
Connect = Callable[[Lost], AbstractAsyncContextManager[Client]]
"""Opens a connection; `Lost` is called when the other side has gone, where the transport sees that by itself."""

TIMED_OUT = -32001
CLOSED = -32000
STALE = -32600
"""Beside a message about the session: an HTTP server was started anew and does not know our session."""

LARGEST_EVENT = 64 * 1024 * 1024
"""Bytes of one event of a streamed HTTP reply; the SDK's own limit of 1 MiB would cost the connection."""


class ToolTimeout(Exception):
    """A call took longer than it may; the server has been told to stop it. `seconds` is the limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no answer within {seconds:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the configuration says of a server's calls. Globs are over the server's own tool names.

    `timeout` (seconds) goes before the general one; `concurrency` is calls at once; while a `long_running` tool reports
    progress, its time starts anew.
    """

    timeout: float | None = None
    concurrency: int | None = None
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    long_running: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        return _any(tool, self.allow) and not _any(tool, self.deny)


def _any(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


class Server:
    """A server by its configured name, up or down. `tools` is its list when it was last up, `protocol` its version."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        start_timeout: float,
        transport: Literal["pipe", "tcp", ""] = "",
        terms: Terms | None = None,
    ) -> None:
        self.name = name
        self.transport: Literal["pipe", "tcp", ""] = transport
        self.terms = terms or Terms()
        self._slots = anyio.CapacityLimiter(self.terms.concurrency or float("inf"))
        self.tools: tuple[Tool, ...] = ()
        self.problem = ""
        self.protocol = ""
        self._connect = connect
        self._start_timeout = start_timeout
        self._client: Client | None = None
        self._settled = anyio.Event()
        self._stop = anyio.Event()
        self._restart: Callable[[], None] | None = None

    @property
    def up(self) -> bool:
        return self._client is not None

    def start(self, group: anyio.abc.TaskGroup) -> None:
        """Starts the owner task in `group`, which is where a dead server is started again as well."""
        self._restart = lambda: self.start(group)
        self._settled, self._stop = anyio.Event(), anyio.Event()
        group.start_soon(self._own, name=f"server {self.name}")

    def stop(self) -> None:
        self._restart = None
        self._stop.set()

    async def settled(self) -> None:
        """Waits until the server is up, or known to be down."""
        await self._settled.wait()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float | None,
        meta: Mapping[str, Any],
    ) -> CallToolResult | InputRequiredResult:
        """Calls a tool. `timeout` is the general limit, in seconds; it starts when the call's turn comes.

        Raises:
            ToolUnavailable: the server is down, or went down during the call.
            ToolTimeout: no answer in time; the server was told.
            MCPError: the server refused the request.
        """
        client = await self._live()
        limit = self.terms.timeout or timeout
        try:
            async with self._slots if self.terms.concurrency else nullcontext():
                if limit is not None and _any(tool, self.terms.long_running):
                    return await self._call_long(client, tool, arguments, limit, meta)
                return await client.session.call_tool(
                    tool, arguments, read_timeout_seconds=limit, meta=_meta(meta), allow_input_required=True
                )
        except MCPError as error:
            if error.error.code == TIMED_OUT and limit is not None:
                raise ToolTimeout(limit) from error
            stale = error.error.code == STALE and "session" in error.error.message.lower()
            if stale or error.error.code == CLOSED:
                self._lose(client)
                raise ToolUnavailable(self.name, f"server {self.name} went away during the call") from error
            raise

    async def _call_long(
        self, client: Client, tool: str, arguments: dict[str, Any], limit: float, meta: Mapping[str, Any]
    ) -> CallToolResult | InputRequiredResult:
        """A call whose time starts anew with each report of progress."""
        with anyio.CancelScope(deadline=anyio.current_time() + limit) as scope:

            async def report(progress: float, total: float | None, message: str | None) -> None:
                del progress, total, message
                scope.deadline = anyio.current_time() + limit

            return await client.session.call_tool(
                tool, arguments, progress_callback=report, meta=_meta(meta), allow_input_required=True
            )
        raise ToolTimeout(limit)

    async def _live(self) -> Client:
        if self._client is None and self._settled.is_set() and self._restart is not None:
            self._restart()
        await self._settled.wait()
        if self._client is None:
            raise ToolUnavailable(self.name, f"server {self.name} is unavailable: {self.problem or 'it was stopped'}")
        return self._client

    def _lose(self, client: Client | None) -> None:
        """This connection is dead: its owner leaves it, and the next call makes a new one."""
        if client is not None and self._client is client:
            self._client, self.problem = None, "it went away"
            self._stop.set()

    async def _own(self) -> None:
        """Enters the client, publishes it, and leaves it again: the whole life of one connection."""
        INSIDE.set(True)
        settled, stop = self._settled, self._stop
        mine: Client | None = None
        # The deadline covers the whole body and is lifted once the server answers: scopes must nest.
        scope = anyio.CancelScope(deadline=anyio.current_time() + self._start_timeout)
        try:
            with scope:
                async with self._connect(lambda: self._lose(mine)) as client:
                    self.tools, self.protocol = await list_tools(client), client.protocol_version
                    scope.deadline = float("inf")
                    mine = client
                    self.problem, self._client = "", client
                    settled.set()
                    await stop.wait()
            if scope.cancelled_caught:
                self.problem = f"it did not answer within {self._start_timeout:g} s"
        except Exception as error:  # noqa: BLE001 - any trouble of a server is its own, and told to whoever calls it
            if stop is self._stop:  # else another owner has taken over already
                self.problem = describe(error)
        finally:
            if self._client is mine:
                self._client = None
            settled.set()
        if self.problem and not stop.is_set():
            logger.info("server %s: %s", self.name, self.problem)


def _meta(meta: Mapping[str, Any]) -> Any:
    """The SDK types `_meta` by the protocol's own keys; ours ride beside them."""
    return dict(meta)


async def list_tools(client: Client) -> tuple[Tool, ...]:
    """All pages of a server's tool list."""
    tools: list[Tool] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tuple(tools)


def leaf(error: BaseException) -> BaseException:
    """The first exception inside a group of them, or the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def describe(error: BaseException) -> str:
    """The one line that matters in an exception or a group of them."""
    error = leaf(error)
    return str(error) or type(error).__name__


def stdio_server(name: str, start: Callable[[], Process], *, start_timeout: float, terms: Terms) -> Server:
    """A server that is a child process. `start` gives a new one, or one that runs already; it may raise OSError."""

    @asynccontextmanager
    async def connect(lost: Lost) -> AsyncGenerator[Client]:
        child = start()
        try:
            async with Client(pipes(child, lost)) as client:
                yield client
        except Exception as error:
            code, words = child.popen.poll(), child.last_words()
            problem = describe(error) if code is None else f"its process ended with exit code {code}"
            raise RuntimeError(f"{problem}. Its last lines: {words}" if words else problem) from error
        finally:
            with anyio.CancelScope(shield=True):
                await child.close()

    return Server(name, connect, start_timeout=start_timeout, transport="pipe", terms=terms)


def http_server(name: str, settings: Callable[[], ServerSettings], *, start_timeout: float, terms: Terms) -> Server:
    """A server at a URL, over streamable HTTP or, where the configuration says so, the older SSE."""

    @asynccontextmanager
    async def connect(_: Lost) -> AsyncGenerator[Client]:
        where = settings()
        assert where.url is not None, "a server without a command has a URL"
        async with AsyncExitStack() as stack:
            if where.transport == "sse":
                transport = sse_client(where.url, headers=dict(where.headers))
            else:
                http = await stack.enter_async_context(create_mcp_http_client(headers=dict(where.headers)))
                transport = streamable_http_client(where.url, http_client=http, max_sse_event_size=LARGEST_EVENT)
            yield await stack.enter_async_context(Client(transport))

    return Server(name, connect, start_timeout=start_timeout, transport="tcp", terms=terms)


def broken_server(name: str, problem: str) -> Server:
    """A server that cannot even be tried, so that whoever calls it is told why."""

    @asynccontextmanager
    async def connect(_: Lost) -> AsyncGenerator[Client]:
        raise RuntimeError(problem)
        yield  # pragma: no cover - what makes this a generator

    return Server(name, connect, start_timeout=1.0)


def local_server(name: str, server: Any) -> Server:
    """A server object of this process."""
    return Server(name, lambda _: Client(server), start_timeout=30.0)
