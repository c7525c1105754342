"""An MCP stdio server whose one tool, `ask`, puts the named form to a person; agents that stand for the suite's tools
call it, and what it asks comes up through them.
"""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, ToolAnnotations

CHOICES = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
OPTIONS = [f"option{number}" for number in (1, 2, 3)]
TEXT = {"type": "string"}
FORMS: dict[str, dict[str, Any]] = {
    "person": {"username": TEXT, "email": TEXT},
    "name": {"name": TEXT},
    "color": {"color": TEXT},
    "confirm": {"confirm": {"type": "boolean"}},
    "both": {"name": TEXT, "confirm": {"type": "boolean"}},
    "ok": {"ok": {"type": "boolean"}},
    "defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": CHOICES},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": CHOICES}},
    },
}
server = MCPServer("asker", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def ask(form: str, ctx: Context[Any]) -> Any:
    answer = (ctx.input_responses or {}).get(form)
    if isinstance(answer, ElicitResult):
        return f"{answer.action}: {answer.content}"
    schema = {"type": "object", "properties": FORMS[form], "required": list(FORMS[form])}
    params = ElicitRequestFormParams(message=f"Please fill in: {form}", requested_schema=schema)
    return InputRequiredResult(input_requests={form: ElicitRequest(params=params)})


if __name__ == "__main__":
    server.run()
