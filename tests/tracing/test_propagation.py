"""The place in the trace reaches MCP servers, and the MCP SDK's own client spans do not appear beside ours. F1."""

import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

from orchestrator.tracing.port import ToolOutcome, TraceContext, Tracer
from orchestrator.tracing.setup import make_tracer

from . import whoami
from .receiver import http_receiver
from .runs import SUPERVISOR, tool_facts
from .test_files import spans_of

STDIO = StdioServerParameters(command=sys.executable, args=["-P", str(Path(whoami.__file__))])


async def ask(tracer: Tracer, server: object) -> tuple[TraceContext, str]:
    """Where the call was made, and where the server says that it was."""
    async with Client(server) as client:  # pyright: ignore[reportArgumentType]
        with tracer.tool(tool_facts(SUPERVISOR, "t1.1", "whoami", "whoami")) as scope:
            result = await client.call_tool("whoami")
            text = result.content[0].text  # pyright: ignore[reportAttributeAccessIssue]
            scope.settle(ToolOutcome(text=text))
    await tracer.aclose()
    return scope.context, text


def test_a_stdio_server_is_told_our_span_and_ours_is_the_only_one(tmp_path: Path) -> None:
    with http_receiver() as receiver:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        place, text = anyio.run(ask, make_tracer(tmp_path, environ), STDIO)
    told, current = text.split()
    # The last flag but one says that the trace id is random.
    assert told == f"00-{place.trace_id}-{place.span_id}-03"
    # So a workflow that the server opens is a child of ours, although no provider is set there.
    assert current == f"{place.trace_id}-{place.span_id}"
    assert [span.name for span in receiver.spans] == ["execute_tool whoami"]


def test_a_server_in_this_process_runs_inside_our_span(tmp_path: Path) -> None:
    place, text = anyio.run(ask, make_tracer(tmp_path, {}), whoami.server)
    assert text == f"nothing {place.trace_id}-{place.span_id}"
    assert [span["name"] for span in spans_of(tmp_path / "traces" / "spans.jsonl")] == ["execute_tool whoami"]
