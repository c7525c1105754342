"""How a model acts over chat completions: by the wire's tool calls, or by text where it must.

A request in text is the one with tool calls rewritten, so a run changes over in the middle when a server turns out to
know no tools, or no schemas. What it refused is remembered for the process, like all that is learned of an endpoint.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from orchestrator.models.base import Mode
from orchestrator.models.chat import ChatCodec
from orchestrator.models.learned import NO_SCHEMAS, NO_TOOLS, Learned
from orchestrator.models.lenient import as_list, as_object, dump, parse
from orchestrator.models.modes import MOST_TOOLS, rewritten
from orchestrator.models.speech import JsonSpeech, Plain, ReactSpeech, Speech

STOP: Final = "stop"


class ActingCodec(ChatCodec):
    """A `Codec` for a model that begins in `mode`; the rest is as for `ChatCodec`."""

    def __init__(
        self, model: str, *, mode: Mode = "tools", weak: bool = False, learned: Learned | None = None, **options: Any
    ) -> None:
        learned = learned or Learned()
        super().__init__(model, learned=learned, **options)
        self.weak = weak
        self._mode: Mode = mode
        self._facts = learned.facts

    @property
    def mode(self) -> Mode:
        """How it acts now: as it was chosen, as far as the server goes along."""
        mode = self._mode
        if mode == "tools" and NO_TOOLS in self._facts:
            mode = "json"
        return "react" if mode == "json" and NO_SCHEMAS in self._facts else mode

    @property
    def most_tools(self) -> int | None:
        return None if self.mode == "tools" else MOST_TOOLS

    def body(
        self, messages: Sequence[bytes], tools: bytes, max_output_tokens: int, shut: Collection[str] = ()
    ) -> bytes:
        if (mode := self.mode) == "tools":
            return super().body(messages, tools, max_output_tokens)
        native = [as_object(message) for message in as_list(parse(b"[" + b",".join(messages) + b"]"))]
        offered = [as_object(tool) for tool in as_list(parse(tools))] if tools else []
        said, settings = rewritten(mode, native, offered, frozenset(shut), weak=self.weak)
        whole = super().body([dump(message) for message in said], b"", max_output_tokens)
        kept = {name: value for name, value in settings.items() if name not in self._refused}
        return whole[:-1] + b"," + dump(kept)[1:] if kept else whole

    def sent(self, body: bytes) -> list[str]:
        fields = as_object(parse(body))
        return [*super().sent(body), *([STOP] if STOP in fields else [])]

    def speech(self) -> Speech:
        return {"tools": Plain, "json": JsonSpeech, "react": ReactSpeech}[self.mode]()
