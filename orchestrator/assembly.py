"""Wires the parts of an orchestrator together, once the heavy packages are there."""

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from secrets import choice
from typing import Any

from orchestrator.cards import AgentCard, Cards
from orchestrator.config import Settings
from orchestrator.config.names import did_you_mean
from orchestrator.errors import ConfigurationError
from orchestrator.events import Limits
from orchestrator.lifetimes import Models, Servers
from orchestrator.memory.notes import Notes
from orchestrator.memory.pins import LONGEST
from orchestrator.options import Options
from orchestrator.runtime.builtin import BuiltIn, builtin_server
from orchestrator.runtime.delegation import agent_server
from orchestrator.runtime.finding import FIND
from orchestrator.runtime.forking import Fork
from orchestrator.runtime.journal import SqliteJournal
from orchestrator.runtime.pinning import PIN
from orchestrator.runtime.planning import PLANNING
from orchestrator.runtime.remembering import notes_tools
from orchestrator.runtime.retrieving import RETRIEVE
from orchestrator.runtime.runner import Launch, Runner
from orchestrator.runtime.sittings import RunOptions, Seat, Sittings
from orchestrator.runtime.team import Team
from orchestrator.tasks import background
from orchestrator.tools.arguments import ArgumentSchema
from orchestrator.tools.policy import Policy
from orchestrator.tools.servers import Server, Terms
from orchestrator.tools.toolset import AGENTS, BUILTIN, Toolset
from orchestrator.tools.transports import broken_server, http_server, local_server, stdio_server
from orchestrator.tracing.logs import Log
from orchestrator.tracing.setup import make_tracer

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.sqlite"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_NO_CONTENT = ("false", "no_content")
_ID_LETTERS = "23456789abcdefghjkmnpqrstvwxyz"


