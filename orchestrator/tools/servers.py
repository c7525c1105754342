"""One MCP server and the task that owns it.

A `Client` must be left by the task that entered it, so each server has an owner task that does nothing else; calls
come from any task. The owner's end is the server's death: calls answer "unavailable", and the next one starts it anew.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import (
    contextmanager,
    suppress,
)
from typing import Any, Literal, cast

import anyio
import anyio.abc
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, InputResponses, Tool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orchestrator.errors import ToolUnavailable
from orchestrator.tools.backoff import FIRST, Backoff
from orchestrator.tools.calling import Clock, Given, Line, Send, ToolTimeout
from orchestrator.tools.changes import Bell, Pause, follow
from orchestrator.tools.elicitation import Asked
from orchestrator.tools.link import Connect, Link
from orchestrator.tools.listing import Hello, Listing
from orchestrator.tools.remembered import Memory
from orchestrator.tools.sieve import Sieve
from orchestrator.tools.terms import Terms, fits
from orchestrator.tracing.port import INSIDE

__all__ = ["Server", "Terms", "ToolTimeout"]

logger = logging.getLogger(__name__)


CLOSED = -32000
STALE = -32600
"""Beside a message about the session: an HTTP server was started anew and does not know our session."""


class WentAway(ToolUnavailable):
    """The server went away while the call was under way: it may have begun."""


class ToolChanged(Exception):
    """The server says something else of a tool than whoever calls it knew. Nothing was sent."""


class Server:
    """A server by its configured name: up, down, or not needed yet.

    What is remembered of it is offered without a connection. A dead server is tried again by the next call, and only
    after a pause once that has failed as well. One whose tools are not known yet is tried again by itself.
    """

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        start_timeout: float,
        transport: Literal["pipe", "tcp", ""] = "",
        terms: Terms | None = None,
        memory: Memory | None = None,
        comes_back: bool = True,
    ) -> None:
        """`connect` opens one connection, within `start_timeout` seconds. `comes_back`: trying again may help.

        `unusable` says which tools of its list cannot be used, and why.
        """
        self.name = name
        self.transport: Literal["pipe", "tcp", ""] = transport
        self.terms = terms or Terms()
        self._line = Line(self.terms.concurrency)
        self.listing = Listing(name, self.terms.trust, memory)
        self.problem = ""
        self.unusable: dict[str, str] = {}
        self.protocol = ""
        self.backoff = Backoff(anyio.current_time)
        self.pause: Pause = anyio.sleep
        self.told: Callable[[Server], None] = lambda _: None
        self._connect = connect
        self._start_timeout = start_timeout
        self._comes_back = comes_back
        self._client: Client | None = None
        self._settled: anyio.Event | None = None
        self._stop = anyio.Event()
        self._stopped = False
        self._scopes: set[anyio.CancelScope] = set()
        self._group: anyio.abc.TaskGroup
        self._starts: anyio.CapacityLimiter

    @property
    def up(self) -> bool:
        return self._client is not None

    @property
    def down(self) -> bool:
        """Whether it was tried, and is not there."""
        return self._client is None and self._settled is not None and self._settled.is_set()

    @property
    def about(self) -> str:
        """Its own words about itself."""
        return self.listing.about

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its list when it was last up, be it in another process."""
        return self.listing.tools

    def open(self, group: anyio.abc.TaskGroup, starts: anyio.CapacityLimiter) -> None:
        """Where its owners run, and what bounds how many servers start at once. Starts nothing."""
        self._group, self._starts = group, starts

    def start(self) -> None:
        """Starts an owner, unless the server is up or about to be."""
        if self._client is None and (self._settled is None or self._settled.is_set()) and not self._stopped:
            self._settled, self._stop = anyio.Event(), anyio.Event()
            self._group.start_soon(self._own, self._settled, self._stop, name=f"server {self.name}")

    def stop(self) -> None:
        """The end: what is up closes, what is starting is broken off."""
        self._stopped = True
        self._stop.set()
        for scope in self._scopes:
            scope.cancel()

    async def settled(self) -> None:
        """Starts it unless that was done, and waits until it is up, or known to be down."""
        if self._settled is None:
            self.start()
        if self._settled is not None:
            await self._settled.wait()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout: float | None,
        meta: Mapping[str, Any],
        given: Given | None = None,
        repeatable: bool = False,
        aware: str = "",
    ) -> CallToolResult | InputRequiredResult | Asked:
        """Calls a tool. `timeout` is the general limit, in seconds; it starts when the call's turn comes.

        With `given`, what the server asks of a person is read and answered, as far as that can be done at once.
        `repeatable`: a call that dies with its server is sent once more. `aware` is the change of the tool that whoever
        decided about the call knew of.

        Raises:
            ToolUnavailable: the server is down, or went down during the call.
            ToolChanged: the tool has changed in another way than `aware` says.
            ToolTimeout: no answer in time; the server was told.
            Unanswerable: the server asks for what no person can give.
            MCPError: the server refused the request.
        """
        limit = self.terms.timeout or timeout
        try:
            return await self._call(await self._ready(tool, aware), tool, arguments, limit, meta, given)
        except WentAway:
            if not repeatable or self._stopped:
                raise
            logger.info("server %s went away; %s is called once more", self.name, tool)
        try:
            return await self._call(await self._ready(tool, aware), tool, arguments, limit, meta, given)
        except ToolUnavailable as error:
            raise WentAway(self.name, str(error)) from error

    async def _ready(self, tool: str, aware: str) -> Client:
        """The connection on which a call may be made. Raises as `call` does."""
        client = await self._live()
        if not any(each.name == tool for each in self.tools):
            raise ToolUnavailable(self.name, f"server {self.name} does not offer it any more")
        if (change := self.listing.changes.get(tool, "")) and change != aware:
            raise ToolChanged(change)
        return client

    async def _call(
        self,
        client: Client,
        tool: str,
        arguments: dict[str, Any],
        limit: float | None,
        meta: Mapping[str, Any],
        given: Given | None,
    ) -> CallToolResult | InputRequiredResult | Asked:
        try:
            async with self._line.turn():
                clock = Clock(limit)
                patient = limit is not None and (self.listing.agents or fits(tool, self.terms.long_running))
                send = _sender(client, tool, arguments, _meta(meta), clock if patient else None)
                modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
                return await self._line.call(send, given, clock, modern=modern)
        except MCPError as error:
            stale = error.error.code == STALE and "session" in error.error.message.lower()
            if stale or error.error.code == CLOSED:
                self._lose(client, "it went away")
                raise WentAway(
                    self.name, f"server {self.name} was lost during the call: {self.problem or 'it went away'}"
                ) from error
            raise

    async def _live(self) -> Client:
        """The connection; a dead one is made anew first, unless that is not due yet."""
        later = self.backoff.left
        if not later:
            self.start()
        if self._settled is not None:
            await self._settled.wait()
        if self._client is None:
            problem = f"server {self.name} is unavailable: {self.problem or 'it was stopped'}"
            again = f". It is not tried again for {later:.0f} s" if later >= 1 else ""
            raise ToolUnavailable(self.name, problem + again)
        return self._client

    def _lose(self, client: Client | None, problem: str) -> None:
        """This connection is dead: its owner leaves it, and the next call makes a new one."""
        if client is not None and self._client is client:
            self._client, self.problem = None, problem
            self.backoff.failed()
            self._stop.set()

    async def _own(self, settled: anyio.Event, stop: anyio.Event) -> None:
        """Makes a connection and keeps it: its whole life. Where none comes about and no tool is known, tries on."""
        INSIDE.set(True)
        try:
            for hello in self.listing.hellos():
                if stop.is_set() or await self._connection(hello, settled, stop) is not None:
                    break
            if not settled.is_set():
                self.backoff.failed()
        finally:
            settled.set()
        if self.problem and not self._stopped and stop is self._stop:
            logger.info("server %s: %s", self.name, self.problem)
            if self._comes_back and not self.listing.seen:
                await self._again()

    async def _again(self) -> None:
        """Nobody can call a server whose tools are not known, so it comes back by itself or not at all."""
        with self._scope() as scope:
            await self.pause(max(self.backoff.left, FIRST))
        if not scope.cancelled_caught:
            self.start()

    async def _connection(self, hello: Hello, settled: anyio.Event, stop: anyio.Event) -> bool | None:
        """One connection from its making to its end. None: it did not come about, and another way may be tried."""
        mine: Client | None = None
        bell = Bell()
        link = Link(
            hello=hello,
            bell=bell,
            lost=lambda problem: self._lose(mine, problem),
            elicited=self._line.elicited,
            sieve=Sieve(self.unusable.__setitem__),
        )
        # The deadline covers the whole body and is lifted once the server answers: scopes must nest.
        slot = object()
        try:
            with self._scope() as scope:
                await self._starts.acquire_on_behalf_of(slot)
                scope.deadline = anyio.current_time() + self._start_timeout
                async with self._connect(link) as client:
                    self.protocol = client.protocol_version
                    self.listing.met(client, hello)
                    self._take(await list_tools(client))
                    scope.deadline = float("inf")
                    self._scopes.discard(scope)
                    mine, self._client, self.problem = client, client, ""
                    self.backoff.succeeded()
                    self._release(slot)
                    settled.set()
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._follow, client, bell, hello)
                        await stop.wait()
                        group.cancel_scope.cancel()
            if scope.cancelled_caught:
                self.problem = "" if self._stopped else f"it did not answer within {self._start_timeout:g} s"
                return False
        except Exception as error:  # noqa: BLE001 - any trouble of a server is its own, and told to whoever calls it
            if stop is self._stop and not stop.is_set():  # else it was given up already, and why is known
                self.problem = describe(error)
                if mine is not None:
                    self.backoff.failed()
            return None if mine is None else False
        finally:
            self._release(slot)
            if mine is not None and self._client is mine:
                self._client = None
        return True

    def _release(self, slot: object) -> None:
        with suppress(RuntimeError):  # it had none
            self._starts.release_on_behalf_of(slot)

    @contextmanager
    def _scope(self) -> Generator[anyio.CancelScope]:
        """A scope that `stop` cancels."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    async def _follow(self, client: Client, bell: Bell, hello: Hello) -> None:
        """Keeps what is known of the server true while it is up."""

        async def refresh() -> None:
            try:
                with anyio.move_on_after(self._start_timeout):
                    self._take(await list_tools(client))
            except MCPError as error:
                logger.info("server %s: its tools cannot be listed again: %s", self.name, error)

        if hello.prior is not None:  # what it said of itself the last time may be old
            with suppress(MCPError, RuntimeError):
                await client.session.discover()
                self.listing.met(client, hello)
                self.listing.save()
        await follow(client, bell, refresh, self.pause)

    def _take(self, tools: tuple[Tool, ...]) -> None:
        if self.listing.take(tools):
            self.told(self)


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
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
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
