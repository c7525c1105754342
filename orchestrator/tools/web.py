"""A server at a URL: how it is reached, and what its refusals mean.

The SDK tells neither the status of a refusal nor the page that came in place of an answer. So its HTTP client is one of
ours, which reads each refusal on its way and puts what a person can do about it into the error that the SDK hands on.
"""

import html
import json
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT, next_request_within_origin
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND

from orchestrator.config import ServerSettings
from orchestrator.config.report import mapping

LARGEST_EVENT = 64 * 1024 * 1024
"""Bytes of one event of a streamed HTTP reply; the SDK's own limit of 1 MiB would cost the connection."""

_WORDS = 200
"""Characters of what a server says that are told on."""

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


class Refused(Exception):
    """What is at the URL did not answer as a server; the message says why, and what to do."""


class SignInNeeded(Refused):
    """A sign-in that was used is not enough any more; it costs the call, not the connection."""


@asynccontextmanager
async def web_transport(
    where: ServerSettings, lost: Callable[[], None], auth: httpx2.Auth | None = None
) -> AsyncGenerator[Any]:
    """The streams of a server at a URL: over streamable HTTP or, where the configuration says so, the older SSE.

    `auth` signs each request. `lost` is called when an SSE server takes no more messages, which the SDK keeps to
    itself. Raises `Refused`, also inside a group of exceptions.
    """
    assert where.url is not None, "a server without a command has a URL"

    def make(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        timeout = timeout or httpx2.Timeout(MCP_DEFAULT_TIMEOUT, read=MCP_DEFAULT_SSE_READ_TIMEOUT)
        return _Client(where, lost, headers=headers, timeout=timeout, auth=auth)

    if where.transport == "sse":
        async with sse_client(where.url, dict(where.headers), httpx_client_factory=make, auth=auth) as streams:
            yield streams
    else:
        async with (
            make(dict(where.headers), auth=auth) as http,
            streamable_http_client(where.url, http_client=http, max_sse_event_size=LARGEST_EVENT) as streams,
        ):
            yield streams


class _Client(httpx2.AsyncClient):
    """Sends what the SDK's transports send, and explains what comes back instead of an answer."""

    def __init__(self, where: ServerSettings, lost: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._where = where
        self._lost = lost

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except httpx2.ConnectError as error:
            raise Refused(_unreachable(error)) from error
        except SignInNeeded as needed:
            return self._refuse(request, 401, str(needed))
        reason = await self._reason(response)
        if reason is None:
            return response
        return self._refuse(request, response.status_code, reason)

    def _refuse(self, request: httpx2.Request, status: int, reason: str) -> httpx2.Response:
        """The reason as the SDK hands it on: in an answer, where it reads that, or else as an exception."""
        if self._where.transport == "sse":
            if request.method == "POST":
                self._lost()
            raise Refused(reason)
        code = METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": reason}}
        return httpx2.Response(status if status >= 400 else 502, json=body, request=request)

    async def _reason(self, response: httpx2.Response) -> str | None:
        """Why this is no answer, and what to do; None when it is one, or an error that the SDK understands."""
        status, method = response.status_code, response.request.method
        if response.has_redirect_location:
            return None if next_request_within_origin(response) else self._advice(response, "")
        if status < 400:
            return await self._no_protocol(response) if status == 200 else None
        if method != "POST" and self._where.transport != "sse":
            return None  # what listens beside the calls, and what ends a session, may be refused
        body = await response.aread()
        error = _error_of(body)
        stale = status == 404 and "mcp-session-id" in response.request.headers
        if status not in (401, 403) and (error is not None or stale) and self._where.transport != "sse":
            return None
        return self._advice(response, _said(response, body))

    async def _no_protocol(self, response: httpx2.Response) -> str | None:
        if response.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/html":
            return None
        said = _said(response, await response.aread())
        return f"{shown(response.request.url)} answers with a web page{said} and not with MCP. {_CHECK_URL}"

    def _advice(self, response: httpx2.Response, said: str) -> str:
        status, name = response.status_code, self._where.name
        place = f"{self._where.file}:{self._where.line}" if self._where.file else "the configuration"
        sign_in = f"`orchestrator login {name}`"
        given = any(header.lower() == "authorization" for header in self._where.headers)
        match status:
            case 401 if given:
                todo = f"the `Authorization` in {place} is not accepted. Put a valid one there."
            case 401 if self.auth is not None:
                todo = f"the sign-in is not accepted any more. Sign in again: {sign_in}."
            case 401:
                header = '"headers": {"Authorization": "Bearer ${TOKEN}"}'
                todo = f"it needs a key or a sign-in. Put {header} into its entry in {place}, or run {sign_in}."
            case 403:
                scope = extract_scope_from_www_auth(response)
                lacks = f"what was given lacks the scope `{_plain(scope)}`" if scope else "what was given is not enough"
                todo = f"{lacks}. {'Use another token.' if given else f'Sign in with more: {sign_in}.'}"
            case 404:
                todo = "there is nothing at this path. Most servers are at `/mcp`, older ones at `/sse`."
            case 405:
                todo = 'it takes no messages here. An older server needs `"type": "sse"`, and often the path `/sse`.'
            case 407:
                todo = "the proxy wants a name and a password. Put them into HTTPS_PROXY."
            case _ if response.has_redirect_location and response.next_request is not None:
                target = shown(response.next_request.url)
                todo = f"it sends on to {target}, which is not followed. {_CHECK_URL}"
            case _ if status >= 500:
                todo = "the server has trouble of its own."
            case _:
                todo = _CHECK_URL
        return f"HTTP {status} from {shown(response.request.url)}{said}: {todo}"


_CHECK_URL = "Is it the right URL, and is there a proxy or a sign-in page before it?"


def _unreachable(error: httpx2.ConnectError) -> str:
    """Nobody there, or nobody who can be trusted. It may have been the server at which a token is renewed."""
    url = shown(error.request.url)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = "Where your organisation has certificates of its own, name their file in SSL_CERT_FILE."
        return f"the certificate of {url} is not trusted: {cause.verify_message}. {hint}"
    if cause is not None:
        return f"{url} does not speak TLS as it should: {cause}. Is it `http://`?"
    return f"cannot connect to {url}: {error}"


def shown(url: httpx2.URL) -> str:
    """A URL without what may be secret in it."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _plain(text: str) -> str:
    """Text of a server on one line, within a bound."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return words if len(words) <= _WORDS else f"{words[:_WORDS]}…"


def _said(response: httpx2.Response, body: bytes) -> str:
    """The server's own words about its refusal: from the header, from JSON, from a page's title, or as they are."""
    text = body.decode("utf-8", "replace")
    words = extract_field_from_www_auth(response, "error_description") or ""
    error = _error_of(body, rpc=False)
    if not words and error is not None:
        found = (error.get(key) for key in ("error_description", "message", "detail", "title", "error"))
        words = next((each for each in found if isinstance(each, str)), "")
    elif not words and (title := _TITLE.search(text)):
        words = html.unescape(title[1])
    elif not words and response.headers.get("content-type", "").startswith("text/plain"):
        words = text
    return f' ("{_plain(words)}")' if words.strip() else ""


def _error_of(body: bytes, *, rpc: bool = True) -> Mapping[str, Any] | None:
    """The error in a body of JSON; with `rpc` only one of JSON-RPC."""
    try:
        value = mapping(json.loads(body))
    except ValueError:
        return None
    inner = mapping((value or {}).get("error"))
    return inner if inner is not None or rpc else value
