"""Public events: what `Orchestrator.stream` yields, derived from the journal's."""

from typing import Any, Literal

from pydantic import Field

from orchestrator.events.base import Data, StateName, Status, StopReason
from orchestrator.messages import Cost, Usage


class RunEvent(Data):
    """What every public event carries. `step` is the agent's turn."""

    run_id: str
    agent: str
    step: int
    trace_id: str


class TextDeltaEvent(RunEvent):
    type: Literal["text_delta"] = "text_delta"
    text: str


class ToolCallEvent(RunEvent):
    type: Literal["tool_call"] = "tool_call"
    call: str
    tool: str
    arguments: dict[str, Any]


class ToolResultEvent(RunEvent):
    type: Literal["tool_result"] = "tool_result"
    call: str
    tool: str
    observation: str
    is_error: bool
    seconds: float


class ApprovalEvent(RunEvent):
    """A call waits for a person. `call` is its path over the tree, which is what `approve` takes.

    `input`: the call was made, and its server asks for this before it goes on. Keys are `server`, `message`, and either
    `schema`, a JSON Schema, or `url` with its `host`.
    """

    type: Literal["approval"] = "approval"
    call: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    input: dict[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)


class UsageEvent(RunEvent):
    type: Literal["usage"] = "usage"
    usage: Usage
    cost: Cost


class StateEvent(RunEvent):
    """A transition of the state machine; `at` is its time."""

    type: Literal["state"] = "state"
    state: StateName
    previous: StateName | None
    at: float


class ErrorEvent(RunEvent):
    type: Literal["error"] = "error"
    error: str


class FinalAnswerEvent(RunEvent):
    type: Literal["final_answer"] = "final_answer"
    answer: str
    status: Status
    stop_reason: StopReason


PublicEvent = (
    TextDeltaEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalEvent
    | UsageEvent
    | StateEvent
    | ErrorEvent
    | FinalAnswerEvent
)
