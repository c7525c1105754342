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

FRESH, PAUSE, SECONDS = 600.0, 30.0, 10.0
"""How long keys are good, the pause before they are fetched for an unknown name again, and what a fetch may take."""


class Issuer:
    """Checks tokens of the issuer that is configured."""

    def __init__(self, settings: IssuerSettings) -> None:
        self.settings = settings
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched = float("-inf")
        self._turn = anyio.Lock()

    async def holder(self, token: str) -> tuple[Guest | None, str]:
        """Who has this token, or None and a scope that it lacks, or nothing where it is no good."""
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims = None if key is None else self._claims(token, key)
        except jwt.PyJWTError as error:
            logger.info("a token was refused: %s", error)
            claims = None
        if claims is None:
            return None, ""
        granted = str(claims.get("scope", "")).split()
        if lacking := next((scope for scope in self.settings.scopes if scope not in granted), ""):
            return None, lacking
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

    async def _key(self, name: str | None) -> jwt.PyJWK | None:
        async with self._turn:
            age = time.monotonic() - self._fetched
            if age > FRESH or (name not in self._keys and age > PAUSE):
                self._fetched = time.monotonic()
                try:
                    self._keys = await self._fetch()
                except (httpx2.HTTPError, jwt.PyJWTError, ValueError, KeyError) as error:
                    logger.warning("the keys of %s cannot be had: %s", self.settings.issuer, error)
            return self._keys.get(name or "")

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            found = await client.get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.status_code == 404:
                parts = urlsplit(self.settings.issuer)
                where = (
                    f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"
                )
                found = await client.get(where)
            keys = await client.get(found.raise_for_status().json()["jwks_uri"])
        return {key.key_id or "": key for key in jwt.PyJWKSet.from_dict(keys.raise_for_status().json()).keys}
