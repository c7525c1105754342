"""A small run to trace, the same for every back end; as a script it traces many spans into a home folder."""

import sys
from decimal import Decimal
from pathlib import Path

import anyio

from orchestrator.messages import Cost, Usage
from orchestrator.tracing.port import (
    ChatFacts,
    ChatOutcome,
    RunFacts,
    RunOutcome,
    Scope,
    ToolFacts,
    ToolOutcome,
    TraceContext,
    Tracer,
)
from orchestrator.tracing.setup import make_tracer

SUPERVISOR = RunFacts(run_id="r1", agent="supervisor", description="Leads.", model="gpt-5", provider="openai")
ANALYST = RunFacts(run_id="r1/t1.1", agent="analyst", model="gpt-5-mini", provider="openai")
USAGE = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, cache_write_tokens=7, reasoning_tokens=5)
PRICE = Cost(amount=Decimal("0.25"))
TOTAL = Usage(input_tokens=200, output_tokens=40, cached_tokens=120, model_calls=2, tool_calls=2)
OWN = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, model_calls=1, tool_calls=1)


def chat_facts(facts: RunFacts, step: int = 1) -> ChatFacts:
    return ChatFacts(
        run_id=facts.run_id,
        agent=facts.agent,
        step=step,
        model=facts.model,
        provider=facts.provider,
        max_output_tokens=512,
    )


def tool_facts(facts: RunFacts, call: str, tool: str, server: str, transport: str = "") -> ToolFacts:
    return ToolFacts(
        run_id=facts.run_id,
        agent=facts.agent,
        call=call,
        tool=tool,
        server=server,
        transport=transport,
        arguments={"month": 7},
    )


def answered(cost: Cost = PRICE, tree_cost: Cost = PRICE) -> ChatOutcome:
    return ChatOutcome(
        usage=USAGE, cost=cost, tree_cost=tree_cost, finish="stop", model="gpt-5-0801", response_id="resp_1"
    )


def finished(**changes: str | None) -> RunOutcome:
    status, reason = changes.get("status") or "finished", changes.get("stop_reason") or "answered"
    return RunOutcome(
        status=status, stop_reason=reason, usage=TOTAL, own_usage=OWN, cost=PRICE + PRICE, error=changes.get("error")
    )


def trace_team(tracer: Tracer, first: TraceContext | None = None) -> TraceContext:
    """A supervisor that thinks, and delegates to an analyst that thinks and reads a file."""
    with tracer.workflow(RunFacts(run_id="r1", agent="supervisor"), first) as workflow:
        with tracer.agent(SUPERVISOR) as lead:
            with tracer.chat(chat_facts(SUPERVISOR)) as chat:
                chat.note("retry", {"attempt": 1, "error": "overloaded"})
                chat.settle(answered())
            with tracer.tool(tool_facts(SUPERVISOR, "t1.1", "analyst", "agents")) as call:
                _analyse(tracer)
                call.settle(ToolOutcome(text="42"))
            lead.settle(finished())
        workflow.settle(finished())
    return workflow.context


def _analyse(tracer: Tracer) -> None:
    with tracer.agent(ANALYST) as analyst:
        with tracer.chat(chat_facts(ANALYST)) as chat:
            chat.settle(answered(tree_cost=PRICE + PRICE))
        with tracer.tool(tool_facts(ANALYST, "t1.1", "files__read", "files", "pipe")) as call:
            call.settle(ToolOutcome(text="a,b\n1,2"))
        analyst.settle(finished())


def settled_workflow(tracer: Tracer, outcome: RunOutcome) -> Scope:
    with tracer.workflow(SUPERVISOR) as scope:
        scope.settle(outcome)
    return scope


async def many(tracer: Tracer, count: int) -> None:
    for _ in range(count):
        trace_team(tracer)
    await tracer.aclose()


if __name__ == "__main__":
    import os

    anyio.run(many, make_tracer(Path(sys.argv[1]), os.environ), int(sys.argv[2]))
