"""The trial of a model: five tiny tasks in each way of acting, as real runs; and what is to be advised after it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from orchestrator.cards import AgentCard, Cards
from orchestrator.config import PolicySettings, Settings
from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.events import Limits, ModelResult
from orchestrator.models.base import Listing, Mode
from orchestrator.models.learned import NO_TOOLS
from orchestrator.models.resolve import VENDORS, read_models, resolve
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator
from orchestrator.runtime.journal.memory import MemoryJournal
from orchestrator.runtime.result import RunResult
from orchestrator.tracing.port import NullTracer

LIMITS: Final = Limits(steps=4, tokens=20_000, seconds=90)
ENOUGH: Final = 4
"""Tasks that a model must do right in a plain mode, or `weak` is tried too."""
_LISTING_SECONDS: Final = 10


@dataclass(frozen=True)
class Task:
    """`calls` are all that may be made, in any order; `fact` must stand in the answer."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    fact: str


TASKS: Final = (
    Task("What is the price of the item lamp?", [("price", {"item": "lamp"})], "41"),
    Task("How many of the item chair are in stock in Leeds?", [("stock", {"item": "chair", "city": "Leeds"})], "17"),
    Task("Order 3 of the item lamp and tell me the order number.", [("order", {"item": "lamp", "count": 3})], "K208"),
    Task("What is the price of the item desk?", [("price", {"item": "desk"})], "96"),
    Task("Answer without any tool: which number comes after 6?", [], "7"),
)


class Trial(BaseModel):
    """One mode's tasks, counted. `right` are those with nothing wrong; `problem` says why the mode cannot be used."""

    mode: Mode
    weak: bool = False
    right: int = 0
    calls: int = 0
    answers: int = 0
    as_text: int = 0
    unasked: int = 0
    problem: str = ""


class Probe(BaseModel):
    """What came of it. `seconds` are of the whole; `cost` is in US dollars, None where a price is not known."""

    model: str
    tasks: int = len(TASKS)
    trials: list[Trial] = []
    mode: Mode = "tools"
    weak: bool = False
    requests: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0


async def probe(spec: str, settings: Settings, environ: Mapping[str, str]) -> Probe:
    """Tries `spec` in every mode that its wire has.

    Raises:
        ConfigurationError: there is no such model, or it has no key or a wrong one.
        ModelError: its server does not answer, or refuses everything.
    """
    table, found, began = _table(spec, settings), Probe(model=spec), anyio.current_time()
    await _reach(table, environ)
    wire = table.get("api") or table.get("provider")
    modes: tuple[Mode, ...] = ("tools",) if wire == "anthropic" else ("tools", "json", "react")
    for mode in modes:
        found.trials.append(await _try(Trial(mode=mode), table, found))
    best = max(found.trials, key=_worth)
    if best.right < ENOUGH and len(modes) > 1:
        found.trials.append(await _try(Trial(mode="json", weak=True), table, found))
        best = max(found.trials, key=_worth)  # the first of the best: tools before json before react before weak
    if all(trial.problem for trial in found.trials):
        raise ModelError("bad_request", found.trials[0].problem)
    found.mode, found.weak, found.seconds = best.mode, best.weak, round(anyio.current_time() - began, 1)
    return found


def _worth(trial: Trial) -> int:
    return -1 if trial.problem else trial.right


def _table(spec: str, settings: Settings) -> dict[str, Any]:
    if spec in settings.models:
        table = {"model": spec, **settings.models[spec]}
    else:
        provider, _, name = spec.partition(":")
        if provider not in VENDORS or not name:
            resolve(spec, read_models(settings.models), {})
            raise ConfigurationError(f"model {spec!r} cannot be probed; name one that a server has")
        table = {"provider": provider, "model": name}
    return {key: value for key, value in table.items() if key not in ("mode", "weak", "fallback")}


