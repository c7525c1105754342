"""The public events of a run as server-sent events, from its journal: past ones at once, later ones as they come.

Nothing waits in memory for a reader: each reads on from its own place in the journal, so a slow one costs nothing, one
that comes back goes on where it was, and a run that another process drives is watched in the same way.
"""

from collections.abc import AsyncGenerator

import anyio

from orchestrator.events import PublicEvent
from orchestrator.masking import mask
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.publish import public
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import fold
from orchestrator.serving.runs import Runs

LOOK = 0.5
"""Seconds between looks at a run of another process, and for what was told here and is not written yet."""

QUIET = 15.0
"""Seconds after which a comment is sent, so that nothing on the way takes the stream for dead."""


async def stream(runs: Runs, journal: Journal, root: str, after: tuple[int, int]) -> AsyncGenerator[bytes]:
    """What comes after event `after` (place in the journal, number there), until the run has ended or waits."""
    states: dict[str, RunState] = {}
    place, silent = 0, 0.0
    while True:
        news = anyio.Event()
        live = runs.live(root)
        found = await journal.since(root, place)
        for place, event in found:
            before = states.get(event.run, RunState())
            states[event.run] = fold([event], before)
            for number, told in enumerate(public(event, before, states[event.run])):
                if (place, number) > after:
                    silent = 0.0
                    yield _line(f"{place}.{number}", told)
        if live is None and not found and _rests(states.get(root)):
            yield b"event: end\ndata: {}\n\n"
            return
        if silent >= QUIET:
            silent = 0.0
            yield b": still here\n\n"
        silent += LOOK
        with anyio.move_on_after(LOOK):
            if live is None:
                await news.wait()
            else:
                with live.watched(lambda _, news=news: news.set()):
                    await news.wait()


def _rests(state: RunState | None) -> bool:
    return state is not None and (state.end is not None or state.parked is not None)


def place_of(text: str) -> tuple[int, int]:
    """`Last-Event-ID`. Raises `ValueError` for what is none."""
    place, _, number = text.partition(".")
    return (int(place), int(number)) if text else (0, -1)


def _line(name: str, event: PublicEvent) -> bytes:
    data = mask(event.model_dump_json())
    return f"id: {name}\nevent: {event.type}\ndata: {data}\n\n".encode()
