"""Sign-ins to servers by OAuth, as later runs use them.

A run never opens a browser: it uses what `login.py` has left, renews it, and says so when that is not enough.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
from anyio.to_thread import run_sync
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from orchestrator.config import ServerSettings
from orchestrator.masking import mask
from orchestrator.tools.vault import Vault
from orchestrator.tools.web import SignInNeeded, shown

logger = logging.getLogger(__name__)


class SignIn(BaseModel):
    """One sign-in. `expires_at` is in seconds since the epoch; `wanted` are scopes that calls have asked for since."""

    tokens: OAuthToken
    client: OAuthClientInformationFull
    expires_at: float | None = None
    wanted: str = ""
    issuer: str | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None


async def load(vault: Vault) -> SignIn | None:
    """What is kept, read in a thread: a keyring may ask a person to unlock it."""
    text = await run_sync(vault.load, abandon_on_cancel=True)
    if text is None:
        return None
    try:
        return _hidden(SignIn.model_validate_json(text))
    except ValidationError:
        logger.warning("the sign-in to %s is damaged: sign in again", shown(httpx2.URL(vault.url)))
        return None


async def save(vault: Vault, sign_in: SignIn) -> None:
    await run_sync(vault.save, _hidden(sign_in).model_dump_json(exclude_none=True))


def _hidden(sign_in: SignIn) -> SignIn:
    """Its secrets are masked in this process from now on: a server may repeat what it was sent."""
    found = (sign_in.tokens.access_token, sign_in.tokens.refresh_token, sign_in.client.client_secret)
    mask.extend(secrets=filter(None, found))
    return sign_in


class Storage:
    """What the SDK reads and writes during a sign-in, its `TokenStorage`.

    `fresh` knows of no sign-in before this one; `client` is then one that was registered by hand.
    """

    def __init__(self, vault: Vault, *, client: OAuthClientInformationFull | None = None, fresh: bool = False) -> None:
        self.context: OAuthContext | None = None
        self.vault = vault
        self._client = client
        self._fresh = fresh

    async def get_tokens(self) -> OAuthToken | None:
        kept = None if self._fresh else await load(self.vault)
        return kept.tokens if kept else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self.context
        assert context is not None
        assert context.client_info is not None, "tokens are for a client"
        sign_in = SignIn(
            tokens=tokens,
            client=context.client_info,
            expires_at=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            issuer=context.auth_server_url,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        await save(self.vault, sign_in)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        kept = None if self._fresh else await load(self.vault)
        return kept.client if kept else self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """It is kept with the tokens that come next, and is of no use without them."""


class _Wishes(OAuthClientMetadata):
    """What a client asks for. `also` are scopes beside those that the server names, which the SDK would leave out."""

    also: str = Field(default="", exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(value, self.also) or None if name == "scope" else value)


def provider(
    storage: Storage,
    redirect: str,
    leave: Callable[[str], Awaitable[None]],
    come_back: Callable[[], Awaitable[AuthorizationCodeResult]],
    scopes: str = "",
) -> OAuthClientProvider:
    """What signs requests. `leave` is given the address to sign in at; `redirect` is where that leads back to."""
    wishes = _Wishes(client_name="orchestrator", redirect_uris=[AnyUrl(redirect)], also=scopes)
    made = OAuthClientProvider(storage.vault.url, wishes, storage, leave, come_back)
    storage.context = made.context
    return made


async def signed_in(where: ServerSettings, store: Path) -> httpx2.Auth | None:
    """What signs the requests to a server that a person has signed in to; None for any other.

    Raises `SignInNeeded` from within a request, when the sign-in can neither be used nor renewed.
    """
    assert where.url is not None
    vault = Vault(store, where.url)
    kept = await load(vault)
    if kept is None or any(name.lower() == "authorization" for name in where.headers):
        return None

    async def refuse(address: str) -> None:
        wanted = httpx2.URL(address).params.get("scope", "")
        missing = [scope for scope in wanted.split() if scope not in (kept.tokens.scope or "").split()]
        why = "is not accepted any more, and could not be renewed"
        if missing:
            why = f"lacks the scope `{' '.join(missing)}`"
            await save(vault, kept.model_copy(update={"wanted": wanted}))
        place = shown(httpx2.URL(vault.url))
        raise SignInNeeded(f"the sign-in to {place} {why}. Sign in again: `orchestrator login {where.name}`.")

    async def come_back() -> AuthorizationCodeResult:
        raise AssertionError("nobody has left")

    made = provider(Storage(vault), "http://localhost/callback", refuse, come_back)
    # The SDK reads only the token and the client from a storage: when it ends and where it is renewed, it would forget.
    context = made.context
    context.token_expiry_time = kept.expires_at
    context.auth_server_url = kept.issuer
    context.oauth_metadata = kept.metadata
    context.protected_resource_metadata = kept.resource
    return made
