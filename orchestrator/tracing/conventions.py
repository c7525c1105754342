"""Names of spans and attributes, all in one place.

Where they come from: OpenTelemetry GenAI semantic conventions (v1.41 names with the corrections of
semantic-conventions-genai v0.1.0) and MCP semantic conventions, both of status Development. The Python constants of
`opentelemetry.semconv` are deprecated there and lack the newer names, so they are not used. `gen_ai.usage.cost.*` is
an open proposal (semantic-conventions-genai#443). What has no convention begins with `orchestrator.`.
"""

from typing import Final

SCOPE: Final = "orchestrator-mcp"

# Operations; a span's name is the operation and what it is done to.
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

SERVICE_NAME: Final = "service.name"
ERROR_TYPE: Final = "error.type"
ERROR_OTHER: Final = "_OTHER"
ERROR_CANCELLED: Final = "cancelled"

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"

USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The name of `cache_write` before v0.1.0, which Jaeger still reads."""
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
USAGE_COST_AMOUNT: Final = "gen_ai.usage.cost.amount"
USAGE_COST_CURRENCY: Final = "gen_ai.usage.cost.currency"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
MCP_METHOD_NAME: Final = "mcp.method.name"
MCP_TOOLS_CALL: Final = "tools/call"
NETWORK_TRANSPORT: Final = "network.transport"

RUN_ID: Final = "orchestrator.run.id"
RUN_STATUS: Final = "orchestrator.run.status"
RUN_STOP_REASON: Final = "orchestrator.run.stop_reason"
STEP: Final = "orchestrator.step"
SERVER: Final = "orchestrator.server"
COST_AMOUNT: Final = "orchestrator.cost.amount"
COST_CURRENCY: Final = "orchestrator.cost.currency"
COST_KNOWN: Final = "orchestrator.cost.known"
"""False where a price was missing: amounts beside it are lower bounds."""
OWN: Final = "orchestrator.own."
TREE: Final = "orchestrator.tree."
"""Prefixes of roll-ups; not `gen_ai.usage.`, so that nobody who sums that counts a token twice."""

CURRENCY: Final = "USD"

EVENT_COST: Final = "cost"
EVENT_AMOUNT: Final = "amount"
EVENT_RUN_TOTAL: Final = "run_total"
EVENT_TOKENS: Final = "tokens"
