"""The HTTP server: MCP at `/mcp`, runs and approvals at `/api`, and whether it is well."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from orchestrator.config import ServeSettings
from orchestrator.errors import ConfigurationError, JournalError
from orchestrator.serving.agents import Serving
from orchestrator.serving.api import Api
from orchestrator.serving.connections import Connection
from orchestrator.serving.door import Door
from orchestrator.serving.openapi import openapi
from orchestrator.serving.problems import problem
from orchestrator.tasks import background


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def routes(serving: Serving) -> list[Route]:
    """Everything but MCP."""

    async def alive(request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        del request
        if serving.runs.stopping:
            return problem(503, "the server is about to stop")
        try:
            body = b"ready"
            await serving.orchestrator.journal.keep({sha256(body).hexdigest(): body})
        except JournalError as error:
            return problem(503, f"nothing can be written: {error}")
        return JSONResponse({"status": "ready"})

    async def described(request: Request) -> Response:
        del request
        return JSONResponse(openapi())

    return [
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/openapi.json", described),
        *Api(serving).routes(),
    ]


def application(serving: Serving, settings: ServeSettings) -> ASGIApp:
    """The whole, behind its door.

    Raises:
        ConfigurationError: anyone could come in from another machine, or a token names what is not there.
    """
    _check_roles(serving, settings)
    # The door has looked at Host and Origin, and at the size of the body, before the SDK does.
    open_door = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = serving.server().streamable_http_app(
        transport_security=open_door, max_request_body_size=settings.traffic.body
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        async with inner.router.lifespan_context(inner):
            yield

    extra: list[Any] = []
    if settings.oauth is not None:
        resource, issuer = AnyHttpUrl(settings.oauth.resource), AnyHttpUrl(settings.oauth.issuer)
        scopes = [*dict.fromkeys((*settings.oauth.scopes, *settings.oauth.roles))]
        extra = create_protected_resource_routes(resource, [issuer], scopes)
    app = Starlette(routes=[*routes(serving), *extra, Mount("/", inner)], lifespan=lifespan)
    return Door(app, settings)


def _check_roles(serving: Serving, settings: ServeSettings) -> None:
    named = {f"serve.tokens.{name}.role": token.role for name, token in settings.tokens.items()}
    if settings.oauth is not None:
        named |= {f"serve.oauth.roles.{scope}": role for scope, role in settings.oauth.roles.items()}
    known = serving.orchestrator.settings.roles
    for where, role in named.items():
        if role is not None and role not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"{where}: there is no role {role!r}; the configuration has: {there}")


async def serve_http(serving: Serving, settings: ServeSettings, stop: anyio.Event, say: Callable[[str], None]) -> None:
    """Serves until `stop` is set; what is under way then has its time to end."""
    config = uvicorn.Config(
        application(serving, settings),
        host=settings.host,
        port=settings.port,
        http=Connection,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = _Uvicorn(config)
    async with background() as group:
        group.start_soon(server.serve)
        say(f"MCP at http://{settings.host}:{settings.port}/mcp")
        await stop.wait()
        await serving.drain()
        server.should_exit = True
