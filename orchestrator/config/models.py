"""What may stand in a `[models.NAME]` table."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from orchestrator.config.table import Table
from orchestrator.messages import Mode


class ModelPrices(Table):
    """US dollars for a million tokens."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    cache_write: Decimal | None = Field(default=None, ge=0)
    reasoning: Decimal | None = Field(default=None, ge=0)


class ModelSettings(Table):
    """A `[models.X]` table. `model` is the vendor's name of it (default: X); `provider` is the name in spans.

    A provider other than `openai`, `anthropic` and `ollama` needs `base_url`. `api` is the wire: Anthropic's for the
    provider `anthropic`, else OpenAI's. The key is read from the variable `api_key_env`; the keys of OpenAI and
    Anthropic are never sent to another host unasked. `parameters` are sent with every request, as they are.
    `vision`: images of tools are sent to it. `mode` is how it acts; unset, it acts by tool calls until its server says
    that it has none. A `weak` model acts by JSON, and what it calls with must come from what it was told. `fallback`
    are specs of models to go on with when this one fails for good.
    """

    provider: str = Field(default="openai", min_length=1)
    model: str | None = Field(default=None, min_length=1)
    api: Literal["openai", "anthropic"] | None = None
    base_url: str | None = Field(default=None, min_length=1)
    api_key_env: str | None = Field(default=None, min_length=1)
    temperature: float | None = Field(default=0.2, ge=0, le=2)
    prices: ModelPrices | None = None
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    parallel: int | None = Field(default=None, ge=1)
    vision: bool = False
    mode: Mode | None = None
    weak: bool = False
    fallback: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    parameters: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)

    @property
    def wire(self) -> str:
        """Whose API its server speaks."""
        return "anthropic" if (self.api or self.provider) == "anthropic" else "openai"

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if self.weak and self.mode == "tools":
            raise ValueError('`weak = true` goes with mode "json" or "react", not with "tools"')
        if self.wire == "anthropic" and (self.weak or self.mode in ("json", "react")):
            raise ValueError("`mode` and `weak` are for servers that speak OpenAI's API")
        return self
