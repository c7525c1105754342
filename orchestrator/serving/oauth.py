"""Tokens of an authorization server: checked by its published keys, for this server alone."""

import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
import jwt.types

from orchestrator.config import IssuerSettings
from orchestrator.serving.guests import Guest

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Only those whose verifying key is public: with a shared secret, whoever can check a token could make one."""

FRESH, PAUSE, RETRY, SECONDS = 600.0, 30.0, 5.0, 10.0
"""How long keys are good, the pause before they are fetched for an unknown name again, the one after a fetch that
failed, and what a fetch may take."""

WRONG = (AttributeError, KeyError, TypeError, ValueError)
TROUBLE = (httpx2.HTTPError, httpx2.InvalidURL, jwt.PyJWTError, TimeoutError, *WRONG)
"""What comes of an issuer that cannot be reached, or says what is no metadata and no keys."""


class Unreachable(Exception):
    """A token cannot be checked now: its issuer does not give its keys."""


class Issuer:
    """Checks tokens of the issuer that is configured."""

    def __init__(self, settings: IssuerSettings) -> None:
        self.settings = settings
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._reached = False
        self._due = self._next_search = float("-inf")
        self._turn = anyio.Lock()

    async def holder(self, token: str) -> tuple[Guest | None, str]:
        """Who has this token, or None and a scope that it lacks, or nothing where it is no good.

        Raises:
            Unreachable: nobody can say now.
        """
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid") or "")
            claims = None if key is None else self._claims(token, key)
        except (jwt.PyJWTError, RecursionError) as error:
            logger.info("a token was refused: %s", error)
            claims = None
        if claims is None:
            return None, ""
        granted = str(claims.get("scope", "")).split()
        if lacking := next((scope for scope in self.settings.scopes if scope not in granted), ""):
            return None, lacking
        roles = self.settings.roles
        if roles and not any(scope in granted for scope in roles):  # without a role, nothing would bound it
            return None, list(roles)[-1]
        return self._guest(claims, granted), ""

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        wanted = self.settings
        required: jwt.types.Options = {"require": ["exp", "iss", "aud", "sub"]}
        audience = [wanted.resource, wanted.resource.rstrip("/")]
        return jwt.decode(
            token, key, algorithms=list(ALGORITHMS), audience=audience, issuer=wanted.issuer, options=required
        )

    def _guest(self, claims: Mapping[str, Any], granted: list[str]) -> Guest:
        """`sub` is unique at its issuer alone, so the issuer's host is part of the name."""
        settings = self.settings
        return Guest(
            name=f"{claims['sub']}@{urlsplit(settings.issuer).netloc}",
            role=next((role for scope, role in settings.roles.items() if scope in granted), None),
            limits=settings.limits,
            agents=settings.agents,
            runs=settings.runs,
        )

    async def _key(self, name: str) -> jwt.PyJWK | None:
        """The key of this name. A known one waits for no fetch but the one that its own request makes."""
        if name in self._keys and (time.monotonic() < self._due or self._turn.locked()):
            return self._keys[name]
        async with self._turn:
            if time.monotonic() >= self._due:
                await self._renew()
            elif name not in self._keys and self._reached and time.monotonic() >= self._next_search:
                self._next_search = time.monotonic() + PAUSE
                await self._renew()
        if name not in self._keys and not self._reached:
            raise Unreachable
        return self._keys.get(name)

    async def _renew(self) -> None:
        """Fetches the keys; where that fails, those that were known stay."""
        try:
            with anyio.fail_after(SECONDS):
                self._keys = await self._fetch()
            self._reached = True
        except TROUBLE as error:
            logger.warning("the keys of %s cannot be had: %s", self.settings.issuer, str(error) or type(error).__name__)
            self._reached = False
        self._due = time.monotonic() + (FRESH if self._reached else RETRY)

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            found = await client.get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.status_code == 404:
                parts = urlsplit(self.settings.issuer)
                where = (
                    f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
                )
                found = await client.get(where)
            metadata = found.raise_for_status().json()
            if metadata["issuer"].rstrip("/") != self.settings.issuer.rstrip("/"):
                raise ValueError(f"it calls itself {metadata['issuer']!r}")
            keys = await client.get(metadata["jwks_uri"])
        return {key.key_id or "": key for key in jwt.PyJWKSet.from_dict(keys.raise_for_status().json()).keys}
