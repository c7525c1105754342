"""What a model reads of a call that was not sent, or not as it was asked for."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.runtime.runstate import CallState
from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.shown import shown
from orchestrator.tools.validation import bounded

IN_DOUBT = (
    "this call was under way when the process that ran it was stopped. It may or may not have taken effect, and it was "
    "not repeated. Find out with another tool whether it did before you go on."
)

CUT_OFF = "your reply reached its output limit in the middle of this call. Make the call again with less in it."


OUTPUT = """Your final answer must be one JSON object and nothing else: no words before or after it, no code fence. It \
must be valid against this JSON Schema:
{schema}"""
LONGEST_SCHEMA = 6_000


def output_wanted(schema: Mapping[str, Any]) -> str:
    """What an agent with an `output` schema is told of it, in its system prompt."""
    copy = json.dumps(shown(schema), ensure_ascii=False, separators=(",", ":"))
    return OUTPUT.format(schema=bounded(copy, LONGEST_SCHEMA))


def output_wrong(error: InvalidArguments) -> str:
    """What a model is told of a final answer that is not what its card asks for."""
    example = json.dumps(error.example, ensure_ascii=False)
    return (
        f"Your final answer is not the JSON object that is asked for: {error.problem}\nExpected: {error.expected}\n"
        f"A correct example of the form: {bounded(example, LONGEST_SCHEMA)}\n"
        "Write the whole answer again, as that object alone."
    )


def remarks(call: CallState | None, sent: Mapping[str, Any] | None) -> str:
    """Said before a result: other arguments that were `sent`, and what a person said to what the server asked."""
    lines: list[str] = []
    if sent is not None:
        lines.append(f"[Sent with other arguments than yours: {json.dumps(sent, ensure_ascii=False)}]\n")
    if call is not None and call.input is not None and (call.note or call.input.refused):
        said = "declined" if call.input.refused else "answered"
        lines.append(f"[What its server asked a person for was {said}{f': {call.note}' if call.note else ''}]\n")
    return "".join(lines)


def refused(call: CallState) -> str:
    """A person said no to a call, or to what its server asked for."""
    if call.input is None:
        return denied(call.call.name, "a person said no", call.note)
    reason = f"a person declined what server {call.input.server} asked for"
    return denied(call.call.name, reason, call.note, what="was stopped")


def denied(tool: str, reason: str, note: str = "", what: str = "was not called") -> str:
    said = f" ({note})" if note else ""
    return (
        f"Denied: {tool} {what}: {reason}{said}. Do not make this call again; go on without it, or say in your "
        f"answer what is missing."
    )
