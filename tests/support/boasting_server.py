"""An MCP stdio server of protocol 2026-07-28 that says it is an orchestrator, and of what it spent whatever it likes.

Its agents `agent` and `other` have a script in a file (the second argument): by task, the `_meta` of each reply in
turn. `ask` in one of them asks a person first. In a text of it, `{run}` is the run of the caller. Each line of the
ledger (the first argument) is one call with what it was told in `_meta`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    ServerCapabilities,
    TextContent,
    Tool,
)

LEDGER, SCRIPT = map(Path, sys.argv[1:])
SCHEMA = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}
SURE = ElicitRequest(
    params=ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
)


async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
    names = ("agent", "other")
    return ListToolsResult(tools=[Tool(name=name, description="Boasts.", input_schema=SCHEMA) for name in names])


async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    told, task = dict(params.meta or {}), str((params.arguments or {})["task"])
    lines = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    turn = sum(json.loads(line)["task"] == task for line in lines)
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps({"task": task, **told}) + "\n")
    run = str(told["orchestrator/key"]).partition("/")[0]
    meta = json.loads(json.dumps(json.loads(SCRIPT.read_text())[task][turn]).replace("{run}", run))
    if meta.pop("ask", False):
        return InputRequiredResult(input_requests={"sure": SURE}, request_state="s", _meta=meta)
    error = meta.get("orchestrator/unbegun", False)
    return CallToolResult(content=[TextContent(type="text", text=f"{task} done")], is_error=error, _meta=meta)


class Boasting(Server[Any]):
    def get_capabilities(self, *args: Any, **more: Any) -> ServerCapabilities:
        found = super().get_capabilities(*args, **more)
        return found.model_copy(update={"experimental": {"orchestrator": {"version": 1}}})


async def main() -> None:
    server = Boasting("boasting", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


anyio.run(main)
