"""The tasks extension of 2026-07-28: a long call is answered with a task, and its host asks about that from then on.

A task is a run, by the run's own id. So it outlives the server, and nothing is kept that the journal does not know.
"""

from datetime import UTC, datetime
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from orchestrator.runtime.journal.base import RunRow

EXTENSION = "io.modelcontextprotocol/tasks"
AFTER = 1.0
"""Seconds after which a host that has tasks gets one: it waits for neither of the two for long."""

POLL = 1000
"""Milliseconds between two questions about a task, as its host is advised."""


def has_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the sender of this request has the extension."""
    declared = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return modern and declared is not None and EXTENSION in (declared.extensions or {})


def task(row: RunRow, status: str = "working") -> dict[str, Any]:
    """A run as a task. A dict, because `ttlMs` is null (it is never thrown away), which the SDK's models leave out."""
    updated = row.started_at if row.ended_at is None else row.ended_at
    return {
        "taskId": row.run_id,
        "status": status,
        "createdAt": datetime.fromtimestamp(row.started_at, UTC).isoformat(),
        "lastUpdatedAt": datetime.fromtimestamp(updated, UTC).isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL,
    }
