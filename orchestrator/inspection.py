"""A look at what is configured, without running anything: the servers and their tools."""

import logging
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.assembly import open_server
from orchestrator.lifetimes import Servers
from orchestrator.options import Options
from orchestrator.tools.toolset import Toolset

logger = logging.getLogger(__name__)


async def list_tools(options: Options) -> dict[str, Any]:
    """Every configured and bundled server, its tools under the names that models see, and what is left out."""
    settings = options.load_settings()
    for warning in settings.warnings:
        logger.warning("%s", warning)
    servers = Servers(settings, options.folder, options.ask, options.store())
    names = list(servers.settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(servers.close)
        servers.start_early(names)
        toolset = await stack.enter_async_context(Toolset([open_server(name, servers) for name in names]).running())
        await toolset.live(names)
        listed, offers = toolset.servers.values(), list(toolset.offers())
        return {
            "servers": [
                {
                    "name": server.name,
                    "up": server.up,
                    "problem": server.problem,
                    "tools": sum(offer.server is server for offer in offers),
                    "bundled": servers.settings[server.name].bundled,
                }
                for server in listed
            ],
            "tools": [
                {
                    "name": offer.name,
                    "server": offer.server.name,
                    "tool": offer.tool.name,
                    "title": offer.tool.title,
                    "description": offer.tool.description or "",
                    "effect": offer.effect,
                    "input_schema": offer.tool.input_schema,
                }
                for offer in offers
            ],
            "left_out": [{"name": name, "problem": problem} for name, problem in toolset.left_out.items()],
        }
