"""Models behind an OpenAI-compatible server, over HTTP.

It speaks to httpx2's transports, not to its client: requests are bytes already and need no cookies, redirects or
authentication flow, which is a third of the time of a request. Imported only when such a model is used.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2

from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.messages import Prices
from orchestrator.models.base import ModelOptions, ModelPart, ModelRequest, TextDelta
from orchestrator.models.chat import OPENAI_URL, OPTIONAL, ChatCodec
from orchestrator.models.failures import error_object, kind_of, refused_parameter, retry_after
from orchestrator.models.flavours import flavour_of
from orchestrator.models.lenient import as_list, as_object, parse
from orchestrator.models.reply import ReplyReader

# Seconds. `read` is between two chunks: reasoning models are silent for long. Limits of the whole are the caller's.
TIMEOUTS = {"connect": 10.0, "read": 120.0, "write": 30.0, "pool": None}
COMPLETIONS = "/chat/completions"
KEEPALIVE = 60.0  # seconds; a connection should outlive the tool calls between two turns
LANE = 4  # requests at once over one pool: httpx2 looks at all connections of a pool twice a request
PATIENCE = 0.5  # seconds for a server to close a stream that it has called done


class OpenAIModel:
    """A `Model` on a server that speaks chat completions. `key_name` says where its key is set, for messages."""

    def __init__(
        self, name: str, *, options: ModelOptions, provider: str = "openai", key_name: str = "OPENAI_API_KEY"
    ) -> None:
        self._name = name
        self._provider = provider
        self._prices = options.prices
        self._vision = options.vision
        flavour = flavour_of(name, options.base_url or OPENAI_URL)
        self._codec = ChatCodec(name, temperature=options.temperature, flavour=flavour)
        self._key_name = key_name
        self._url = _url(options.base_url or OPENAI_URL)
        self._secrets = [value for value in (options.api_key, *options.headers.values()) if value and len(value) > 5]
        self._headers = _headers(self._url, options, key_name)
        self._lanes = _Lanes(self._url)

    def __repr__(self) -> str:
        return f"OpenAIModel({self._name!r}, url={str(self._url)!r})"

    @property
    def name(self) -> str:
        return self._name

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def prices(self) -> Prices | None:
        return self._prices()

    @property
    def vision(self) -> bool:
        return self._vision

    @property
    def codec(self) -> ChatCodec:
        return self._codec

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yields text as it comes, then one `ModelReply`. Close it (`aclosing`) to leave early.

        Raises:
            ModelError: the request failed; nothing more is yielded.
        """
        reader = ReplyReader()
        with self._lanes.one() as transport:
            response = await self._open(transport, request.body)
            try:
                async with aclosing(_chunks(response, reader)) as chunks:
                    async for chunk in chunks:
                        if text := reader.feed(chunk):
                            yield TextDelta(text=text)
                        for call in reader.ready():
                            yield call
                if text := reader.close():
                    yield TextDelta(text=text)
                reply = reader.reply()
            except ModelError as error:
                raise ModelError(error.kind, self._said(str(error))) from None
            finally:
                await response.aclose()
        yield reply

    async def aclose(self) -> None:
        await self._lanes.aclose()

    @property
    def address(self) -> str:
        """Where requests go, without a query."""
        return str(self._url.copy_with(query=None))

    @property
    def key(self) -> tuple[str, bool]:
        return self._key_name, any(name.lower() == b"authorization" for name, _ in self._headers)

    async def listed(self) -> Sequence[str]:
        """The names of the models that the server has; empty where it keeps no list. Spends no token.

        Raises:
            ModelError: the server cannot be reached, or does not take the key.
        """
        url = self._url.copy_with(path=self._url.path.removesuffix(COMPLETIONS) + "/models")
        request = httpx2.Request("GET", url, headers=self._headers, extensions={"timeout": TIMEOUTS})
        try:
            with self._lanes.one() as transport:
                response = await transport.handle_async_request(request)
                raw = await _read(response)
        except httpx2.TransportError as error:
            raise ModelError("connection", self._said(f"no answer: {_named(error)}. {self._hint}")) from error
        if response.status_code in (404, 405):
            return ()
        if response.status_code >= 300:
            raise self._refusal(response, error_object(raw))
        return [str(as_object(each).get("id", "")) for each in as_list(as_object(parse(raw)).get("data"))]

    async def _open(self, transport: httpx2.AsyncHTTPTransport, body: bytes) -> httpx2.Response:
        """Sends the request until no parameter of it is refused; returns a response that is good so far."""
        while True:
            try:
                response = await transport.handle_async_request(self._request(body))
                if response.status_code < 300:
                    return response
                raw = await _read(response)
            except httpx2.TransportError as error:
                raise ModelError("connection", self._said(f"no answer: {_named(error)}. {self._hint}")) from error
            error = error_object(raw)
            parameter = None
            if response.status_code in (400, 422) and kind_of(400, error["message"], error) == "bad_request":
                sent = [name for name in OPTIONAL if name in as_object(parse(body))]
                parameter = refused_parameter(error, raw, sent)
            if parameter is None:
                raise self._refusal(response, error)
            body = self._codec.refuse(parameter, body)

    def _request(self, body: bytes) -> httpx2.Request:
        headers = [*self._headers, (b"Content-Length", b"%d" % len(body))]
        stream = httpx2.ByteStream(body)
        return httpx2.Request("POST", self._url, headers=headers, stream=stream, extensions={"timeout": TIMEOUTS})

    def _refusal(self, response: httpx2.Response, error: dict[str, Any]) -> ModelError:
        status, said = response.status_code, error["message"]
        kind = kind_of(status, said, error)
        if status < 400:
            said = f"it redirects to {response.headers.get('location', 'nowhere')!r}; set base_url to where the API is"
        if kind == "authentication":
            said = f"{said} (the key is read from {self._key_name})"
        if kind == "not_found":
            said = f"{said} (is the model's name right, and does base_url end where the API begins, often in /v1?)"
        message = self._said(f"HTTP {status}: {said}")
        return ModelError(kind, message, status=status, retry_after=retry_after(response.headers))

    def _said(self, message: str) -> str:
        """The message with its place, and without any secret that a server repeated."""
        for secret in self._secrets:
            message = message.replace(secret, "***")
        return f"model {self._name!r} at {self._url.copy_with(query=None)}: {message}"

    @property
    def _hint(self) -> str:
        if self._provider == "ollama":
            return "Is Ollama running (`ollama serve`)?"
        return "Is the server running, and is base_url right?"


