"""Signing in to a server through a person's browser: OAuth's authorization code with PKCE, back on loopback."""

import html
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import anyio
import httpx2
from anyio.abc import Listener, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.client.auth import OAuthRegistrationError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull
from pydantic import AnyUrl

from orchestrator.config import ServerSettings
from orchestrator.config.oauth import OAuthSettings
from orchestrator.errors import OrchestratorError
from orchestrator.tools.auth import Storage, load, provider
from orchestrator.tools.servers import describe, leaf, list_tools
from orchestrator.tools.vault import Vault
from orchestrator.tools.web import Refused, web_transport

WAIT = 300.0
"""Seconds within which a person comes back from the page to sign in at."""

_LARGEST_HEAD = 16 * 1024

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address of the page to sign in at."""


async def sign_in(where: ServerSettings, store: Path, show: Show) -> tuple[int, bool]:
    """Signs in to a server at a URL and keeps that for later runs.

    Gives the number of tools it then lists, and whether it asked for a sign-in at all. Raises `OrchestratorError`.
    """
    assert where.url is not None
    settings = where.oauth or OAuthSettings()
    vault = Vault(store, where.url)
    before = await load(vault)
    scopes = " ".join([*settings.scopes, *([before.wanted] if before else [])])
    asked = False
    try:
        async with _callback(settings.callback_port or 0) as callback:

            async def leave(address: str) -> None:
                nonlocal asked
                asked = True
                _fit(auth.context)
                callback.expect(httpx2.URL(address).params["state"])
                await show(address)

            storage = Storage(vault, client=_registered(settings, callback.url), fresh=True)
            auth = provider(storage, callback.url, leave, callback.answer, scopes)
            async with Client(web_transport(where, lambda: None, auth)) as client:
                return len(await list_tools(client)), asked
    except Exception as error:
        hint = ""
        if isinstance(leaf(error), OAuthRegistrationError):
            hint = ' Register a client there by hand, and put `"oauth": {"clientId": "…"}` into its entry.'
        raise OrchestratorError(f"cannot sign in to `{where.name}`: {describe(error)}{hint}") from error


def _registered(settings: OAuthSettings, redirect: str) -> OAuthClientInformationFull | None:
    """The client that was registered by hand, where there is one."""
    if settings.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        client_secret=settings.client_secret,
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
    )


def _fit(context: OAuthContext) -> None:
    """Where a secret cannot go into the header, which every server should take, it goes into the body."""
    client, server = context.client_info, context.oauth_metadata
    ways = (server.token_endpoint_auth_methods_supported if server else None) or ["client_secret_basic"]
    if client and client.token_endpoint_auth_method == "client_secret_basic" and "client_secret_basic" not in ways:
        client.token_endpoint_auth_method = "client_secret_post"


class _Callback:
    """An address on loopback to which the browser comes back, once for each time that it is expected."""

    def __init__(self, listener: Listener[SocketStream]) -> None:
        self._listener = listener
        self.expect("")
        self.url = f"http://localhost:{listener.extra(SocketAttribute.local_port)}/callback"

    def expect(self, state: str) -> None:
        """Whoever comes back must bring this with them."""
        self._state = state
        self._result: AuthorizationCodeResult | None = None
        self._refusal = ""
        self._done = anyio.Event()

    async def answer(self) -> AuthorizationCodeResult:
        """Waits for the browser. Raises `Refused` when the person or the page said no, or nobody came in time."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._listener.serve, self._serve)
            with anyio.move_on_after(WAIT):
                await self._done.wait()
            group.cancel_scope.cancel()
        if self._result is None:
            raise Refused(self._refusal or f"nobody came back from the browser within {WAIT:g} s")
        return self._result

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", _LARGEST_HEAD)
                status, words = self._take(head.split(b"\r\n", 1)[0].decode("latin-1").split(" "))
                page = f"<!doctype html><title>orchestrator</title><p>{html.escape(words)}</p>".encode()
                lines = [
                    f"HTTP/1.1 {status.value} {status.phrase}",
                    "Content-Type: text/html; charset=utf-8",
                    f"Content-Length: {len(page)}",
                    "Connection: close",
                ]
                await stream.send("\r\n".join([*lines, "", ""]).encode() + page)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError):
                return  # a browser that opened a connection in advance, or went away
        if self._result is not None or self._refusal:
            self._done.set()

    def _take(self, line: list[str]) -> tuple[HTTPStatus, str]:
        """What a request line means, and what its sender is told."""
        target = httpx2.URL(line[1]) if len(line) == 3 and line[1].startswith("/") else None
        if target is None or line[0] != "GET" or target.path != "/callback":
            return HTTPStatus.NOT_FOUND, "There is nothing here."
        given = target.params
        if self._done.is_set() or given.get("state") != self._state:
            return HTTPStatus.BAD_REQUEST, "This is not the sign-in that is waited for. Start it again."
        if code := given.get("code"):
            self._result = AuthorizationCodeResult(code=code, state=self._state, iss=given.get("iss"))
            return HTTPStatus.OK, "You are signed in. You can close this window."
        self._refusal = f"it was refused: {given.get('error_description') or given.get('error') or 'no code came back'}"
        return HTTPStatus.OK, f"You are not signed in: {self._refusal}. You can close this window."


@asynccontextmanager
async def _callback(port: int) -> AsyncGenerator[_Callback]:
    try:
        listeners = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise Refused(f"port {port} on this machine, `callbackPort`, is taken: {error.strerror}") from error
    async with listeners:
        yield _Callback(listeners.listeners[0])
