"""Models without a server: a script in Python, and a recording in a file. Both are for tests, demos and replays.

A recording is a file of JSON lines. The first says what it is: `{"recording": 1, "source": "…", "model": "…"}`. Each
other line is one reply: `{"agent": "analyst", "turn": 1, "text": "…", "calls": [{"name": "tables__query", "arguments":
{…}}]}`, with `usage`, `finish`, `extra` and `task` where needed. A line with `task` answers only runs whose first user
message contains that text, and goes before one without.
"""

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.errors import ConfigurationError, ModelError, Problem
from orchestrator.messages import AssistantMessage, FinishReason, Prices, ToolCall, Usage, UserMessage
from orchestrator.models.base import FIND_TOOLS, Model, ModelPart, ModelReply, ModelRequest, TextDelta
from orchestrator.models.chat import ChatCodec
from orchestrator.models.lenient import dump

PIECES = 3  # deltas that a text comes in
BYTES_A_TOKEN = 4  # of made-up usage: the same on every machine, near enough to a real one


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a script asks for. Arguments as text go out as they are, broken or not."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])


Answer = str | Call | Sequence[str | Call] | AssistantMessage | ModelReply | ModelError
Script = Callable[[ModelRequest], Answer | Awaitable[Answer]]


def call(name: str, arguments: Mapping[str, Any] | str | None = None) -> Call:
    """A call of the tool `name`, as the model sees it (`server__tool`)."""
    return Call(name, {} if arguments is None else arguments)


def reply(
    *parts: str | Call, finish: FinishReason | None = None, usage: Usage | None = None, extra: Mapping[str, Any] = {}
) -> ModelReply:
    """A whole reply of texts and calls: `reply("Let me look.", call("files__read", {"path": "a.txt"}))`."""
    calls = [part for part in parts if isinstance(part, Call)]
    message = AssistantMessage(
        text="".join(part for part in parts if isinstance(part, str)),
        calls=tuple(
            ToolCall(id=str(place), name=one.name, arguments=_text(one.arguments)) for place, one in enumerate(calls, 1)
        ),
        extra=extra,
    )
    return ModelReply(message=message, finish=finish or ("tool_calls" if calls else "stop"), usage=usage)


