"""What an orchestrator holds open while the MCP package is not imported yet: models, and the servers' processes."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import anyio

from orchestrator.cards import AgentCard, model_specs
from orchestrator.cards.reach import may_use
from orchestrator.config import Ask, Input, ServerSettings, Settings, secrets_of
from orchestrator.errors import ConfigurationError
from orchestrator.masking import mask
from orchestrator.models.base import Model
from orchestrator.models.choice import Choice
from orchestrator.models.counting import Tally
from orchestrator.models.pace import Pace
from orchestrator.models.resolve import NO_MODEL, rates_of, resolve
from orchestrator.tools.orphans import Watcher
from orchestrator.tools.process import Process, spawn
from orchestrator.tools.remembered import Memory, memory_of

EARLY = 16
"""Processes that start at once; those of other servers start when it is their turn to connect."""


class Models:
    """The models in use, each opened once."""

    def __init__(self, chosen: str | Model | None, settings: Settings) -> None:
        """`chosen` goes before what cards say."""
        self._chosen = chosen
        self._settings = settings
        self._open: dict[tuple[str, float | None], Model] = {}
        self._paces: dict[str, Pace] = {}
        self._tallies: dict[str, Tally] = {}

    def specs(self, card: AgentCard) -> tuple[str, ...]:
        """What an agent's models are called in the configuration: the one that it uses, and those to go on with.

        First what was chosen or what the card says, then the `fallback` of each table in turn, then that of all.
        Raises `ConfigurationError` when there is none.
        """
        if self._chosen:
            specs = [self._chosen if isinstance(self._chosen, str) else self._chosen.name]
        else:
            specs = [*model_specs(card, self._settings)[0]]
        if not specs:
            raise ConfigurationError(NO_MODEL)
        for spec in specs:  # it grows meanwhile: a model that was gone on with may fail as well
            specs += [each for each in self._fallback(spec) if each not in specs]
        return tuple(dict.fromkeys((*specs, *self._settings.fallback)))

    def of(self, card: AgentCard, spec: str | None = None) -> Model:
        """The first model of an agent, or the one that `spec` names. Raises `ConfigurationError` when it cannot be
        used."""
        first = self.specs(card)[0]
        spec = spec or first
        if self._chosen is not None and not isinstance(self._chosen, str) and spec == self._chosen.name:
            return self._chosen
        key = (spec, card.temperature)
        if key not in self._open:
            try:
                self._open[key] = resolve(spec, self._settings.models, os.environ, temperature=card.temperature)
            except ConfigurationError as error:
                if spec == first:
                    raise
                raise ConfigurationError(
                    *(f"fallback {spec!r} of {first!r}: {each}" for each in error.problems)
                ) from error
        return self._open[key]

    def choices(self, card: AgentCard) -> tuple[Choice, ...]:
        """The models of an agent, each at the pace that all agents with it keep together. Raises as `of` does."""
        return tuple(self._choice(card, spec) for spec in self.specs(card))

    def _choice(self, card: AgentCard, spec: str) -> Choice:
        tally = self._tallies.setdefault(spec, Tally())
        return Choice(spec=spec, model=self.of(card, spec), pace=self._pace(spec), tally=tally)

    def _fallback(self, spec: str) -> tuple[str, ...]:
        return self._settings.models[spec].fallback if spec in self._settings.models else ()

    def _pace(self, spec: str) -> Pace:
        if spec not in self._paces:
            table = self._settings.models.get(spec)
            self._paces[spec] = Pace(rates_of(table) if table is not None else None)
        return self._paces[spec]

    async def close(self) -> None:
        for model in self._open.values():
            await model.aclose()


class Servers:
    """The configured servers, their values filled in, and the processes that were started before they were needed."""

    def __init__(
        self,
        settings: Settings,
        workspace: Path,
        ask: Ask | None = None,
        store: Path | None = None,
        *,
        remember: bool = False,
    ) -> None:
        """`ask` asks a person for a value, where there is one; for each value once.

        `store` is where sign-ins are, and what was seen of servers, which counts where `remember` says so.
        """
        self.store = store
        self.settings: Mapping[str, ServerSettings] = {
            name: server for name, server in settings.servers.items() if not server.disabled
        }
        self.problems: dict[str, str] = {}
        self._workspace = workspace
        self._ask = ask
        self._answers: dict[tuple[str, str], str] = {}
        self._early: dict[str, Process] = {}
        self._watcher = Watcher()
        seen = self.settings.items() if remember else ()
        self._memories = {name: memory_of(store, each, workspace) for name, each in seen if store is not None}

    def start_early(self, names: Iterable[str]) -> None:
        """Starts the processes of these servers before the package is there that talks to them.

        Not of those whose tools are remembered: they start with their first call, unless the run requires them.
        """
        for name in names:
            try:
                # Of all servers: now a person can be asked for values, later one is at work.
                server = self.expanded(name)
                new = server.required or not self._remembered(name)
                if new and server.transport == "stdio" and len(self._early) < EARLY:
                    self._early[name] = start_process(server, self._watcher)
            except (OSError, ConfigurationError) as error:
                self.problems[name] = f"it cannot be started: {error}"

    def needed(self, reachable: Sequence[AgentCard]) -> list[str]:
        """The servers that a run which reaches these agents may come to need, in the order of the configuration."""
        return [
            name
            for name, server in self.settings.items()
            if any(may_use(card, name, bundled=server.bundled) for card in reachable)
        ]

    def expanded(self, name: str) -> ServerSettings:
        """A server with its variables filled in. Raises `ConfigurationError` where one is missing."""
        server = self.settings[name].expand(os.environ, self._workspace, self._answer if self._ask else None)
        mask.extend(secrets=secrets_of(server))
        return server

    def _answer(self, wanted: Input) -> str:
        key = (wanted.id, wanted.description)
        if key not in self._answers:
            assert self._ask is not None
            self._answers[key] = self._ask(wanted)
        return self._answers[key]

    def process(self, name: str) -> Process:
        """A new process of a server, or the one that was started early. Raises OSError or `ConfigurationError`."""
        return self._early.pop(name, None) or self._start(name)

    def memory(self, name: str) -> Memory | None:
        """What was seen of a server the last time, in a file that is kept up to date."""
        return self._memories.get(name)

    def required(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.settings and self.settings[name].required]

    async def close(self) -> None:
        """Ends the processes that nobody took, at once and whether or not we are being cancelled."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for process in self._early.values():
                    group.start_soon(process.close)
            self._early.clear()
            await self._watcher.close()

    def _remembered(self, name: str) -> bool:
        memory = self.memory(name)
        return memory is not None and memory.record.listed is not None

    def _start(self, name: str) -> Process:
        return start_process(self.expanded(name), self._watcher)


def start_process(server: ServerSettings, watcher: Watcher | None = None) -> Process:
    """Raises OSError when the command cannot be started."""
    assert server.command is not None
    return spawn(
        server.name,
        [server.command, *server.args],
        dict(server.env) | (telemetry_environment() if server.bundled else {}),
        Path(server.cwd) if server.cwd else None,
        watcher,
    )


def telemetry_environment() -> dict[str, str]:
    """The variables by which our own servers find the collector. Others do not get them: headers may hold secrets."""
    prefixes = ("OTEL_EXPORTER_OTLP_", "OTEL_TRACES_SAMPLER", "OTEL_BSP_", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SDK_")
    return {key: value for key, value in os.environ.items() if key.startswith(prefixes)}
