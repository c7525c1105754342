"""Calls to a bundled server over real stdio, and what comes back."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters

REPO = Path(__file__).resolve().parents[2]
SALES = REPO / "examples" / "sales.csv"


class Refused(Exception):
    """The tool answered with an error; the text is what a model would read."""


@dataclass
class Server:
    """A running server; `server(tool, **arguments)` gives the structured result of a call."""

    portal: BlockingPortal
    client: Client

    def __call__(self, tool: str, /, **given: Any) -> Any:
        result = self.portal.call(self.client.call_tool, tool, given)
        if result.is_error:
            raise Refused(result.content[0].text)
        return result.structured_content

    def tools(self) -> dict[str, Any]:
        """The tools by name."""
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}


@contextmanager
def serving(server: str | Path, *arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A fresh process of a bundled server, or of a file. The portal enters and leaves the client in one task."""
    command = [
        "-P",
        str(REPO / "mcp_servers" / f"{server}.py" if isinstance(server, str) else server),
        *map(str, arguments),
    ]
    params = StdioServerParameters(command=sys.executable, args=command, env=dict(env or {}))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(params)) as client:
        running = Server(portal, client)
        running.tools()
        yield running
