"""`find_tools`: more tools than a model should be shown are found by what they do, and join its list."""

from collections.abc import Mapping
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from orchestrator.models.base import FIND_TOOLS
from orchestrator.runtime import wire
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.tree import Caller
from orchestrator.tools.catalogue import tool_line

MOST = 8
"""Tools that join the list for one wish, unless it asks for another number."""

_NAMED = 40  # further ones that are named

TOOL = Tool(
    name=FIND_TOOLS,
    title="Find tools",
    description=(
        "You have more tools than are listed here. This finds those you need, by what they do, and adds them to your "
        "list, where they stay. They come in groups, each with some of its tools:"
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "What the tool should do, in a few words; or the exact names of tools.",
            },
            "group": {"type": "string", "description": "Look in this group only; without a query, all of its tools."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": MOST},
        },
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True),
)


async def _answer(caller: Caller, arguments: Mapping[str, Any]) -> str | CallToolResult:
    query, group, limit = arguments.get("query", ""), arguments.get("group") or None, arguments.get("limit", MOST)
    catalogue = caller.catalogue
    if not query.strip() and group is None:
        raise Unanswerable(f"say what the tool should do in `query`, or name a `group`:\n{catalogue.outline}")
    if group is not None and group not in catalogue.groups:
        raise Unanswerable(f"there is no group {group!r}. The groups are:\n{catalogue.outline}")
    found = catalogue.find(query, group)
    if not found:
        return f"No tool fits {query!r}. Try other words, or look through a group:\n{catalogue.outline}"
    chosen, others = found[:limit], found[limit:]
    lines = [f"{len(chosen)} tools join your list; call them by these names:"]
    lines += [f"- {tool_line(offer)}" for offer in chosen]
    if others:
        names = ", ".join(offer.name for offer in others[:_NAMED])
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        lines.append(f"Fitting less well, to be had by their names: {names}{more}")
    text = TextContent(type="text", text="\n".join(lines))
    return CallToolResult(content=[text], _meta={wire.CHOSEN: [offer.name for offer in chosen]})


FIND = BuiltIn(tool=TOOL, answer=_answer)
