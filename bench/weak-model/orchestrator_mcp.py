"""This project by its public API: one agent with one MCP server, and a lead whose specialists are its agents.

The adapter of the weak-model kit, which runs frameworks with Qwen2.5-Coder-1.5B-Instruct on llama.cpp's own server. Put
it into the kit's `adapters/`, name it in `systems.toml`, and run it as any other. As docs/models.md says for small
models: `weak = true`. Every tool is allowed, so that nobody is asked.
"""

import tempfile
from pathlib import Path

from orchestrator import Limits, Options, Orchestrator
from orchestrator.cards import AgentCard, Cards
from orchestrator.config import PolicySettings, ServerSettings, Settings

from driver import INSTRUCTIONS, SUPERVISOR


def card(name, description, instructions, **more):
    return AgentCard(
        name=name, tool_name=name, title=name, description=description, instructions=instructions, model=("weak",), **more
    )


async def run(job, cards, commands):
    servers = {n: ServerSettings(name=n, command=c[0], args=tuple(c[1:])) for n, c in commands.items()}
    table = {"provider": "local", "model": job.model, "base_url": job.base_url, "weak": True}
    settings = Settings(servers=servers, models={"weak": table}, policy=PolicySettings(allow=("*",)))
    with tempfile.TemporaryDirectory() as home:
        options = Options(settings=settings, cards=Cards.of(cards), home=Path(home))
        async with Orchestrator(options, agent=cards[0].name) as orchestrator:
            result = await orchestrator.run(job.prompt, limits=Limits(steps=job.max_turns))
    return result.answer


async def agent(job):
    one = card("assistant", "Answers questions about the shop.", INSTRUCTIONS, tools=("shop__*",))
    return await run(job, [one], {"shop": job.server})


async def team(job):
    workers = [card(s.name, s.description, s.instructions, tools=(f"{s.name}__*",)) for s in job.specialists]
    lead = card("lead", "Leads.", SUPERVISOR, tools=(), agents=tuple(s.name for s in job.specialists))
    return await run(job, [lead, *workers], {s.name: s.server for s in job.specialists})
