"""The HTTP server: MCP at `/mcp`."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from socket import socket

import anyio
import uvicorn

from orchestrator.config import ServeSettings
from orchestrator.serving.agents import Serving
from orchestrator.tasks import background


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command, and says when it listens, on which port."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @property
    def port(self) -> int:
        return self.servers[0].sockets[0].getsockname()[1]

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(serving: Serving, settings: ServeSettings, stop: anyio.Event, say: Callable[[str], None]) -> None:
    """Serves until `stop` is set; what is under way then has its time to end."""
    app = serving.server().streamable_http_app(host=settings.host)
    config = uvicorn.Config(app, host=settings.host, port=settings.port, log_config=None, timeout_graceful_shutdown=2)
    server = _Uvicorn(config)
    async with background() as group:
        group.start_soon(server.serve)
        await server.listening.wait()
        say(f"MCP at http://{settings.host}:{server.port}/mcp")
        await stop.wait()
        await serving.drain()
        server.should_exit = True
