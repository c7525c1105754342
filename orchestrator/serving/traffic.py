"""How much one caller may send: requests a minute, requests at once, bytes of a request and the time they take."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from starlette.types import Message, Receive

from orchestrator.config import TrafficSettings

CALLERS = 10_000
"""Callers that are remembered; the one that was away longest is forgotten first."""


@dataclass(slots=True)
class _Caller:
    allowance: float
    at: float
    open: int = 0


class Traffic:
    """A bucket of requests for each caller: full at first, it fills again at `per_minute`."""

    def __init__(self, settings: TrafficSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._callers: OrderedDict[str, _Caller] = OrderedDict()

    def enter(self, caller: str) -> int:
        """Counts a request that begins; `leave` must follow. Where it is one too many, seconds to wait instead."""
        now = self._clock()
        most = self.settings.per_minute
        known = self._callers.setdefault(caller, _Caller(most, now))
        self._callers.move_to_end(caller)
        self._forget()
        rate = most / 60
        known.allowance = min(most, known.allowance + (now - known.at) * rate)
        known.at = now
        if known.allowance < 1:
            return 1 + int((1 - known.allowance) / rate)
        if known.open >= self.settings.at_once:
            return 1
        known.allowance -= 1
        known.open += 1
        return 0

    def leave(self, caller: str) -> None:
        self._callers[caller].open -= 1

    def _forget(self) -> None:
        idle = (name for name, known in self._callers.items() if not known.open)
        while len(self._callers) > CALLERS and (name := next(idle, None)) is not None:
            del self._callers[name]
            idle = (name for name, known in self._callers.items() if not known.open)


class TooLarge(Exception):
    """The body has more bytes than are taken."""


async def read_body(receive: Receive, most: int, seconds: float) -> Receive:
    """Takes in a body before anyone works on it, and gives it again to who asks.

    Raises:
        TooLarge: it has more than `most` bytes; the rest is not read.
        TimeoutError: it was not there within `seconds`.
    """
    parts: list[bytes] = []
    size, more = 0, True
    with anyio.fail_after(seconds):
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return _first(message, receive)
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > most:
                raise TooLarge
    return _first({"type": "http.request", "body": b"".join(parts), "more_body": False}, receive)


def _first(message: Message, receive: Receive) -> Receive:
    waiting = [message]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
