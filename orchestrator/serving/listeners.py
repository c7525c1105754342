"""Who wants to hear that other agents are served: streams of 2026-07-28, and sessions of the older protocol."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ServerEvent
from mcp_types import NotificationParams

Listener = Callable[[ServerEvent], None]


class Listeners:
    """A bus of the SDK's kind, which knows whether anyone is there."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._sessions: set[str] = set()
        self._there = anyio.Event()

    async def anyone(self) -> None:
        """Waits for somebody to listen."""
        await self._there.wait()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        key = object()
        self._listeners[key] = listener
        self._there.set()

        def leave() -> None:
            self._listeners.pop(key, None)
            if not self._listeners:
                self._there = anyio.Event()

        return leave

    async def publish(self, event: ServerEvent) -> None:
        for listener in tuple(self._listeners.values()):
            listener(event)

    async def session(self, ctx: ServerRequestContext[Any, Any], params: NotificationParams | None) -> None:
        """Tells a session from its `notifications/initialized` on, in whose task this runs, until the session ends."""
        del params
        name = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
        if name in self._sessions:
            return  # it says so again
        send, receive = anyio.create_memory_object_stream[None](1)

        def tell(event: ServerEvent) -> None:
            del event
            with suppress(anyio.WouldBlock):  # it has not heard of the last one yet
                send.send_nowait(None)

        self._sessions.add(name)
        leave = self.subscribe(tell)
        try:
            with send, receive:
                async for _ in receive:
                    await ctx.session.send_tool_list_changed()
        finally:
            leave()
            self._sessions.discard(name)