class ScriptedModel:
    """A `Model` that a test writes: a function of the request, or one answer for each turn.

        ScriptedModel(["Let me look.", call("files__read", {"path": "a.txt"})], "It says hello.")
        ScriptedModel(lambda request: "done" if request.turn > 1 else call("demo__add", {"a": 1, "b": 2}))

    An answer is a text, a call, a list of them, a message, a whole reply, or a `ModelError` to raise. A function may be
    async. Usage that an answer does not give is made up from lengths.
    """

    provider = "scripted"

    def __init__(
        self, *script: Answer | Script, name: str = "scripted", prices: Prices | None = None, vision: bool = False
    ) -> None:
        self.name = name
        self.prices = prices
        self.vision = vision
        self.codec = ChatCodec(name)
        self._script = script

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        answer = self._answer(request)
        if inspect.isawaitable(answer):
            answer = await answer
        whole = _reply(answer)
        text = whole.message.text
        size = -(-len(text) // PIECES)
        for start in range(0, len(text), size or 1):
            yield TextDelta(text=text[start : start + size])
        yield ModelReply(
            message=whole.message,
            finish=whole.finish,
            usage=whole.usage or _usage(request, whole.message),
            model=whole.model or self.name,
            response_id=whole.response_id,
        )

    async def aclose(self) -> None:
        """Nothing is open."""

    def _answer(self, request: ModelRequest) -> Answer | Awaitable[Answer]:
        if len(self._script) == 1 and callable(only := self._script[0]):
            return only(request)
        if request.summary:
            raise ModelError("unscripted", f"the script of {self.name!r} has no summaries; a function can write them")
        if request.turn > len(self._script):
            raise ModelError(
                "unscripted",
                f"the script of {self.name!r} has {len(self._script)} answers; "
                f"agent {request.agent!r} asked for turn {request.turn}",
            )
        answer = self._script[request.turn - 1]
        return answer(request) if callable(answer) else answer


def _reply(answer: Answer) -> ModelReply:
    match answer:
        case ModelError():
            raise answer
        case ModelReply():
            return answer
        case AssistantMessage():
            return ModelReply(message=answer, finish="tool_calls" if answer.calls else "stop", usage=None)
        case str() | Call():
            return reply(answer)
        case Sequence():
            return reply(*answer)
        case _:
            assert_never(answer)


def _text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else dump(arguments).decode()


def _usage(request: ModelRequest, message: AssistantMessage) -> Usage:
    written = len(message.text) + sum(len(call.name) + len(call.arguments) for call in message.calls)
    return Usage(input_tokens=len(request.body) // BYTES_A_TOKEN, output_tokens=max(1, written // BYTES_A_TOKEN))


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Header(_Line):
    """The first line of a recording: where it comes from."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    recording: Literal[1]
    source: str
    model: str


class RecordedCall(_Line):
    name: str
    arguments: dict[str, Any] | str = {}


class RecordedUsage(_Line):
    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cached_tokens: int = Field(0, ge=0)
    reasoning_tokens: int = Field(0, ge=0)


class RecordedReply(_Line):
    """Any other line of a recording: the reply to one agent's one turn."""

    agent: str
    turn: int = Field(ge=1)
    text: str = ""
    calls: list[RecordedCall] = []
    usage: RecordedUsage | None = None
    finish: FinishReason | None = None
    extra: dict[str, Any] = {}
    task: str | None = None

    def reply(self) -> ModelReply:
        calls = [Call(call.name, call.arguments) for call in self.calls]
        usage = Usage(**self.usage.model_dump()) if self.usage else None
        return reply(self.text, *calls, finish=self.finish, usage=usage, extra=self.extra)


class RecordedModel(ScriptedModel):
    """A `Model` that answers from a file, and from nothing else. Its name shows that it is a recording.

    Raises:
        ConfigurationError: the file cannot be read, or a line of it cannot be used; all such lines are named.
    """

    def __init__(self, path: Path | str, *, prices: Prices | None = None) -> None:
        self.path = Path(path)
        self.header, self._lines = read_recording(self.path)
        super().__init__(self._recorded, name=f"recorded:{self.path.stem}", prices=prices)

    def _recorded(self, request: ModelRequest) -> ModelReply:
        task = next((message.text for message in request.messages if isinstance(message, UserMessage)), "")
        lines = [line for line in self._lines.get((request.agent, request.turn), ()) if (line.task or "") in task]
        if request.summary:
            lines = [line for line in lines if line.task == task]
        if not lines:
            raise ModelError("unscripted", self._missing(request, task))
        line = max(lines, key=lambda line: -1 if line.task is None else len(line.task))
        offered = {tool.name for tool in request.tools}
        unknown = [call.name for call in line.calls if call.name not in offered]
        if unknown and FIND_TOOLS not in offered:
            raise ModelError(
                "unscripted",
                f"{self.path}: agent {request.agent!r}, turn {request.turn} calls {', '.join(unknown)}, which this run "
                f"does not offer (it offers {', '.join(sorted(offered)) or 'no tools'})",
            )
        return line.reply()

    def _missing(self, request: ModelRequest, task: str) -> str:
        turns: dict[str, list[int]] = {}
        for agent, turn in self._lines:
            turns.setdefault(agent, []).append(turn)
        has = "; ".join(f"{agent}: turns {', '.join(map(str, sorted(found)))}" for agent, found in turns.items())
        short = task if len(task) <= 80 else task[:80] + "…"
        return (
            f"{self.path} has no line for agent {request.agent!r}, turn {request.turn}, task {short!r}; "
            f"it has {has or 'no lines'}. A recording answers only what was recorded."
        )


def read_recording(path: Path) -> tuple[Header, dict[tuple[str, int], list[RecordedReply]]]:
    """A recording's header, and its lines by agent and turn."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(Problem(f"the recording cannot be read: {error}", file=path)) from error
    problems: list[Problem] = []
    header: Header | None = None
    lines: dict[tuple[str, int], list[RecordedReply]] = {}
    for number, source in enumerate(text.split("\n"), 1):
        if not source.strip():
            continue
        try:
            if header is None:
                header = Header.model_validate_json(source)
                continue
            line = RecordedReply.model_validate_json(source)
        except ValidationError as error:
            problems.append(Problem(_reason(error, first=header is None), file=path, line=number))
            if header is None:
                break
            continue
        same = lines.setdefault((line.agent, line.turn), [])
        if line.task in [other.task for other in same]:
            problems.append(Problem(f"agent {line.agent!r}, turn {line.turn} is recorded twice", path, number))
        same.append(line)
    if header is None and not problems:
        problems.append(Problem("the recording is empty", path))
    if problems or header is None:
        raise ConfigurationError(*problems)
    return header, lines


def _reason(error: ValidationError, *, first: bool) -> str:
    found = error.errors()[0]
    place = ".".join(str(part) for part in found["loc"])
    said = f"{place}: {found['msg']}" if place else found["msg"]
    return f'{said} (the first line must be {{"recording": 1, "source": "…", "model": "…"}})' if first else said


class Recorder:
    """A `Model` that passes everything on to another and writes what it answered as a recording.

    One line is kept for an agent, turn and task: the first.
    """

    def __init__(self, model: Model, path: Path | str, *, source: str) -> None:
        self._model = model
        self._path = Path(path)
        self._seen: set[tuple[str, int, str | None]] = set()
        self.name, self.provider, self.prices, self.codec = model.name, model.provider, model.prices, model.codec
        self.vision = model.vision
        self._write({"recording": 1, "source": source, "model": model.name}, "w")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        async for part in self._model.stream(request):
            if isinstance(part, ModelReply):
                self._record(request, part)
            yield part

    async def aclose(self) -> None:
        await self._model.aclose()

    def _record(self, request: ModelRequest, part: ModelReply) -> None:
        task = next((message.text for message in request.messages if isinstance(message, UserMessage)), None)
        line: dict[str, Any] = {"agent": request.agent, "turn": request.turn, "task": task, "text": part.message.text}
        line["calls"] = [{"name": call.name, "arguments": call.arguments} for call in part.message.calls]
        line |= {"finish": part.finish, "extra": dict(part.message.extra)}
        if usage := part.usage:
            line["usage"] = {name: getattr(usage, name) for name in RecordedUsage.model_fields}
        if (key := (request.agent, request.turn, task)) not in self._seen:
            self._seen.add(key)
            self._write(line, "a")

    def _write(self, line: Mapping[str, Any], mode: Literal["w", "a"]) -> None:
        with self._path.open(mode, encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
