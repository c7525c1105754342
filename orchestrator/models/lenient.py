"""Reading JSON that nobody promised the shape of, and writing JSON that any server can read."""

import json
from typing import Any, cast

from pydantic_core import PydanticSerializationError, from_json, to_json


def parse(data: bytes | str) -> Any:
    """The value, or None when `data` is not JSON. Lone surrogates survive; `mend` makes them harmless."""
    try:
        return from_json(data)
    except ValueError:  # also raised for an escaped half of a surrogate pair, which `json` reads
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8, the same bytes for the same value; lone surrogates become U+FFFD."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        return mend(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def mend(text: str) -> str:
    """The text with surrogate pairs joined and lone halves replaced, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_object(text: str) -> bool:
    """Whether `text` is a JSON object by the letter of the standard (no NaN)."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        from_json(text, allow_inf_nan=False)
    except (ValueError, UnicodeEncodeError):
        return False
    return True


def as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_int(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def as_text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list of parts."""
    if isinstance(content, str):
        return content
    parts = (as_object(part).get("text") for part in as_list(content))
    return "".join(part for part in parts if isinstance(part, str))
