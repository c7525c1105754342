"""What waits for a person, as a caller over MCP is asked, and what comes back. That is not trusted."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from mcp_types import (
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)

from orchestrator.masking import mask
from orchestrator.runtime.publish import call_path
from orchestrator.runtime.result import ApprovalRequest
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.tree import Verdict
from orchestrator.tools.elicitation import is_verdict

DECISION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
        "note": {"type": "string", "title": "Note", "description": "A word to the agent, if you like."},
    },
    "required": ["decision"],
}
LONGEST = 4_000
"""Characters of a question to a person."""


def request_for(waiting: ApprovalRequest) -> ElicitRequest:
    """The question for a call that waits. What its server asks of a person is passed on as it is."""
    if waiting.input is not None and "url" in waiting.input:
        url = ElicitRequestURLParams(message=told(waiting), url=waiting.input["url"], elicitation_id=waiting.call)
        return ElicitRequest(params=url)
    schema = DECISION if waiting.input is None else dict(waiting.input["schema"]) or {"type": "object"}
    return ElicitRequest(params=ElicitRequestFormParams(message=told(waiting), requested_schema=schema))


def told(waiting: ApprovalRequest) -> str:
    """What waits and why, in words for a person."""
    arguments = mask(json.dumps(dict(waiting.arguments), ensure_ascii=False))
    text = f"{waiting.agent} wants to call {waiting.tool} with {arguments}\nbecause: {mask(waiting.reason)}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def verdict_of(answer: ElicitResult, waiting: ApprovalRequest, by: str) -> Verdict | None:
    """What a person said; None when they said nothing that counts, so that the call waits on."""
    content: Mapping[str, Any] = answer.content or {}
    if answer.action == "decline":
        return Verdict(approved=False, by=by)
    if answer.action != "accept":
        return None
    if waiting.input is not None and not is_verdict(waiting.input.get("schema")):
        return Verdict(approved=True, arguments=dict(content) if content else None, by=by)
    note = content.get("note")
    note = note[:LONGEST] if isinstance(note, str) else ""
    if (decision := content.get("decision")) not in ("approve", "deny"):
        return None
    return Verdict(approved=decision == "approve", note=note, by=by)


def digests(states: Mapping[str, RunState]) -> dict[str, str]:
    """What a verdict on each call that waits must name, by the call's path."""
    return {
        call_path(state.run.run, call.call.id): call.digest
        for state in states.values()
        for call in state.calls
        if call.phase == "waiting" and state.end is None
    }


def can_ask(capabilities: ClientCapabilities | None, kind: Literal["form", "url"]) -> bool:
    """Whether the caller can put such a question to a person. To say nothing of a kind means forms."""
    asks = capabilities.elicitation if capabilities is not None else None
    if asks is None:
        return False
    return asks.url is not None if kind == "url" else asks.form is not None or asks.url is None
