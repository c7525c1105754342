"""Running on from a step of a run: a new run that begins with what the old one did until then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import ConfigurationError, UnknownRun
from orchestrator.events import (
    JournalEvent,
    LimitReached,
    ModelChanged,
    ModelIntent,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunForked,
    RunParked,
    RunResumed,
    RunStarted,
)
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.requests import tool_lists
from orchestrator.runtime.runstate import Think
from orchestrator.runtime.state import decide, fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What is kept of the run `source` up to its turn `step`; `bodies` are what its start names by hash."""

    source: str
    step: int
    started: RunStarted
    kept: Sequence[JournalEvent]
    bodies: Mapping[str, bytes]

    def events(self, run: str, at: float, **start: Any) -> list[JournalEvent]:
        """The first events of the new run: the old start with `start` changed, what is kept, and where it is from."""
        old = [self.started.model_copy(update={"at": at, **start}), *self.kept]
        events = [event.model_copy(update={"run": run, "seq": seq}) for seq, event in enumerate(old, 1)]
        forked = RunForked(
            seq=len(events) + 1,
            at=at,
            run=run,
            agent=self.started.agent,
            turn=self.step - 1,
            source=self.source,
            step=self.step,
        )
        return [*events, forked]


NOT_KEPT = (RunParked, RunResumed, ModelChanged, LimitReached, RunFinished, RunFailed, RunCancelled)
"""Sittings, models, limits and the end of the old run: the new one has its own, and begins with its first model."""


async def fork_of(journal: Journal, run: str, step: int) -> Fork:
    """What a new run needs to go on from turn `step` of a run, which is thought anew.

    It may also be the one that would have come next, when something ended the run before it had an answer.

    Raises:
        UnknownRun: there is no such run.
        ConfigurationError: it has no such step, or is part of another run.
    """
    if "/" in run:
        raise ConfigurationError(f"run {run!r} is part of another; run on from a step of {run.partition('/')[0]}")
    events = await journal.read(run)
    if not events or not isinstance(started := events[0], RunStarted):
        raise UnknownRun(f"there is no run {run!r}; `orchestrator runs` lists them")
    turns = [event.turn for event in events if isinstance(event, ModelIntent)]
    place = next((n for n, event in enumerate(events) if isinstance(event, ModelIntent) and event.turn == step), None)
    kept = [event for event in events[:place] if not isinstance(event, NOT_KEPT)]
    if place is None and not _goes_on(kept, step):
        raise ConfigurationError(f"run {run} has no step {step} (it has 1 to {max(turns, default=1)})")
    bodies = {digest: await journal.body(digest) for digest in (started.system, *tool_lists(kept))}
    return Fork(source=run, step=step, started=started, kept=kept[1:], bodies=bodies)


def _goes_on(events: Sequence[JournalEvent], step: int) -> bool:
    """Whether a run in which just this happened would think turn `step` next."""
    following = decide(fold(events))
    return isinstance(following, Think) and following.turn == step