class Parts:
    """An orchestrator's inside."""

    def __init__(self, options: Options, settings: Settings, team: Team, servers: Servers, models: Models) -> None:
        self.team = team
        self._options = options
        self._settings = settings
        self._servers = servers
        self._models = models
        self._checked: set[str] = set()
        self._told: set[str] = set()

    async def launch(
        self, task: str, agent: str, limits: Limits | None, options: RunOptions | None
    ) -> tuple[AgentCard, Launch, RunOptions]:
        """Makes a task ready to run; `limits` go before the card's, and those before the configuration's.

        Raises:
            ConfigurationError: there is no such agent, or it cannot run.
        """
        if not task.strip():
            raise ConfigurationError("the task is empty; say what is to be done")
        task = task.encode("utf-8", "replace").decode()  # half a surrogate pair is no character
        card = self.team.cards.get(agent)
        await self.check(agent)
        options = options or RunOptions()
        chosen = smallest(effective(limits, card.limits, self._settings.limits), options.within)
        if chosen.cost is not None:
            self._priced(card)
        self._known_role(options.role)
        pins = [" ".join(pin.encode("utf-8", "replace").decode().split()) for pin in options.pins]
        if wrong := next((pin for pin in pins if not 0 < len(pin) <= LONGEST), None):
            raise ConfigurationError(f"a pin has 1 to {LONGEST} characters; this one has {len(wrong)}: {wrong[:60]!r}…")
        run, settings = options.run or new_run_id(), self._options.record()
        launch = Launch(
            run=run,
            task=task,
            limits=chosen,
            depth=options.depth,
            settings=settings,
            pins=pins,
            earlier=options.earlier,
            said=options.said,
        )
        return card, launch, options

    async def forking(self, fork: Fork, options: RunOptions | None) -> tuple[AgentCard, Launch, RunOptions]:
        """Makes ready to run on from a step of another run, with its limits and its role. Raises as `launch` does."""
        card, started = self.team.cards.get(fork.started.agent), fork.started
        await self.check(card.name)
        if started.limits.cost is not None:
            self._priced(card)
        self._known_role(started.role)
        settings = self._options.record()
        launch = Launch(run=new_run_id(), task=started.task, limits=started.limits, settings=settings, fork=fork)
        return card, launch, replace(options or RunOptions(), role=started.role)

    async def resuming(self, card: AgentCard, options: RunOptions | None) -> RunOptions:
        """Makes ready to go on with a run of `card`. Raises `ConfigurationError` when it cannot run any more."""
        await self.check(card.name)
        return options or RunOptions()

    def _known_role(self, role: str | None) -> None:
        if role is not None and role not in self._settings.roles:
            raise ConfigurationError(
                f"there is no role `{role}`.{did_you_mean(role, self._settings.roles)} Roles are [roles.NAME] tables "
                f"of orchestrator.toml."
            )

    def _usable_output(self, card: AgentCard) -> None:
        if card.output is None:
            return
        try:
            ArgumentSchema(card.output)
        except ValueError as error:
            told = str(error).replace("arguments are", "an answer is")
            raise ConfigurationError(card.problem(f"output: {told}", "output")) from error

    def _priced(self, card: AgentCard) -> None:
        """A limit on cost means nothing where a price is unknown, so such a run does not start."""
        reachable = [each.model for card in self.team.cards.reachable(card.name) for each in self._models.choices(card)]
        unknown = {model.name for model in reachable if not model.prices}
        if unknown:
            raise ConfigurationError(
                *(
                    f"a limit on cost needs a price, and that of model {name!r} is not known: set `prices` in its "
                    f"[models.X] table (US dollars for a million tokens) or leave the limit out"
                    for name in sorted(unknown)
                )
            )

    async def check(self, agent: str) -> None:
        """Waits for the servers that `agent` may need and checks all names that its cards use.

        Raises:
            ConfigurationError: a card is wrong, a model is missing, or a required server is down.
        """
        if agent in self._checked:
            return
        cards = self.team.cards.reachable(agent)
        for card in cards:
            self._models.choices(card)
            self._known_role(card.role)
            self._usable_output(card)
            if card.limits.cost is not None:
                self._priced(card)
        names = self.team.servers_below(cards[0])
        await self.team.toolset.live(self._servers.required(names))
        await self.team.toolset.ready(names)
        down = {name: server.problem for name in names if (server := self.team.toolset.servers[name]).down}
        if required := self._servers.required(down):
            problems = [f"server `{name}` is required and not available: {down[name]}" for name in required]
            raise ConfigurationError(*problems)
        self._tell(down)
        findings = self.team.cards.validate(self._known(names), self.team.bundled, only=agent)
        if findings.errors:
            raise ConfigurationError(*(problem for error in findings.errors.values() for problem in error.problems))
        files = {card.file for card in self.team.cards.reachable(agent)}
        replaced = [warning for warning in self.team.cards.warnings if warning.file in files]
        for warning in map(str, dict.fromkeys((*self._settings.warnings, *replaced, *findings.warnings))):
            if warning not in self._told:
                self._told.add(warning)
                logger.warning("%s", warning)
        self._checked.add(agent)

    def _tell(self, down: Mapping[str, str]) -> None:
        for name, problem in down.items():
            if name not in self._told:
                self._told.add(name)
                logger.warning("server `%s` is not available, going on without it: %s", name, problem)

    def _known(self, names: list[str]) -> dict[str, list[str] | None]:
        """Tool names by server, from now or the last time; None for those that were never asked, or did not answer."""
        servers = self.team.toolset.servers
        known: dict[str, list[str] | None] = {name: None for name in servers if name not in (AGENTS, BUILTIN)}
        for name in names:
            if servers[name].listing.seen:
                known[name] = [tool.name for tool in servers[name].tools]
        return known


