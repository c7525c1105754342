"""A tool's result as what a model reads: text, and references to what is none.

Text or structured content, never both: the text is what the tool's author wrote for readers. Where it only repeats the
structured content as JSON, that is written once and more tightly, one item of a list a line: keys stay beside their
values, unlike in a table, it is JSON still, and a cut falls between items.
"""

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from mcp_types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

COMPARED = 1_000_000
"""Characters of one text that is compared with structured content; a longer one is taken as it is."""

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """What is no text; `file` is a resource that came as bytes."""

    kind: Literal["image", "audio", "file"]
    mime_type: str
    data: bytes

    def reference(self, id: str = "") -> str:
        named = f", id {id}" if id else ""
        return f"[{self.kind}, {self.mime_type}, {len(self.data)} bytes{named}]"


Parts = tuple[str | Media, ...]


def read(result: CallToolResult) -> Parts:
    """The parts of a result, in order. An error keeps its body beside a text that only says that it is one."""
    parts = [part for block in result.content for part in _block(block) if part]
    body = result.structured_content
    if body is not None:
        texts = [part for part in parts if isinstance(part, str)]
        same = _repeated(texts, body)
        if same is not None:
            parts = [same, *(part for part in parts if isinstance(part, Media))]
        elif not texts or result.is_error:
            parts.append(clean(rows(body)))
    return tuple(parts) or ("The tool failed without a message." if result.is_error else "Done; no output.",)


def text(parts: Parts, id: str = "") -> str:
    """The parts as one text. The media of the result `id` are `id#1`, `id#2`, …"""
    lines: list[str] = []
    number = 0
    for part in parts:
        if isinstance(part, Media):
            number += 1
            lines.append(part.reference(f"{id}#{number}" if id else ""))
        else:
            lines.append(part)
    return "\n".join(lines)


def is_long(result: CallToolResult, longest: int) -> bool:
    """Whether reading it may take a while: it has more characters than `longest`, or nobody knows how many."""
    size = sum(len(getattr(block, "text", "") or getattr(block, "data", "")) for block in result.content)
    nested = any(isinstance(block, EmbeddedResource) for block in result.content)
    return size > longest or nested or (size == 0 and result.structured_content is not None)


def rows(value: Any) -> str:
    """JSON on one line, but for lists at the top or one below it: those have one item a line."""
    if _is_list_of_items(value):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    if isinstance(value, dict) and any(map(_is_list_of_items, cast("dict[str, Any]", value).values())):
        members = cast("dict[str, Any]", value).items()
        return (
            "{" + ", ".join(f"{_json(key)}: {rows(v) if isinstance(v, list) else _json(v)}" for key, v in members) + "}"
        )
    return _json(value)


def clean(text: str) -> str:
    """Text without what only terminals read; NUL and halves of surrogate pairs become U+FFFD."""
    if "\x1b" in text:
        text = _TERMINAL.sub("", text)
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def failure(tool: str, problem: str) -> str:
    """The observation of a call that did not work: what, why, and what to try instead."""
    return f"Error from {tool}: {problem}\nCheck the arguments or try another tool; do not repeat the same call."


def failed(tool: str, parts: Parts) -> Parts:
    """A result that says it is an error, worded like any other failure."""
    before, _, after = failure(tool, "\0").partition("\0")
    first, *others = parts
    if isinstance(first, str):
        return (before + first, *others, after.lstrip("\n"))
    return (before, first, *others, after.lstrip("\n"))


def unknown(tool: str, nearest: Sequence[str]) -> str:
    """The observation of a call to a tool that is not offered."""
    hint = f"Did you mean {', '.join(nearest)}?" if nearest else "Use only the tools you were given."
    return f"Error: there is no tool named {tool}. {hint}"


def _repeated(texts: Sequence[str], body: Mapping[str, Any]) -> str | None:
    """The structured content, tightly written, where the texts hold it and nothing else.

    A list comes wrapped as `{"result": [...]}`, with one text for each item.
    """
    if not texts or max(map(len, texts)) > COMPARED:
        return None
    said = [_parsed(text) for text in texts]
    for value in (body, body["result"]) if set(body) == {"result"} else (body,):
        if value is not None and (said == [value] or (len(said) > 1 and said == value)):
            return clean(rows(value))
    return None


def _is_list_of_items(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    items = cast("list[Any]", value)
    return len(items) > 1 and (isinstance(items[0], dict | list) or len(items) > 20)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _block(block: ContentBlock) -> list[str | Media]:
    match block:
        case TextContent():
            return [clean(block.text)]
        case ImageContent() | AudioContent():
            return [_media(block.type, block.mime_type, block.data)]
        case ResourceLink():
            about = [block.name, *([block.mime_type] if block.mime_type else [])]
            about += [f"{block.size} bytes"] if block.size is not None else []
            return [clean(f"[resource {', '.join(about)}: {block.uri}]")]
        case EmbeddedResource():
            resource: Any = block.resource
            reference = clean(f"[resource {resource.uri}]")
            if isinstance(resource, TextResourceContents):
                return [reference, clean(resource.text)]
            return [reference, _media("file", resource.mime_type or "application/octet-stream", resource.blob)]


def _media(kind: Literal["image", "audio", "file"], mime_type: str, data: str) -> str | Media:
    mime_type = clean(" ".join(mime_type.split())[:80])
    try:
        return Media(kind=kind, mime_type=mime_type, data=b64decode(data))
    except (binascii.Error, ValueError):
        return f"[{kind}, {mime_type}; its base64 cannot be read]"
