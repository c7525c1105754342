"""What the first Ctrl-C does: park what runs, let a server stop, or else end the command."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

_parks: list[Callable[[], bool]] = []
_stops: list[Callable[[], None]] = []


@contextmanager
def parking(park: Callable[[], bool]) -> Generator[None]:
    """While the block runs, an interrupt calls `park`; when that parked something, the block ends by itself."""
    _parks.append(park)
    try:
        yield
    finally:
        _parks.remove(park)


@contextmanager
def stopping(stop: Callable[[], None]) -> Generator[None]:
    """While the block runs, an interrupt calls `stop`, and the command ends as it does by itself."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def on_interrupt(end: Callable[[], None]) -> bool:
    """Lets a server stop, or parks what runs; where nothing does, calls `end`. Whether something was interrupted."""
    for stop in _stops:
        stop()
    if _stops:
        return False
    parked = [park() for park in _parks]
    if not any(parked):
        end()
    return True
