"""What a server says when it refuses: the kind of error, the parameter it names, and how long to wait."""

import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from orchestrator.errors import ModelErrorKind
from orchestrator.models.learned import NULL_CONTENT, TEXT_ARGUMENTS
from orchestrator.models.lenient import as_list, as_object, parse

LONGEST_MESSAGE = 600
# OpenAI and DeepSeek, llama.cpp, vLLM and Mistral, Anthropic, Bedrock, LM Studio, Gemini.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|prompt is too long|input is too long"
    r"|too many tokens|context length exceeded|(?:exceeds|than) the (?:available )?context (?:size|length|window)"
    r"|input token count|exceeds? context limit|request_too_large",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|extra_forbidden|extra fields"
    r"|not available|invalid parameter|deprecated|not implemented|may only be|only \S+ is (?:allowed|supported)",
    re.IGNORECASE,
)
# Tried in turn, each once: what a server means that does not take a message as it was sent.
_SHAPES = (
    (NULL_CONTENT, re.compile(r"content\b.*?(?:null|none|string)", re.IGNORECASE | re.DOTALL)),
    (TEXT_ARGUMENTS, re.compile(r"arguments\b.*?(?:object|dict|\bmap\b|mapping)", re.IGNORECASE | re.DOTALL)),
)
_NO_TOOLS = re.compile(
    r"(?:does not|doesn't|do not) support (?:tool|function)|tools? (?:use |calling )?(?:is|are) not supported"
    r"|no endpoints found that support tool|enable-auto-tool-choice|requires --jinja",
    re.IGNORECASE,
)
_NO_SCHEMAS = re.compile(
    r"response_format|json[_ ]?schema|guided[_ ]?(?:json|decoding)|grammar|structured outputs?", re.IGNORECASE
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
    ("billing", "authentication"),
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
    named += str(as_object(error.get("details")).get("error_code", ""))
    if "insufficient_quota" in named or "spend_limit" in named:  # comes as a 429, and no waiting helps
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
    """The one of the parameters and shapes `sent` that this refusal is about, if it is about any."""
    text = raw.decode("utf-8", "replace")
    candidates = tuple(sent)
    if _REFUSES.search(text):
        named = error.get("param")
        if named in candidates:
            return str(named)
        for name in candidates:
            if re.search(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])", text):
                return name
    return next((shape for shape, words in _SHAPES if shape in candidates and words.search(text)), None)


def takes_no_tools(message: str) -> bool:
    """Whether a refusal says that this model cannot be given tools."""
    return _NO_TOOLS.search(message) is not None


def takes_no_schemas(message: str) -> bool:
    """Whether the refusal of a request with a `response_format` is about that."""
    return _NO_SCHEMAS.search(message) is not None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: `retry-after-ms`, `Retry-After` as seconds or as a date, or when Anthropic's used-up limits
    are full again; None when it is not said."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return _until_reset(headers)
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """Seconds until every limit is there again of which `anthropic-ratelimit-…` says that nothing remains."""
    waits: list[float] = []
    for limit in ("requests", "tokens", "input-tokens", "output-tokens"):
        if headers.get(f"anthropic-ratelimit-{limit}-remaining") == "0":
            try:
                reset = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{limit}-reset", ""))
            except ValueError:
                continue
            waits.append(max(0.0, reset.timestamp() - time.time()))
    return max(waits, default=None)


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
