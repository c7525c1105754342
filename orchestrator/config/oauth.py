"""How a server at a URL is signed in to, in the words of several hosts."""

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.config.report import mapping


def _scopes(written: object) -> object:
    return written.split() if isinstance(written, str) else written


class OAuthSettings(BaseModel):
    """What a sign-in needs beyond what the server says by itself; most servers need nothing.

    `client_id` and `client_secret` are for a server that lets no client register itself, `callback_port` for one that
    knows the address to which the browser comes back (`http://localhost:PORT/callback`). `scopes` are asked for beside
    those that the server names. Keys of other hosts are left alone.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    client_id: str | None = Field(
        default=None, min_length=1, validation_alias=AliasChoices("client_id", "clientId", "CLIENT_ID")
    )
    client_secret: str | None = Field(
        default=None, repr=False, validation_alias=AliasChoices("client_secret", "clientSecret", "CLIENT_SECRET")
    )
    scopes: Annotated[tuple[str, ...], BeforeValidator(_scopes)] = ()
    callback_port: int | None = Field(
        default=None, gt=0, lt=65536, validation_alias=AliasChoices("callback_port", "callbackPort")
    )


def oauth_table(written: object) -> object:
    """What stands under `oauth`, as a table: `"oauth"` and true are one that is empty."""
    if written in ("oauth", True):
        return {}
    if written in ("none", "", False):
        return None
    if (table := mapping(written)) is not None:
        return {key: value for key, value in table.items() if value is not None}
    if isinstance(written, OAuthSettings | None):
        return written
    raise ValueError('must be true or a table like {"clientId": "…", "scopes": ["…"]}')


def sign_in_keys(written: object) -> dict[str, Any]:
    """What stands under other hosts' `auth`, under our keys: a way to sign in, or a token by itself."""
    if isinstance(written, str) and written not in ("oauth", "none", ""):
        return {"headers": {"Authorization": f"Bearer {written}"}}
    return {"oauth": written} if isinstance(written, str | dict) else {}
