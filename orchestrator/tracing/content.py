"""What was said, as text that a span can carry: valid JSON within a bound, free of what UTF-8 cannot hold."""

import json
from typing import Any, cast

MAX_BYTES = 32_768
"""Of one captured attribute. A gRPC collector refuses messages above 4 MiB and then loses the whole batch."""

_WIDTHS = (1 << 62, 4_096, 1_024, 256, 64, 16)
_DEPTH = 32
_LONGEST_WORD = 200
"""Characters of a word that is left out whole where a text is cut. Keys and addresses are shorter, mostly."""


def clean(text: str, limit: int = 500) -> str:
    """The head of `text`. Lone surrogates become `?`: one of them would cost the whole batch when it is encoded."""
    text = text if len(text) <= limit else head(text, limit - 1) + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def head(text: str, width: int) -> str:
    """At most `width` characters of `text`, cut between words: half a secret is not seen to be one."""
    cut = text[:width]
    end = max(map(cut.rfind, " \n\t\"',;:"))
    return cut[: end + 1] if end > max(0, width - _LONGEST_WORD) else cut


def capped_json(value: Any, limit: int = MAX_BYTES) -> str:
    """`value` as JSON of at most `limit` bytes; what is too long is cut inside, so that it stays valid JSON."""
    for width in _WIDTHS:
        short = _shortened(value, width, _DEPTH)
        text = json.dumps(short, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")
        if len(text) <= limit:
            return text.decode()
    return '"… too long to show"'


def capped_result(text: str, limit: int = MAX_BYTES) -> str:
    """A tool's answer as JSON: as it is when it is JSON itself, else as a JSON string."""
    return capped_json(parsed(text), limit)


def parsed(text: str) -> Any:
    """What a text says as JSON when it is an object or a list, else the text."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _shortened(value: Any, width: int, depth: int) -> Any:
    """Strings cut to `width` characters, collections to as many entries, and no deeper than `depth`."""
    if isinstance(value, str):
        if len(value) <= width:
            return value
        short = head(value, width)
        return f"{short}… ({len(value) - len(short)} more characters)"
    if not isinstance(value, dict | list | tuple):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        fields = list(cast("dict[str, Any]", value).items())
        short = {str(name)[:width]: _shortened(part, width, depth - 1) for name, part in fields[:width]}
        return short if len(fields) <= width else {**short, "…": f"{len(fields) - width} more fields"}
    parts = list(cast("list[Any]", value))
    cut = [_shortened(part, width, depth - 1) for part in parts[:width]]
    return cut if len(parts) <= width else [*cut, f"… ({len(parts) - width} more)"]
