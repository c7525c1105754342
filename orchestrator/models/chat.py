"""The wire of OpenAI's chat completions, which nearly every model server speaks.

Each message becomes bytes once; a request is those bytes joined. What a server has refused (a parameter that it does
not know) is remembered here, so that later bodies are right from the start.
"""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, assert_never
from weakref import WeakKeyDictionary

from orchestrator.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.base import ToolSpec
from orchestrator.models.flavours import Flavour, plain
from orchestrator.models.learned import NULL_CONTENT, TEXT_ARGUMENTS, Learned
from orchestrator.models.lenient import as_list, as_object, dump, parse
from orchestrator.models.speech import Plain, Speech
from orchestrator.models.wire import ANY_ID, NO_TEXT, own_extra, wire_arguments, wire_id, wire_name

OPENAI_URL = "https://api.openai.com/v1"
# Reasoning goes back only with the calls it led to: that is where servers demand it, and elsewhere some refuse it.
REASONING = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
THOUGHT = "thought"
"""The key in `extra` of what stood between `<think>` tags. It goes back to models that were trained to see it."""
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
OPTIONAL = ("stream_options", "temperature", *LIMIT_NAMES)
_SHAPES: Final = {NULL_CONTENT, TEXT_ARGUMENTS}
_USER: Final = b'{"role":"user","content":"'
_NULL: Final = b'{"role":"assistant","content":null'
_EMPTY: Final = b'{"role":"assistant","content":""'
_NINE: Final = re.compile(r"[A-Za-z0-9]{9}", re.ASCII)
_MISTRALS: Final = re.compile(r"(?:mis|minis|mix|magis|pix|devs|codes)tral", re.IGNORECASE)
_KEEP_THOUGHTS: Final = re.compile(r"minimax", re.IGNORECASE)


