"""B4: requests of models that act by JSON or by text, and what makes a model change over."""

import json
from typing import Any

import pytest
from playing import END, Play, Stage, ask, delta, error, play, request

from orchestrator.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from orchestrator.models.acting import ActingCodec
from orchestrator.models.base import Mode, ModelOptions, ToolSpec
from orchestrator.models.http import OpenAIModel
from orchestrator.models.resolve import resolve
from tests.support.models import tables_of

ORDER = ToolSpec(
    name="get_order",
    description="One order.",
    parameters={
        "type": "object",
        "properties": {
            "order_id": {"type": "integer", "description": "its number", "minimum": 1},
            "note": {"type": "string", "pattern": "(?i)^x", "format": "uri"},
            "unit": {"enum": ["g", "kg"]},
        },
        "required": ["order_id"],
    },
)
STOCK = ToolSpec(name="get_stock", description="Stock.", parameters={"type": "object", "properties": {}})
CALL = ToolCall(id="t1.1", name="get_order", arguments='{"order_id": 7}')
SAID = [
    SystemMessage(text="You are a shop."),
    UserMessage(text="What of order 7?"),
    AssistantMessage(text="look", calls=(CALL,), extra={"reasoning_content": "hm"}),
    ToolMessage(call=CALL, text="pending"),
]


def body(mode: Mode, said: Any = SAID, tools: Any = (ORDER, STOCK), closed: Any = (), **more: Any) -> dict[str, Any]:
    codec = ActingCodec("m", mode=mode, **more)
    return json.loads(codec.body([codec.message(one) for one in said], codec.tools(tools), 64, closed))


def branches(made: dict[str, Any]) -> dict[str, Any]:
    found = made["response_format"]["json_schema"]["schema"]["anyOf"]
    return {branch["properties"]["action"]["const"]: branch for branch in found}


@pytest.mark.requirement("B4")
def test_json_has_one_branch_an_action_with_the_tools_own_arguments() -> None:
    made = body("json")
    assert "tools" not in made
    assert list(branches(made)) == ["get_order", "get_stock", "final"]
    arguments = branches(made)["get_order"]["properties"]["arguments"]
    assert arguments["properties"] == {
        "order_id": {"type": "integer", "minimum": 1},
        "note": {"type": "string"},  # a pattern that no grammar takes is left to the check of the call
        "unit": {"enum": ["g", "kg"]},
    }
    assert (arguments["required"], arguments["additionalProperties"]) == (["order_id"], False)
    system, *said = made["messages"]
    assert "- get_order(order_id: integer (its number), note: string, unit: g|kg): One order." in system["content"]
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert json.loads(said[1]["content"]) == {"thought": "look", "action": "get_order", "arguments": {"order_id": 7}}
    assert said[2]["content"].startswith("Result of get_order: pending\nTask: What of order 7?")


@pytest.mark.requirement("B4")
def test_json_is_narrowed_to_what_is_open() -> None:
    assert list(branches(body("json", closed={"get_order"}))) == ["get_stock", "final"]
    assert list(branches(body("json", closed={"get_order", "get_stock"}))) == ["final"]
    assert list(branches(body("json", tools=()))) == ["final"]
    assert body("json", closed={"get_order"})["messages"] == body("json")["messages"], "the prompt stays as it was"


@pytest.mark.requirement("B4")
def test_a_weak_model_gets_no_field_to_think_in_and_bounded_arguments() -> None:
    step = branches(body("json", weak=True))
    assert list(step["get_order"]["properties"]) == ["action", "arguments"]
    assert list(step["final"]["properties"]) == ["action"], "its answer is a step of its own"
    arguments = step["get_order"]["properties"]["arguments"]
    assert arguments["required"] == ["order_id", "note", "unit"]
    assert arguments["properties"]["note"]["maxLength"] == 200
    made = body("json", tools=(), weak=True)
    assert list(made["response_format"]["json_schema"]["schema"]["properties"]) == ["working", "answer"]
    assert "`working` takes each part" in made["messages"][0]["content"], "the form is told in words as well"