async def _reach(table: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Asks the server for its models, which costs nothing, before anything is spent or waited for."""
    model = resolve("probed", read_models({"probed": table}), environ)
    try:
        if isinstance(model, Listing):
            with anyio.fail_after(_LISTING_SECONDS):
                await model.listed()
    except TimeoutError as error:
        raise ModelError("connection", f"the server of {table['model']!r} does not answer") from error
    except ModelError as error:
        if error.kind == "authentication":
            raise ConfigurationError(f"{error}; set the right key") from error
        raise
    finally:
        await model.aclose()


async def _try(trial: Trial, table: Mapping[str, Any], found: Probe) -> Trial:
    """Runs the tasks in one mode, until the model itself fails."""
    tried = {**table, "mode": trial.mode, "weak": trial.weak}
    settings = Settings(models={"probed": tried}, policy=PolicySettings(allow=("*",)))
    card = AgentCard(
        name="probe", tool_name="probe", title="Probe", model=("probed",), tools=("shop__*",), plan="never"
    )
    card = card.model_copy(update={"instructions": "Answer with what the tools say. Call only what the task needs."})
    journal = MemoryJournal()
    with TemporaryDirectory() as home:
        folder = Path(home)
        options = Options(
            settings=settings,
            cards=Cards.of([card]),
            servers={"shop": _shop()},
            journal=journal,
            tracer=NullTracer(),
            home=folder,
            workspace=folder,
        )
        async with Orchestrator(options, agent="probe") as orchestrator:
            for task in TASKS:
                result = await orchestrator.run(task.text, limits=LIMITS)
                replies = [each for each in await journal.read(result.run_id) if isinstance(each, ModelResult)]
                _spend(found, result)
                if result.status == "failed":
                    return trial.model_copy(update={"problem": result.answer})
                if trial.mode == "tools" and _refuses_tools(tried):
                    return trial.model_copy(update={"problem": "its server takes no tools"})
                _count(trial, task, result, replies)
    return trial


def _refuses_tools(table: Mapping[str, Any]) -> bool:
    """Whether the gateway had to change over to JSON, so that it was not tools that were tried."""
    model = resolve("probed", read_models({"probed": table}), os.environ)
    return isinstance(model, Listing) and NO_TOOLS in model.learned


def _count(trial: Trial, task: Task, result: RunResult, replies: Sequence[ModelResult]) -> None:
    made = [(action.tool.rpartition("__")[2], action.arguments) for step in result.steps for action in step.actions]
    wanted = [(name, _plain(arguments)) for name, arguments in task.calls]
    called = all(any(name == tool and _plain(given) == right for tool, given in made) for name, right in wanted)
    unasked = any((tool, _plain(given)) not in wanted for tool, given in made)
    answered = result.status == "finished" and task.fact in result.answer.replace("-", "")
    as_text = "shop__" in result.answer or any(reply.problem for reply in replies)
    if trial.mode == "tools":
        as_text = as_text or any(call.wire_id is None for reply in replies for call in reply.message.calls)
    trial.calls += called
    trial.answers += answered
    trial.as_text += as_text
    trial.unasked += unasked
    trial.right += called and answered and not as_text and not unasked


def _plain(arguments: Mapping[str, Any] | str) -> Any:
    if isinstance(arguments, str):
        return arguments
    return {key: value.casefold().strip() if isinstance(value, str) else value for key, value in arguments.items()}


def _spend(found: Probe, result: RunResult) -> None:
    found.requests += result.usage.model_calls
    found.tokens += result.usage.input_tokens + result.usage.output_tokens
    found.cost = None if found.cost is None or not result.cost.known else round(found.cost + result.cost.amount, 6)


def _shop() -> MCPServer:
    server = MCPServer("shop", log_level="ERROR")

    @server.tool(description="The price of an item in dollars.")
    async def price(item: str) -> str:
        return f"{item}: {({'lamp': 41, 'desk': 96}).get(item.casefold(), 'not sold here')}"

    @server.tool(description="How many of an item are in stock in a city.")
    async def stock(item: str, city: str) -> str:
        return f"{17 if (item.casefold(), city.casefold()) == ('chair', 'leeds') else 0} in stock"

    @server.tool(description="Orders an item.")
    async def order(item: str, count: int) -> str:
        return f"Ordered {count} {item}; the order number is K208."

    return server
