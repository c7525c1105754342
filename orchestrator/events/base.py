"""What events are made of."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

StateName = Literal["PLANNING", "THINKING", "ACTING", "OBSERVING", "WAITING", "FINISHED", "FAILED"]
Status = Literal["running", "finished", "stopped", "parked", "failed", "cancelled"]
StopReason = Literal[
    "answered",
    "max_steps",
    "max_tokens",
    "max_cost",
    "timeout",
    "repeated_failure",
    "consecutive_failures",
    "unparseable_output",
    "no_progress",
    "approval",
    "cancelled",
    "error",
]
Effect = Literal["read", "idempotent", "write", "agent"]
PlanMode = Literal["auto", "always", "never"]


class Data(BaseModel):
    """A value that never changes; a field that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Event(Data):
    """What every event of the journal carries. `seq` counts from 1 within a run."""

    v: Literal[1] = 1
    seq: int
    at: float
    run: str
    agent: str
    turn: int = 0


class Limits(Data):
    """Firm limits; None means no limit of that kind. `steps` is of one agent, the others of it and all below it."""

    steps: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    model_calls: int | None = None
