"""Very many tools, as real servers have them: for tests of how they are found."""

import json
from pathlib import Path
from typing import Any

from tests.support.command import AWKWARD, plain

VERBS = ("create", "delete", "fetch", "list", "search", "update")
NOUNS = ("invoice", "customer", "shipment", "calendar_event", "support_ticket")
SERVERS = ("billing", "crm", "logistics", "calendar", "helpdesk", "warehouse", "payroll", "legal", "media", "fleet")
EACH = len(VERBS) * len(NOUNS)


def tools(server: str, **more: Any) -> list[dict[str, Any]]:
    """Thirty tools of one server, none of which changes anything."""
    return [
        {
            "name": f"{verb}_{server}_{noun}",
            "description": f"{verb.title()} one {noun.replace('_', ' ')} in {server}, by its id. Gives the record.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": f"The id of the {noun}, as other tools give it."},
                    "fields": {"type": "array", "items": {"type": "string"}, "description": "Only these fields."},
                },
                "required": ["id"],
            },
            "annotations": {"readOnlyHint": True},
            **more,
        }
        for verb in VERBS
        for noun in NOUNS
    ]


def servers(folder: Path, names: tuple[str, ...] = SERVERS) -> dict[str, Any]:
    """Entries of such servers for a file of MCP servers; each is a process that speaks over stdio."""
    entries: dict[str, Any] = {}
    for name in names:
        file = folder / f"{name}.json"
        file.write_text(json.dumps(tools(name)))
        entries[name] = plain(AWKWARD, "--tools", file, "--title", f"The {name} system")
    return entries
