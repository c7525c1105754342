"""A connection that says nothing is closed, so that half-open ones do not pile up."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 10.0
"""Seconds after which a connection without a whole request line and headers is closed; at most twice as many."""


class Connection(H11Protocol):
    """uvicorn waits for ever for the headers of a request, and gives a reader that has left for ever as well."""

    _watch: asyncio.TimerHandle | None = None
    _was_idle = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch = self.loop.call_later(IDLE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        idle = cycle is None or cycle.response_complete
        if idle and self._was_idle:
            self.transport.close()
            return
        self._was_idle = idle
        self._watch = self.loop.call_later(IDLE, self._look)
