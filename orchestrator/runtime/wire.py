"""What calls and results of agents carry in `_meta`."""

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.events import Question, Status, StopReason
from orchestrator.messages import Cost, Usage
from orchestrator.tools.arguments import canonical

KEY = "orchestrator/key"
"""The call's path over the whole tree, which is also its idempotency key."""

LIMITS = "orchestrator/limits"
"""What the callee's whole tree may use: `tokens`, `cost` (US dollars), `seconds`, `depth` (levels of agents that may
stand below the caller, the callee being the first); what is absent has no limit."""

CANCEL = "orchestrator/cancel"
"""True beside a key: the caller was cancelled and will not come again, so the run of that key is to end for good."""

SPENT = "orchestrator/spent"

RUN = "orchestrator/run"
"""The run that a reply is about which is not its answer."""

UNBEGUN = "orchestrator/unbegun"
"""True in an error that was found before anything was begun, so that nothing was used."""

MOST = 10**12
"""Tokens, calls or US dollars that nobody has ever used: above it, a number is an invention."""

ORCHESTRATOR: Mapping[str, Any] = {"orchestrator": {"version": 1}}
"""What a server of ours says of itself, among its experimental capabilities."""

CHOSEN = "orchestrator/chosen"
"""The names of tools that join the caller's list, in a result of our own server."""

PINNED = "orchestrator/pinned"
"""What the caller is to be shown from now on, likewise."""


PLAN = "orchestrator/plan"
"""The steps of a plan that was made, and those of earlier ones that it builds on, in a result of our own server."""


class Spent(BaseModel):
    """What an agent's run and everything below it used, in the result of its call."""

    model_config = ConfigDict(frozen=True)

    run: str = Field(max_length=200)
    status: Status
    stop_reason: StopReason
    usage: Usage
    cost: Cost
    trace_id: str = ""


def digest_of_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """What a verdict is bound to: the same tool with the same arguments."""
    return sha256(f"{tool} {canonical(arguments)}".encode()).hexdigest()[:16]


def chosen(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that the caller has chosen by its call."""
    return tuple(cast("list[str]", meta.get(CHOSEN, ())))


def digest_of_question(tool: str, arguments: Mapping[str, Any], question: Question) -> str:
    """What an answer is bound to: the same words and form, asked by the same tool with the same arguments."""
    asked = question.model_dump(mode="json", include={"key", "message", "requested", "url"})
    return digest_of_call(tool, {"arguments": arguments, "asked": asked})


def spent(meta: Mapping[str, Any]) -> Spent | None:
    """Reads what an agent's result says it used; None when it says nothing that can be read."""
    try:
        found = Spent.model_validate(meta[SPENT])
    except (KeyError, ValidationError):
        return None
    said = (found.cost.amount, *asdict(found.usage).values())
    return found if all(0 <= value <= MOST for value in said) else None  # below nothing, it would free what is spent
