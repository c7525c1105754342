"""What is pinned, and by whom: a person's words by rules, a caller's as they are, a model's through `pin`."""

from collections.abc import Mapping
from typing import Any, Literal

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from orchestrator.events import MemoryPinned
from orchestrator.memory.pins import LONGEST, about_of, constraints, replaced
from orchestrator.runtime import wire
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
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
    if said := replaced(theirs, about_of(text)):
        raise Unanswerable(f'not pinned: what the user said about this holds: "{said[-1]}"')
    return CallToolResult(content=[TextContent(type="text", text=f"Pinned: {text}")], _meta={wire.PINNED: text})


PIN = BuiltIn(tool=TOOL, answer=_answer)


def pin(recorder: Recorder, text: str, source: Literal["user", "model", "caller"]) -> None:
    """Notes one pin. Of what was said about the same before, it takes the place."""
    about = about_of(text)
    gone = replaced([pin for pin in recorder.state.pins if pin.text != text], about)
    recorder.note(MemoryPinned, text=text, source=source, about=about, replaces=gone)


def pin_words(recorder: Recorder, text: str) -> None:
    """Pins what a person's words hold of constraints. What they say at once does not contradict itself."""
    before = recorder.state.pins
    known = {pin.text for pin in before} | {gone for pin in before for gone in pin.replaces}
    for found in constraints(text):
        if found.text not in known:
            gone = replaced(before, found.about)
            recorder.note(MemoryPinned, text=found.text, source="user", about=found.about, replaces=gone)


def pin_notes(recorder: Recorder) -> None:
    """Pins what a person said beside the verdicts of the last turn; what is pinned already is not pinned again."""
    for action in recorder.state.steps[-1].actions if recorder.state.steps else ():
        if action.note:
            pin_words(recorder, action.note)
