"""The wire of OpenAI's chat completions, which nearly every model server speaks.

Each message becomes bytes once; a request is those bytes joined. What a server has refused (a parameter that it does
not know) is remembered here, so that later bodies are right from the start.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, assert_never
from weakref import WeakKeyDictionary

from orchestrator.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import ToolSpec
from orchestrator.models.flavours import Flavour, plain
from orchestrator.models.lenient import as_list, as_object, dump, is_object, parse

OPENAI_URL = "https://api.openai.com/v1"
# Some servers refuse an assistant turn with empty content; without the turn, two user turns would follow each other.
NO_TEXT = "(no answer)"
# Reasoning goes back only with the calls it led to: that is where servers demand it, and elsewhere some refuse it.
REASONING = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
OPTIONAL = ("stream_options", "temperature", *LIMIT_NAMES)
_OUR_ID = re.compile(r"t([1-9]\d*)\.([1-9]\d*)", re.ASCII)
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def wire_id(call: ToolCall) -> str:
    """The vendor's id of a call, else nine alphanumerics made of ours, as Mistral wants them: `t5.1` is `0000005c1`."""
    if call.wire_id:
        return call.wire_id
    if (found := _OUR_ID.fullmatch(call.id)) and len(short := f"{found[1]}c{found[2]}") <= 9:
        return short.rjust(9, "0")
    number = int.from_bytes(hashlib.blake2b(call.id.encode("utf-8", "replace"), digest_size=8).digest())
    return "".join(_BASE62[number // 62**place % 62] for place in range(9))


def wire_arguments(text: str) -> str:
    """A call's arguments as they enter history: a JSON object, always.

    Text that is none goes in as `{"_invalid": text}`: a server that gets it raw answers 500 to every later turn, and
    the model should still see what it wrote.
    """
    if is_object(text):
        return text
    return dump({"_invalid": text}).decode() if text.strip() else "{}"


class ChatCodec:
    """A `Codec` for one model; `temperature` None leaves the choice to the server, `flavour` is its copy of a tool."""

    def __init__(self, model: str, *, temperature: float | None = None, flavour: Flavour = plain) -> None:
        self._flavour = flavour
        self._tools: MutableMapping[ToolSpec, bytes] = WeakKeyDictionary()
        self._head = b'{"model":' + dump(model) + b',"messages":['
        self._temperature = temperature
        self._refused: set[str] = set()
        self._tail = self._make_tail()

    def message(self, message: Message) -> bytes:
        match message:
            case SystemMessage():
                return dump({"role": "system", "content": message.text})
            case UserMessage():
                return dump({"role": "user", "content": _user(message)})
            case ToolMessage():
                return dump({"role": "tool", "tool_call_id": wire_id(message.call), "content": message.text})
            case AssistantMessage():
                return dump(_assistant(message))
            case _:
                assert_never(message)

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return b"[" + b",".join(map(self._tool, tools)) + b"]" if tools else b""

    def body(self, messages: Sequence[bytes], tools: bytes, max_output_tokens: int) -> bytes:
        offered = b'],"tools":' + tools if tools else b"]"
        limit = b',"%s":%d}' % (name.encode(), max_output_tokens) if (name := self._limit_name) else b"}"
        return b"".join((self._head, b",".join(messages), offered, self._tail, limit))

    def refuse(self, parameter: str, body: bytes) -> bytes:
        """Notes that the server refuses a parameter, and makes `body` what `self.body` would make it from now on.

        `max_tokens` becomes `max_completion_tokens`, and goes only when that is refused as well.
        """
        self._refused.add(parameter)
        self._tail = self._make_tail()
        fields = as_object(parse(body))
        limit = next((fields.pop(name) for name in LIMIT_NAMES if name in fields), None)
        kept = {name: value for name, value in fields.items() if name not in self._refused}
        if limit is not None and (name := self._limit_name):
            kept[name] = limit
        return dump(kept)

    def _tool(self, tool: ToolSpec) -> bytes:
        if (encoded := self._tools.get(tool)) is None:
            encoded = self._tools[tool] = dump({"type": "function", "function": self._flavour(tool)})
        return encoded

    @property
    def _limit_name(self) -> str | None:
        return next((name for name in LIMIT_NAMES if name not in self._refused), None)

    def _make_tail(self) -> bytes:
        """What stands between the tools and the output limit."""
        settings: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        if self._temperature is not None:
            settings["temperature"] = self._temperature
        kept = {name: value for name, value in settings.items() if name not in self._refused}
        return b"," + dump(kept)[1:-1]


def _user(message: UserMessage) -> str | list[dict[str, Any]]:
    """Images go as data URLs, beside the text; one that is not there, or is not for this model, does not."""
    images = [image for image in message.images if image.data]
    if not images:
        return message.text
    urls = [f"data:{image.mime_type};base64,{b64encode(image.data).decode()}" for image in images]
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": message.text}, *pictures]


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": "assistant", "content": message.text or (None if message.calls else NO_TEXT)}
    vendors = {name: value for name, value in message.extra.items() if name != "tool_calls"}
    if message.calls:
        extras = as_list(message.extra.get("tool_calls"))
        extras += [{}] * (len(message.calls) - len(extras))
        wire["tool_calls"] = [_call(call, as_object(extra)) for call, extra in zip(message.calls, extras, strict=False)]
    else:
        vendors = {name: value for name, value in vendors.items() if name not in REASONING}
    return vendors | wire


def _call(call: ToolCall, extra: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call.name, "arguments": wire_arguments(call.arguments)}
    return {**extra, "id": wire_id(call), "type": "function", "function": function}
