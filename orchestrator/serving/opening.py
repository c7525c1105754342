"""What is open while agents are served, and which of them are served at first."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from orchestrator.assembly import JOURNAL_FILE
from orchestrator.cards import Cards
from orchestrator.config import Ask, Input
from orchestrator.errors import ConfigurationError
from orchestrator.files import Files
from orchestrator.options import Options
from orchestrator.runtime.journal import SqliteJournal
from orchestrator.serving.agents import Serving
from orchestrator.serving.editions import Editions
from orchestrator.serving.runs import running
from orchestrator.tasks import background


@asynccontextmanager
async def offering(options: Options, only: Sequence[str], say: Callable[[str], None]) -> AsyncGenerator[Serving]:
    """Serves agents: those named, or all whose cards are right, with what becomes of their files meanwhile.

    Raises:
        ConfigurationError: a named agent is not there or wrong, or no agent is right.
    """
    asking = _Asking(options.ask)
    options = replace(options, ask=asking if options.ask is not None else None)
    files = Files(options, lambda error: say(f"{error}\ngoing on with what was there before"))
    names = _right(files.cards, only)
    for error in files.cards.errors.values() if not only else ():
        say(f"not served: {error}")
    async with AsyncExitStack() as stack:
        if (journal := options.journal) is None:
            journal = SqliteJournal(options.store() / JOURNAL_FILE, lease=files.settings.journal.lease)
            stack.push_async_callback(journal.aclose)
        editions = Editions(files, names if only else (), journal)
        await stack.enter_async_context(editions.running(editions.edition(files.options, names)))
        asking.over = True
        runs = await stack.enter_async_context(running(editions))
        group = await stack.enter_async_context(background())
        group.start_soon(editions.poll)
        stack.callback(group.cancel_scope.cancel)
        yield Serving(editions, runs, options.store())


class _Asking:
    """Asks a person for values while the server starts; those of later editions are the same."""

    def __init__(self, ask: Ask | None) -> None:
        self.over = False
        self._ask = ask
        self._answers: dict[Input, str] = {}

    def __call__(self, wanted: Input) -> str:
        if wanted not in self._answers:
            if self._ask is None or self.over:
                raise ConfigurationError(f"nobody can be asked for {wanted.id} any more; start `serve` again")
            self._answers[wanted] = self._ask(wanted)
        return self._answers[wanted]


def _right(cards: Cards, only: Sequence[str]) -> list[str]:
    """The agents to serve at first. Raises `ConfigurationError` where a named one is wrong, or none is right."""
    right: list[str] = []
    for name in [cards.get(name).name for name in only] or list(cards.cards):
        try:
            cards.reachable(name)
            right.append(name)
        except ConfigurationError:
            if only:
                raise
    if not right:
        raise ConfigurationError(*(problem for error in cards.errors.values() for problem in error.problems))
    return right
