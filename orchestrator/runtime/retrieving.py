"""`retrieve_result`: more of a result that was cut when it arrived."""

from collections.abc import Mapping
from typing import Any

from mcp_types import Tool, ToolAnnotations

from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.tree import Caller

TOOL = Tool(
    name="retrieve_result",
    title="Retrieve a result",
    description="Reads more of an earlier result that was cut here. It gets nothing new.",
    input_schema={
        "type": "object",
        "properties": {"id": {"type": "string", "description": "Where it was cut, its id is given, like t2.1"}},
        "required": ["id"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True),
)


async def _answer(caller: Caller, arguments: Mapping[str, Any]) -> str:
    del caller
    raise Unanswerable(f"no result is kept as {arguments['id']!r}: none was cut in this run.")


RETRIEVE = BuiltIn(tool=TOOL, answer=_answer)
