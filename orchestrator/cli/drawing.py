"""A replayed run as lines for people: who thought what, which calls came of it, and what those said."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.cli.progress import colour, outline, printable, short_name
from orchestrator.masking import mask

if TYPE_CHECKING:
    from orchestrator.runtime.replay import ReplayedCall, ReplayedRun, ReplayedTurn
    from orchestrator.runtime.result import CostResult, UsageResult

LONGEST = 2_000
"""Characters of an observation; `--json` has the whole."""

TALLEST = 10
"""Lines of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`fold`: where it is too long for a terminal it goes on in the next line, and is not cut. `stop`: a step ends."""

    text: str
    indent: int = 0
    style: str = ""
    fold: bool = False
    stop: bool = False


def shown(text: str) -> str:
    """What models and servers said, fit to be shown. Masked as a whole: half a secret is not seen to be one."""
    return printable(mask(text))


def lines(run: "ReplayedRun") -> Iterator[Line]:
    """The whole run."""
    began = datetime.fromtimestamp(run.started_at).strftime("%Y-%m-%d %H:%M:%S")
    yield Line(text=f"run {run.run_id}  {run.status} ({run.stop_reason})", style="bold")
    yield Line(text=f"trace {run.trace_id}")
    yield Line(text=f"{began}  {clock(run.seconds)}  {spent(run.usage, run.cost)}", fold=True)
    yield from _agent(run, 0, min([run.started_at, *(turn.at for turn in run.turns)]))


def _agent(run: "ReplayedRun", indent: int, start: float) -> Iterator[Line]:
    name = f"{run.agent} ({run.model})"
    yield Line(text=f"{name}: {flat(shown(run.task))}", indent=indent, style=colour(run.agent), stop=indent == 0)
    for number, turn in enumerate(run.turns, 1):
        yield from _notes(run, number, indent)
        yield from _turn(turn, indent, start)
    yield from _notes(run, len(run.turns) + 1, indent)
    yield from _end(run, indent)


def _end(run: "ReplayedRun", indent: int) -> Iterator[Line]:
    """What the last thought does not say already."""
    last = run.turns[-1].thought if run.turns else ""
    if run.status == "running":
        yield Line(text="… goes on, unless its process has ended: then it can be resumed", indent=indent, fold=True)
    elif run.status != "parked" and (run.status != "finished" or run.answer != last):
        yield from _text(f"{run.status} ({run.stop_reason}): {run.answer}", indent, "bold")


def _notes(run: "ReplayedRun", before: int, indent: int) -> Iterator[Line]:
    for note in run.notes:
        if note.before == before:
            yield Line(text=f"· {flat(shown(note.text))}", indent=indent, style="yellow", fold=True)


def _turn(turn: "ReplayedTurn", indent: int, start: float) -> Iterator[Line]:
    took = "no reply" if turn.seconds is None else f"thought {clock(turn.seconds)}"
    tokens = f"  {spent(turn.usage, turn.cost)}" if turn.usage is not None and turn.cost is not None else ""
    closing = "  last words, without tools" if turn.closing else ""
    yield Line(text=f"{turn.n}  at {clock(turn.at - start)}  {took}{tokens}{closing}", indent=indent, style="dim")
    if turn.request is not None:
        yield from _request(turn, indent + 3)
    for failure in turn.failures:
        yield Line(text=f"! {flat(shown(failure))}", indent=indent + 3, style="red", fold=True)
    thought = list(_text(turn.thought, indent + 3))
    yield from thought[:-1]
    if thought:
        yield replace(thought[-1], stop=True)
    together = sum(call.at_once for call in turn.calls)
    if together:
        yield Line(text=f"⇉ {together} calls at once", indent=indent + 3)
    for call in turn.calls:
        yield from _call(call, indent + 3, start)


def _request(turn: "ReplayedTurn", indent: int) -> Iterator[Line]:
    """The request as JSON, a line each."""
    differs = "" if turn.request_checked else " (it is not the one that was sent: the journal has another digest)"
    yield Line(text=f"request{differs}", indent=indent, style="dim")
    text = json.dumps(json.loads(turn.request or "null"), ensure_ascii=False, indent=1)
    yield from _text(text, indent, "dim")


def _call(call: "ReplayedCall", indent: int, start: float) -> Iterator[Line]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    when = f" at {clock(call.began_at - start)}" if call.at_once and call.began_at is not None else ""
    if not isinstance(call.arguments, str):
        arguments = outline(call.tool, call.arguments) or arguments
    step = f"[{shown(call.step)}] " if call.step else ""
    yield Line(text=f"→ {step}{shown(short_name(call.tool))}{when}  {flat(shown(arguments))}", indent=indent)
    if call.waited_for is not None:
        verdict = f": {call.verdict}" if call.verdict else ""
        note = f" ({call.note})" if call.note else ""
        asked = f"? a person is asked, because {call.waited_for}{verdict}{note}"
        yield Line(text=flat(shown(asked)), indent=indent, style="yellow", fold=True)
    for question in call.questions:
        answer = question.action or "no answer yet"
        asked = f"? its server asks: {question.message} {question.url or ''}: {answer}"
        yield Line(text=flat(shown(asked)), indent=indent, style="yellow", fold=True)
    if call.run is not None:
        yield from _agent(call.run, indent + 2, start)
    elif call.run_id is not None:
        yield Line(text=f"(run {call.run_id})", indent=indent + 2)
    yield from _answer(call, indent)


def _answer(call: "ReplayedCall", indent: int) -> Iterator[Line]:
    if call.observation is None:
        yield Line(text=f"… {_stands(call)}", indent=indent, style="yellow", stop=True)
        return
    mark = "✓" if call.error is None else f"✗ {call.error}"
    first, *rest = excerpt(shown(call.observation))
    style = "green" if call.error is None else "red"
    told = [f"{mark}  {clock(call.seconds)}  {first}", *(f"  {line}" for line in rest)]
    for number, line in enumerate(told, 1):
        yield Line(text=line, indent=indent, style=style, stop=number == len(told))


def _stands(call: "ReplayedCall") -> str:
    """What a call without an answer waits for."""
    if call.waited_for is not None and call.verdict is None:
        return "waits for approval"
    if any(question.action is None for question in call.questions):
        return "waits for an answer"
    return "under way" if call.began_at is not None else "not sent"


def _text(text: str, indent: int, style: str = "") -> Iterator[Line]:
    for line in shown(text).strip("\n").split("\n") if text.strip() else []:
        yield Line(text=line.rstrip(), indent=indent, style=style, fold=True)


def excerpt(text: str) -> Sequence[str]:
    """The head of an observation, and how much more there is."""
    head = text[:LONGEST].strip("\n").split("\n")[:TALLEST]
    left = len(text.strip("\n")) - len("\n".join(head))
    return [*head, f"… {left:,} more characters, which --json shows"] if left > 0 else head


def spent(usage: "UsageResult", cost: "CostResult") -> str:
    """Tokens and money, and calls where there is more than the thought itself."""
    calls = f"{usage.model_calls} model calls, {usage.tool_calls} tool calls, " if usage.model_calls > 1 else ""
    money = f"${cost.amount:.4f}" if cost.known else "cost unknown"
    return f"{calls}{usage.input_tokens:,} + {usage.output_tokens:,} tokens, {money}"


def clock(seconds: float) -> str:
    """`1.3 s`, and from 100 seconds on `1:02:03`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def flat(text: str) -> str:
    return " ".join(text.split())


class Paper:
    """Where lines go: a terminal as wide as it is, or anything else, where no line is ever broken."""

    def __init__(self) -> None:
        self._console = None
        if sys.stdout.isatty():
            from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

            self._console = Console(highlight=False, markup=False, emoji=False)

    def put(self, line: Line) -> None:
        if self._console is None:
            print(" " * line.indent + line.text)
            return
        from rich.text import Text  # noqa: PLC0415

        indent, room = Text(" " * line.indent), max(20, self._console.width - line.indent)
        text = Text(line.text, style=line.style)
        for part in text.wrap(self._console, room) if line.fold else [text]:
            part.rstrip()
            self._console.print(indent + part, no_wrap=True, overflow="ellipsis", crop=True)
