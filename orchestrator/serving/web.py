"""The HTTP server: MCP at `/mcp`, runs and approvals at `/api`, and whether it is well."""

import socket
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from orchestrator.config import ServeSettings, Settings
from orchestrator.errors import ConfigurationError
from orchestrator.serving.agents import Serving
from orchestrator.serving.api import Api
from orchestrator.serving.connections import patient
from orchestrator.serving.door import Door
from orchestrator.serving.openapi import openapi
from orchestrator.serving.problems import problem
from orchestrator.serving.readiness import Readiness
from orchestrator.tasks import background


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command, and says when calls are taken."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def routes(serving: Serving) -> list[Route]:
    """Everything but MCP."""
    readiness = Readiness(serving.runs, serving.journal)

    async def alive(request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        del request
        trouble = await readiness.trouble()
        return problem(503, trouble) if trouble else JSONResponse({"status": "ready"})

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
    _check_roles(serving.settings.roles, settings)
    # The door has looked at Host and Origin, and at the size of the body, before the SDK does.
    open_door = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = serving.server().streamable_http_app(transport_security=open_door, max_request_body_size=sys.maxsize)

    extra: list[Any] = []
    if settings.oauth is not None:
        resource, issuer = AnyHttpUrl(settings.oauth.resource), AnyHttpUrl(settings.oauth.issuer)
        scopes = [*dict.fromkeys((*settings.oauth.scopes, *settings.oauth.roles))]
        extra = create_protected_resource_routes(resource, [issuer], scopes)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        async with inner.router.lifespan_context(inner):
            yield

    app = Starlette(
        routes=[*routes(serving), *extra, *inner.routes],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )
    door = Door(app, settings, serving.editions.look)

    def take(changed: Settings) -> None:
        _check_roles(changed.roles, changed.serve)
        door.take(changed.serve)

    serving.editions.checks.append(take)
    return door


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path} is not served; GET /openapi.json says what is"
    return problem(error.status_code, detail, error.headers)


def _check_roles(known: Collection[str], settings: ServeSettings) -> None:
    named = {f"serve.tokens.{name}.role": token.role for name, token in settings.tokens.items()}
    if settings.oauth is not None:
        named |= {f"serve.oauth.roles.{scope}": role for scope, role in settings.oauth.roles.items()}
    for where, role in named.items():
        if role is not None and role not in known:
            there = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"{where}: there is no role {role!r}; the configuration has: {there}")


async def serve_http(serving: Serving, settings: ServeSettings, stop: anyio.Event, say: Callable[[str], None]) -> None:
    """Serves until `stop` is set; what is under way then has its time to end.

    Raises:
        ConfigurationError: it cannot listen there, or anyone could come in.
    """
    config = uvicorn.Config(
        application(serving, settings),
        http=patient(settings.traffic.read_within),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    server = _Uvicorn(config)
    with _listen(settings) as listening:
        async with background() as group:
            group.start_soon(partial(server.serve, sockets=[listening]))
            await server.listening.wait()
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            say(f"MCP at http://{host}:{listening.getsockname()[1]}/mcp")
            await stop.wait()
            await serving.drain()
            server.should_exit = True


def _listen(settings: ServeSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"serve: cannot listen on {settings.host} port {settings.port}: {error}; choose another with --port"
        ) from error
