"""Replies of models that act by text, as they come: what is to be shown of them, and the calls in them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Protocol

from pydantic_core import from_json

from orchestrator.messages import ToolCall
from orchestrator.models.base import FINAL, CallReady, ModelPart, ModelReply, TextDelta
from orchestrator.models.lenient import as_object, dump, is_object
from orchestrator.models.repair import repair
from orchestrator.models.written import span_of

_LABELS: Final = ("thought", "action input", "action", "observation", "final answer")
_MARK: Final = " \t>*#_-"
_LABEL = re.compile(
    r"^[ \t>*#_-]*(thought|action[ _]input|action|observation|final[ _]answer)[ \t*_]*[:：][ \t*_]*", re.I | re.M
)
_THINKING = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>\s*|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^```[\w+-]*\s*|\s*```\s*$")


class Speech(Protocol):
    """One reply. `feed` takes its text as it comes, `close` the whole reply; both say what is to be passed on.

    `ignored` says afterwards that the server did not keep to the schema that it was given.
    """

    ignored: bool

    def feed(self, text: str) -> list[ModelPart]: ...

    def close(self, reply: ModelReply) -> ModelReply: ...


class Plain:
    """Text is text."""

    ignored = False

    def feed(self, text: str) -> list[ModelPart]:
        return [TextDelta(text=text)] if text else []

    def close(self, reply: ModelReply) -> ModelReply:
        return reply


class JsonSpeech:
    """A JSON object that picks an action. Only a final answer's text is shown."""

    def __init__(self) -> None:
        self._text = ""
        self._shown = 0
        self.ignored = False

    def feed(self, text: str) -> list[ModelPart]:
        self._text += text
        if '"answer"' not in self._text:
            return []
        try:
            fields = as_object(from_json(self._text, allow_partial="trailing-strings"))
        except ValueError:
            return []
        answer = _answer(fields) or ""
        fresh, self._shown = answer[self._shown :], max(self._shown, len(answer))
        return [TextDelta(text=fresh)] if fresh else []

    def close(self, reply: ModelReply) -> ModelReply:
        if reply.message.calls or not (text := _THINKING.sub("", reply.message.text).lstrip()):
            return reply
        self.ignored = not text.startswith(("{", "```"))
        fields = as_object(_read(text, cut=reply.finish == "length"))
        if (answer := _answer(fields)) is not None:
            return replace(reply, message=replace(reply.message, text=answer), final=True)
        action = fields.get("action")
        arguments = as_object(fields.get("arguments")) or fields.get("arguments")
        if not isinstance(action, str) or arguments is None:
            return reply if self.ignored else _without_beginning(reply)
        thought = fields.get("thought")
        return _calling(reply, thought if isinstance(thought, str) else "", [(action, _text_of(arguments))])


