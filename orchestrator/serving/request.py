"""What a caller says beside the arguments of a call: its limits, its key, its trace."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.assembly import smallest
from orchestrator.events import Limits
from orchestrator.runtime import wire
from orchestrator.runtime.runner import DEEPEST
from orchestrator.runtime.sittings import RunOptions
from orchestrator.serving.guests import Guest
from orchestrator.tracing.port import TraceContext

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


class Budget(BaseModel):
    """`orchestrator/limits`: what the callee's tree may use. `depth` counts levels of agents, itself the first."""

    model_config = ConfigDict(strict=True, frozen=True)

    tokens: Annotated[int, Field(gt=0)] | None = None
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    depth: Annotated[int, Field(ge=0)] | None = None


def key_of(meta: Mapping[str, Any]) -> str:
    """The call's idempotency key, or nothing. Raises `MCPError` for what is none."""
    key = meta.get(wire.KEY, "")
    if not isinstance(key, str) or len(key) > 1_000:
        raise MCPError(INVALID_PARAMS, f"{wire.KEY} must be a string of at most 1000 characters")
    return key


def options_of(meta: Mapping[str, Any], guest: Guest) -> RunOptions:
    """How a run for this caller is to be driven. Raises `MCPError` for limits that leave no room or are none."""
    try:
        budget = Budget.model_validate(meta.get(wire.LIMITS) or {})
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join([wire.LIMITS, *map(str, wrong["loc"])])
        raise MCPError(INVALID_PARAMS, f"{where}: {wrong['msg']}") from error
    if budget.depth == 0:
        raise MCPError(INVALID_PARAMS, f"{wire.LIMITS}.depth is 0: the caller's tree of agents is as deep as it may be")
    asked = Limits(tokens=budget.tokens, cost=budget.cost, seconds=budget.seconds)
    return RunOptions(
        role=guest.role,
        by=guest.name,
        within=smallest(asked, guest.limits),
        depth=0 if budget.depth is None else max(0, DEEPEST + 1 - budget.depth),
        parent=parent_of(meta),
    )


def parent_of(meta: Mapping[str, Any]) -> TraceContext | None:
    """The caller's span; None where it names none that can be used."""
    found = _TRACEPARENT.fullmatch(str(meta.get("traceparent", "")))
    return None if found is None else TraceContext(trace_id=found[1], span_id=found[2])