class ChatCodec:
    """A `Codec` for one model; `temperature` None leaves the choice to the server, `flavour` is its copy of a tool.

    `origin` names the endpoint: what its replies had of their own goes back to it alone. `parameters` are sent as they
    are. `learned` is what it refuses.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float | None = None,
        flavour: Flavour = plain,
        origin: str = "",
        parameters: Mapping[str, Any] = {},
        learned: Learned | None = None,
    ) -> None:
        self.origin = origin
        self._flavour = flavour
        self._tools: MutableMapping[ToolSpec, bytes] = WeakKeyDictionary()
        self._head = b'{"model":' + dump(model) + b',"messages":['
        self._settings: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        if temperature is not None:
            self._settings["temperature"] = temperature
        self._settings |= parameters
        self._refused = (learned or Learned()).refused
        self._tail = 0, self._make_tail()
        self._ids = _NINE if _MISTRALS.search(model) else ANY_ID
        self._thoughts = bool(_KEEP_THOUGHTS.search(model))

    def message(self, message: Message) -> bytes:
        match message:
            case SystemMessage():
                return dump({"role": "system", "content": message.text})
            case UserMessage():
                return dump({"role": "user", "content": _user(message)})
            case ToolMessage():
                return dump({"role": "tool", "tool_call_id": wire_id(message.call, self._ids), "content": message.text})
            case AssistantMessage():
                return dump(self._assistant(message))
            case _:
                assert_never(message)

    def tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return b"[" + b",".join(map(self._tool, tools)) + b"]" if tools else b""

    weak = False

    @property
    def most_tools(self) -> int | None:
        return None

    def body(
        self, messages: Sequence[bytes], tools: bytes, max_output_tokens: int, shut: Collection[str] = ()
    ) -> bytes:
        """`shut` is nothing to this wire: another list of tools would cost the cache of the whole prompt."""
        if self._tail[0] != len(self._refused):  # another run of this process has learned something
            self._tail = len(self._refused), self._make_tail()
        shaped = map(self._shaped, messages) if self._refused & _SHAPES else messages
        offered = b'],"tools":' + tools if tools else b"]"
        limit = b',"%s":%d}' % (name.encode(), max_output_tokens) if (name := self._limit_name) else b"}"
        return b"".join((self._head, b",".join(_alternating(shaped)), offered, self._tail[1], limit))

    def closed(self, tools: bytes) -> bytes:
        """Without the list: several servers ignore a `tool_choice` of none."""
        del tools
        return b""

    def speech(self) -> Speech:
        """How a reply's text is read."""
        return Plain()

    def sent(self, body: bytes) -> list[str]:
        """What of a body a server may refuse and do without."""
        fields = as_object(parse(body))
        shapes = [NULL_CONTENT] if _NULL in body else []
        shapes += [TEXT_ARGUMENTS] if b'"tool_calls":[{' in body and TEXT_ARGUMENTS not in self._refused else []
        return [name for name in OPTIONAL if name in fields] + shapes

    def refuse(self, parameter: str, body: bytes) -> bytes:
        """Notes that the server refuses a parameter, and makes `body` what `self.body` would make it from now on.

        `max_tokens` becomes `max_completion_tokens`, and goes only when that is refused as well.
        """
        self._refused.add(parameter)
        fields = as_object(parse(body))
        limit = next((fields.pop(name) for name in LIMIT_NAMES if name in fields), None)
        kept = {name: value for name, value in fields.items() if name not in self._refused}
        if limit is not None and (name := self._limit_name):
            kept[name] = limit
        kept["messages"] = [parse(self._shaped(dump(message))) for message in as_list(kept.get("messages"))]
        return dump(kept)

    def _shaped(self, message: bytes) -> bytes:
        """A message in the shape that this server takes."""
        if NULL_CONTENT in self._refused and message.startswith(_NULL):
            message = _EMPTY + message[len(_NULL) :]
        if TEXT_ARGUMENTS in self._refused and b'"tool_calls":[' in message:
            fields = as_object(parse(message))
            for call in as_list(fields.get("tool_calls")):
                function = as_object(as_object(call).get("function"))
                if isinstance(text := function.get("arguments"), str):
                    function["arguments"] = as_object(parse(text))
            message = dump(fields)
        return message

    def _tool(self, tool: ToolSpec) -> bytes:
        if (encoded := self._tools.get(tool)) is None:
            encoded = self._tools[tool] = dump({"type": "function", "function": self._flavour(tool)})
        return encoded

    @property
    def _limit_name(self) -> str | None:
        return next((name for name in LIMIT_NAMES if name not in self._refused), None)

    def _make_tail(self) -> bytes:
        """What stands between the tools and the output limit."""
        return b"," + dump({name: value for name, value in self._settings.items() if name not in self._refused})[1:-1]

    def _assistant(self, message: AssistantMessage) -> dict[str, Any]:
        extra = own_extra(message, self.origin)
        text = message.text
        if self._thoughts and (thought := extra.get(THOUGHT)):
            text = f"<think>\n{thought}\n</think>\n\n{text}"
        wire: dict[str, Any] = {"role": "assistant", "content": text or (None if message.calls else NO_TEXT)}
        skipped = {THOUGHT, *wire, "tool_calls"} if message.calls else {THOUGHT, *wire, "tool_calls", *REASONING}
        if message.calls:
            extras = as_list(extra.get("tool_calls"))
            extras += [{}] * (len(message.calls) - len(extras))
            wire["tool_calls"] = [
                self._call(call, as_object(own)) for call, own in zip(message.calls, extras, strict=False)
            ]
        return wire | {name: value for name, value in extra.items() if name not in skipped}

    def _call(self, call: ToolCall, extra: Mapping[str, Any]) -> dict[str, Any]:
        function = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
        return {**extra, "id": wire_id(call, self._ids), "type": "function", "function": function}


def _user(message: UserMessage) -> str | list[dict[str, Any]]:
    """Images go as data URLs, beside the text; one that is not there, or is not for this model, does not."""
    images = [image for image in message.images if image.data]
    if not images:
        return message.text
    urls = [f"data:{image.mime_type};base64,{b64encode(image.data).decode()}" for image in images]
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"type": "text", "text": message.text}, *pictures]


def _alternating(messages: Iterable[bytes]) -> list[bytes]:
    """No two user turns in a row, which some servers refuse: the second goes on in the first."""
    turns: list[bytes] = []
    for message in messages:
        if turns and message.startswith(_USER) and turns[-1].startswith(_USER):
            turns[-1] = turns[-1][:-2] + rb"\n\n" + message[len(_USER) :]
        else:
            turns.append(message)
    return turns
