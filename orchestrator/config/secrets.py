"""What looks like a secret, by its name or by itself; and texts in which no such thing is left."""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

MASK = "***"
SHORTEST = 6
"""Characters; what is shorter is hardly a secret, and masking it everywhere would eat ordinary words."""

_SECRET_NAME = re.compile(
    r"(?:api|access|private|secret)[-_ ]?key|(?<![a-z])(?:key|pat)$"
    r"|token|secret|passw|passphrase|credential|authoriz|cookie|bearer",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"(?:\b|_)(?:sk-[\w-]{12,}|(?:ghp|gho|ghu|ghs|github_pat|glpat|xox[abprs]|npm|hf)[_-][\w-]{10,}|AKIA[0-9A-Z]{12,}"
    r"|AIza[\w-]{20,}|eyJ[\w-]{10,}\.[\w-]{10,})|://[^/\s:@]+:[^/\s@]+@"
)
_USER = re.compile(r"(://)[^/\s:@]+:[^/\s@]+@")
_RANDOM = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{24,}(?![\w-])")
"""A long word of letters and digits, as the keys are that stand in the path of an address."""
_PARAMETER = re.compile(r"([?&]([^=&#]+)=)([^&#]+)")


def looks_secret(name: str, value: str) -> bool:
    """Whether `value`, written literally under `name` (`API_KEY`, `Authorization`), is likely to be a secret."""
    if "${" in value:
        return False
    named = len(value) >= SHORTEST and not value.isdigit() and _SECRET_NAME.search(name)
    return bool(_SECRET_VALUE.search(value) or named)


def hold_secret(words: Sequence[str]) -> bool:
    """Whether one of the words of a command line looks secret, by itself or after an option like `--token`."""
    return any(secret_words(words))


def secret_words(words: Sequence[str]) -> list[str]:
    """For each word of a command line the part of it that looks secret; empty where nothing does."""
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        if equals and looks_secret(name, value):
            found.append(value)
        elif looks_secret(before if before.startswith("-") and "=" not in before else "", word):
            found.append(word)
        else:
            found.append("")
    return found


def mask_words(words: Sequence[str]) -> list[str]:
    """The words of a command line without what looks secret in them."""
    pairs = zip(words, secret_words(words), strict=True)
    return [mask_url(word.replace(part, MASK) if part else word) for word, part in pairs]


def mask_url(url: str) -> str:
    """An address without user and password, without parameters that look secret and without keys in its path."""
    if "://" not in url:
        return url
    url = _USER.sub(rf"\1{MASK}@", url)
    url = _PARAMETER.sub(lambda match: match[1] + (MASK if _secret_parameter(match[2], match[3]) else match[3]), url)
    path = urlsplit(url).path
    return url.replace(path, _RANDOM.sub(MASK, path), 1) if path else url


def _secret_parameter(name: str, value: str) -> bool:
    return looks_secret(name, value) or bool("${" not in value and _RANDOM.search(value))


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """A text of others (an error, a log) without these secrets and without what looks like one by itself."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _SECRET_VALUE.sub(lambda match: f"://{MASK}@" if match[0].startswith("://") else MASK, text)
