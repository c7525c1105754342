"""What arrives at a collector: tree, services, kinds, attributes, money, events. Requirements F1, F2."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from orchestrator.messages import Cost
from orchestrator.tracing.setup import make_tracer

from .receiver import Receiver, grpc_receiver, http_receiver
from .runs import ANALYST, SUPERVISOR, answered, chat_facts, tool_facts, trace_team

TEAM = [
    "orchestrator",
    "invoke_workflow supervisor",
    [
        "supervisor",
        "invoke_agent supervisor",
        ["supervisor", "chat gpt-5"],
        [
            "supervisor",
            "execute_tool analyst",
            [
                "analyst",
                "invoke_agent analyst",
                ["analyst", "chat gpt-5-mini"],
                ["analyst", "execute_tool files__read"],
            ],
        ],
    ],
]


def environment(receiver: Receiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **more}


@pytest.fixture(scope="module")
def team() -> Receiver:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))
        trace_team(tracer)
        anyio.run(tracer.aclose)
    return receiver


def test_a_delegation_is_one_tree_with_a_service_per_agent(team: Receiver) -> None:
    assert team.tree() == [TEAM]
    assert len({span.trace_id for span in team.spans}) == 1
    assert {span.scope for span in team.spans} == {"orchestrator-mcp"}
    assert {span.status for span in team.spans} == {"UNSET"}
    assert [span.name for span in team.spans if span.kind == "CLIENT"] == ["chat gpt-5", "chat gpt-5-mini"]
    assert {span.kind for span in team.spans} == {"CLIENT", "INTERNAL"}


def test_chat_carries_request_response_tokens_and_money(team: Receiver) -> None:
    span = team.named("chat gpt-5")
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.request.max_tokens": 512,
        "gen_ai.agent.name": "supervisor",
        "gen_ai.conversation.id": "r1",
        "gen_ai.response.model": "gpt-5-0801",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_write.input_tokens": 7,
        "gen_ai.usage.cache_creation.input_tokens": 7,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "gen_ai.usage.cost.amount": 0.25,
        "gen_ai.usage.cost.currency": "USD",
        "orchestrator.step": 1,
    }
    assert span.events == [
        ("retry", {"attempt": 1, "error": "overloaded"}),
        ("cost", {"amount": 0.25, "run_total": 0.25, "tokens": 120}),
    ]
    assert team.named("chat gpt-5-mini").events == [("cost", {"amount": 0.25, "run_total": 0.5, "tokens": 120})]


def test_tool_carries_the_call_and_how_it_went_out_but_no_content(team: Receiver) -> None:
    assert team.named("execute_tool files__read").attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "files__read",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "t1.1",
        "gen_ai.agent.name": "analyst",
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "orchestrator.server": "files",
    }


def test_roll_ups_are_on_runs_only_and_under_an_own_prefix(team: Receiver) -> None:
    totals = {
        "orchestrator.run.id": "r1",
        "orchestrator.run.status": "finished",
        "orchestrator.run.stop_reason": "answered",
        "orchestrator.own.input_tokens": 100,
        "orchestrator.own.output_tokens": 20,
        "orchestrator.own.cached_tokens": 60,
        "orchestrator.own.model_calls": 1,
        "orchestrator.own.tool_calls": 1,
        "orchestrator.tree.input_tokens": 200,
        "orchestrator.tree.output_tokens": 40,
        "orchestrator.tree.cached_tokens": 120,
        "orchestrator.tree.model_calls": 2,
        "orchestrator.tree.tool_calls": 2,
        "orchestrator.cost.amount": 0.5,
        "orchestrator.cost.currency": "USD",
        "orchestrator.cost.known": True,
        "gen_ai.agent.name": "supervisor",
        "gen_ai.conversation.id": "r1",
    }
    assert team.named("invoke_workflow supervisor").attributes == {
        **totals,
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "supervisor",
    }
    assert team.named("invoke_agent supervisor").attributes == {
        **totals,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.description": "Leads.",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.provider.name": "openai",
    }
    with_usage = {span.name for span in team.spans if any(key.startswith("gen_ai.usage") for key in span.attributes)}
    assert with_usage == {"chat gpt-5", "chat gpt-5-mini"}


def test_an_unknown_price_is_said_and_not_shown_as_nothing() -> None:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))
        with tracer.chat(chat_facts(SUPERVISOR)) as chat:
            chat.settle(answered(cost=Cost(known=False), tree_cost=Cost(known=False)))
        anyio.run(tracer.aclose)
    [span] = receiver.spans
    assert "gen_ai.usage.cost.amount" not in span.attributes
    assert span.attributes["orchestrator.cost.known"] is False
    assert span.events[0][1]["orchestrator.cost.known"] is False


@pytest.mark.parametrize(
    ("collector", "protocol"), [(grpc_receiver, "grpc"), (http_receiver, "http/protobuf")], ids=["grpc", "http"]
)
def test_protocol_headers_and_resource_are_taken_from_the_environment(
    collector: Callable[[], AbstractContextManager[Receiver]], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%20b")  # the exporter reads it itself
    with collector() as receiver:
        environ = environment(
            receiver,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test,service.name=overridden",
            OTEL_SERVICE_NAME="shop",
        )
        tracer = make_tracer(Path("unused"), environ)
        trace_team(tracer)
        anyio.run(tracer.aclose)
    assert receiver.tree() == [["shop", *TEAM[1:]]]
    assert receiver.headers[0]["x-token"] == "a b"
    resource = receiver.spans[0].resource
    assert resource["deployment.environment.name"] == "test"
    assert resource["telemetry.sdk.language"] == "python"


def test_the_endpoint_for_traces_is_used_as_it_stands_and_one_service_can_be_had() -> None:
    with http_receiver() as receiver:
        environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{receiver.endpoint}/v1/traces", "OTEL_SERVICE_NAME": "shop"}
        tracer = make_tracer(Path("unused"), environ, service_per_agent=False)
        trace_team(tracer)
        anyio.run(tracer.aclose)
    assert {span.service for span in receiver.spans} == {"shop"}


def test_a_later_sitting_goes_on_below_the_first_with_its_trace_id() -> None:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))
        first = trace_team(tracer)
        anyio.run(tracer.aclose)
        sitting = len(receiver.spans)
        again = make_tracer(Path("unused"), environment(receiver))
        second = trace_team(again, first)
        anyio.run(again.aclose)
    assert second.trace_id == first.trace_id
    assert {span.trace_id for span in receiver.spans} == {first.trace_id}
    assert [(s.span_id, s.parent_id) for s in receiver.spans[sitting:] if s.name.startswith("invoke_workflow")] == [
        (second.span_id, first.span_id)
    ]


def test_parallel_scopes_each_keep_their_own_branch() -> None:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))

        async def specialist(call: str, opened: anyio.Event, other: anyio.Event) -> None:
            with tracer.tool(tool_facts(SUPERVISOR, call, f"tool-{call}", "agents")):
                opened.set()
                await other.wait()
                with tracer.agent(ANALYST):
                    await anyio.lowlevel.checkpoint()

        async def run() -> None:
            one, two = anyio.Event(), anyio.Event()
            with tracer.agent(SUPERVISOR):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(specialist, "t1.1", one, two)
                    tasks.start_soon(specialist, "t1.2", two, one)
            await tracer.aclose()

        anyio.run(run)
    [[_, _, *branches]] = receiver.tree()
    inner = ["analyst", "invoke_agent analyst"]
    assert branches == [
        ["supervisor", "execute_tool tool-t1.1", inner],
        ["supervisor", "execute_tool tool-t1.2", inner],
    ]


def test_a_callers_span_is_the_parent_and_its_sampling_is_honoured() -> None:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))
        for flags in (TraceFlags.SAMPLED, TraceFlags.DEFAULT):
            caller = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(flags)))
            token = otel_context.attach(trace.set_span_in_context(caller))
            assert trace_team(tracer).trace_id == format(0xABC, "032x")
            otel_context.detach(token)
        anyio.run(tracer.aclose)
    assert len(receiver.spans) == 7
    assert receiver.named("invoke_workflow supervisor").parent_id == format(0xDEF, "016x")


@pytest.mark.parametrize(
    ("sampler", "argument", "sent"),
    [("always_off", "", 0), ("parentbased_traceidratio", "0", 0), ("traceidratio", "1", 7), ("traceidratio", "x", 7)],
)
def test_the_share_of_traces_that_is_sent_follows_the_environment(sampler: str, argument: str, sent: int) -> None:
    with http_receiver() as receiver:
        environ = environment(receiver, OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)
        tracer = make_tracer(Path("unused"), environ)
        trace_team(tracer)
        anyio.run(tracer.aclose)
    assert len(receiver.spans) == sent


def test_closing_twice_and_closing_what_was_never_used_do_nothing() -> None:
    with http_receiver() as receiver:
        tracer = make_tracer(Path("unused"), environment(receiver))
        anyio.run(tracer.aclose)
        anyio.run(tracer.aclose)
    assert receiver.headers == []
