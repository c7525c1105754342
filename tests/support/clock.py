"""An event loop whose time passes only when everybody waits, and then at once. For code without threads or sockets."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import anyio


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: what it was asked to wait is time that has passed. To wait for ever is an error."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everybody waits, and for nothing that will come")
        if not ready and timeout:
            self.skipped += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped


def in_no_time(main: Callable[[], Awaitable[Any]]) -> Any:
    """Runs `main` to its end; seconds cost nothing."""
    return anyio.run(main, backend_options={"loop_factory": _Loop})
