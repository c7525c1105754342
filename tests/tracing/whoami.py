"""An MCP server whose one tool answers with the `_meta.traceparent` it was called with, and with its current span."""

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from opentelemetry.trace import get_current_span

TOOL = types.Tool(name="whoami", description="Says where in a trace it is.", input_schema={"type": "object"})


async def list_tools(context: object, params: object) -> types.ListToolsResult:
    del context, params
    return types.ListToolsResult(tools=[TOOL])


async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    del context
    current = get_current_span().get_span_context()
    told = dict(params.meta or {}).get("traceparent", "nothing")
    text = f"{told} {current.trace_id:032x}-{current.span_id:016x}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


server = Server("whoami", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
