"""Who may come in: the one way to everything that is served over HTTP.

In this order: is the server called by a name of its own, and from a page that may; who is it; how much have they sent;
is the body small and quick enough. Nothing of a body is read before its sender is known.
"""

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.config import ServeSettings
from orchestrator.errors import ConfigurationError
from orchestrator.serving.guests import GUEST, Guest
from orchestrator.serving.oauth import RETRY, Issuer, Unreachable
from orchestrator.serving.problems import problem
from orchestrator.serving.tokens import Tokens
from orchestrator.serving.traffic import TooLarge, Traffic, read_body

logger = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPEN = ("/healthz", "/readyz")
"""Told to anyone: they say nothing about anyone."""
METADATA = "/.well-known/"
"""So is where a token is to be had."""


class Door:
    """ASGI middleware around all that is served."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, look: Callable[[], Awaitable[None]]) -> None:
        """`look` is awaited before anyone is let in: it may call `take`.

        Raises:
            ConfigurationError: anyone could come in from another machine.
        """
        self._app = app
        self._look = look
        self._host = settings.host
        self._issuer = Issuer(settings.oauth) if settings.oauth is not None else None
        self._traffic = Traffic(settings.traffic)
        self.take(settings)

    def take(self, settings: ServeSettings) -> None:
        """Who may come in from now on, and how much they may send. Where this listens and whose issuer counts stays.

        Raises:
            ConfigurationError: anyone could come in from another machine, or a token cannot be used.
        """
        tokens = Tokens(settings.tokens)
        if self._host not in LOOPBACK and not tokens and self._issuer is None:
            raise ConfigurationError(
                f"serve: {self._host} can be reached from other machines, and no token is configured. Make one with "
                f"`orchestrator serve --new-token NAME`, set [serve.oauth], or listen on 127.0.0.1"
            )
        if settings.oauth != (self._issuer.settings if self._issuer is not None else None):
            logger.warning("what [serve.oauth] says now counts when the server is started again")
        self._tokens = tokens
        self._traffic.settings = self._settings = settings.traffic
        self._hosts = {*LOOPBACK, self._host, *settings.traffic.hosts}
        self._origins = set(settings.traffic.origins)
        if self._issuer is not None:
            self._hosts.add(urlsplit(self._issuer.settings.resource).hostname or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        if (refused := self._wrong_address(headers)) is not None:
            return await refused(scope, receive, send)
        if scope["path"] in OPEN or scope["path"].startswith(METADATA):
            return await self._app(scope, receive, send)
        await self._look()
        caller = peer = str((scope.get("client") or ("", 0))[0])
        found: Guest | Response | None = None
        if self._guarded:
            found = await self._identify(headers)
            caller = f"guest {found.name}" if isinstance(found, Guest) else f"stranger {peer}"
        if wait := self._traffic.enter(caller):
            detail = f"too many requests; call again in {wait} s"
            return await problem(429, detail, {"Retry-After": str(wait)})(scope, receive, send)
        try:
            if isinstance(found, Response):
                return await found(scope, receive, send)
            await self._let_in(found, scope, receive, send)
        finally:
            self._traffic.leave(caller)

    @property
    def _guarded(self) -> bool:
        return bool(self._tokens) or self._issuer is not None

    def _wrong_address(self, headers: Headers) -> Response | None:
        """A page in a browser that was led to this machine by a name of its own (DNS rebinding) stays outside."""
        host = _name(headers.get("host", ""))
        if host not in self._hosts:
            return problem(421, f"this server is not {host or 'a server without a name'!r}; add it to traffic.hosts")
        origin = headers.get("origin")
        if origin is None or origin in self._origins or urlsplit(origin).hostname in LOOPBACK:
            return None
        return problem(403, f"pages of {origin} may not call this server; add it to [serve.traffic] origins")

    async def _identify(self, headers: Headers) -> Guest | Response:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return self._challenge(401, "", "a bearer token is needed: `Authorization: Bearer …`")
        if (guest := self._tokens.holder(token.strip())) is not None:
            return guest
        if self._issuer is not None:
            try:
                guest, lacking = await self._issuer.holder(token.strip())
            except Unreachable:
                detail = "the issuer of tokens does not give its keys, so that this one cannot be checked"
                return problem(503, detail, {"Retry-After": f"{RETRY:.0f}"})
            if guest is not None:
                return guest
            if lacking:
                error = f'error="insufficient_scope", scope="{lacking}"'
                return self._challenge(403, error, f"the token lacks the scope {lacking}")
        return self._challenge(401, 'error="invalid_token"', "this token is not known here, or no longer good")

    def _challenge(self, status: int, error: str, detail: str) -> Response:
        parts = [error] if error else []
        if self._issuer is not None:
            metadata = build_resource_metadata_url(AnyHttpUrl(self._issuer.settings.resource))
            parts.append(f'resource_metadata="{metadata}"')
        return problem(status, detail, {"WWW-Authenticate": f"Bearer {', '.join(parts)}".strip()})

    async def _let_in(self, guest: Guest | None, scope: Scope, receive: Receive, send: Send) -> None:
        most, seconds = self._settings.body, self._settings.body_within
        closing = {"Connection": "close"}  # what is left of the body is not read
        try:
            if (size := Headers(scope=scope).get("content-length", "")).isdecimal() and int(size) > most:
                raise TooLarge
            receive = await read_body(receive, most, seconds)
        except TooLarge:
            return await problem(413, f"a request may have {most:,} bytes", closing)(scope, receive, send)
        except TimeoutError:
            return await problem(408, f"the request was not there after {seconds:g} s", closing)(scope, receive, send)
        if guest is not None:
            # The SDK binds a session to the user that began it.
            access = AccessToken(token="", client_id=guest.name, scopes=[])
            scope = {**scope, "user": AuthenticatedUser(access)}
        token = GUEST.set(guest)
        try:
            await self._app(scope, receive, send)
        finally:
            GUEST.reset(token)


def _name(host: str) -> str:
    """A Host header without its port."""
    return urlsplit(f"//{host}").hostname or "" if "@" not in host else ""
