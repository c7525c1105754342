"""The trial of a model: five tiny tasks in each way of acting, as real runs; and what is to be advised after it."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from pydantic import BaseModel

from orchestrator.cards import AgentCard, Cards
from orchestrator.config import ModelSettings, PolicySettings, Settings
from orchestrator.doctor.tasks import TASKS, Trial, shop
from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.events import Limits, ModelFailed
from orchestrator.models.base import Listing, Mode
from orchestrator.models.learned import NO_SCHEMAS, NO_TOOLS
from orchestrator.models.resolve import VENDORS, resolve
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator
from orchestrator.runtime.journal.memory import MemoryJournal
from orchestrator.runtime.result import RunResult
from orchestrator.tracing.port import NullTracer

_ALL_RIGHT: Final = (len(TASKS), 0)
"""What a plain mode must be worth, or `weak` is tried too: a small model does four of five right by chance."""
_OF_A_TASK: Final = Limits(steps=4, tokens=20_000, seconds=90)
_LISTING_SECONDS: Final = 10
_USERS: Final = ("authentication", "not_found")
"""Kinds of failure that the user mends, and that no other mode would do away with."""
_UNABLE: Final[Mapping[Mode, tuple[str, str]]] = {
    "tools": (NO_TOOLS, "its server takes no tools"),
    "json": (NO_SCHEMAS, "its server keeps to no JSON Schema"),
}
"""What the gateway has found out where it was not this mode that was tried: it had to change over to another."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the whole, so that no model can make it endless. A good model takes 27 requests, a weak one some 60."""

    requests: int = 80
    seconds: float = 900


class Probe(BaseModel):
    """What came of it. `seconds` are of the whole; `cost` is in US dollars, None where a price is not known.

    `mode` is None where nothing was done right. `stopped` is the bound that was reached before the end.
    """

    model: str
    tasks: int = len(TASKS)
    trials: list[Trial] = []
    mode: Mode | None = None
    weak: bool = False
    requests: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    stopped: str = ""


async def probe(spec: str, settings: Settings, bounds: Bounds = Bounds()) -> Probe:
    """Tries `spec` in every mode that its wire has.

    Raises:
        ConfigurationError: there is no such model, or it has no key or a wrong one.
        ModelError: its server does not answer, or refuses everything.
    """
    table = _table(spec, settings)
    await _reach(table)
    probing = _Probing(table, bounds, Probe(model=spec), anyio.current_time())
    await probing.all_modes()
    found = probing.found
    found.seconds = round(anyio.current_time() - probing.began, 1)
    if all(trial.problem for trial in found.trials):
        raise ModelError("bad_request", found.trials[0].problem)
    plain_first = sorted(found.trials, key=lambda trial: trial.weak)
    best = max(plain_first, key=_worth)  # the first of the best: tools, json, react, weak
    if best.right:
        found.mode, found.weak = best.mode, best.weak
    return found


def _worth(trial: Trial) -> tuple[int, int]:
    """How good a trial was. Of two with as much right it is the one that called less unasked."""
    return (-1, 0) if trial.problem else (trial.right, -trial.unasked)


def _table(spec: str, settings: Settings) -> ModelSettings:
    """The model's table, of which no other model is asked; the one that a spec of a vendor's stands for."""
    resolve(spec, settings.models, os.environ)
    if (table := settings.models.get(spec)) is None:
        provider, _, name = spec.strip().partition(":")
        if provider not in VENDORS:
            raise ConfigurationError(f"model {spec!r} cannot be probed; name one that a server has")
        table = ModelSettings(provider=provider, model=name)
    return table.model_copy(update={"model": table.model or spec, "fallback": ()})


async def _reach(table: ModelSettings) -> None:
    """Asks the server for its models, which costs nothing, before anything is spent or waited for."""
    model = resolve("probed", {"probed": table}, os.environ)
    try:
        if isinstance(model, Listing):
            with anyio.fail_after(_LISTING_SECONDS):
                await model.listed()
    except TimeoutError as error:
        raise ModelError("connection", f"the server of {table.model!r} does not answer") from error
    except ModelError as error:
        if error.kind in _USERS:
            raise ConfigurationError(str(error)) from error
        raise
    finally:
        await model.aclose()