def _url(base: str) -> httpx2.URL:
    """Where requests go; a query (Azure's `api-version`) stays."""
    try:
        url = httpx2.URL(base)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"base_url {base!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"base_url {base!r} must begin with http:// or https:// and name a host")
    if url.userinfo:
        raise ConfigurationError(f"base_url of {url.host!r} holds a password; put it into `headers` or `api_key_env`")
    return url.copy_with(path=url.path.rstrip("/") + COMPLETIONS)


def _headers(url: httpx2.URL, options: ModelOptions, key_name: str) -> list[tuple[bytes, bytes]]:
    headers = {"Host": url.netloc.decode(), "Content-Type": "application/json"}
    headers |= {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
    if key := (options.api_key or "").strip():
        headers["Authorization"] = f"Bearer {key}"
    given = {name.title(): value for name, value in options.headers.items()}
    for name, value in (headers | given).items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            source = key_name if name == "Authorization" and name not in given else f"header {name!r}"
            raise ConfigurationError(f"{source} holds characters that an HTTP header cannot carry")
    return [(name.encode(), value.encode()) for name, value in (headers | given).items()]


async def _chunks(response: httpx2.Response, reader: ReplyReader) -> AsyncGenerator[bytes, None]:
    """The body as it comes, to its end. How it ends does not matter once the reply is complete."""
    body = _body(response)
    try:
        async for chunk in body:
            yield chunk
            if reader.done:
                with anyio.move_on_after(PATIENCE):
                    async for _ in body:
                        pass
                return
    except httpx2.TransportError as error:
        if not reader.complete:
            raise ModelError("broken_stream", f"the reply broke off: {_named(error)}") from error
    finally:
        if isinstance(body, AsyncGenerator):
            await body.aclose()


def _body(response: httpx2.Response) -> AsyncIterator[bytes]:
    if "content-encoding" in response.headers:
        return response.aiter_bytes()
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    return aiter(response.stream)


async def _read(response: httpx2.Response) -> bytes:
    try:
        return await response.aread()
    finally:
        await response.aclose()


def _named(error: httpx2.TransportError) -> str:
    return f"{type(error).__name__} {error}".strip()


@dataclass(slots=True, eq=False)
class _Lane:
    transport: httpx2.AsyncHTTPTransport
    busy: int = 0


class _Lanes:
    """Several pools of few connections each, since the time of a request grows with the connections of its pool."""

    def __init__(self, url: httpx2.URL) -> None:
        self._url = url
        self._lanes: list[_Lane] = []

    @contextmanager
    def one(self) -> Generator[httpx2.AsyncHTTPTransport]:
        """The first that has room: connections that are open already are used before new ones."""
        lane = next((lane for lane in self._lanes if lane.busy < LANE), None)
        if lane is None:
            lane = _Lane(self._transport())
            self._lanes.append(lane)
        lane.busy += 1
        try:
            yield lane.transport
        finally:
            lane.busy -= 1

    async def aclose(self) -> None:
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            await lane.transport.aclose()

    def _transport(self) -> httpx2.AsyncHTTPTransport:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=LANE, keepalive_expiry=KEEPALIVE)
        return httpx2.AsyncHTTPTransport(verify=self._tls, limits=limits, proxy=self._proxy)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """One for all: reading the certificates takes 50 to 200 ms, so plain HTTP goes without them."""
        plain = self._url.scheme == "http" and self._proxy is None
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx2.create_ssl_context()

    @cached_property
    def _proxy(self) -> str | None:
        """The environment's proxy for this server (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`); never for loopback."""
        host = self._url.host
        proxies = getproxies()
        found = proxies.get(self._url.scheme) or proxies.get("all")
        if not found or host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
            return None
        return found if "://" in found else f"http://{found}"
