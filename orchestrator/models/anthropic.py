"""The wire of Anthropic's Messages API.

Each message becomes bytes once: a letter for what it is, then its content blocks. A request joins them into turns that
alternate, results first, and marks how far the prompt is to be cached. Written from the public documentation.
"""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never
from weakref import WeakKeyDictionary

from orchestrator.messages import AssistantMessage, Image, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import ToolSpec
from orchestrator.models.flavours import anthropic
from orchestrator.models.learned import Learned
from orchestrator.models.lenient import as_list, as_object, dump, parse
from orchestrator.models.speech import Plain, Speech
from orchestrator.models.wire import NO_TEXT, own_extra, wire_arguments, wire_id, wire_name

ANTHROPIC_URL: Final = "https://api.anthropic.com"
BLOCKS: Final = "blocks"
"""The key in `extra` of a reply's content blocks, kept where some of them (thinking) must go back unchanged."""
CACHE: Final = "cache_control"
OPTIONAL: Final = ("temperature",)
_SYSTEM, _USER, _RESULT, _ASSISTANT = b"s", b"u", b"t", b"a"
_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
_ROLLING: Final = 2
"""Marked ends of user turns: the last is written to the cache, and the one before, the last of the request before,
is read from it. With the one of the system prompt, which covers the tools too, that is three of the four allowed."""
_OWN_ID: Final = re.compile(r"toolu_[A-Za-z0-9_-]+", re.ASCII)
"""Others' ids may have other signs, and repeat from turn to turn, which is refused."""


class AnthropicCodec:
    """A `Codec` for one model; `origin`, `parameters` and `learned` are as for `ChatCodec`."""

    def __init__(
        self,
        model: str,
        *,
        temperature: float | None = None,
        origin: str = "",
        parameters: Mapping[str, Any] = {},
        learned: Learned | None = None,
    ) -> None:
        self.origin = origin
        self._tools: MutableMapping[ToolSpec, bytes] = WeakKeyDictionary()
        self._head = b'{"model":' + dump(model)
        self._settings: dict[str, Any] = {"stream": True}
        if temperature is not None:
            self._settings["temperature"] = temperature
        self._settings |= parameters
        self._refused = (learned or Learned()).refused

    def message(self, message: Message) -> bytes:
        match message:
            case SystemMessage():
                return _SYSTEM + (_text(message.text) if message.text.strip() else b"")
            case UserMessage():
                return _USER + b",".join(
                    (_text(message.text), *(_image(image) for image in message.images if image.data))
                )
            case ToolMessage():
                return _RESULT + dump(_result(message))
            case AssistantMessage():
                return _ASSISTANT + dump(_blocks(message, self.origin))[1:-1]
            case _:
                assert_never(message)

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return b"[" + b",".join(map(self._tool, tools)) + b"]" if tools else b""

    def closed(self, tools: bytes) -> bytes:
        """The same list, so that the cache holds and calls of the history have their tools; none may be called."""
        return tools + b',"tool_choice":{"type":"none"}' if tools else b""

    most_tools: int | None = None
    weak = False

    def body(
        self, messages: Sequence[bytes], tools: bytes, max_output_tokens: int, shut: Collection[str] = ()
    ) -> bytes:
        """`shut` is nothing to this wire: another list of tools would cost the cache of the whole prompt."""
        marked = CACHE not in self._refused
        system = [message[1:] for message in messages if message[:1] == _SYSTEM and len(message) > 1]
        if marked and system:
            system[-1] = _mark(system[-1])
        turns = _turns(messages)
        if marked:
            for turn in [turn for turn in turns if turn.role == "user"][-_ROLLING:]:
                turn.mark()
        parts = [self._head, b',"tools":' + tools if tools else b""]
        parts += [b',"system":[' + b",".join(system) + b"]" if system else b""]
        parts += [b',"messages":[' + b",".join(turn.joined() for turn in turns) + b"],"]
        settings = {name: value for name, value in self._settings.items() if name not in self._refused}
        parts += [dump(settings)[1:-1], b',"max_tokens":%d}' % max_output_tokens]
        return b"".join(parts)

    def speech(self) -> Speech:
        """How a reply's text is read."""
        return Plain()

    def sent(self, body: bytes) -> list[str]:
        """What of a body a server may refuse and do without."""
        fields = as_object(parse(body))
        return [name for name in OPTIONAL if name in fields] + ([CACHE] if _MARK in body else [])

    def refuse(self, parameter: str, body: bytes) -> bytes:
        """Notes that the server refuses a parameter, and makes `body` what `self.body` would make it from now on."""
        self._refused.add(parameter)
        fields = as_object(parse(body))
        if parameter == CACHE:
            for block in _all_blocks(fields):
                block.pop(CACHE, None)
        return dump({name: value for name, value in fields.items() if name != parameter})

    def _tool(self, tool: ToolSpec) -> bytes:
        if (encoded := self._tools.get(tool)) is None:
            encoded = self._tools[tool] = dump(anthropic(tool))
        return encoded


