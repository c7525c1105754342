"""A reply put together from what a chat completions server sends, streamed or whole.

Nothing is taken for granted: calls without index or id, every index 0, arguments as an object, a finish reason that
does not fit, usage in a chunk without choices or not at all. What is missing is normal; only a broken end is an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.errors import ModelError
from orchestrator.messages import AssistantMessage, FinishReason, ToolCall, Usage
from orchestrator.models.base import CallReady, ModelReply
from orchestrator.models.chat import THOUGHT
from orchestrator.models.failures import describe, kind_of
from orchestrator.models.lenient import as_int, as_list, as_object, as_text, dump, is_object, mend, parse
from orchestrator.models.sse import SSEParser
from orchestrator.models.thinking import Thinking, without_lone_end

DONE = b"[DONE]"
# Fields of a message that are no text, but must be sent back to the server that sent them.
TEXT_EXTRAS = ("reasoning_content", "reasoning")
OTHER_EXTRAS = ("reasoning_details", "extra_content")


@dataclass(slots=True)
class _Call:
    """A call while its pieces come in."""

    id: str = ""
    index: int | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def add(self, piece: Mapping[str, Any]) -> None:
        function = as_object(piece.get("function"))
        self.id = self.id or _string(piece.get("id"))
        self.name = self.name or _string(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            self.pieces.append(arguments)
        elif isinstance(arguments, dict):
            self.pieces = [dump(arguments).decode()]
        if extra := piece.get("extra_content"):
            self.extra["extra_content"] = extra


class Assembly(Protocol):
    """A reply that is being put together, in one vendor's words."""

    done: bool

    @property
    def complete(self) -> bool: ...

    def event(self, data: bytes) -> str: ...

    def whole(self, data: bytes) -> str: ...

    def ready(self) -> list[CallReady]: ...

    def close(self) -> str: ...

    def finish(self) -> ModelReply: ...


class ReplyReader:
    """Feed it the body as it comes; it gives back text to show, and the whole reply at the end.

    Raises:
        ModelError: the server sent an error, or the body ended too early.
    """

    def __init__(self, reply: Assembly | None = None) -> None:
        self._events = SSEParser()
        self._whole: list[bytes] | None = None
        self._started = False
        self._reply: Assembly = reply or ChatReply()

    @property
    def done(self) -> bool:
        """Whether the server has said that nothing more comes."""
        return self._reply.done

    @property
    def complete(self) -> bool:
        """Whether what came so far is a whole reply, its usage perhaps excepted."""
        return self._reply.complete

    def feed(self, chunk: bytes) -> str:
        if not self._started and (start := chunk.lstrip()):
            self._started = True
            if start[:1] in b"{[<":  # no event begins like that: the server ignored `stream`, or is no model server
                self._whole = []
        if self._whole is not None:
            self._whole.append(chunk)
            return ""
        return "".join([self._reply.event(data) for data in self._events.feed(chunk)])

    def ready(self) -> list[CallReady]:
        """The calls that became complete since this was last asked: one is when the next one has begun."""
        return self._reply.ready()

    def close(self) -> str:
        """The body has ended; returns the text that only shows now. `reply` comes after it."""
        if self._whole is None:
            text = "".join([self._reply.event(data) for data in self._events.close()])
        else:
            text = self._reply.whole(b"".join(self._whole))
        return text + self._reply.close()

    def reply(self) -> ModelReply:
        return self._reply.finish()


