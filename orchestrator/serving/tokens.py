"""Bearer tokens: kept as hashes, compared in constant time.

A token is 32 random bytes, so that a plain SHA-256 of it can be neither guessed nor searched for.
"""

import os
import secrets
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from orchestrator.config import TokenSettings
from orchestrator.errors import ConfigurationError
from orchestrator.serving.guests import Guest

SHORTEST = 16
"""Characters that a token must have: one from the environment may have been chosen by a person."""


def new_token() -> tuple[str, str]:
    """A new token, and its hash for `[serve.tokens.NAME]`."""
    token = f"orc_{secrets.token_urlsafe(32)}"
    return token, _digest(token)


class Tokens:
    """The tokens that are configured."""

    def __init__(self, settings: Mapping[str, TokenSettings], environ: Mapping[str, str] = os.environ) -> None:
        """Raises `ConfigurationError` for a variable that is not there, and for two names of one token."""
        self._guests: dict[str, Guest] = {}
        for name, each in settings.items():
            digest = each.sha256 or _from_environment(name, each.env or "", environ)
            if digest in self._guests:
                other = self._guests[digest].name
                raise ConfigurationError(f"serve.tokens.{name} is the same token as serve.tokens.{other}; make another")
            self._guests[digest] = Guest(
                name=name, role=each.role, limits=each.limits, agents=each.agents, runs=each.runs
            )

    def __bool__(self) -> bool:
        return bool(self._guests)

    def holder(self, token: str) -> Guest | None:
        """Who has this token; all are compared, so that the time tells nothing."""
        found, digest = None, _digest(token)
        for known, guest in self._guests.items():
            if compare_digest(known, digest):
                found = guest
        return found


def _from_environment(name: str, variable: str, environ: Mapping[str, str]) -> str:
    token = environ.get(variable, "")
    if len(token) < SHORTEST:
        raise ConfigurationError(
            f"serve.tokens.{name}: the variable {variable} must hold a token of at least {SHORTEST} characters"
        )
    return _digest(token)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()