class ReactSpeech:
    """`Thought:`, `Action:`, `Action Input:`, `Final Answer:`. Thoughts and the answer are shown, calls are not."""

    ignored = False

    def __init__(self) -> None:
        self._text = ""
        self._held = ""  # the beginning of a line that may still become a label
        self._fresh = True
        self._part = ""  # the label that the text stands under; none yet is ""
        self._hidden = False
        self._told = 0

    def feed(self, text: str) -> list[ModelPart]:
        self._text += text
        shown = "".join([self._show(piece) for piece in text.splitlines(keepends=True)])
        deltas: list[ModelPart] = [TextDelta(text=shown)] if shown else []
        return [*deltas, *self._ready()] if "}" in text or "\n" in text else deltas

    def _show(self, piece: str) -> str:
        """What of a piece of one line is to be shown now."""
        ended = piece.endswith("\n")
        line = self._held + piece
        if self._fresh and (found := _LABEL.match(line)):
            self._part, self._hidden = _label(found), False
            line = line[found.end() :]
        elif self._fresh and not ended and _may_be_label(line):
            self._held = line
            return ""
        self._held, self._fresh = "", ended
        return self._visible(line)

    def _visible(self, line: str) -> str:
        if self._part in ("action", "action input", "observation") or self._hidden:
            return ""
        if self._part == "final answer":
            return line
        shown = re.split(r"[{\[`<｛]", line, maxsplit=1)[0]  # what follows may be a call
        self._hidden = shown != line
        return shown

    def _ready(self) -> Iterator[CallReady]:
        """The calls that are complete by now."""
        calls = self._calls(self._text, ended=False)
        for place, (name, arguments) in enumerate(calls[self._told :], self._told + 1):
            if not is_object(arguments):
                return
            self._told = place
            yield CallReady(position=place, name=name, arguments=arguments)

    def close(self, reply: ModelReply) -> ModelReply:
        text = _THINKING.sub("", reply.message.text)
        if reply.message.calls or not _LABEL.search(text):
            return JsonSpeech().close(reply)  # an object was what it was asked for before its mode changed
        parts = list(_parts(text))
        thought = "\n".join(said for label, said in parts if label in ("", "thought") and said)
        cut = reply.finish == "length"
        if calls := self._calls(text, ended=not cut):  # an answer beside a call was written before the result
            return _calling(reply, thought, calls)
        answers = [said for label, said in parts if label == "final answer"]
        if cut and not answers:
            return _without_beginning(reply)
        if answers or not any(label == "action" for label, _ in parts):
            said = "\n".join(answers) if answers else thought
            said += text[len(text.rstrip()) :] if cut else ""  # it may be what parts two words
            return replace(reply, message=replace(reply.message, text=said), final=bool(answers))
        return reply

    def _calls(self, text: str, *, ended: bool) -> list[tuple[str, str]]:
        calls: list[tuple[str, str]] = []
        name = ""
        for label, said in _parts(text):
            if label == "action":
                if name:
                    calls.append((name, "{}"))
                name = said.strip("`\"'[]() \n") if re.fullmatch(r"[`\"'\[( ]*[\w.\-]+[`\"'\])( ]*", said) else ""
            elif label == "action input" and name:
                calls.append((name, _input(said)))
                name = ""
        return [*calls, (name, "{}")] if name and ended else calls


def _without_beginning(reply: ModelReply) -> ModelReply:
    """Of a reply that was cut off before its call or answer, nothing can be shown or gone on with."""
    return replace(reply, message=replace(reply.message, text="")) if reply.finish == "length" else reply


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The text under each label. From an observation on, the model has made up what only a tool can say."""
    label, at = "", 0
    for found in _LABEL.finditer(text):
        if label == "final answer" and found[1].lower() == "thought":
            continue
        yield label, text[at : found.start()].strip()
        label, at = _label(found), found.end()
        if label == "observation":
            return
    yield label, text[at:].strip()


def _input(text: str) -> str:
    """An action's input without fences and without what was said after it."""
    text = _FENCE.sub("", text.strip())
    if text.startswith(("{", "｛")):
        end, closed = span_of(text, 0)
        return text[:end] if closed else text
    return text


def _label(found: re.Match[str]) -> str:
    return found[1].lower().replace("_", " ")


def _may_be_label(line: str) -> bool:
    bare = line.lstrip(_MARK).lower().replace("_", " ").rstrip("* ")
    return len(line) < 40 and any(label.startswith(bare) for label in _LABELS)


def _calling(reply: ModelReply, text: str, calls: list[tuple[str, str]]) -> ModelReply:
    nothing = "{" if reply.finish == "length" else "{}"
    made = tuple(ToolCall(id=str(n), name=name, arguments=given or nothing) for n, (name, given) in enumerate(calls, 1))
    finish = reply.finish if reply.finish == "length" else "tool_calls"
    return replace(reply, message=replace(reply.message, text=text, calls=made), finish=finish)


def _answer(fields: dict[str, Any]) -> str | None:
    """The text of a final answer, which may be empty; None when the object is none."""
    said = fields.get("action")
    if said != FINAL and (said is not None or "answer" not in fields):
        return None
    answer = as_object(fields.get("arguments")).get("answer", fields.get("answer", ""))
    return answer if isinstance(answer, str) else dump(answer).decode()


def _read(text: str, *, cut: bool) -> Any:
    """The object; of one that was cut off, only what is certain: an answer as far as it goes."""
    try:
        if not cut:
            return repair(text)
        fields = as_object(from_json(text, allow_partial="trailing-strings"))
    except ValueError:
        return None
    if fields.get("action") == FINAL or is_object(text):
        return fields
    action = fields.get("action")
    return {**fields, "arguments": text} if isinstance(action, str) and "arguments" in fields else None


def _text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else dump(arguments).decode()
