"""`retrieve_result`: more of a result that was cut when it arrived, or that has left the window since.

A run reads its own results, and no other's.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import anyio.to_thread
from mcp_types import CallToolResult, ImageContent, Tool, ToolAnnotations

from orchestrator.events import Kept
from orchestrator.memory.retrieval import Wanted, retrieve
from orchestrator.memory.window import TASK_ID
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.publish import call_path
from orchestrator.runtime.runstate import CallState, RunState
from orchestrator.runtime.tree import Caller

RETRIEVE_RESULT = "retrieve_result"

TOOL = Tool(
    name=RETRIEVE_RESULT,
    title="Retrieve a result",
    description="Reads more of an earlier result that was cut. It gets nothing new.",
    input_schema={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "As said where it was cut, like t2.1"},
            "offset": {"type": "integer", "minimum": 1, "description": "First line"},
            "limit": {"type": "integer", "minimum": 1, "description": "Most lines"},
            "grep": {"type": "string", "maxLength": 500, "description": "Regular expression: lines that match"},
            "path": {"type": "string", "maxLength": 500, "description": "JSONPath, like $.rows[0:9].name"},
            "rows": {"type": "string", "description": "Rows of a table or list, like 10-20"},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True),
)


async def _answer(caller: Caller, arguments: Mapping[str, Any]) -> str | CallToolResult:
    state, wanted = caller.tree.states[caller.run], Wanted(**arguments)
    kept = {each.id: each for each in _kept(state)}
    found = kept.get(wanted.id)
    if found is None and (text := _shown(state, wanted.id)) is not None:
        return await _part(text, wanted, caller)
    if found is None:
        known = f"Kept here: {', '.join(kept)}." if kept else "None was cut in this run."
        example = f' Right: {{"id": "{next(iter(kept))}", "offset": 1}}' if kept else ""
        raise Unanswerable(f"no result is kept as {wanted.id[:80]!r}. {known}{example}")
    body = await caller.tree.journal.body(found.body)
    if found.kind == "image":
        image = ImageContent(type="image", mime_type=found.mime_type, data=b64encode(body).decode())
        return CallToolResult(content=[image])
    if found.kind != "text":
        raise Unanswerable(f"{found.id} is no text: {found.kind}, {found.mime_type}, {found.size} bytes")
    return await _part(body.decode(), wanted, caller)


async def _part(text: str, wanted: Wanted, caller: Caller) -> str:
    tokens = caller.tree.shown_at_once(caller.tree.result_tokens)
    try:
        return await anyio.to_thread.run_sync(lambda: retrieve(text, wanted, tokens))
    except ValueError as error:
        raise Unanswerable(str(error)) from error


def _shown(state: RunState, id: str) -> str | None:
    """What was shown whole when it arrived, or the task; either may have left the window since."""
    if id == TASK_ID:
        return state.opening
    actions = (action for step in state.steps for action in step.actions)
    return next((action.observation for action in actions if id in (action.call.id, _name(state, action))), None)


def _name(state: RunState, action: CallState) -> str:
    """How a call is named over the whole tree, as it is where its result was cut."""
    return call_path(state.run.run, action.call.id)


def _kept(state: RunState) -> Iterator[Kept]:
    for step in state.steps:
        for action in step.actions:
            for kept in action.kept:
                yield kept
                if kept.id == _name(state, action) != action.call.id:  # a line of the window names it so
                    yield kept.model_copy(update={"id": action.call.id})
    for call in state.calls:
        yield from call.kept


RETRIEVE = BuiltIn(tool=TOOL, answer=_answer)
