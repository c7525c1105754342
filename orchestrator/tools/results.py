"""A tool's result as the text that a model reads."""

import json
from collections.abc import Sequence
from typing import Any

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

LONGEST = 32_000
"""Characters of one observation, about 8,000 tokens; what is longer loses its middle and says so."""


def observation(result: CallToolResult) -> str:
    """Text blocks as they are, other blocks as references; structured content only where the text does not hold it.

    A good result repeats its structured content as text, as the protocol asks; an error's body often is all there is
    to say what was wrong, beside a text that only says that it was.
    """
    parts = [text for block in result.content if (text := _block(block))]
    body = result.structured_content
    if body is not None and (not parts or (result.is_error and body not in map(_parsed, parts))):
        parts.append(json.dumps(body, ensure_ascii=False, default=str))
    return cut("\n".join(parts) or ("The tool failed without a message." if result.is_error else "Done; no output."))


def cut(text: str, longest: int = LONGEST) -> str:
    """Keeps the head and the tail of a long text, with a line between that says what is missing."""
    if len(text) <= longest:
        return text
    head, tail = longest * 3 // 4, longest // 4
    left_out = len(text) - head - tail
    return (
        f"{text[:head]}\n[... {left_out} of {len(text)} characters left out here; ask for a smaller part ...]\n"
        f"{text[-tail:]}"
    )


def failure(tool: str, problem: str) -> str:
    """The observation of a call that did not work: what, why, and what to try instead."""
    return f"Error from {tool}: {problem}\nCheck the arguments or try another tool; do not repeat the same call."


def unknown(tool: str, nearest: Sequence[str]) -> str:
    """The observation of a call to a tool that is not offered."""
    hint = f"Did you mean {', '.join(nearest)}?" if nearest else "Use only the tools you were given."
    return f"Error: there is no tool named {tool}. {hint}"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes; not shown]"
        case ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case EmbeddedResource():
            resource: Any = block.resource
            return resource.text if isinstance(resource, TextResourceContents) else f"[resource {resource.uri}]"
