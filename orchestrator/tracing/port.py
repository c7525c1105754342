"""The one seam through which the loop is watched while it works: a scope around each run, agent, model and tool call.

A scope is entered and left in the same task. What happened inside is told once, by `settle`, in the loop's own terms;
names of conventions live with the implementation. `NullTracer` costs nothing and still hands out trace ids, so that a
run has one whether or not it is traced.
"""

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from orchestrator.messages import AssistantMessage, Cost, Usage

INSIDE: ContextVar[bool] = ContextVar("orchestrator_inside_scope", default=False)
"""Whether what the current task sends belongs to a scope, or keeps a connection: nobody else adds a span to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """A place in a trace: 32 and 16 lower-case hex digits."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run when its scope opens. `agent` is the root agent of a workflow, or the agent itself."""

    run_id: str
    agent: str
    description: str = ""
    model: str = ""
    provider: str = ""
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFacts:
    """A thought: one request and its retries. `max_output_tokens` is what the first of them was granted.

    `summary`: no thought, but notes in the place of turns that leave the window.
    """

    run_id: str
    agent: str
    step: int
    model: str
    provider: str
    max_output_tokens: int
    summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A thought that can only be a plan; its `chat` lies within."""

    run_id: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFacts:
    """`transport` is `pipe`, `tcp` or `` for a server in this process."""

    run_id: str
    agent: str
    call: str
    tool: str
    server: str
    transport: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """`usage` and `cost` are of the whole tree, `own_usage` of the agent alone.

    `error` is None unless the run failed; then a short, low-cardinality kind, beside its `message` for people.
    """

    status: str
    stop_reason: str
    usage: Usage
    own_usage: Usage
    cost: Cost
    error: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOutcome:
    """How a thought ended, after all its tries. `error` is a short, low-cardinality kind.

    `tree_cost` is what the tree has spent, this thought included; `tokens_left` and `cost_left` are what the limits
    that hold for it still allow, None without such a limit. `reply` is what the model wrote.
    """

    usage: Usage = Usage()
    cost: Cost = Cost()
    tree_cost: Cost = Cost()
    tokens_left: int | None = None
    cost_left: Decimal | None = None
    reply: AssistantMessage | None = None
    finish: str = ""
    model: str = ""
    response_id: str = ""
    error: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    text: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """`error` is a short kind where no plan came of it."""

    error: str | None = None


Outcome = RunOutcome | ChatOutcome | ToolOutcome | PlanOutcome


class Scope(Protocol):
    @property
    def context(self) -> TraceContext: ...

    def settle(self, outcome: Outcome) -> None:
        """Says how it ended; called at most once. A scope that is left without it was cancelled or crashed."""
        ...

    def note(self, name: str, facts: Mapping[str, str | int | float | bool]) -> None:
        """Something worth a line happened inside: a retry, a limit, an approval."""
        ...


class Tracer(Protocol):
    def workflow(self, facts: RunFacts, first: TraceContext | None = None) -> AbstractContextManager[Scope]:
        """One sitting of a run. `first` is the scope of its first sitting: the same trace goes on below it."""
        ...

    def agent(self, facts: RunFacts) -> AbstractContextManager[Scope]: ...

    def plan(self, facts: PlanFacts) -> AbstractContextManager[Scope]: ...

    def chat(self, facts: ChatFacts) -> AbstractContextManager[Scope]: ...

    def tool(self, facts: ToolFacts) -> AbstractContextManager[Scope]: ...

    async def aclose(self) -> None:
        """Sends what is left, within two seconds."""
        ...


class _NullScope:
    __slots__ = ("context",)

    def __init__(self, context: TraceContext) -> None:
        self.context = context

    def settle(self, outcome: Outcome) -> None: ...

    def note(self, name: str, facts: Mapping[str, str | int | float | bool]) -> None: ...


class NullTracer:
    """Traces nothing."""

    def __init__(self) -> None:
        self._silent = nullcontext[Scope](_NullScope(TraceContext(trace_id="0" * 32, span_id="0" * 16)))

    def workflow(self, facts: RunFacts, first: TraceContext | None = None) -> AbstractContextManager[Scope]:
        context = first or TraceContext(trace_id=secrets.token_hex(16), span_id=secrets.token_hex(8))
        return nullcontext[Scope](_NullScope(context))

    def agent(self, facts: RunFacts | ChatFacts | ToolFacts | PlanFacts) -> AbstractContextManager[Scope]:
        return self._silent

    plan = chat = tool = agent

    async def aclose(self) -> None: ...
