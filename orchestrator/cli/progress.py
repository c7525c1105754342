"""A run as it happens, on stderr: one line for each thing done, and in a terminal a line that says who is at work."""

import json
import os
import sys
import time
import unicodedata
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orchestrator.events import (
    ErrorEvent,
    FinalAnswerEvent,
    PublicEvent,
    StateEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from orchestrator.masking import mask
from orchestrator.models.lenient import as_list, as_object

if TYPE_CHECKING:
    from rich.live import Live

WIDTH_OF_VALUE = 100
WIDTH_OF_PLAN = 1_000
_READ = 2_000
"""Characters of a value that are looked at to show its beginning."""


class Progress:
    """Shows events; does nothing when quiet. In a file or pipe, lines are never wrapped."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._busy: dict[str, str] = {}
        self._tokens = 0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            # Only a terminal needs it, and it takes a tenth of a second to import.
            from rich.console import Console  # noqa: PLC0415
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(
                get_renderable=self._line, console=Console(stderr=True), refresh_per_second=8, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Takes the moving line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @contextmanager
    def paused(self) -> Generator[None]:
        """The terminal belongs to someone else while the block runs."""
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.start()

    def show(self, event: PublicEvent) -> None:
        if self._quiet:
            return
        match event:
            case StateEvent():
                self._at_work(event)
            case UsageEvent():
                self._tokens += event.usage.tokens
            case ToolCallEvent():
                self._busy[event.run_id] = f"{event.agent} calls {short_name(event.tool)}"
                told = outline(event.tool, event.arguments) or _arguments(event.arguments)
                self._print(event, f"→ {short_name(event.tool)} {told}")
            case ToolResultEvent():
                mark = "✗" if event.is_error else "✓"
                text = f" {one_line(event.observation)}" if event.is_error else ""
                self._print(event, f"{mark} {short_name(event.tool)} {event.seconds:.1f} s{text}")
            case ErrorEvent():
                self._print(event, f"! {one_line(event.error, 300)}")
            case FinalAnswerEvent():
                self._print(event, "answered" if event.status == "finished" else f"stopped ({event.stop_reason})")
            case _:
                return

    def _at_work(self, event: StateEvent) -> None:
        if event.state == "THINKING":
            self._busy[event.run_id] = f"{event.agent} thinks"
        elif event.state in ("FINISHED", "FAILED", "WAITING"):
            self._busy.pop(event.run_id, None)

    def _print(self, event: PublicEvent, text: str) -> None:
        depth = event.run_id.count("/")
        line = f"{'  ' * depth}{event.agent} {text}"
        if self._live is None:
            say(line)
            return
        from rich.text import Text  # noqa: PLC0415

        styled = Text(f"{'  ' * depth}") + Text(event.agent, style=colour(event.agent)) + Text(f" {mask(text)}")
        self._live.console.print(styled, no_wrap=True, overflow="ellipsis", crop=True)

    def _line(self) -> Any:
        """What is drawn at the bottom of a terminal."""
        from rich.text import Text  # noqa: PLC0415

        deepest = sorted(self._busy.items(), key=lambda item: -item[0].count("/"))
        who = ", ".join(text for _, text in deepest[:4]) or "starting"
        line = f"{time.monotonic() - self._began:5.1f} s  {self._tokens:,} tokens  {who}"
        return Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def short_name(tool: str) -> str:
    """An agent is shown by its name alone."""
    return tool.removeprefix("agents__")


def outline(tool: str, arguments: Mapping[str, Any]) -> str:
    """A plan in one line, `figures: analyst; chart: chart-maker (after figures)`; empty for other calls."""
    steps = [as_object(step) for step in as_list(arguments.get("steps"))] if tool == "plan" else []
    return one_line("; ".join(map(_step, steps)), WIDTH_OF_PLAN)


def _step(step: Mapping[str, Any]) -> str:
    who, needs = step.get("agent") or step.get("tool"), ", ".join(map(str, as_list(step.get("needs"))))
    return f"{step.get('id')}: {short_name(str(who))}" + (f" (after {needs})" if needs else "")


def _arguments(arguments: dict[str, Any]) -> str:
    return " ".join(f"{key}={one_line(json.dumps(value, ensure_ascii=False))}" for key, value in arguments.items())


def one_line(text: str, width: int = WIDTH_OF_VALUE) -> str:
    """At most so many characters, with no line break and nothing that a terminal would obey."""
    # Masked before it is cut: half a secret is not seen to be one.
    flat = printable(" ".join(mask(text[:_READ]).split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def say(text: str, *, personal: bool = True) -> None:
    """A line on stderr, masked; without `personal`, of secrets only. Nothing in it is obeyed by a terminal.

    Where it cannot be written nobody can be told, and the answer on stdout matters more.
    """
    try:
        print(printable(mask(text, personal=personal)), file=sys.stderr, flush=True)
    except OSError:  # what is left in its buffer would fail once more at exit, and change the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def wanted(arguments: Mapping[str, Any], indent: int | None = None) -> str:
    """A call's arguments for a person who decides on it: secrets are masked, and to whom a mail goes is not."""
    shown = json.loads(mask(json.dumps(arguments), personal=False))
    return printable(json.dumps(shown, ensure_ascii=False, indent=indent))


def printable(text: str) -> str:
    """What models and servers say, without what a terminal would obey: control characters and changes of direction."""
    return "".join(char if char in "\n\t" or unicodedata.category(char) not in _OBEYED else "�" for char in text)


_OBEYED = frozenset({"Cc", "Cf", "Co", "Cs"})


def colour(agent: str) -> str:
    return ("cyan", "magenta", "green", "yellow", "blue")[sum(agent.encode()) % 5]
