"""What vendors refuse of a request, as strict as the strictest: written from their public documentation."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def broken_for_openai(body: Mapping[str, Any], id_: str = r"[!-~]{1,40}") -> str | None:
    """The first rule of chat completions that a request breaks. `id_` is what ids of calls look like."""
    return next(_openai(body["messages"], re.compile(id_)), None)


def _openai(messages: Sequence[Mapping[str, Any]], id_: re.Pattern[str]) -> Iterator[str]:
    open_: list[str] = []
    before = ""
    for place, message in enumerate(messages):
        role, content, calls = message["role"], message.get("content"), message.get("tool_calls")
        if role == "tool":
            if message["tool_call_id"] not in open_:
                yield f"messages.{place}: no preceding call has this id"
            else:
                open_.remove(message["tool_call_id"])
        elif open_:
            yield f"messages.{place}: calls without an answer: {open_}"
        if role == before and role != "tool":
            yield f"messages.{place}: two turns of {role} in a row"
        if role == "system" and place:
            yield f"messages.{place}: a system message after the beginning"
        if extra := message.keys() - {"role", "content", "tool_calls", "tool_call_id"}:
            yield f"messages.{place}: additional properties are not allowed: {sorted(extra)}"
        if not isinstance(content, str) and not (content is None and calls):
            yield f"messages.{place}: content must be a string"
        if role == "assistant" and not content and not calls:
            yield f"messages.{place}: content must not be empty"
        if calls is not None:
            open_ = [call["id"] for call in calls]
            yield from _openai_calls(place, calls, id_)
        before = role
    if open_:
        yield f"calls without an answer: {open_}"


def _openai_calls(place: int, calls: Sequence[Mapping[str, Any]], id_: re.Pattern[str]) -> Iterator[str]:
    if not calls or len({call["id"] for call in calls}) != len(calls):
        yield f"messages.{place}: no calls, or two with the same id"
    for call in calls:
        if call.keys() != {"id", "type", "function"}:
            yield f"messages.{place}: a call has other properties than it may: {sorted(call)}"
        if not id_.fullmatch(call["id"]):
            yield f"messages.{place}: the id {call['id']!r} must match {id_.pattern}"
        if not _NAME.fullmatch(call["function"]["name"]):
            yield f"messages.{place}: the name {call['function']['name']!r} must match {_NAME.pattern}"
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield f"messages.{place}: arguments must be an object"


def broken_for_anthropic(body: Mapping[str, Any]) -> str | None:
    """The first rule of the Messages API that a request breaks."""
    return next(_anthropic(body), None)


def _anthropic(body: Mapping[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    blocks = [(turn, block) for turn in messages for block in turn["content"]]
    yield from _anthropic_request(body, blocks)
    wanted: list[str] = []
    ids: set[str] = set()
    for place, turn in enumerate(messages):
        if turn.keys() != {"role", "content"} or turn["role"] != ("assistant" if place % 2 else "user"):
            yield f"messages.{place}: roles must alternate, beginning with the user"
        if not turn["content"]:
            yield f"messages.{place}: content must not be empty"
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        if [block["type"] for block in turn["content"]][: len(results)] != ["tool_result"] * len(results):
            yield f"messages.{place}: results must come first"
        if sorted(results) != sorted(wanted):
            yield f"messages.{place}: `tool_use` ids without `tool_result` immediately after: {wanted} {results}"
        wanted = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        if len(set(wanted)) != len(wanted) or ids & set(wanted):
            yield f"messages.{place}: `tool_use` ids must be unique"
        ids |= set(wanted)
    if wanted or len(messages) % 2 == 0:
        yield "the last turn must be the user's"


def _anthropic_request(body: Mapping[str, Any], blocks: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    if "max_tokens" not in body:
        yield "max_tokens: field required"
    if any(block["type"].startswith("tool_") for _, block in blocks) and not body.get("tools"):
        yield "requests with `tool_use` or `tool_result` blocks must define tools"
    marked = [block for block in [*body.get("system", []), *(block for _, block in blocks)] if "cache_control" in block]
    if len(marked) > 4:
        yield f"a maximum of 4 blocks with cache_control may be provided, found {len(marked)}"
    for turn, block in blocks:
        match block["type"]:
            case "text" if not block["text"].strip():
                yield "text content blocks must contain non-whitespace text"
            case "tool_use" if not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]) or not isinstance(block["input"], dict):
                yield f"tool_use: bad id or input: {block}"
            case "tool_use" if not _NAME.fullmatch(block["name"]):
                yield f"tool_use: bad name: {block}"
            case "thinking" if not block.get("signature") or turn["role"] != "assistant":
                yield "thinking: signature: field required"
            case "text" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" | "image":
                pass
            case other:
                yield f"unknown block {other}"
