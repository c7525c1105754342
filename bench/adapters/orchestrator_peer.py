"""orchestrator-mcp: the product's defaults, but step limit raised and eight calls at once; `bare` keeps nothing on disk."""

import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from orchestrator import Limits, Options, Orchestrator
from orchestrator.cards import AgentCard, Cards
from orchestrator.config import ServerSettings, Settings, ToolSettings
from orchestrator.config.settings import MemorySettings
from orchestrator.models.base import ModelOptions

from driver import INSTRUCTIONS, MAX_STEPS, PROMPT

BARE = False
LIMITS = Limits(steps=MAX_STEPS, tokens=10**9, model_calls=10**6, seconds=3600)


def options(work, cards):
    servers = {}
    for number, command in enumerate(work.servers):
        name = f"s{number}"
        servers[name] = ServerSettings(name=name, command=command[0], args=tuple(command[1:]))
    settings = Settings(servers=servers, memory=MemorySettings(window_tokens=work.window), tools=ToolSettings(parallel=8, groups_above=0), models={
        "boss": {"base_url": work.base_url, "model": work.model, "temperature": None},
        "worker": {"base_url": work.base_url, "model": work.worker_model, "temperature": None},
    })
    extra = {}
    if BARE:
        from orchestrator.runtime.journal import MemoryJournal
        from orchestrator.tracing.port import NullTracer
        extra = {"journal": MemoryJournal(), "tracer": NullTracer()}
    return Options(settings=settings, cards=Cards.of(cards), home=Path(os.environ.get("BENCH_HOME") or tempfile.mkdtemp(prefix="bench-")), **extra)


def card(name, **more):
    return AgentCard(name=name, tool_name=name, title=name, description="A helper.", instructions=INSTRUCTIONS, **more)


@asynccontextmanager
async def agent(work):
    one = card("agent", model=("boss",), tools=("*",))
    async with Orchestrator(options(work, [one]), agent="agent") as orchestrator:
        async def ask():
            return (await orchestrator.run(PROMPT, limits=LIMITS)).answer
        yield ask


@asynccontextmanager
async def team(work):
    workers = [card(f"worker_{i}", model=("worker",), tools=("*",)) for i in range(work.workers)]
    boss = card("boss", model=("boss",), agents=tuple(each.name for each in workers))
    async with Orchestrator(options(work, [boss, *workers]), agent="boss") as orchestrator:
        async def ask():
            return (await orchestrator.run(PROMPT, limits=LIMITS)).answer
        yield ask
