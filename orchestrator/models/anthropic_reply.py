"""A reply in the words of Anthropic's Messages API, streamed or whole."""

from collections.abc import Mapping
from typing import Any, Final

from orchestrator.errors import ModelError
from orchestrator.messages import AssistantMessage, FinishReason, ToolCall, Usage
from orchestrator.models.anthropic import BLOCKS
from orchestrator.models.base import CallReady, ModelReply
from orchestrator.models.failures import describe, kind_of
from orchestrator.models.lenient import as_int, as_list, as_object, dump, is_object, mend, parse

Json = dict[str, Any]

_PIECES: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_FINISHES: Final[Mapping[str, FinishReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # the server stopped for a moment, and goes on where it is asked to
    "refusal": "content_filter",
}
_COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class AnthropicReply:
    """Content blocks while they come in, by index. What is neither text nor a call is kept as it came."""

    def __init__(self) -> None:
        self.done = False
        self._id = ""
        self._model = ""
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}
        self._ready: list[CallReady] = []
        self._stop = ""
        self._counts: dict[str, int] = {}

    def event(self, data: bytes) -> str:
        """Takes in one event; returns its text. Pings and events of a kind that is not known are skipped."""
        event = as_object(parse(data))
        index = event.get("index")
        index = index if isinstance(index, int) else max(self._blocks, default=0)
        match event.get("type"):
            case "message_start":
                self._envelope(as_object(event.get("message")))
            case "content_block_start":
                return self._begin(index, as_object(event.get("content_block")))
            case "content_block_delta":
                return self._add(index, as_object(event.get("delta")))
            case "content_block_stop":
                self._end(index)
            case "message_delta":
                self._envelope({**as_object(event.get("delta")), "usage": event.get("usage")})
            case "message_stop":
                self.done = True
            case "error":
                error = describe(event)
                raise ModelError(kind_of(None, error["message"], error), f"the server said: {error['message']}")
            case _:
                pass
        return ""

    def whole(self, data: bytes) -> str:
        fields = as_object(parse(data))
        if fields.get("type") == "error":
            return self.event(data)
        if not isinstance(fields.get("content"), list):
            start = data[:80].decode("utf-8", "replace")
            raise ModelError("bad_request", f"the server's reply is no message; it begins with {start!r}")
        self._envelope(fields)
        self.done = True
        return "".join(
            [self._begin(index, as_object(block)) for index, block in enumerate(as_list(fields.get("content")))]
        )

    def ready(self) -> list[CallReady]:
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> str:
        return ""

    @property
    def complete(self) -> bool:
        return bool(self._stop) or (self.done and bool(self._blocks))

    def finish(self) -> ModelReply:
        if not self.complete:
            raise ModelError("broken_stream", "the model's reply ended in the middle")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = self._calls()
        text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        finish = _FINISHES.get(self._stop) or ("tool_calls" if calls else "stop")
        return ModelReply(
            message=AssistantMessage(text=text, calls=calls, extra=_kept(blocks)),
            finish=finish,
            usage=self._usage(),
            model=self._model,
            response_id=self._id,
        )

    def _envelope(self, fields: Json) -> None:
        """What is not content: names, why it stopped, and counts, which are totals each time they come."""
        self._id = self._id or _string(fields.get("id"))
        self._model = self._model or _string(fields.get("model"))
        self._stop = _string(fields.get("stop_reason")) or self._stop
        usage = as_object(fields.get("usage"))
        for name in _COUNTS:
            if isinstance(usage.get(name), int):
                self._counts[name] = max(self._counts.get(name, 0), as_int(usage[name]))

    def _begin(self, index: int, block: Json) -> str:
        self._blocks[index] = block
        return _string(block.get("text")) if block.get("type") == "text" else ""

    def _add(self, index: int, delta: Json) -> str:
        kind = delta.get("type")
        if kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(_string(delta.get("partial_json")))
        if (name := _PIECES.get(str(kind))) is None:
            return ""
        default = {"type": "text" if name == "text" else "thinking"}
        block, piece = self._blocks.setdefault(index, default), _string(delta.get(name))
        block[name] = _string(block.get(name)) + piece
        return piece if name == "text" else ""

    def _end(self, index: int) -> None:
        """A call whose block has ended is complete, though the reply is not."""
        block = self._blocks.get(index, {})
        arguments = self._arguments(index)
        if block.get("type") == "tool_use" and is_object(arguments):
            position = sum(self._blocks[each].get("type") == "tool_use" for each in self._blocks if each <= index)
            self._ready.append(CallReady(position=position, name=_string(block.get("name")), arguments=arguments))

    def _arguments(self, index: int) -> str:
        if pieces := "".join(self._inputs.get(index, ())).strip():
            return pieces
        return dump(as_object(self._blocks[index].get("input"))).decode() if index in self._blocks else "{}"

    def _calls(self) -> tuple[ToolCall, ...]:
        uses = [index for index in sorted(self._blocks) if self._blocks[index].get("type") == "tool_use"]
        return tuple(
            ToolCall(
                id=str(position),
                name=_string(self._blocks[index].get("name")),
                arguments=self._arguments(index),
                wire_id=_string(self._blocks[index].get("id")),
            )
            for position, index in enumerate(uses, 1)
        )

    def _usage(self) -> Usage | None:
        """Input as everyone else counts it: here the cached part is reported beside it, not in it."""
        if not any(self._counts.values()):
            return None
        fresh, output, read, written = (self._counts.get(name, 0) for name in _COUNTS)
        return Usage(
            input_tokens=fresh + read + written,
            output_tokens=output,
            cached_tokens=read,
            cache_write_tokens=written,
        )


def _kept(blocks: list[Json]) -> Json:
    """The blocks in their order where they say more than text and calls do; a call is only a place there."""
    if all(block.get("type") in ("text", "tool_use") for block in blocks):
        return {}
    kept = [{"type": "tool_use"} if block.get("type") == "tool_use" else block for block in blocks]
    return {BLOCKS: [block for block in kept if block.get("type") != "text" or str(block.get("text", "")).strip()]}


def _string(value: Any) -> str:
    return mend(value) if isinstance(value, str) else ""
