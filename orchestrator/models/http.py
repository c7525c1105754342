"""Models behind a server, over HTTP: OpenAI-compatible ones, and Anthropic's.

It speaks to httpx2's transports, not to its client: requests are bytes already and need no cookies, redirects or
authentication flow, which is a third of the time of a request. Imported only when such a model is used.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit
from zlib import compress

import anyio
import httpx2

from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.masking import SECRET
from orchestrator.messages import Prices, Usage
from orchestrator.models.acting import ActingCodec
from orchestrator.models.anthropic import ANTHROPIC_URL, AnthropicCodec
from orchestrator.models.anthropic_reply import AnthropicReply
from orchestrator.models.base import Codec, ModelOptions, ModelPart, ModelRequest
from orchestrator.models.chat import OPENAI_URL
from orchestrator.models.failures import (
    error_object,
    kind_of,
    refused_parameter,
    retry_after,
    takes_no_schemas,
    takes_no_tools,
)
from orchestrator.models.flavours import flavour_of
from orchestrator.models.lanes import Lanes
from orchestrator.models.learned import CUTS, NO_SCHEMAS, NO_TOOLS, NO_USAGE, learned_at
from orchestrator.models.lenient import as_list, as_object, parse
from orchestrator.models.reply import Assembly, ChatReply, ReplyReader
from orchestrator.models.speech import Speech
from orchestrator.models.wire import MADE_BY

# Seconds. `read` is between two chunks: reasoning models are silent for long. Limits of the whole are the caller's.
TIMEOUTS = {"connect": 10.0, "read": 120.0, "write": 30.0, "pool": None}
PATIENCE = 0.5  # seconds for a server to close a stream that it has called done


class WireCodec(Codec, Protocol):
    """A codec that knows what of its requests a server may refuse."""

    origin: str

    def sent(self, body: bytes) -> list[str]: ...

    def refuse(self, parameter: str, body: bytes) -> bytes: ...

    def speech(self) -> Speech: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What sets one vendor's API apart from another's, beside its messages. `key` is a header and what precedes it."""

    path: str
    models: str
    reply: Callable[[], Assembly]
    key: tuple[str, str]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


CHAT = Api(path="/chat/completions", models="/models", reply=ChatReply, key=("Authorization", "Bearer "))
MESSAGES = Api(
    path="/v1/messages",
    models="/v1/models?limit=1000",
    reply=AnthropicReply,
    key=("X-Api-Key", ""),
    headers={"Anthropic-Version": "2023-06-01"},
)


class HttpModel:
    """A `Model` on a server. `key_name` says where its key is set, for messages."""

    def __init__(
        self, name: str, codec: WireCodec, *, api: Api, options: ModelOptions, provider: str, key_name: str
    ) -> None:
        self._name = name
        self._provider = provider
        self._prices = options.prices
        self.window = options.window
        self._vision = options.vision
        self._codec = codec
        self._api = api
        self._key_name = key_name
        self._base = _base(options.base_url or "")
        self._url = self._at(api.path)
        self._learned = learned_at(str(options.base_url), name)
        self._secrets = [value for value in (options.api_key, *options.headers.values()) if value and len(value) > 5]
        self._headers = _headers(self._url, api, options, key_name)
        self._lanes = Lanes(self._url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, url={str(self._url)!r})"

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
    def codec(self) -> WireCodec:
        return self._codec

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        """Yields text as it comes, then one `ModelReply`. Close it (`aclosing`) to leave early.

        Raises:
            ModelError: the request failed; nothing more is yielded.
        """
        reader = ReplyReader(self._api.reply())
        with self._lanes.one() as transport:
            response = await self._open(transport, request)
            speech = self._codec.speech()
            try:
                async with aclosing(_chunks(response, reader)) as chunks:
                    async for chunk in chunks:
                        for part in (*speech.feed(reader.feed(chunk)), *reader.ready()):
                            yield part
                for part in speech.feed(reader.close()):
                    yield part
                reply = speech.close(reader.reply())
            except ModelError as error:
                raise ModelError(error.kind, self._said(str(error))) from None
            finally:
                await response.aclose()
        self._look_at(reply.usage, request.body.partition(b',"response_format":')[0])  # a schema is no part of a prompt
        if speech.ignored:
            self._learned.facts.add(NO_SCHEMAS)
        if extra := reply.message.extra:
            extra = {MADE_BY: self._codec.origin, **extra}
            reply = replace(reply, message=replace(reply.message, extra=extra))
        yield reply

    async def aclose(self) -> None:
        await self._lanes.aclose()

    @property
    def address(self) -> str:
        """Where requests go, without a query."""
        return str(self._url.copy_with(query=None))

    @property
    def key(self) -> tuple[str, bool]:
        carries = {self._api.key[0].lower().encode(), b"authorization"}
        return self._key_name, any(name.lower() in carries for name, _ in self._headers)

    @property
    def learned(self) -> Sequence[str]:
        return self._learned.told()

    async def listed(self) -> Sequence[str]:
        """The names of the models that the server has; empty where it keeps no list. Spends no token.

        Raises:
            ModelError: the server cannot be reached, or does not take the key.
        """
        path, _, query = self._api.models.partition("?")
        url = self._at(path).copy_merge_params(dict(parse_qsl(query)))
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

    async def _open(self, transport: httpx2.AsyncHTTPTransport, request: ModelRequest) -> httpx2.Response:
        """Sends the request until no parameter of it is refused; returns a response that is good so far."""
        body = request.body
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
                if fact := self._unknown_way(raw, body):
                    self._learned.facts.add(fact)
                    if (other := self._again(request)) != body:  # a model that can act in another way does
                        body = other
                        continue
                parameter = refused_parameter(error, raw, self._codec.sent(body))
            if parameter is None:
                raise self._refusal(response, error)
            body = self._codec.refuse(parameter, body)

    def _unknown_way(self, raw: bytes, body: bytes) -> str | None:
        """What this refusal says that the model cannot act by: tools, or JSON after a schema."""
        said, fields = raw.decode("utf-8", "replace"), as_object(parse(body))
        if "tools" in fields and takes_no_tools(said):
            return NO_TOOLS
        return NO_SCHEMAS if "response_format" in fields and takes_no_schemas(said) else None

    def _again(self, request: ModelRequest) -> bytes:
        """The request's body by what is known of the endpoint now."""
        codec = self._codec
        messages = [codec.message(message) for message in request.messages]
        return codec.body(messages, codec.tools(request.tools), request.max_output_tokens, request.shut)

    def _at(self, path: str) -> httpx2.URL:
        """An address of the API; a query of the base (Azure's `api-version`) stays."""
        return self._base.copy_with(path=self._base.path.rstrip("/") + path)

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

    def _look_at(self, usage: Usage | None, body: bytes) -> None:
        """What the counts of a reply say about the endpoint.

        Raises:
            ModelError: it has cut off the beginning of the prompt, instructions and tools first, without saying so.
        """
        if usage is None:
            self._learned.facts.add(NO_USAGE)
        elif was_cut(body, usage.input_tokens):
            self._learned.facts.add(CUTS)
            said = f"the server counted {usage.input_tokens:,} tokens of a request of {len(body):,} bytes: it has cut "
            said += "off the beginning of the prompt. Raise its context length"
            said += " (OLLAMA_CONTEXT_LENGTH)." if self._provider == "ollama" else "."
            raise ModelError("context_overflow", self._said(said))

    def _said(self, message: str) -> str:
        """The message with its place, and without any secret that a server repeated."""
        for secret in self._secrets:
            message = message.replace(secret, SECRET)
        return f"model {self._name!r} at {self._url.copy_with(query=None)}: {message}"

    @property
    def _hint(self) -> str:
        if self._provider == "ollama":
            return "Is Ollama running (`ollama serve`)?"
        return "Is the server running, and is base_url right?"


