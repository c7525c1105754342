"""The orchestrator's own tools, as one more MCP server of this process. They answer from the run that calls them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from orchestrator.runtime.tree import CALLER, Caller


class Unanswerable(Exception):
    """The model asked for what is not there, or wrongly; the message says so, and what is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A tool, and what answers its calls. Raises `Unanswerable` for what the model can mend."""

    tool: Tool
    answer: Callable[[Caller, Mapping[str, Any]], Awaitable[str | CallToolResult]]


def builtin_server(built_in: Sequence[BuiltIn]) -> Server[Any]:
    """The server of the built-in tools, for agents of this process."""
    by_name = {each.tool.name: each for each in built_in}

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        del ctx, params
        return ListToolsResult(tools=[each.tool for each in built_in])

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        del ctx
        found, caller = by_name.get(params.name), CALLER.get(None)
        if found is None or caller is None:
            raise MCPError(INVALID_PARAMS, f"no tool {params.name!r} can be called here")
        try:
            answer, wrong = await found.answer(caller, params.arguments or {}), False
        except Unanswerable as error:
            answer, wrong = str(error), True
        if isinstance(answer, CallToolResult):
            return answer
        return CallToolResult(content=[TextContent(type="text", text=answer)], is_error=wrong)

    server = Server("builtin", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.clear()  # spans: the caller's own is all there is to tell
    return server
