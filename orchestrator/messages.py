"""What a model reads and writes, in no vendor's words, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, Literal

Mode = Literal["tools", "json", "react"]
"""How a model acts: by the wire's tool calls, by JSON that a schema fixes, by text."""

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as the model wrote it.

    `id` is ours (`t5.1`: turn, position), unique in a run. `arguments` is the model's own text, which may be broken
    JSON. `wire_id` is the vendor's id: empty when it gave none, None for a call that stood in the reply's text.
    """

    id: str
    name: str
    arguments: str
    wire_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture by its hash in the journal. `data` is there when it is encoded, and empty in a transcript."""

    id: str
    mime_type: str
    body: str
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A model's reply. `extra` holds fields of the vendor's that must be sent back to it (reasoning, signatures)."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The observation that answers one call."""

    call: ToolCall
    text: str
    is_error: bool = False


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and calls. `input_tokens` includes those read from a cache and written to one, `output_tokens` the
    reasoning ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
        )

    def beyond(self, earlier: "Usage") -> "Usage":
        """What came on top of an earlier count of the same; nothing where this one is smaller."""
        return Usage(
            **{each.name: max(0, getattr(self, each.name) - getattr(earlier, each.name)) for each in fields(self)}
        )

    @property
    def tokens(self) -> int:
        """What `--max-tokens` counts: input (cached included) and output."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """US dollars. `known` is false as soon as one part had no known price; the amount is then a lower bound."""

    amount: Decimal = Decimal(0)
    known: bool = True

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(amount=self.amount + other.amount, known=self.known and other.known)

    def beyond(self, earlier: "Cost") -> "Cost":
        """What came on top of an earlier count of the same."""
        return Cost(amount=max(Decimal(0), self.amount - earlier.amount), known=self.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million tokens; None where a kind of token costs as much as other input, or other output.

    `above`: where a vendor charges more for long contexts, the prices of a request whose input has more tokens than
    that, for all of it.
    """

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    above: tuple[tuple[int, "Prices"], ...] = ()

    def cost(self, usage: Usage) -> Cost:
        """The price of one request."""
        prices = self._at(usage.input_tokens)
        written = usage.output_tokens - usage.reasoning_tokens
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        parts = (
            (fresh, prices.input),
            (usage.cached_tokens, _either(prices.cached, prices.input)),
            (usage.cache_write_tokens, _either(prices.cache_write, prices.input)),
            (written, prices.output),
            (usage.reasoning_tokens, _either(prices.reasoning, prices.output)),
        )
        return Cost(amount=sum((max(0, tokens) * price for tokens, price in parts), Decimal(0)) / 1_000_000)

    def worst(self, input_tokens: int, output_tokens: int) -> Decimal:
        """The most that a request of this size may cost: nothing was cached, and all of it is kept for the next."""
        prices = self._at(input_tokens)
        given = max(prices.input, _either(prices.cache_write, prices.input))
        written = max(prices.output, _either(prices.reasoning, prices.output))
        return (input_tokens * given + output_tokens * written) / 1_000_000

    def _at(self, input_tokens: int) -> "Prices":
        return next((prices for start, prices in reversed(self.above) if input_tokens > start), self)


def _either(price: Decimal | None, other: Decimal) -> Decimal:
    return other if price is None else price
