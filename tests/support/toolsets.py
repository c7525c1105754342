"""Toolsets over real servers, for tests of `orchestrator.tools`: each opens and closes all it needs."""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from orchestrator.config import ServerSettings
from orchestrator.tools.listing import Trust
from orchestrator.tools.process import Process, spawn
from orchestrator.tools.remembered import Memory
from orchestrator.tools.servers import Server, Terms
from orchestrator.tools.toolset import Reply, Toolset
from orchestrator.tools.transports import http_server, stdio_server
from tests.support.command import AWKWARD


def awkward(*flags: object) -> Callable[[], Process]:
    """Starts an awkward server."""
    return lambda: spawn("awkward", [sys.executable, "-S", "-E", str(AWKWARD), *map(str, flags)], {}, None)


def awkward_server(
    *flags: object, name: str = "awkward", start_timeout: float = 20, memory: Memory | None = None, trust: Trust = "ask"
) -> Server:
    terms = Terms(trust=trust)
    return stdio_server(name, awkward(*flags), start_timeout=start_timeout, terms=terms, memory=memory)


def web_server(url: str, transport: Any = "http", **terms: Any) -> Server:
    settings = ServerSettings(name="web", transport=transport, url=url)
    return http_server("web", lambda: settings, start_timeout=20, terms=Terms(**terms))


@contextlib.asynccontextmanager
async def running(*servers: Server) -> AsyncGenerator[Toolset]:
    async with Toolset(servers).running() as toolset:
        await toolset.ready(toolset.servers)
        yield toolset


def with_toolset(test: Callable[[Toolset], Awaitable[None]], *servers: Server) -> None:
    """Runs a test over servers that are up, or known to be down."""

    async def main() -> None:
        with anyio.fail_after(60):
            async with running(*servers) as toolset:
                await test(toolset)

    anyio.run(main)


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}, **more}


def listing(path: Path, *tools: Mapping[str, Any]) -> Path:
    """A file for `--tools`; what the server lists from now on."""
    path.write_text(json.dumps(tools))
    return path


async def changed(toolset: Toolset, version: int) -> None:
    """Waits until the offers are others than at `version`."""
    while toolset.version == version:
        await anyio.lowlevel.checkpoint()


async def call(toolset: Toolset, name: str, arguments: Mapping[str, Any] = {}, *, timeout: float = 30) -> Reply:
    offer = toolset.get(name)
    assert offer is not None, f"there is no {name}; there are {[each.name for each in toolset.offers()]}"
    return await toolset.call(offer, dict(arguments), timeout=timeout, meta={})


def sums() -> MCPServer:
    """A server of the SDK's own kind."""
    server = MCPServer("sums", log_level="CRITICAL")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def long(size: int, ctx: Context) -> str:
        await ctx.report_progress(0.5)
        return "x" * size

    return server


@contextlib.contextmanager
def web(app: Any, port: int = 0, **options: Any) -> Iterator[str]:
    """Serves an ASGI application on loopback, in a thread; gives its URL."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, ws="none", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
