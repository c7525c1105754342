"""How long to wait before what failed is tried again."""

from collections.abc import Callable
from dataclasses import dataclass

FIRST = 1.0
LONGEST = 60.0
"""Seconds."""


@dataclass(slots=True)
class Backoff:
    """Nothing after a first failure; then a second, doubled with each failure in a row up to a minute.

    `clock` gives seconds; only differences count.
    """

    clock: Callable[[], float]
    failures: int = 0
    _until: float = 0.0

    def failed(self) -> None:
        self.failures += 1
        pause = min(LONGEST, FIRST * 2.0 ** min(self.failures - 2, 16)) if self.failures > 1 else 0.0
        self._until = self.clock() + pause

    def succeeded(self) -> None:
        self.failures, self._until = 0, 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try; 0.0 when it may be made now."""
        return max(0.0, self._until - self.clock()) if self.failures else 0.0
