"""What is pinned, and by whom: a person's words by rules, a caller's as they are, a model's through `pin`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from orchestrator.events import MemoryPinned
from orchestrator.memory.pins import LONGEST, Pin, Source, about_of, held, replaced
from orchestrator.runtime import wire
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.plans import apart
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.tree import Caller

PIN_TOOL = "pin"

TOOL = Tool(
    name=PIN_TOOL,
    title="Pin a constraint",
    description="Keeps one short sentence that must hold, or must be known, until the task is done. Older turns leave.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "minLength": 1, "maxLength": LONGEST, "description": "The sentence"}},
        "required": ["text"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True),  # it changes nothing but what this very model is shown
)


async def _answer(caller: Caller, arguments: Mapping[str, Any]) -> CallToolResult:
    text = " ".join(arguments["text"].split())
    theirs = [pin for pin in caller.tree.states[caller.run].pins if pin.source != "model"]
    if said := replaced(theirs, Pin(text=text, about=about_of(text))):
        raise Unanswerable(f'not pinned: what the user said about this holds: "{said[-1]}"')
    return CallToolResult(content=[TextContent(type="text", text=f"Pinned: {text}")], _meta={wire.PINNED: text})


PIN = BuiltIn(tool=TOOL, answer=_answer)


def pin(recorder: Recorder, text: str, source: Source) -> None:
    """Notes one pin. Of what was said about the same before, it takes the place."""
    new = Pin(text=text, about=about_of(text), source=source)
    _note(recorder, replace(new, replaces=replaced(recorder.state.pins, new)))


def pin_words(recorder: Recorder, task: str, earlier: Sequence[str]) -> None:
    """Pins what a person's words hold of constraints: those of the task, and before them what still holds of what was
    said earlier in the conversation. Results that came along with the task are nobody's words."""
    for each in held(earlier, "earlier"):
        _note(recorder, each)
    for each in held([apart(task)[0]], before=recorder.state.pins):
        _note(recorder, each)


def pin_notes(recorder: Recorder) -> None:
    """Pins what a person said beside the verdicts of the last turn; what is pinned already is not pinned again."""
    for action in recorder.state.steps[-1].actions if recorder.state.steps else ():
        pins = recorder.state.pins
        known = {pin.text for pin in pins} | {gone for pin in pins for gone in pin.replaces}
        for each in held([action.note or ""], before=pins):
            if each.text not in known:
                _note(recorder, each)


def _note(recorder: Recorder, pin: Pin) -> None:
    recorder.note(MemoryPinned, text=pin.text, source=pin.source, about=pin.about, replaces=pin.replaces)
