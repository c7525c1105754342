"""What the first Ctrl-C does: park what runs, or else end the command."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

_parks: list[Callable[[], bool]] = []


@contextmanager
def parking(park: Callable[[], bool]) -> Generator[None]:
    """While the block runs, an interrupt calls `park`; when that parked something, the block ends by itself."""
    _parks.append(park)
    try:
        yield
    finally:
        _parks.remove(park)


def on_interrupt(end: Callable[[], None]) -> None:
    """Parks what runs; where nothing does, calls `end`."""
    parked = [park() for park in _parks]
    if not any(parked):
        end()
