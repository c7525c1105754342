"""An MCP server that lets nobody in without a sign-in, and its authorization server at another address of loopback."""

import contextlib
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from tests.support.toolsets import web

SCOPE = "sums:read"
MORE = "sums:write"


class Authority:
    """Lets everybody in who asks, unless `refusing`. A token lasts `lifetime` seconds or until it is renewed."""

    def __init__(self) -> None:
        self.lifetime = 3600
        self.refusing = False
        self.asked: list[list[str]] = []
        self.renewals = 0
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}
        self._access: dict[str, AccessToken] = {}
        self._refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params.scopes or [])
        back, state = str(params.redirect_uri), params.state
        if self.refusing:
            return construct_redirect_uri(back, error="access_denied", error_description="Not <you>", state=state)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self._codes[code.code] = code
        return construct_redirect_uri(back, code=code.code, state=state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self._codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self._refresh.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        if refresh_token.token not in self._refresh:
            raise TokenError("invalid_grant")
        self.renewals += 1
        self.revoke()
        return self._issue(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self._access.get(token)

    verify_token = load_access_token

    async def revoke_token(self, token: Any) -> None:
        raise NotImplementedError

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    def revoke(self) -> None:
        """Nothing that was given out counts any more."""
        self._access.clear()
        self._refresh.clear()

    def _issue(self, client: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        self._access[access] = AccessToken(token=access, client_id=client, scopes=scopes)
        self._refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )


@contextlib.contextmanager
def guarded(
    *, registration: bool = True, transport: str = "http", step_up: bool = False, repeating: bool = False
) -> Iterator[tuple[str, Authority]]:
    """The URL of the MCP server, and who says who may come in. With `step_up`, calls need one scope more.

    `repeating` adds a tool that answers with the token it was called with.
    """
    authority = Authority()
    issuer, resource = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    url = f"{resource}/{'mcp' if transport == 'http' else 'sse'}"
    options = ClientRegistrationOptions(enabled=registration, valid_scopes=[SCOPE, MORE])
    routes = create_auth_routes(authority, AnyHttpUrl(issuer), client_registration_options=options)
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(url),
        required_scopes=[SCOPE],
        validate_token_resource=False,
    )
    server = MCPServer("sums", log_level="CRITICAL", token_verifier=authority, auth=auth)

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    async def repeat_token() -> str:
        token = get_access_token()
        assert token is not None
        return token.token

    if repeating:
        server.add_tool(repeat_token)

    app: Any = server.streamable_http_app() if transport == "http" else server.sse_app()
    app = StepUp(app, authority) if step_up else app
    with web(Starlette(routes=routes), port_of(issuer)), web(app, port_of(resource)):
        yield url, authority


class StepUp:
    """Calls need `MORE`, which nobody is told before."""

    def __init__(self, app: Any, authority: Authority) -> None:
        self.app, self.authority = app, authority

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        first = await receive()
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        known = await self.authority.load_access_token(token)
        if known and MORE not in known.scopes and b'"tools/call"' in first.get("body", b""):
            challenge = f'Bearer error="insufficient_scope", scope="{MORE}"'.encode()
            await send({"type": "http.response.start", "status": 403, "headers": [(b"www-authenticate", challenge)]})
            await send({"type": "http.response.body", "body": b""})
            return
        waiting = [first]

        async def again() -> Any:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, again, send)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def browse(address: str) -> httpx2.Response:
    """What a browser does whose user says yes: it follows wherever it is sent."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return await browser.get(address)
