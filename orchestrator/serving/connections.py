"""Connections of clients that do not speak, or do not read, are closed, so that they hold nothing."""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 10.0
"""Seconds after which a connection without a whole request line and headers is closed; at most twice as many."""

AT_ONCE = struct.pack("ii", 1, 0)
"""`struct linger`: a closing socket drops what it could not send."""


class Connection(H11Protocol):
    """uvicorn waits for ever: for the headers of a request, and for a reader to take what was written."""

    read_within = 30.0
    """Seconds in which a reader must take something of what waits for it."""

    _watch: asyncio.TimerHandle | None = None
    _was_idle = False
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch = self.loop.call_later(IDLE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._watch, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Whoever writes waits from now on, so what is left can only grow less."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def _await_reader(self) -> None:
        self._reading = self.loop.call_later(self.read_within, self._judge, self.transport.get_write_buffer_size())

    def _judge(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._await_reader()
        else:
            self._reset()

    def _look(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        idle = cycle is None or cycle.response_complete
        if idle and self._was_idle:
            self.transport.close()
            self._watch = self.loop.call_later(self.read_within, self._reset)
            return
        self._was_idle = idle
        self._watch = self.loop.call_later(IDLE, self._look)

    def _reset(self) -> None:
        """Ends the connection now: a close would wait for the reader, first here and then in the kernel."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.transport.abort()


def patient(seconds: float) -> type[Connection]:
    """Connections that wait so long for a reader."""
    return type("Connection", (Connection,), {"read_within": seconds})
