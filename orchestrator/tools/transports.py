"""How servers of each kind are reached: a child process, a URL, an object of this process."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from orchestrator.config import ServerSettings
from orchestrator.tools.link import Link
from orchestrator.tools.process import Process
from orchestrator.tools.remembered import Memory
from orchestrator.tools.servers import Server, Terms, describe
from orchestrator.tools.stdio import pipes


def stdio_server(
    name: str, start: Callable[[], Process], *, start_timeout: float, terms: Terms, memory: Memory | None = None
) -> Server:
    """A server that is a child process. `start` gives a new one, or one that runs already; it may raise OSError."""

    @asynccontextmanager
    async def connect(link: Link) -> AsyncGenerator[Client]:
        child = start()
        try:
            async with link.remote(pipes(child, link.lost)) as client:
                yield client
        except Exception as error:
            raise RuntimeError(child.obituary(describe(error))) from error
        finally:
            with anyio.CancelScope(shield=True):
                await child.close()

    return Server(name, connect, start_timeout=start_timeout, transport="pipe", terms=terms, memory=memory)


def http_server(
    name: str,
    settings: Callable[[], ServerSettings],
    *,
    start_timeout: float,
    terms: Terms,
    store: Path | None = None,
    memory: Memory | None = None,
) -> Server:
    """A server at a URL, over streamable HTTP or, where the configuration says so, the older SSE.

    `store` is where sign-ins are kept.
    """
    from orchestrator.tools.auth import signed_in  # noqa: PLC0415 - what OAuth needs, most teams do not
    from orchestrator.tools.web import web_transport  # noqa: PLC0415

    @asynccontextmanager
    async def connect(link: Link) -> AsyncGenerator[Client]:
        where = settings()
        auth = await signed_in(where, store) if store else None
        async with link.remote(web_transport(where, lambda: link.lost("it takes no more messages"), auth)) as client:
            yield client

    return Server(name, connect, start_timeout=start_timeout, transport="tcp", terms=terms, memory=memory)


def broken_server(name: str, problem: str) -> Server:
    """A server that cannot even be tried, so that whoever calls it is told why."""

    @asynccontextmanager
    async def connect(_: Link) -> AsyncGenerator[Client]:
        raise RuntimeError(problem)
        yield  # pragma: no cover - what makes this a generator

    return Server(name, connect, start_timeout=1.0, comes_back=False)


def local_server(name: str, server: Any) -> Server:
    """A server object of this process."""
    return Server(name, lambda link: link.client(server), start_timeout=30.0, terms=Terms(trust="own"))