@dataclass
class _Probing:
    """A probe under way."""

    table: ModelSettings
    bounds: Bounds
    found: Probe
    began: float

    async def all_modes(self) -> None:
        """Tries them in turn. `weak` only where no better one is good enough, since it costs requests; text comes last,
        since it is the first that a bound may cost."""
        await self._try(Trial(mode="tools"))
        if self.table.wire == "anthropic":
            return
        await self._try(Trial(mode="json"))
        if max(map(_worth, self.found.trials)) < _ALL_RIGHT:
            by_schema = not any(trial.problem for trial in self.found.trials if trial.mode == "json")
            await self._try(Trial(mode="json" if by_schema else "react", weak=True))
        await self._try(Trial(mode="react"))

    async def _try(self, trial: Trial) -> None:
        """Runs the tasks in one mode: until the model itself fails, or nothing is left of the bounds."""
        async with _stage(self.table.model_copy(update={"mode": trial.mode, "weak": trial.weak})) as (
            orchestrator,
            journal,
        ):
            for task in TASKS:
                if (limits := self._left()) is None:
                    break
                result = await orchestrator.run(task.text, limits=limits)
                events = await journal.read(result.run_id)
                self._spend(result)
                if result.status == "failed":
                    trial.problem = result.answer
                    if any(isinstance(event, ModelFailed) and event.kind in _USERS for event in events):
                        raise ConfigurationError(trial.problem)
                trial.problem = trial.problem or self._unable(trial)
                if trial.problem or (result.status == "stopped" and self._left() is None):
                    break
                trial.count(task, result, events)
        self.found.trials.append(trial)

    def _left(self) -> Limits | None:
        """The limits of the next run; None when nothing is left, which is then noted."""
        requests = self.bounds.requests - self.found.requests
        seconds = self.bounds.seconds - (anyio.current_time() - self.began)
        if requests <= 0 or seconds <= 0:
            self.found.stopped = (
                f"{self.bounds.requests} requests" if requests <= 0 else f"{self.bounds.seconds:g} seconds"
            )
            return None
        most = _OF_A_TASK.seconds or seconds
        return _OF_A_TASK.model_copy(update={"model_calls": requests, "seconds": min(most, seconds)})

    def _unable(self, trial: Trial) -> str:
        if trial.mode not in _UNABLE:
            return ""
        fact, said = _UNABLE[trial.mode]
        model = resolve("probed", {"probed": self.table}, os.environ)
        return said if isinstance(model, Listing) and fact in model.learned else ""

    def _spend(self, result: RunResult) -> None:
        found = self.found
        found.requests += result.usage.model_calls
        found.tokens += result.usage.input_tokens + result.usage.output_tokens
        found.cost = None if found.cost is None or not result.cost.known else round(found.cost + result.cost.amount, 6)


@asynccontextmanager
async def _stage(table: ModelSettings) -> AsyncGenerator[tuple[Orchestrator, MemoryJournal]]:
    """An orchestrator with one agent, the shop and nothing of the user's but the model."""
    card = AgentCard(
        name="probe", tool_name="probe", title="Probe", model=("probed",), tools=("shop__*",), plan="never"
    )
    card = card.model_copy(update={"instructions": "Answer with what the tools say. Call only what the task needs."})
    journal = MemoryJournal()
    with TemporaryDirectory() as home:
        options = Options(
            settings=Settings(models={"probed": table}, policy=PolicySettings(allow=("*",))),
            cards=Cards.of([card]),
            servers={"shop": shop()},
            journal=journal,
            tracer=NullTracer(),
            home=Path(home),
            workspace=Path(home),
        )
        async with Orchestrator(options, agent="probe") as orchestrator:
            yield orchestrator, journal
