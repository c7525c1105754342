"""What looks like a secret, by its name or by itself; and texts in which no such thing is left."""

import re
from collections.abc import Callable, Iterable, Sequence

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
_RANDOM = re.compile(r"(?<![\w-])(?=[\w-]{20,}(?![\w-]))[A-Za-z_-]*(?:\d+[A-Za-z_-]+){3,}\d*(?![\w-])")
"""Letters and digits in turns: the keys that stand in addresses, but also ids that are none."""
_FILLED_IN = re.compile(r"\$\{[^{}]*\}|^(?:Bearer|Basic|Token)\s+", re.IGNORECASE)
_PATH = re.compile(r"(://[^/?#]*)(/[^?#]*)")
_PARAMETER = re.compile(r"([?&]([^=&#]+)=)([^&#]+)")


def looks_secret(name: str, value: str) -> bool:
    """Whether `value`, written literally under `name` (`API_KEY`, `Authorization`), is likely to be a secret."""
    if "${" in value:
        return False
    named = len(value) >= SHORTEST and not value.isdigit() and _SECRET_NAME.search(name)
    return bool(_SECRET_VALUE.search(value) or named)


def may_be_secret(name: str, value: str) -> bool:
    """As `looks_secret`, but rather too often than too seldom: what is so must not be shown or copied."""
    plain = _FILLED_IN.sub("", value).strip()
    return bool(looks_secret(name, plain) or _RANDOM.fullmatch(plain))


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
    return [mask_url(word) if "://" in word else word.replace(part, MASK) if part else word for word, part in pairs]


def mask_url(url: str) -> str:
    """An address without user and password, without parameters that look secret and without keys in its path."""
    if "://" not in url:
        return url
    url = _USER.sub(rf"\1{MASK}@", url)
    url = _PARAMETER.sub(lambda match: match[1] + (MASK if may_be_secret(match[2], match[3]) else match[3]), url)
    return _PATH.sub(lambda match: match[1] + _RANDOM.sub(MASK, match[2]), url, count=1)


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """A text of others (an error, a log) without these secrets and without what looks like one by itself."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _SECRET_VALUE.sub(lambda match: f"://{MASK}@" if match[0].startswith("://") else MASK, text)
