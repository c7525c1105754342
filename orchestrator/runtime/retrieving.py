"""`retrieve_result`: more of a result that was cut when it arrived. A run reads its own results, and no other's."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import anyio.to_thread
from mcp_types import CallToolResult, ImageContent, Tool, ToolAnnotations

from orchestrator.events import Kept
from orchestrator.memory.retrieval import Wanted, retrieve
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.state import RunState
from orchestrator.runtime.tree import Caller

TOOL = Tool(
    name="retrieve_result",
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
    kept = {each.id: each for each in _kept(caller.tree.states[caller.run])}
    wanted = Wanted(**arguments)
    if (found := kept.get(wanted.id)) is None:
        known = f"Kept here: {', '.join(kept)}." if kept else "None was cut in this run."
        example = f' Right: {{"id": "{next(iter(kept))}", "offset": 1}}' if kept else ""
        raise Unanswerable(f"no result is kept as {wanted.id[:80]!r}. {known}{example}")
    body = await caller.tree.journal.body(found.body)
    if found.kind == "image":
        image = ImageContent(type="image", mime_type=found.mime_type, data=b64encode(body).decode())
        return CallToolResult(content=[image])
    if found.kind != "text":
        raise Unanswerable(f"{found.id} is no text: {found.kind}, {found.mime_type}, {found.size} bytes")
    try:
        return await anyio.to_thread.run_sync(lambda: retrieve(body.decode(), wanted, caller.tree.result_tokens))
    except ValueError as error:
        raise Unanswerable(str(error)) from error


def _kept(state: RunState) -> Iterator[Kept]:
    for step in state.steps:
        for action in step.actions:
            yield from action.kept
    for call in state.calls:
        yield from call.kept


RETRIEVE = BuiltIn(tool=TOOL, answer=_answer)
