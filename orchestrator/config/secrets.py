"""What looks like a secret where a person wrote it: in the environment, headers and arguments of a server.

`orchestrator.masking` knows what one looks like. Here it is asked of single values, and rather too often where that
does no harm.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from orchestrator.masking import SECRET, SHORTEST_SECRET, Mask, ends_with, may_name_secret, names_secret

_mask = Mask()
"""Of its own, which knows nothing of what else this process hides: a value is judged by its look alone."""

_RANDOM = re.compile(r"(?<![\w-])(?=[\w-]{20,}(?![\w-]))[A-Za-z_-]*(?:\d+[A-Za-z_-]+){3,}\d*(?![\w-])")
"""Letters and digits in turns: the keys that stand in addresses, but also ids that are none."""
_FILLED_IN = re.compile(r"\$\{[^{}]*\}|^(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_PATH = re.compile(r"(://[^/?#]*)(/[^?#]*)")
_PARAMETER = re.compile(r"([?&]([^=&#]+)=)([^&#]+)")


def looks_secret(name: str, value: str) -> bool:
    """Whether `value`, written literally under `name` (`API_KEY`, `Authorization`), is likely to be a secret."""
    if "${" in value:
        return False
    named = names_secret(name) or ends_with(name, ("key", "pat"))
    return (named and _long(value)) or _mask(value, personal=False) != value


def may_be_secret(name: str, value: str) -> bool:
    """As `looks_secret`, but rather too often than too seldom: what is so must not be shown or copied."""
    plain = _FILLED_IN.sub("", value).strip()
    return looks_secret(name, plain) or bool(may_name_secret(name) and _long(plain)) or bool(_RANDOM.fullmatch(plain))


def _long(value: str) -> bool:
    return len(value) >= SHORTEST_SECRET and not value.isdigit()


def hold_secret(words: Sequence[str]) -> bool:
    """Whether one of the words of a command line looks secret, by itself or after an option like `--token`."""
    return any(secret_words(words, looks_secret))


def secret_words(words: Sequence[str], judge: Callable[[str, str], bool] = may_be_secret) -> list[str]:
    """For each word of a command line the part of it that is secret, as `judge` says; empty where nothing is."""
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        if equals and judge(name, value):
            found.append(value)
        elif judge(before if before.startswith("-") and "=" not in before else "", word):
            found.append(word)
        else:
            found.append("")
    return found


def mask_words(words: Sequence[str]) -> list[str]:
    """The words of a command line without what may be secret in them."""
    pairs = zip(words, secret_words(words), strict=True)
    return [mask_url(word) if "://" in word else word.replace(part, SECRET) if part else word for word, part in pairs]


def mask_url(url: str) -> str:
    """An address without user and password, without parameters that look secret and without keys in its path."""
    if "://" not in url:
        return url
    url = _mask(url, personal=False)
    url = _PARAMETER.sub(lambda match: match[1] + (SECRET if may_be_secret(match[2], match[3]) else match[3]), url)
    return _PATH.sub(lambda match: match[1] + _RANDOM.sub(SECRET, match[2]), url, count=1)


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """A text of others (an error, a log) without these secrets and without what looks like one by itself."""
    return Mask(secrets=secrets)(text)
