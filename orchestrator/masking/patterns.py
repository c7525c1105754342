"""What is hidden by the look of it: keys of the common vendors, tokens, key blocks, and personal data.

A pattern begins with a literal that is looked for first, which is fast, and looks back from there. None has two ways
to match the same text, so that the time stays linear. Letters, digits and `_` are ASCII's here: Chinese text is
written without spaces around a number.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.masking.names import compiled


@dataclass(frozen=True, slots=True)
class Detector:
    """`replace` is asked only where one of `hints` is in the text, or `look` finds something; without both, always.

    `personal`: data of people, not of machines.
    """

    hints: tuple[str, ...]
    replace: Callable[[str], str]
    personal: bool = False
    look: re.Pattern[str] | None = None

    def may(self, text: str) -> bool:
        if self.look is not None:
            return self.look.search(text) is not None
        return not self.hints or any(hint in text for hint in self.hints)


_KEYS: Mapping[str, str] = {
    "sk-": r"[\w-]{16,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
    "sk_live_": r"\w{10,}",  # Stripe
    "sk_test_": r"\w{10,}",
    "rk_live_": r"\w{10,}",
    "whsec_": r"[\w+/=]{16,}",
    "AIza": r"[\w-]{30,}",  # Google
    "ya29.": r"[\w-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "AKIA": r"[0-9A-Z]{12,}\b",  # AWS
    "ASIA": r"[0-9A-Z]{16}\b",
    "ghp_": r"\w{16,}",  # GitHub
    "gho_": r"\w{16,}",
    "ghu_": r"\w{16,}",
    "ghs_": r"\w{16,}",
    "ghr_": r"\w{16,}",
    "github_pat_": r"\w{16,}",
    "glpat-": r"[\w-]{16,}",  # GitLab
    "xox": r"[abeoprs]-[\w-]{10,}",  # Slack
    "xapp-": r"[\w-]{10,}",
    "hooks.slack.com/services/": r"[\w/]{16,}",
    "hf_": r"[A-Za-z0-9]{20,}",  # Hugging Face
    "npm_": r"[A-Za-z0-9]{20,}",
    "pypi-": r"[\w-]{30,}",
    "gsk_": r"[A-Za-z0-9]{20,}",  # Groq
    "xai-": r"[A-Za-z0-9]{20,}",
    "pplx-": r"[A-Za-z0-9]{20,}",
    "r8_": r"[A-Za-z0-9]{20,}",  # Replicate
    "dapi": r"[0-9a-f]{32}",  # Databricks
    "dop_v1_": r"[0-9a-f]{32,}",  # DigitalOcean
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    "shpat_": r"[0-9a-f]{32}",  # Shopify
    "LTAI": r"[0-9A-Za-z]{12,}",  # Alibaba Cloud
    "AKID": r"[0-9A-Za-z]{13,}",  # Tencent Cloud
    "dckr_pat_": r"[\w-]{16,}",  # Docker
    "hvs.": r"[\w-]{20,}",  # Vault
    "glsa_": r"\w{20,}",  # Grafana
    "ATATT3": r"[\w=-]{20,}",  # Atlassian
    "lin_api_": r"\w{20,}",  # Linear
    "ntn_": r"[A-Za-z0-9]{20,}",  # Notion
    "AGE-SECRET-KEY-1": r"[0-9A-Z]{20,}",
}
_TOKENS: Mapping[str, str] = {
    "eyJ": r"[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # a JWT
    "Bearer ": r"(?=[\w.~+/-]*\d)[\w.~+/-]{12,}=*",
    "bearer ": r"(?=[\w.~+/-]*\d)[\w.~+/-]{12,}=*",
}


def _literal(head: str, rest: str, mask: str) -> Detector:
    """A token that begins with `head`, where a word begins: `risk-…` is none of `sk-…`."""
    literal = re.escape(head)
    return _pattern(head, rf"{literal}(?:(?<![A-Za-z0-9]{literal})|(?<=\\[bfnrt]{literal})){rest}", mask)


def _pattern(hint: str, pattern: str, mask: str, *, personal: bool = False) -> Detector:
    return Detector((hint,), lambda text: compiled(pattern).sub(mask, text), personal)


_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])"


def _emails(text: str) -> str:
    """Found from the `@`, looking back for what stands before it."""
    parts: list[str] = []
    done = 0
    for domain in compiled(_DOMAIN).finditer(text):
        before = text[max(done, domain.start() - 64) : domain.start()]
        local = before[len(before.rstrip(_LOCAL)) :]
        if local and local != "git":  # `git@host` names no one
            parts += (text[done : domain.start() - len(local)], "[email]")
            done = domain.end()
    return "".join((*parts, text[done:]))


_DIGITS = (
    r"\d(?<![\w.-]\d)(?:"
    r"\d{10,18}[Xx]?"
    r"|\d\d([ -])\d{4}\1\d{4}"  # 138 1234 5678
    r"|\d{3}([ -])\d{4}\2\d{4}\2\d{4}(?:\2\d{1,3})?"  # 4111 1111 1111 1111
    r"|\d{3}([ -])\d{6}\3\d{4,5}"  # 3782 822463 10005
    r")(?!\w|\.\d)"
)
_MANY_DIGITS = re.compile(r"\d(?:[ -]?\d){10}", re.ASCII)
_ISSUERS = (
    r"4\d{15}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3[068]\d{12}|35\d{14}|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17}"
)
_MOBILE = r"1(?:3\d|4[5-9]|5[0-35-9]|6[2567]|7[0-8]|8\d|9[0-35-9])\d{8}"
_CITIZEN = r"[1-9]\d{5}(?:18|19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[\dXx]"
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)


def number(digits: str) -> str | None:
    """What a run of digits is, where it is sure: a bank card (by issuer and Luhn) or a Chinese ID (by check digit)."""
    if compiled(_ISSUERS).fullmatch(digits) and _luhn(digits):
        return "[card]"
    if compiled(_CITIZEN).fullmatch(digits):
        total = sum(int(digit) * weight for digit, weight in zip(digits[:17], _WEIGHTS, strict=True))
        return "[id number]" if "10X98765432"[total % 11] == digits[17].upper() else None
    return None


def _luhn(digits: str) -> bool:
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[::-2])) % 10 == 0


def _named(found: re.Match[str]) -> str:
    digits = found[0].replace(" ", "").replace("-", "")
    return number(digits) or ("[phone]" if compiled(_MOBILE).fullmatch(digits) else found[0])


def _numbers(text: str) -> str:
    return compiled(_DIGITS).sub(_named, text)


DETECTORS: tuple[Detector, ...] = (
    _pattern(
        "-----BEGIN ",
        # What is cut off before its end is hidden as well. A quote ends it: it may be that of a JSON string.
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^\"'\\-]|\\+[nr]|-(?!----))*(?:-----END [A-Z0-9 ]*-----)?",
        "[private key]",
    ),
    _pattern("://", r"://(?!\[secret\]@)[^\s/\"'\\<>?#]{1,256}@", "://[secret]@"),
    *(_literal(head, rest, "[key]") for head, rest in _KEYS.items()),
    *(_literal(head, rest, f"{head if ' ' in head else ''}[token]") for head, rest in _TOKENS.items()),
    Detector(("@",), _emails, personal=True),
    _pattern("+", r"\+(?<![\w+]\+)[1-9](?:[ .()-]{0,2}\d){7,14}(?!\w|\.\d)", "[phone]", personal=True),
    Detector((), _numbers, personal=True, look=_MANY_DIGITS),
)
