"""What a remote agent may use while others wait for a share: given back, it goes to the next; set aside, it stays."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
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

from orchestrator import Limits
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.runs import card

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
SURE = ElicitRequest(params=ElicitRequestFormParams(message="Sure?", requested_schema={**SCHEMA, "properties": {}}))
SPENT = {"run": "r", "status": "finished", "stop_reason": "answered", "usage": {"input_tokens": 100}, "cost": {}}


class Pair:
    """`far` is an orchestrator whose first agent has all that is left; `near` has a tool that ends when that one holds
    it. The first one answers, or asks a person, when the next one's turn has come.
    """

    def __init__(self, *, asks: bool) -> None:
        self.asks = asks
        self.called: list[str] = []
        self.begun, self.due = anyio.Event(), anyio.Event()
        self.servers = {"far": Far("far", self.far, "first", "next"), "near": Named("near", self.near, "go")}

    async def far(self, name: str) -> CallToolResult | InputRequiredResult:
        self.called.append(name)
        if name == "first":
            self.begun.set()
            if self.asks:
                return InputRequiredResult(input_requests={"sure": SURE}, _meta={"orchestrator/spent": SPENT})
            await self.due.wait()
            await anyio.wait_all_tasks_blocked()
        text = TextContent(type="text", text="done")
        return CallToolResult(content=[text], _meta={"orchestrator/spent": SPENT})

    async def near(self, name: str) -> CallToolResult:
        await self.begun.wait()
        await anyio.wait_all_tasks_blocked()
        self.due.set()
        return CallToolResult(content=[TextContent(type="text", text=f"{name} done")])


class Named(Server[Any]):
    def __init__(self, name: str, answer: Any, *tools: str) -> None:
        async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
            return ListToolsResult(tools=[Tool(name=tool, description="Does.", input_schema=SCHEMA) for tool in tools])

        async def call_tool(ctx: Any, params: CallToolRequestParams) -> Any:
            return await answer(params.name)

        super().__init__(name, on_list_tools=list_tools, on_call_tool=call_tool)


class Far(Named):
    def get_capabilities(self, *args: Any, **more: Any) -> ServerCapabilities:
        found = super().get_capabilities(*args, **more)
        return found.model_copy(update={"experimental": {"orchestrator": {"version": 1}}})


@pytest.mark.requirement("A3")
@pytest.mark.parametrize("asks", [False, True], ids=["given back", "set aside"])
def test_a_call_waits_for_what_comes_back_and_for_nothing_else(tmp_path: Path, asks: bool) -> None:
    pair = Pair(asks=asks)
    steps = [
        {"id": "first", "tool": "far__first", "arguments": {}},
        {"id": "go", "tool": "near__go", "arguments": {}},
        {"id": "next", "tool": "far__next", "arguments": {}, "needs": ["go"]},
    ]
    script = {("a", 1): call("plan", {"steps": steps}), ("a", 2): "done"}
    agent = card("a", tools=("far__*", "near__*"), plan="always")
    result = Stage(tmp_path, script, agent, servers=pair.servers).run(limits=Limits(tokens=50_000))
    assert result.status == ("parked" if asks else "finished")
    assert pair.called == (["first"] if asks else ["first", "next"])