class ChatReply:
    """A reply in the words of chat completions."""

    def __init__(self) -> None:
        self.done = False
        self._seen = False
        self._text: list[str] = []
        self._thinking = Thinking()
        self._half = ""  # half of a surrogate pair, which some servers split over two events
        self._calls: list[_Call] = []
        self._told = 0
        self._finish: str | None = None
        self._usage: Usage | None = None
        self._extra: dict[str, Any] = {}
        self._model = ""
        self._id = ""

    def event(self, data: bytes) -> str:
        """Takes in one event; returns its text. What is not JSON is some server's way to keep the line open."""
        if data == DONE:
            self.done = True
            return ""
        chunk = as_object(parse(data))
        choice = self._envelope(chunk)
        delta = as_object(choice.get("delta") or choice.get("message"))
        if not delta:
            return ""
        for place, piece in enumerate(pieces := as_list(delta.get("tool_calls"))):
            self._find(as_object(piece), place, len(pieces)).add(as_object(piece))
        return self._message(delta)

    def whole(self, data: bytes) -> str:
        """Takes in a reply that was not streamed; returns its text."""
        fields = as_object(parse(data))
        choice = self._envelope(fields)
        if not choice:
            start = data[:80].decode("utf-8", "replace")
            raise ModelError("bad_request", f"the server's reply is no chat completion; it begins with {start!r}")
        message = as_object(choice.get("message"))
        for piece in as_list(message.get("tool_calls")):
            self._calls.append(_Call())
            self._calls[-1].add(as_object(piece))
        self.done = True
        return self._message(message)

    def ready(self) -> list[CallReady]:
        if self._told >= len(self._calls) - 1:
            return []
        begun, self._told = self._told, len(self._calls) - 1
        return [
            CallReady(position=place, name=call.name, arguments=call.arguments)
            for place, call in enumerate(self._calls[begun : self._told], begun + 1)
            if call.name and is_object(call.arguments)
        ]

    def close(self) -> str:
        text = self._thinking.close()
        self._text.append(text)
        return text

    @property
    def complete(self) -> bool:
        return self._seen and (self.done or bool(self._finish))

    def finish(self) -> ModelReply:
        if not self.complete:
            raise ModelError("broken_stream", "the model's reply ended in the middle")
        calls, extras = self._finished_calls()
        extra = {name: mend(value) if isinstance(value, str) else value for name, value in self._extra.items()}
        if any(extras):
            extra["tool_calls"] = extras
        thought, text = without_lone_end(mend("".join(self._text) + self._half))
        if thought := thought or self._thinking.thought:
            extra[THOUGHT] = thought
        message = AssistantMessage(text=text, calls=calls, extra=extra)
        return ModelReply(
            message=message,
            finish=_finish(self._finish, bool(calls)),
            usage=self._usage,
            model=self._model,
            response_id=self._id,
        )

    def _envelope(self, chunk: Mapping[str, Any]) -> dict[str, Any]:
        """Everything of a chunk that is not the message; returns its first choice."""
        if chunk.get("error") or chunk.get("object") == "error":
            error = describe(chunk)
            raise ModelError(kind_of(None, error["message"], error), f"the server said: {error['message']}")
        if not self._id:
            self._id = _string(chunk.get("id"))
        if not self._model:
            self._model = _string(chunk.get("model"))
        choices = as_list(chunk.get("choices"))
        choice = as_object(choices[0]) if choices else {}
        if choice:
            self._seen = True
            self._finish = _string(choice.get("finish_reason")) or self._finish
        if reported := chunk.get("usage") or choice.get("usage"):
            self._usage = _usage(as_object(reported)) or self._usage
        return choice

    def _message(self, message: Mapping[str, Any]) -> str:
        for name in TEXT_EXTRAS:
            if value := message.get(name):
                self._extra[name] = self._extra.get(name, "") + as_text(value)
        for name in OTHER_EXTRAS:
            if value := message.get(name):
                before = self._extra.get(name)
                self._extra[name] = [*as_list(before), *as_list(value)] if isinstance(value, list) else value
        text = as_text(message.get("content")) or as_text(message.get("refusal"))
        if not text:
            return ""
        if self._half or not text.isascii():
            text = self._half + text
            self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
            text = mend(text[:-1] if self._half else text)
        text = self._thinking.feed(text)
        self._text.append(text)
        return text

    def _find(self, piece: Mapping[str, Any], place: int, pieces: int) -> _Call:
        """The call that a piece belongs to, or a new one: by id, then by index, then by position."""
        id_, index = _string(piece.get("id")), piece.get("index")
        name = _string(as_object(piece.get("function")).get("name"))
        index = index if isinstance(index, int) else None
        found = None
        if id_:
            same = (call for call in reversed(self._calls) if call.id == id_)
            found = next((call for call in same if index == call.index or None in (index, call.index)), None)
        if found is None and not (id_ and name):  # an id that is new, on a piece that begins nothing, means nothing
            found = self._at(index, place if pieces > 1 and not name else -1)
        if found and not id_ and name and found.name and (name != found.name or is_object(found.arguments)):
            found = None  # a whole call after a whole call, with nothing to tell them apart
        if found is None:
            found = _Call(index=index)
            self._calls.append(found)
        return found

    def _at(self, index: int | None, place: int) -> _Call | None:
        if index is not None:
            return next((call for call in reversed(self._calls) if call.index == index), None)
        return self._calls[place] if place < len(self._calls) and self._calls else None

    def _finished_calls(self) -> tuple[tuple[ToolCall, ...], list[dict[str, Any]]]:
        calls: list[ToolCall] = []
        extras: list[dict[str, Any]] = []
        ids: set[str] = set()
        for call in self._calls:
            if not call.name and not call.arguments.strip():
                continue
            vendors = call.id if call.id not in ids else ""
            ids.add(call.id)
            arguments = mend(call.arguments).strip() or "{}"
            calls.append(ToolCall(id=str(len(calls) + 1), name=call.name, arguments=arguments, wire_id=vendors))
            extras.append(call.extra)
        return tuple(calls), extras


def _finish(said: str | None, calls: bool) -> FinishReason:
    """Servers say `stop` with calls and `tool_calls` without; only the presence of calls is to be trusted."""
    if said in ("length", "max_tokens"):
        return "length"
    if calls:
        return "tool_calls"
    return "content_filter" if said == "content_filter" else "stop"


def _usage(reported: Mapping[str, Any]) -> Usage | None:
    """Usage in OpenAI's words, with DeepSeek's and Moonshot's for cached tokens."""
    if "prompt_tokens" not in reported and "completion_tokens" not in reported:
        return None
    prompt = as_object(reported.get("prompt_tokens_details"))
    completion = as_object(reported.get("completion_tokens_details"))
    cached = prompt.get("cached_tokens") or reported.get("prompt_cache_hit_tokens") or reported.get("cached_tokens")
    return Usage(
        input_tokens=as_int(reported.get("prompt_tokens")),
        output_tokens=as_int(reported.get("completion_tokens")),
        cached_tokens=as_int(cached),
        reasoning_tokens=as_int(completion.get("reasoning_tokens")),
    )


def _string(value: Any) -> str:
    return mend(value) if isinstance(value, str) else ""
