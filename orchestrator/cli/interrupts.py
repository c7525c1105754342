"""What the first Ctrl-C does: park what runs, or else end the command."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

_parks: list[Callable[[], None]] = []


@contextmanager
def parking(park: Callable[[], None]) -> Generator[None]:
    """While the block runs, an interrupt calls `park`, and the block ends by itself."""
    _parks.append(park)
    try:
        yield
    finally:
        _parks.remove(park)


def on_interrupt(end: Callable[[], None]) -> None:
    """Parks what runs; where nothing does, calls `end`."""
    for park in _parks or [end]:
        park()
