"""Who may call what `serve` offers: tokens, an issuer of tokens, and how much each caller may send."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from orchestrator.config.table import Table
from orchestrator.events import Limits


class GuestLimits(Limits):
    """What each run of a caller may use: tokens, US dollars, seconds, model calls, steps."""

    model_config = ConfigDict(hide_input_in_errors=True)

    steps: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    model_calls: int | None = Field(default=None, gt=0)


class TokenSettings(Table):
    """`[serve.tokens.NAME]`: who holds the token is called NAME.

    The token is known by its `sha256`, or stands in the variable `env` of the environment. `agents` are globs over
    agents' names; `limits` hold for each run; `runs` is how many may be under way at once.
    """

    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    env: str | None = Field(default=None, min_length=1)
    role: str | None = None
    agents: tuple[str, ...] = ("*",)
    limits: GuestLimits = GuestLimits()
    runs: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.sha256 is None) == (self.env is None):
            raise ValueError("needs `sha256` (made by `orchestrator serve --new-token NAME`) or `env`, one of them")
        return self


class IssuerSettings(Table):
    """`[serve.oauth]`: tokens of an authorization server, made for this `resource` (our address as clients know it).

    `roles` says which scope gives which role; the first scope of that table that a token has counts. A token without
    `scopes` is refused. `agents`, `limits` and `runs` hold for each of its holders, as those of a token do.
    """

    issuer: Annotated[str, Field(pattern=r"^https?://")]
    resource: Annotated[str, Field(pattern=r"^https?://")]
    scopes: tuple[str, ...] = ()
    roles: Mapping[str, str] = Field(default_factory=dict[str, str])
    agents: tuple[str, ...] = ("*",)
    limits: GuestLimits = GuestLimits()
    runs: int | None = Field(default=None, gt=0)


class TrafficSettings(Table):
    """`[serve.traffic]`: what one caller may send, and how long one may be waited for.

    `per_minute` requests, and `at_once` of them open, of one caller; `body` bytes of one request, which must be there
    within `body_within` seconds. A connection is closed whose client takes nothing of what waits for it within
    `read_within` seconds. `hosts` and `origins` are names and pages by which this server may be called, beside
    those of this machine.
    """

    per_minute: int = Field(default=1200, gt=0)
    at_once: int = Field(default=256, gt=0)
    body: int = Field(default=4 * 1024 * 1024, gt=0)
    body_within: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    read_within: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
