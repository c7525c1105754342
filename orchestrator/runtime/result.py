"""What a run came to, in the form that `--json` prints."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from orchestrator.events import RunCancelled, RunFailed, RunFinished, Status, StopReason
from orchestrator.messages import Cost, Usage
from orchestrator.runtime.publish import call_path, wanted
from orchestrator.runtime.runstate import CallState, RunState, StepRecord

RESTARTS = (
    "the call was stopped meanwhile; with your answer it is made again from its beginning, and what it did before it "
    "asked is done again"
)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Action(_Model):
    """One call and its answer. `run_id` is the run of the agent that was called, where it was one."""

    call: str
    tool: str
    arguments: Mapping[str, Any] | str
    is_error: bool
    observation: str
    run_id: str | None = Field(default=None, exclude_if=lambda value: value is None)


class StepResult(_Model):
    n: int
    agent: str
    thought: str
    actions: tuple[Action, ...] = ()


class UsageResult(_Model):
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    tool_calls: int


class CostResult(_Model):
    """`known` is false where a price was missing; `amount` is then what is known of it."""

    amount: float
    currency: str = "USD"
    known: bool

    @field_serializer("amount")
    def _rounded(self, amount: float) -> float:
        return round(amount, 6)


class ApprovalRequest(_Model):
    """A call that waits for a person. `call` is its path over the tree.

    `input`: the call was made, and its server asks for this before it goes on, as in `ApprovalEvent`; the arguments of
    the verdict are the answer.
    """

    call: str
    agent: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    input: Mapping[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)


class RunResult(_Model):
    """`usage` and `cost` are of the whole tree, `own_usage` and `steps` of the agent alone."""

    run_id: str
    status: Status
    stop_reason: StopReason
    answer: str
    agent: str
    steps: tuple[StepResult, ...]
    approvals: tuple[ApprovalRequest, ...] = ()
    usage: UsageResult
    own_usage: UsageResult
    cost: CostResult
    duration_s: float
    trace_id: str


def status_of(state: RunState) -> tuple[Status, StopReason, str]:
    """How a run stands: its status, the reason, and its answer or what went wrong."""
    match state.end:
        case RunFinished(status=status, stop_reason=reason, answer=answer):
            return status, reason, answer
        case RunFailed(error=error):
            return "failed", "error", error
        case RunCancelled(reason=reason):
            return "cancelled", "cancelled", reason
        case None if state.parked is not None:
            waiting = state.parked.reason == "approval"
            return "parked", "approval" if waiting else "cancelled", state.last_thought
        case None:
            return "running", "error", state.last_thought


def run_result(run: str, states: Mapping[str, RunState]) -> RunResult:
    """The result of a run; `states` are those of its tree. Usage and cost are those of the run and all below it."""
    state = states[run]
    below = {key: each for key, each in states.items() if key == run or key.startswith(f"{run}/")}
    usage, cost = totals(below.values())
    status, reason, answer = status_of(state)
    return RunResult(
        run_id=state.run.run,
        status=status,
        stop_reason=reason,
        answer=answer,
        agent=state.run.agent,
        steps=tuple(_step(step, state) for step in state.steps),
        approvals=tuple(pending(below)),
        usage=usage_result(usage),
        own_usage=usage_result(state.own),
        cost=cost_result(cost),
        duration_s=round(state.active, 3),
        trace_id=state.run.trace_id,
    )


def pending(states: Mapping[str, RunState]) -> Iterator[ApprovalRequest]:
    """Every call of these runs that waits for a person."""
    for state in states.values():
        for call in state.calls:
            if call.phase == "waiting" and state.end is None:
                yield request_of(state, call)


def request_of(state: RunState, call: CallState, *, running: bool = False) -> ApprovalRequest:
    """What a person is asked about a call that waits. `running`: its server waits for the answer at this moment."""
    reason, asked = wanted(call)
    if call.input is not None and call.input.restarts and not running:
        reason += f" ({RESTARTS})"
    return ApprovalRequest(
        call=call_path(state.run.run, call.call.id),
        agent=state.run.agent,
        tool=call.call.name,
        arguments=call.arguments or {},
        reason=reason,
        input=asked,
    )


def totals(states: Iterable[RunState]) -> tuple[Usage, Cost]:
    """What these runs used themselves and through agents of other orchestrators, added up."""
    usage, cost = Usage(), Cost()
    for state in states:
        usage, cost = usage + state.own + state.remote, cost + state.own_cost + state.remote_cost
    return usage, cost


def _step(step: StepRecord, state: RunState) -> StepResult:
    actions = tuple(
        Action(
            call=action.call.id,
            tool=action.call.name,
            arguments=action.arguments if action.arguments is not None else action.call.arguments,
            is_error=action.is_error,
            observation=action.observation,
            run_id=action.child,
        )
        for action in step.actions
    )
    return StepResult(n=step.n, agent=state.run.agent, thought=step.thought, actions=actions)


def cost_result(cost: Cost) -> CostResult:
    return CostResult(amount=float(cost.amount), known=cost.known)


def usage_result(usage: Usage) -> UsageResult:
    return UsageResult(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        model_calls=usage.model_calls,
        tool_calls=usage.tool_calls,
    )
