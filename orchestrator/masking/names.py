"""Names that say that what stands under them is a secret, in any style of writing: `API_KEY`, `apiKey`, `X-Api-Key`."""

import re
from collections.abc import Collection
from functools import cache, lru_cache

STEMS = ("pass", "pwd", "secret", "credential", "authori", "cookie", "bearer", "key", "token", "otp", "cvv", "cvc")
"""In lower case; a text without any of them has no such name, which is found out faster."""

_ENDS = (
    r"(?:^|_)(?:"
    r"passw(?:or)?ds?|passphrases?|pwd|(?:db|smtp|ftp|mail|user|root|admin|mysql|pg|redis|proxy)_?pass"
    r"|secrets?|credentials?|authori[sz]ation|cookies?|bearer|otp|cvv|cvc"
    r"|api_?keys?|(?:access|account|auth|encryption|license|master|private|secret|service|session|shared|signing|ssh"
    r"|storage|subscription)_?keys?"
    r"|(?<!page_)(?<!continuation_)(?<!cancellation_)token|(?:access|api|auth|bearer|id|refresh|session)_?tokens"
    r"|(?:access|api|auth|id|refresh|session)token|(?:client|app|consumer)secret"
    r")(?:_(?:value|data|hash|base64|b64|header|plain|plaintext|confirmation|confirm|again|new|old|current|\d+))?$"
)
_CAMEL = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when it is needed: most patterns never are, and all of them would take 10 ms of every start."""
    return re.compile(pattern, re.ASCII)


@lru_cache(4_096)
def names_secret(name: str) -> bool:
    """Whether a value under `name` is a secret. Of how many tokens there are, and of which type, is none.

    A name ends with the word for the secret: `max_tokens`, `token_count`, `password_policy` are not meant.
    """
    return len(name) <= 128 and compiled(_ENDS).search(snake(name)) is not None


def may_name_secret(name: str) -> bool:
    """As `names_secret`, but rather too often than too seldom."""
    lowered = name.lower()
    return any(stem in lowered for stem in STEMS)


def ends_with(name: str, words: Collection[str]) -> bool:
    """Whether a name is one of `words`, which are in snake case, or ends with one of them."""
    written = snake(name)
    return any(written == word or written.endswith(f"_{word}") for word in words)


@lru_cache(4_096)
def snake(name: str) -> str:
    return compiled(_CAMEL).sub("_", name).strip("_").lower()
