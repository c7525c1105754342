"""Which values in a configuration file look like secrets that were written into it."""

import re

_NAME = re.compile(
    r"(?:api|access|private|secret)[-_ ]?key|(?<![a-z])(?:key|pat)$"
    r"|token|secret|passw|passphrase|credential|authoriz|cookie|bearer",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?:\b|_)(?:sk-[\w-]{12,}|(?:ghp|gho|ghu|ghs|github_pat|glpat|xox[abprs]|npm|hf)[_-][\w-]{10,}|AKIA[0-9A-Z]{12,}"
    r"|AIza[\w-]{20,}|eyJ[\w-]{10,}\.[\w-]{10,})|://[^/\s:@]+:[^/\s@]+@"
)
_OPTION = re.compile(r"--?[\w-]+")


def named_like_a_secret(name: str) -> bool:
    """Whether a value of this name is usually a secret (`API_KEY`, `Authorization`, `--token`)."""
    return bool(_NAME.search(name))


def looks_secret(name: str, value: str) -> bool:
    """Whether `value`, written literally under `name`, is likely to be a secret."""
    if _VALUE.search(value):
        return True
    return len(value) >= 8 and not value.isdigit() and named_like_a_secret(name)


def shown(words: list[str]) -> list[str]:
    """Words of a command line as they may be shown: those that look secret become `…`."""
    result: list[str] = []
    before = ""
    for word in words:
        name, has_value, value = word.partition("=")
        if "${" in word:
            result.append(word)
        elif has_value and looks_secret(name, value):
            result.append(f"{name}=…")
        else:
            hidden = named_like_a_secret(before) or looks_secret("", word)
            result.append("…" if hidden else word)
        before = word if _OPTION.fullmatch(word) else ""
    return result