@pytest.mark.requirement("B4")
def test_react_is_text_with_two_examples_that_cannot_be_copied() -> None:
    made = body("react", closed={"get_stock"})
    assert not {"tools", "response_format"} & made.keys()
    assert made["stop"] == ["\nObservation:"]
    system, *said = made["messages"]
    assert system["content"].count("Example ") == 2
    assert "<its value>" in system["content"]
    assert said[1] == {
        "role": "assistant",
        "content": 'Thought: look\nAction: get_order\nAction Input: {"order_id": 7}',
    }
    assert (
        said[2]["content"] == "Observation: pending\n\n(These tools lead nowhere now, so do not use them: get_stock.)"
    )


@pytest.mark.requirement("B4", "B8")
@pytest.mark.parametrize("mode", ["tools", "json", "react"])
def test_between_two_turns_the_beginning_of_a_request_stays_as_it_was(mode: Mode) -> None:
    codec = ActingCodec("m", mode=mode)
    tools = codec.tools([ORDER, STOCK])
    encoded = [
        codec.message(one)
        for one in [*SAID, AssistantMessage(text="", calls=(CALL,)), ToolMessage(call=CALL, text="2")]
    ]
    first, second = (codec.body(encoded[:end], tools, 64) for end in (4, 6))
    end = first.index(b'}],"tools":' if mode == "tools" else b'}],"stream":')
    assert second[:end] == first[:end]


def served(*plays: Play, mode: Mode = "tools", twice: bool = True) -> tuple[list[Any], Stage, OpenAIModel]:
    import anyio

    found: list[Any] = []

    async def main() -> tuple[Stage, OpenAIModel]:
        async with play(*plays) as stage:
            model = OpenAIModel("m", options=ModelOptions(base_url=stage.url, mode=mode))
            for _ in range(1 + twice):
                found.append(await ask(model, request(model, SAID, [ORDER, STOCK])))
            await model.aclose()
            return stage, model

    stage, model = anyio.run(main)
    return found, stage, model


def answering(text: str) -> Play:
    return Play([delta(role="assistant", content=text[:9]), delta(content=text[9:]), delta("stop"), END])


@pytest.mark.requirement("B4")
@pytest.mark.parametrize(
    "refusal",
    [
        error("registry.ollama.ai/library/gemma:2b does not support tools"),
        error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        error("tools param requires --jinja flag"),
    ],
)
def test_a_server_without_tools_is_asked_by_json_from_then_on(refusal: bytes) -> None:
    step = answering('{"thought": "t", "action": "get_order", "arguments": {"order_id": 7}}')
    found, stage, model = served(Play(refusal, status=400), step)
    kinds = [[key for key in ("tools", "response_format") if key in seen[2]] for seen in stage.seen]
    assert kinds == [["tools"], ["response_format"], ["response_format"]], "learned once"
    for deltas, reply in found:
        assert deltas == []
        assert [(call.name, json.loads(call.arguments)) for call in reply.message.calls] == [
            ("get_order", {"order_id": 7})
        ]
    assert model.codec.mode == "json"


@pytest.mark.requirement("B4")
def test_a_server_that_refuses_schemas_is_asked_by_text() -> None:
    refusal = error("'response_format.type' must be 'text'", param="response_format")
    found, stage, model = served(
        Play(refusal, status=400), answering("Thought: ok\nFinal Answer: pending"), mode="json"
    )
    assert ["stop" in seen[2] for seen in stage.seen] == [False, True, True]
    assert found[0][1].message.text == "pending"
    assert model.codec.mode == "react"


@pytest.mark.requirement("B4")
def test_a_server_that_ignores_schemas_is_asked_by_text_the_next_time() -> None:
    found, stage, _ = served(answering("I shall look."), answering("Final Answer: pending"), mode="json")
    assert ["response_format" in seen[2] for seen in stage.seen] == [True, False]
    assert [reply.message.text for _, reply in found] == ["I shall look.", "pending"]


def test_the_table_of_a_model_says_how_it_acts() -> None:
    table = {"base_url": "http://127.0.0.1:9/v1", "provider": "x"}
    tables = tables_of({"a": {**table, "mode": "react"}, "b": {**table, "weak": True}, "c": table})
    codecs = [resolve(name, tables, {}).codec for name in "abc"]
    assert [(codec.mode, codec.weak, codec.most_tools) for codec in codecs] == [  # type: ignore[attr-defined]
        ("react", False, 10),
        ("json", True, 10),
        ("tools", False, None),
    ]