@dataclass(slots=True)
class _Turn:
    """Messages of one role in a row; the answers to calls stand before everything else."""

    role: str
    results: list[bytes] = field(default_factory=list[bytes])
    others: list[bytes] = field(default_factory=list[bytes])

    def mark(self) -> None:
        last = self.others or self.results
        last[-1] = _mark(last[-1])

    def joined(self) -> bytes:
        blocks = b",".join((*self.results, *self.others))
        return b'{"role":"%s","content":[%s]}' % (self.role.encode(), blocks)


def _turns(messages: Iterable[bytes]) -> list[_Turn]:
    turns: list[_Turn] = []
    for message in messages:
        if (kind := message[:1]) == _SYSTEM:
            continue
        role = "assistant" if kind == _ASSISTANT else "user"
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        (turns[-1].results if kind == _RESULT else turns[-1].others).append(message[1:])
    return turns


def _mark(block: bytes) -> bytes:
    return block[:-1] + _MARK


def _all_blocks(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    turns = [as_object(turn).get("content") for turn in as_list(fields.get("messages"))]
    return [as_object(block) for blocks in (fields.get("system"), *turns) for block in as_list(blocks)]


def _text(text: str) -> bytes:
    """A text block; one without a visible character is refused."""
    return dump({"type": "text", "text": text if text.strip() else NO_TEXT})


def _image(image: Image) -> bytes:
    source = {"type": "base64", "media_type": image.mime_type, "data": b64encode(image.data).decode()}
    return dump({"type": "image", "source": source})


def _result(message: ToolMessage) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(message.call, _OWN_ID)}
    if message.text:
        result["content"] = message.text
    return result | ({"is_error": True} if message.is_error else {})


def _blocks(message: AssistantMessage, origin: str) -> list[dict[str, Any]]:
    """The blocks as they came where they were kept, with the calls in their places; else text, then calls."""
    uses = [_use(call) for call in message.calls]
    kept = [as_object(block) for block in as_list(own_extra(message, origin).get(BLOCKS))]
    if not kept and message.text.strip():
        kept = [{"type": "text", "text": message.text}]
    blocks: list[dict[str, Any]] = []
    for block in kept:
        if block.get("type") != "tool_use":
            blocks.append(block)
        elif uses:
            blocks.append(uses.pop(0))
    blocks += uses
    if not any(block.get("type") in ("text", "tool_use") for block in blocks):
        blocks.append({"type": "text", "text": NO_TEXT})
    return blocks


def _use(call: ToolCall) -> dict[str, Any]:
    arguments = as_object(parse(wire_arguments(call.arguments)))
    return {"type": "tool_use", "id": wire_id(call, _OWN_ID), "name": wire_name(call.name), "input": arguments}
