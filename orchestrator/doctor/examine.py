"""`orchestrator doctor`: everything that a run would need, looked at once and all at the same time."""

import os
from collections.abc import Callable
from typing import TypeVar

import anyio

from orchestrator.cards import Cards
from orchestrator.config import Input, Settings
from orchestrator.doctor.findings import AgentSeen, CollectorSeen, Finding, ModelSeen, Report
from orchestrator.doctor.models import look_at_models
from orchestrator.doctor.servers import Looked, look_at_servers, read_servers
from orchestrator.doctor.surroundings import look_at_collector, look_at_state
from orchestrator.errors import ConfigurationError
from orchestrator.options import Options

ORDER = ("error", "warning", "hint")

_T = TypeVar("_T")


async def examine(options: Options, *, offline: bool) -> Report:
    """Looks at everything. `offline` reads files and the environment alone: nothing is started, nobody is asked.

    Where the configuration is wrong no server is started either, as no run would start one.
    """
    look = _Look(options, offline=offline)
    settings, cards = look.read(options.load_settings), look.read(options.load_cards)
    async with anyio.create_task_group() as group:
        group.start_soon(look.at_collector)
        if settings is not None:
            group.start_soon(look.at_servers, settings)
            if cards is not None:
                group.start_soon(look.at_models, settings, cards)
    agents = look.at_cards(cards, settings) if cards is not None else ()
    state, found = look_at_state(options.store())
    findings = sorted(dict.fromkeys([*look.findings, *found]), key=lambda finding: ORDER.index(finding.level))
    return Report(
        ok=not any(finding.level == "error" for finding in findings),
        offline=offline,
        workspace=options.folder,
        files=settings.files if settings is not None else (),
        servers=look.servers.servers,
        agents=agents,
        models=look.models,
        collector=look.collector,
        state=state,
        findings=tuple(findings),
    )


class _Look:
    """What was seen so far."""

    def __init__(self, options: Options, *, offline: bool) -> None:
        self.findings: list[Finding] = []
        self.servers = Looked((), (), {})
        self.models: tuple[ModelSeen, ...] = ()
        self.collector: CollectorSeen
        self._options = options
        self._offline = offline

    def read(self, load: Callable[[], _T]) -> _T | None:
        """What a file holds; None when it is wrong, which is among the findings then."""
        try:
            return load()
        except ConfigurationError as error:
            self.findings += [Finding.of(problem, "error", "configuration") for problem in error.problems]
            return None

    async def at_servers(self, settings: Settings) -> None:
        self.findings += [Finding.of(problem, "warning", "configuration") for problem in settings.warnings]
        ask, folder = self._options.ask, self._options.folder
        if self._offline:
            self.servers = read_servers(settings, folder, _would_be_asked if ask else None)
        else:
            self.servers = await look_at_servers(settings, folder, ask, self._options.store())
        self.findings += self.servers.findings

    async def at_models(self, settings: Settings, cards: Cards) -> None:
        chosen = self._options.model
        self.models, found = await look_at_models(chosen, settings, cards, offline=self._offline)
        self.findings += found

    async def at_collector(self) -> None:
        home = self._options.store()
        self.collector, found = await look_at_collector(os.environ, home, offline=self._offline)
        self.findings += found

    def at_cards(self, cards: Cards, settings: Settings | None) -> tuple[AgentSeen, ...]:
        """Every card; names of tools are judged where the servers were asked for theirs."""
        asked = settings is not None and not self._offline
        bundled = {name for name, server in settings.servers.items() if server.bundled} if settings is not None else ()
        judged = cards.validate(self.servers.known if asked else None, bundled)
        wrong = [problem for error in judged.errors.values() for problem in error.problems]
        self.findings += [Finding.of(problem, "error", "agents") for problem in wrong]
        self.findings += [Finding.of(problem, "warning", "agents") for problem in judged.warnings]
        return tuple(
            AgentSeen(
                name=file.name,
                source=file.source,
                file=file.file,
                problem=str(judged.errors[file.file].problems[0]) if file.file in judged.errors else "",
            )
            for file in cards.files
        )


def _would_be_asked(_: Input) -> str:
    """In place of a question, where it is only looked whether somebody could be asked."""
    return ""
