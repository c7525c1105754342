"""Events of the model: what it is asked, what it replied, and when another takes its place."""

from typing import Literal

from orchestrator.events.base import Event
from orchestrator.messages import AssistantMessage, Cost, FinishReason, Usage


class ModelIntent(Event):
    """Written before the request is sent. Until it is settled, the reservation counts as spent.

    `output` is the output limit, in tokens.
    `planning`: nothing but a plan can come of it.
    """

    type: Literal["model.intent"] = "model.intent"
    attempt: int
    request: str
    messages: int
    closing: bool = False
    planning: bool = False
    reserved: int
    output: int = 0
    reserved_cost: Cost = Cost()


class ModelResult(Event):
    """`problem` is what the model is told of a reply that is neither a call nor an answer. `final`: it is done, and the
    answer is asked for next. `weights` are how the model counts, where that was learned from this reply.
    """

    type: Literal["model.result"] = "model.result"
    message: AssistantMessage
    finish: FinishReason
    usage: Usage
    cost: Cost
    model: str = ""
    estimated: bool = False
    problem: str = ""
    final: bool = False
    weights: tuple[float, ...] = ()


class ModelFailed(Event):
    """`retry_in` is in seconds; None means that it is not tried again.

    `charged`: tokens may have been spent before it failed, so the reservation counts as spent.
    """

    type: Literal["model.failed"] = "model.failed"
    attempt: int
    kind: str
    error: str
    retry_in: float | None = None
    charged: bool = False


class ModelChanged(Event):
    """The run goes on with another model, of this name at its vendor; `spec` is its name in the configuration.

    `reason` is the kind of error with which the one before failed for good, or `configuration`: a resumed run finds
    that its agent has another model now. `weights` are how the other one counts tokens, as far as that is known.
    """

    type: Literal["model.changed"] = "model.changed"
    spec: str
    model: str
    previous: str
    reason: str
    weights: tuple[float, ...] = ()


ModelEvent = ModelIntent | ModelResult | ModelFailed | ModelChanged
