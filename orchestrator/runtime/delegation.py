"""Agents as the tools of an MCP server: what a specialist is to its caller, here and over the wire."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from orchestrator.cards import AgentCard
from orchestrator.runtime import wire
from orchestrator.runtime.partial import audited, found
from orchestrator.runtime.result import status_of, totals
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.tree import CALLER, Caller

DEFAULT_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do, in full: the agent sees nothing of this conversation. Name files and formats.",
        },
        "context": {"type": "string", "description": "Facts and earlier results that the agent needs, if any."},
    },
    "required": ["task"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an agent's run came to: text for its caller, and what it used. `parked`: nothing yet, it waits.

    `content` is the answer of an agent whose card has an `output` schema.
    """

    text: str
    is_error: bool
    spent: wire.Spent
    parked: bool = False
    content: dict[str, Any] | None = None


RunAgent = Callable[[AgentCard, str, Caller], Awaitable[Answer]]
"""Runs an agent on a task for a caller in this process."""


def agent_tool(card: AgentCard, annotations: ToolAnnotations | None = None) -> Tool:
    """An agent as its callers see it. What it does is up to its own tools: `annotations` say what those promise."""
    return Tool(
        annotations=annotations,
        name=card.tool_name,
        title=card.title,
        description=card.description,
        input_schema=dict(card.input) if card.input is not None else DEFAULT_INPUT,
        output_schema=dict(card.output) if card.output is not None else None,
    )


def answer_of(card: AgentCard, run: str, states: Mapping[str, RunState]) -> Answer:
    """What a run has come to, for whoever called its agent. `states` are of the run and of all below it."""
    state = states[run]
    status, reason, text = status_of(state)
    usage, cost = totals(states.values())
    spent = wire.Spent(run=run, status=status, stop_reason=reason, usage=usage, cost=cost, trace_id=state.run.trace_id)
    if status == "parked":
        return Answer(text="", is_error=False, spent=spent, parked=True)
    if status == "finished":
        if card.output is None:
            return Answer(text=text, is_error=False, spent=spent)
        content = json.loads(text) if state.checked else None  # a hook may have put another answer in its place
        return Answer(text=text, is_error=content is None, spent=spent, content=content)
    if status == "stopped":
        told = f"[{card.name} was stopped: {reason}; partial result]\n{text}"
        # A tool with an output schema has no result without what that promises, so this one is an error.
        return Answer(text=told, is_error=card.output is not None, spent=spent)
    told = "\n".join([f"agent {card.name} {status}: {text}", audited(state), *found(state)])
    return Answer(text=told, is_error=True, spent=spent)


def result_of(answer: Answer) -> CallToolResult:
    """An answer as the result of the call, in this process or over the wire."""
    return CallToolResult(
        content=[TextContent(type="text", text=answer.text)],
        structured_content=answer.content,
        is_error=answer.is_error,
        _meta={wire.SPENT: answer.spent.model_dump(mode="json")},
    )


def agent_server(cards: Sequence[AgentCard], run: RunAgent) -> Server[Any]:
    """The server whose tools are agents, for callers in this process."""
    by_tool = {card.tool_name: card for card in cards}
    tools = [agent_tool(card) for card in cards]

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        del ctx, params
        return ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        del ctx
        card, caller = by_tool.get(params.name), CALLER.get(None)
        if card is None or caller is None:
            raise MCPError(INVALID_PARAMS, f"no agent {params.name!r} can be called here")
        task = task_text(card, params.arguments or {})
        try:
            answer = await run(card, task, caller)
        except Exception as error:  # noqa: BLE001 - it is raised where the agent was called from
            caller.errors.append(error)
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)
        if answer.parked:
            # The caller finds the run again by its own call, so nothing more is needed to go on.
            return InputRequiredResult(request_state=answer.spent.run)
        return result_of(answer)

    server = Server("agents", on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware.clear()  # spans: an agent's run is one already
    return server


def task_text(card: AgentCard, arguments: Mapping[str, Any]) -> str:
    """The task as the agent reads it, from the arguments of the call."""
    if card.input is not None:
        return json.dumps(arguments, ensure_ascii=False, indent=1)
    context = arguments.get("context")
    return f"{arguments['task']}\n\nContext:\n{context}" if context else str(arguments["task"])
