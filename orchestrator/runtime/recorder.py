"""A run's events on their way into the journal: numbered, folded and told to watchers in one order."""

from typing import Any, TypeVar

from orchestrator.events import JournalEvent
from orchestrator.runtime.logged import logged
from orchestrator.runtime.noted import noted
from orchestrator.runtime.publish import public
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import apply
from orchestrator.runtime.tree import Tree
from orchestrator.tracing.port import Scope

E = TypeVar("E", bound=JournalEvent)


class Recorder:
    """The only writer of one run's events. `scope` is the agent's place in the trace, where it has one."""

    def __init__(self, tree: Tree, run: str, agent: str, state: RunState, scope: Scope | None = None) -> None:
        self.state = state
        self._tree = tree
        self._run = run
        self._agent = agent
        self._scope = scope
        self._unsaved: list[JournalEvent] = []
        self._flushing = False
        tree.states[run] = state

    def note(self, kind: type[E], /, *, turn: int | None = None, **facts: Any) -> E:
        """Something happened that need not be on disk before the next step: it is written with what comes next."""
        event = kind(
            seq=self.state.seq + 1,
            at=self._tree.now(),
            run=self._run,
            agent=self._agent,
            turn=self.state.turn if turn is None else turn,
            **facts,
        )
        before, self.state = self.state, apply(self.state, event)
        self._tree.states[self._run] = self.state
        self._unsaved.append(event)
        if self._scope is not None and (note := noted(event)) is not None:
            self._scope.note(*note)
        self._tree.log(logged(event, before, self.state))
        for told in public(event, before, self.state):
            self._tree.publish(told)
        return event

    async def flush(self) -> None:
        """Writes what is unsaved. While one caller does so, what others note goes with its next transaction."""
        if self._flushing:
            return
        self._flushing = True
        try:
            while self._unsaved:
                await self.save()
        finally:
            self._flushing = False

    async def save(self, *, durable: bool = False) -> None:
        """Writes everything that is unsaved, in one transaction."""
        unsaved, self._unsaved = self._unsaved, []
        if unsaved:
            await self._tree.journal.append(self._tree.claim, unsaved, durable=durable)