@asynccontextmanager
async def assemble(
    options: Options, settings: Settings, servers: Servers, cards: Cards, models: Models
) -> AsyncGenerator[tuple[Parts, Sittings]]:
    """Opens everything that runs need and closes it again: servers and tracer at once, then the journal."""
    environ = capturing(settings.telemetry.capture, os.environ)
    async with AsyncExitStack() as stack:
        tracer, journal, closed = options.tracer, options.journal, None
        # Closed last: what is warned of while the rest is closed belongs into it.
        log = Log(options.store() / "logs", content=environ.get(CAPTURE, "").strip().lower() not in _NO_CONTENT)
        stack.push_async_callback(log.aclose)
        if tracer is None:
            tracer = make_tracer(options.store(), environ, service_per_agent=settings.telemetry.service_per_agent)
            closed = tracer.aclose
        # Servers may take their time to end, and so may a collector that does not answer: neither waits for the other.
        ending = await stack.enter_async_context(background())
        if journal is None:
            journal = SqliteJournal(options.store() / JOURNAL_FILE, lease=settings.journal.lease)
            stack.push_async_callback(journal.aclose)
        stack.push_async_callback(models.close)
        runners: list[Runner] = []  # the agents' server is part of the toolset that its own runner needs
        agents = agent_server(
            list(cards.cards.values()), lambda card, task, caller: runners[0].child(card, task, caller)
        )
        inside = {
            AGENTS: agents,
            BUILTIN: builtin_server([FIND, RETRIEVE, PLANNING, PIN, *_notes(options, settings)]),
            **options.servers,
        }
        local = [local_server(name, server) for name, server in inside.items()]
        configured = [open_server(name, servers) for name in servers.settings if name not in options.servers]
        toolset = await stack.enter_async_context(Toolset([*local, *configured]).running())
        if closed is not None:
            stack.callback(ending.start_soon, closed)
        team = Team(cards, servers.settings, toolset, settings.tools.groups_above)
        runners.append(Runner(team, models.choices, settings.limits.steps))
        sittings = Sittings(
            Seat(
                journal=journal,
                tracer=tracer,
                log=log.add,
                runner=runners[0],
                policy=Policy(rules=settings.policy, roles=settings.roles, servers=servers.settings),
                parallel=settings.tools.parallel,
                tool_timeout=settings.tools.timeout,
                result_tokens=settings.tools.result_tokens,
                window_tokens=settings.memory.window_tokens,
            )
        )
        beats = await stack.enter_async_context(background())
        stack.callback(beats.cancel_scope.cancel)
        beats.start_soon(sittings.beat)
        yield Parts(options, settings, team, servers, models), sittings


def _notes(options: Options, settings: Settings) -> list[BuiltIn]:
    """The tools about notes, where they were asked for."""
    if not settings.memory.notes:
        return []
    return notes_tools(Notes(options.store(), options.project(settings)), str(options.folder.resolve()))


def open_server(name: str, servers: Servers) -> Server:
    """A configured server, not started but for a process that was started early."""
    if name in servers.problems:
        return broken_server(name, servers.problems[name])
    configured = servers.settings[name]
    terms = Terms(
        timeout=configured.call_timeout,
        concurrency=configured.concurrency,
        result_tokens=configured.result_tokens,
        allow=configured.allow,
        deny=configured.deny,
        long_running=configured.long_running,
        trust="own" if configured.bundled else "report" if configured.trust else "ask",
    )
    memory = servers.memory(name)
    start_timeout = configured.start_timeout
    if configured.transport == "stdio":
        return stdio_server(
            name, lambda: servers.process(name), start_timeout=start_timeout, terms=terms, memory=memory
        )
    return http_server(
        name,
        lambda: servers.expanded(name),
        start_timeout=start_timeout,
        terms=terms,
        store=servers.store,
        memory=memory,
    )


def capturing(capture: bool | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with `[telemetry] capture` as what OpenTelemetry's variable says when it is not set."""
    if capture is None or environ.get(CAPTURE, "").strip():
        return environ
    return {**environ, CAPTURE: str(capture).lower()}


def effective(*limits: Limits | None) -> Limits:
    """The first of several limits that says anything of each kind: flags, then the card, then the configuration."""
    given = [each for each in limits if each is not None]

    def first(kind: str) -> Any:
        return next((value for each in given if (value := getattr(each, kind)) is not None), None)

    return Limits(**{kind: first(kind) for kind in Limits.model_fields})


def smallest(limits: Limits, within: Limits | None) -> Limits:
    """Both at once: the smaller one of each kind."""
    if within is None:
        return limits
    pairs = {kind: (getattr(limits, kind), getattr(within, kind)) for kind in Limits.model_fields}
    return Limits(
        **{kind: min((each for each in pair if each is not None), default=None) for kind, pair in pairs.items()}
    )


def new_run_id() -> str:
    """`20261129-224512-k3f9wq`: sorts by time, can be said aloud, and is safe in file names and URLs."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{''.join(choice(_ID_LETTERS) for _ in range(6))}"
