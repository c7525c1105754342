"""One MCP server and the task that owns it.

A `Client` must be left by the task that entered it, so each server has an owner task that does nothing else; calls
come from any task. The owner's end is the server's death: calls answer "unavailable", and the next one starts it anew.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import anyio.abc
from mcp import Client
from mcp.client.session import ElicitationFnT
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, InputResponses, Tool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orchestrator.config import ServerSettings
from orchestrator.errors import ToolUnavailable
from orchestrator.tools.calling import Clock, Given, Line, Send, ToolTimeout
from orchestrator.tools.elicitation import Asked
from orchestrator.tools.stdio import Process, pipes
from orchestrator.tracing.port import INSIDE

__all__ = ["Server", "Terms", "ToolTimeout"]

logger = logging.getLogger(__name__)

Lost = Callable[[], None]
Connect = Callable[[Lost, ElicitationFnT], AbstractAsyncContextManager[Client]]
"""Opens a connection; `Lost` is called when the other side has gone, where the transport sees that by itself. What the
server asks a person for goes to the other one.
"""

CLOSED = -32000
STALE = -32600
"""Beside a message about the session: an HTTP server was started anew and does not know our session."""


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
    """A server by its configured name, up or down. `tools` is its list when it was last up, `about` its own words,
    `protocol` its version.
    """

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
        self._line = Line(self.terms.concurrency)
        self.tools: tuple[Tool, ...] = ()
        self.about = ""
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
        given: Given | None = None,
    ) -> CallToolResult | InputRequiredResult | Asked:
        """Calls a tool. `timeout` is the general limit, in seconds; it starts when the call's turn comes.

        With `given`, what the server asks of a person is read and answered, as far as that can be done at once.

        Raises:
            ToolUnavailable: the server is down, or went down during the call.
            ToolTimeout: no answer in time; the server was told.
            Unanswerable: the server asks for what no person can give.
            MCPError: the server refused the request.
        """
        client = await self._live()
        limit = self.terms.timeout or timeout
        try:
            async with self._line.turn():
                clock = Clock(limit)
                patient = limit is not None and _any(tool, self.terms.long_running)
                send = _sender(client, tool, arguments, _meta(meta), clock if patient else None)
                modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
                return await self._line.call(send, given, clock, modern=modern)
        except MCPError as error:
            stale = error.error.code == STALE and "session" in error.error.message.lower()
            if stale or error.error.code == CLOSED:
                self._lose(client)
                raise ToolUnavailable(self.name, f"server {self.name} went away during the call") from error
            raise

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
                async with self._connect(lambda: self._lose(mine), self._line.elicited) as client:
                    self.tools = await list_tools(client)
                    self.about, self.protocol = about(client), client.protocol_version
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


def _sender(client: Client, tool: str, arguments: dict[str, Any], meta: Any, patient: Clock | None) -> Send:
    """Makes a call on a connection; the time of a `patient` clock starts anew with each report of progress."""

    async def report(progress: float, total: float | None, message: str | None) -> None:
        del progress, total, message
        if patient is not None:
            patient.restart()

    async def send(
        responses: InputResponses | None = None, state: str | None = None, /
    ) -> CallToolResult | InputRequiredResult:
        return await client.session.call_tool(
            tool,
            arguments,
            progress_callback=report if patient is not None else None,
            input_responses=responses,
            request_state=state,
            meta=meta,
            allow_input_required=True,
        )

    return send


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


def about(client: Client) -> str:
    """What a server says of itself: its title, else the first line of its instructions."""
    info = client.server_info
    lines = (client.instructions or "").strip().splitlines()
    return (info.title if info is not None and info.title else "") or (lines[0] if lines else "")


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
    async def connect(lost: Lost, elicited: ElicitationFnT) -> AsyncGenerator[Client]:
        child = start()
        try:
            async with Client(pipes(child, lost), elicitation_callback=elicited) as client:
                yield client
        except Exception as error:
            code, words = child.popen.poll(), child.last_words()
            problem = describe(error) if code is None else f"its process ended with exit code {code}"
            raise RuntimeError(f"{problem}. Its last lines: {words}" if words else problem) from error
        finally:
            with anyio.CancelScope(shield=True):
                await child.close()

    return Server(name, connect, start_timeout=start_timeout, transport="pipe", terms=terms)


def http_server(
    name: str, settings: Callable[[], ServerSettings], *, start_timeout: float, terms: Terms, store: Path | None = None
) -> Server:
    """A server at a URL, over streamable HTTP or, where the configuration says so, the older SSE.

    `store` is where sign-ins are kept.
    """
    from orchestrator.tools.auth import signed_in  # noqa: PLC0415 - what OAuth needs, most teams do not
    from orchestrator.tools.web import web_transport  # noqa: PLC0415

    @asynccontextmanager
    async def connect(lost: Lost, elicited: ElicitationFnT) -> AsyncGenerator[Client]:
        where = settings()
        auth = await signed_in(where, store) if store else None
        async with Client(web_transport(where, lost, auth), elicitation_callback=elicited) as client:
            yield client

    return Server(name, connect, start_timeout=start_timeout, transport="tcp", terms=terms)


def broken_server(name: str, problem: str) -> Server:
    """A server that cannot even be tried, so that whoever calls it is told why."""

    @asynccontextmanager
    async def connect(*_: object) -> AsyncGenerator[Client]:
        raise RuntimeError(problem)
        yield  # pragma: no cover - what makes this a generator

    return Server(name, connect, start_timeout=1.0)


def local_server(name: str, server: Any) -> Server:
    """A server object of this process."""
    return Server(name, lambda _, elicited: Client(server, elicitation_callback=elicited), start_timeout=30.0)