class OpenAIModel(HttpModel):
    """A model on a server that speaks chat completions."""

    def __init__(
        self, name: str, *, options: ModelOptions, provider: str = "openai", key_name: str = "OPENAI_API_KEY"
    ) -> None:
        options = replace(options, base_url=options.base_url or OPENAI_URL)
        codec = ActingCodec(
            name,
            mode=options.mode,
            weak=options.weak,
            temperature=options.temperature,
            flavour=flavour_of(name, str(options.base_url)),
            origin=_origin(name, options),
            parameters=options.parameters,
            learned=learned_at(str(options.base_url), name),
        )
        super().__init__(name, codec, api=CHAT, options=options, provider=provider, key_name=key_name)


class AnthropicModel(HttpModel):
    """A model on a server that speaks Anthropic's Messages API. A `/v1` at the end of its address may be left out."""

    def __init__(
        self, name: str, *, options: ModelOptions, provider: str = "anthropic", key_name: str = "ANTHROPIC_API_KEY"
    ) -> None:
        base = (options.base_url or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")
        options = replace(options, base_url=base)
        codec = AnthropicCodec(
            name,
            temperature=options.temperature,
            origin=_origin(name, options),
            parameters=options.parameters,
            learned=learned_at(base, name),
        )
        super().__init__(name, codec, api=MESSAGES, options=options, provider=provider, key_name=key_name)


def _origin(name: str, options: ModelOptions) -> str:
    """Whose the extras of a reply are: a model's, at a host."""
    return f"{urlsplit(options.base_url or '').hostname}/{name}"


def was_cut(body: bytes, input_tokens: int) -> bool:
    """Whether so few tokens cannot be the whole of a request: ordinary text has three to five bytes a token.

    Packed size is what tells text from runs of blanks, which take few tokens. Small counts are left alone: some servers
    report only what was not cached.
    """
    return 1024 <= input_tokens < len(body) / 8 and input_tokens < len(compress(body, 1)) / 4


def _base(base: str) -> httpx2.URL:
    """Where the API begins."""
    try:
        url = httpx2.URL(base)
    except httpx2.InvalidURL as error:
        raise ConfigurationError(f"base_url {base!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"base_url {base!r} must begin with http:// or https:// and name a host")
    if url.userinfo:
        raise ConfigurationError(f"base_url of {url.host!r} holds a password; put it into `headers` or `api_key_env`")
    return url


def _headers(url: httpx2.URL, api: Api, options: ModelOptions, key_name: str) -> list[tuple[bytes, bytes]]:
    headers = {"Host": url.netloc.decode(), "Content-Type": "application/json", **api.headers}
    headers |= {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
    carrier, before = api.key
    if key := (options.api_key or "").strip():
        headers[carrier] = before + key
    given = {name.title(): value for name, value in options.headers.items()}
    for name, value in (headers | given).items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            source = key_name if name == carrier and name not in given else f"header {name!r}"
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
