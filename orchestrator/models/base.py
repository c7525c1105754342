"""The seam between the loop and any model.

Above it, the loop knows messages and tools; below it, a vendor's wire format and a transport. A `Codec` turns messages
into bytes once each; a `Model` sends those bytes and yields what comes back. The loop never names a vendor.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from orchestrator.messages import AssistantMessage, FinishReason, Message, Mode, Prices, Usage

FIND_TOOLS = "find_tools"
"""Where a request offers this tool, it lists only some of those that may be called."""


FINAL = "final"
"""What an answer is called among the tools of a request that lead nowhere now: then only a call does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class ToolSpec:
    """A tool as models are shown it. `parameters` is a JSON Schema that stands by itself, with an object at its top.

    Compared by identity, so that a codec can keep its wire form for as long as it lives.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request, complete. `body` is what goes over the wire; the rest is for models that are not servers.

    `attempt` counts from 1 within a turn. `body` depends on the run's state and on what the endpoint refused before.
    `shut` are tools that lead nowhere now. `summary`: the turn's own request is another; this one is for the notes that
    stand in the place of turns that leave the window.
    """

    agent: str
    turn: int
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    max_output_tokens: int
    body: bytes
    attempt: int = 1
    shut: Collection[str] = ()
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReady:
    """A call is complete though the reply is not. It comes again in the reply, at the same position (from 1)."""

    position: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole reply; always the last part of a stream.

    The calls of `message` have ids by position (`1`, `2`, ...); the loop gives them their names in the run.
    `usage` is None when the server reported none. `final` says that the model is done, whether it wrote an answer or
    left that for a request of its own.
    """

    message: AssistantMessage
    finish: FinishReason
    usage: Usage | None
    final: bool = False
    model: str = ""
    response_id: str = ""


ModelPart = TextDelta | CallReady | ModelReply


class Codec(Protocol):
    """How messages become a request. All methods are pure."""

    def message(self, message: Message) -> bytes:
        """The wire form of one message, encoded once in its life."""
        ...

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        """The wire form of the tool list; empty for no tools."""
        ...

    def closed(self, tools: bytes) -> bytes:
        """What stands in place of an encoded tool list where no tool may be called; empty to leave the list out."""
        ...

    def body(
        self, messages: Sequence[bytes], tools: bytes, max_output_tokens: int, shut: Collection[str] = ()
    ) -> bytes:
        """The request's body from parts that are encoded already.

        `shut` are tools that lead nowhere now, for a wire that can leave them out without losing its cache.
        """
        ...

    @property
    def most_tools(self) -> int | None:
        """More tools than this are shown in groups; None leaves that to the configuration."""
        ...

    @property
    def weak(self) -> bool:
        """Whether the model is an unreliable caller, whose calls must come from what it was told."""
        ...


class Model(Protocol):
    """Anything that answers. One instance serves any number of runs at once.

    One that may know its window has `window` besides: tokens of input and output together, or None.
    """

    @property
    def name(self) -> str:
        """The model's name as the vendor knows it, for spans and prices."""
        ...

    @property
    def provider(self) -> str:
        """The vendor, in OpenTelemetry's spelling (`openai`, `anthropic`, ...)."""
        ...

    @property
    def prices(self) -> Prices | None:
        """As they are now; None where they are not known."""
        ...

    @property
    def vision(self) -> bool:
        """Whether images are sent to it."""
        ...

    @property
    def codec(self) -> Codec: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        """Yields text and complete calls as they come, then exactly one `ModelReply`.

        Raises:
            ModelError: the request failed; nothing more is yielded.
        """
        ...

    async def aclose(self) -> None:
        """Releases connections."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A model whose server can be asked whether it is there without a token being spent."""

    @property
    def address(self) -> str: ...

    @property
    def key(self) -> tuple[str, bool]:
        """Where its key is read from, and whether there is one."""
        ...

    @property
    def learned(self) -> Sequence[str]:
        """What the process has found out about the endpoint so far, for people."""
        ...

    async def listed(self) -> Sequence[str]:
        """The names of the models it has, empty where it keeps no list.

        Raises:
            ModelError: the server cannot be reached, or does not take the key.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What a configuration says about a model. Rate limits come with the models that need them.

    `mode` is how it acts at first; its server may turn out not to know that.
    `prices` says them as they are when it is called; None where they are not known. `window`: its tokens, likewise.
    `parameters` are sent with every request, as they are.
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float | None = 0.2
    prices: Callable[[], Prices | None] = lambda: None
    window: int | None = None
    vision: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    mode: Mode = "tools"
    weak: bool = False
