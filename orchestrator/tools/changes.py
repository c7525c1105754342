"""Hears that a server's tool list changed: on a stream of its own from 2026-07-28 on, as a notification before."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import ToolListChangedNotification

from orchestrator.tools.backoff import Backoff

logger = logging.getLogger(__name__)

Refresh = Callable[[], Awaitable[None]]
Pause = Callable[[float], Awaitable[None]]


class Bell:
    """Rung by notifications of the older protocol; several that come together count as one."""

    def __init__(self) -> None:
        self._rung = anyio.Event()

    async def heard(self, message: Any) -> None:
        """The message handler of a `Client`."""
        if isinstance(message, ToolListChangedNotification):
            self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung = anyio.Event()


async def follow(client: Client, bell: Bell, refresh: Refresh, pause: Pause) -> None:
    """Calls `refresh` after each change, until it is cancelled or the server will not tell."""
    if client.session.discover_result is None:
        while True:
            await bell.wait()
            await refresh()
    tools = client.server_capabilities.tools
    if tools is not None and tools.list_changed:
        await _listen(client, refresh, pause)


async def _listen(client: Client, refresh: Refresh, pause: Pause) -> None:
    """Listens again whenever the stream ends; what it missed meanwhile is in the list that is then read anew."""
    backoff, missed = Backoff(anyio.current_time), False
    while True:
        try:
            async with client.listen(tools_list_changed=True) as changes:
                if missed:
                    await refresh()
                async for _ in changes:
                    backoff.succeeded()
                    await refresh()
        except MCPError as error:
            logger.debug("the server does not tell of changes: %s", error)
            return
        except (SubscriptionLost, TimeoutError) as error:
            logger.debug("listening again: %s", error)
        missed = True
        backoff.failed()
        await pause(backoff.left)
