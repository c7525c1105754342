"""What a server says when it refuses: the kind of error, the parameter it names, and how long to wait."""

import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from orchestrator.errors import ModelErrorKind
from orchestrator.models.lenient import as_list, as_object, parse

LONGEST_MESSAGE = 600
# OpenAI and DeepSeek, llama.cpp, vLLM and Mistral, Anthropic, Bedrock, LM Studio, Gemini.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|prompt is too long|input is too long"
    r"|too many tokens|context length exceeded|(?:exceeds|than) the (?:available )?context (?:size|length|window)"
    r"|input token count",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|extra_forbidden|extra fields"
    r"|not available|invalid parameter|deprecated|not implemented",
    re.IGNORECASE,
)
_KINDS: dict[int, ModelErrorKind] = {
    401: "authentication",
    402: "authentication",
    403: "authentication",
    404: "not_found",
    408: "overloaded",
    409: "overloaded",
    425: "overloaded",
    429: "rate_limit",
}
_TYPES: tuple[tuple[str, ModelErrorKind], ...] = (
    ("rate_limit", "rate_limit"),
    ("too_many_requests", "rate_limit"),
    ("authentication", "authentication"),
    ("permission", "authentication"),
    ("invalid_api_key", "authentication"),
    ("not_found", "not_found"),
    ("invalid_request", "bad_request"),
    ("bad_request", "bad_request"),
    ("content_filter", "bad_request"),
)


def kind_of(status: int | None, text: str, error: Mapping[str, Any]) -> ModelErrorKind:
    """The kind of a failure. `status` is None for an error inside a stream, whose `code` may be a status."""
    named = f"{error.get('type')} {error.get('code')}".lower()
    if status is None:
        code = str(error.get("code", ""))
        status = int(code) if code.isdecimal() and 400 <= int(code) < 600 else None
    if (status is None or status in (400, 413, 422) or status >= 500) and _OVERFLOW.search(f"{named} {text}"):
        return "context_overflow"
    if "insufficient_quota" in named:  # comes as a 429, and no waiting helps
        return "authentication"
    if status is not None:
        return _KINDS.get(status, "bad_request" if status < 500 else "overloaded")
    for word, kind in _TYPES:
        if word in named:
            return kind
    return "overloaded"


def error_object(data: bytes) -> dict[str, Any]:
    """The error in a reply's body, whatever its shape; its `message` is always text."""
    value = parse(data)
    fields = as_object(value[0] if isinstance(value, list) and value else value)
    return describe(fields) if fields else {"message": _short(data.decode("utf-8", "replace"))}


def describe(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The error in a JSON object: `{"error": {"message"}}`, `{"error": "…"}`, `{"message"}` or `{"detail"}`."""
    error = fields.get("error") or fields
    if not isinstance(error, dict):
        return {"message": _short(str(error))}
    found = as_object(error)
    said = found.get("message") or found.get("detail") or found.get("msg") or ""
    if details := as_list(said):
        said = "; ".join(_detail(as_object(detail)) for detail in details)
    return {**found, "message": _short(str(said) or str(found))}


def refused_parameter(error: Mapping[str, Any], raw: bytes, sent: Iterable[str]) -> str | None:
    """The one of the parameters `sent` that this refusal is about, if it is about a parameter."""
    text = raw.decode("utf-8", "replace")
    if not _REFUSES.search(text):
        return None
    named = error.get("param")
    candidates = tuple(sent)
    if named in candidates:
        return str(named)
    return next((name for name in candidates if re.search(rf"(?<![a-z_]){name}(?![a-z_])", text)), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `Retry-After` as seconds or as a date; None when it is not said."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return max(0.0, number) if isfinite(number) else None


def _detail(detail: Mapping[str, Any]) -> str:
    """One of FastAPI's validation errors, without the input that it repeats."""
    place = ".".join(str(part) for part in as_list(detail.get("loc")))
    return f"{place}: {detail.get('msg', '')}".strip(": ")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + "…"
