"""What vendors refuse is adapted in their own copies."""

import json
from typing import Any

import pytest

from orchestrator.models.base import ModelOptions, ToolSpec
from orchestrator.models.chat import ChatCodec
from orchestrator.models.flavours import flavour_of, gemini, plain
from orchestrator.models.http import OpenAIModel


def spec(parameters: dict[str, Any], description: str = "Does it.") -> ToolSpec:
    return ToolSpec(name="s__t", description=description, parameters={"type": "object", **parameters})


def geminis(schema: Any) -> Any:
    return gemini(spec({"properties": {"a": schema}}))["parameters"]["properties"]["a"]


def test_a_union_at_the_top_becomes_one_object() -> None:
    tool = spec(
        {
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
            "oneOf": [
                {"properties": {"x": {"type": "string"}}, "required": ["x"]},
                {"properties": {"y": {"type": "string"}}, "required": ["y"]},
            ],
        }
    )
    parameters = plain(tool)["parameters"]
    assert parameters.keys().isdisjoint({"oneOf", "anyOf", "allOf", "not", "enum"})
    assert set(parameters["properties"]) == {"id", "x", "y"}
    assert parameters["required"] == ["id"]
    assert parameters["description"] == "Give (x) or (y)."
    assert "oneOf" in tool.parameters, "what validates elsewhere is not touched"


def test_every_array_says_what_its_items_are() -> None:
    parameters = plain(spec({"properties": {"a": {"type": ["array", "null"], "items": {"type": "array"}}}}))[
        "parameters"
    ]
    assert parameters["properties"]["a"]["items"] == {"type": "array", "items": {}}


def test_a_long_description_goes_on_beside_the_parameters() -> None:
    words = "".join(chr(ord("a") + n % 26) for n in range(3000))
    function = plain(spec({"properties": {}, "description": "Own."}, words))
    assert len(function["description"]) == 1024
    assert function["description"][:-1] + function["parameters"]["description"][1:] == words + " Own."
    assert plain(spec({"properties": {}}, words[:1024]))["description"] == words[:1024]


@pytest.mark.parametrize(
    ("schema", "copy"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "integer", "nullable": True}),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"const": "x", "type": "string"}, {"type": "string", "enum": ["x"]}),
        ({"type": "string", "enum": ["a", "", None]}, {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 2}, {"type": "number", "minimum": 0}),
        ({"type": "string", "format": "uri", "default": "x", "x-a": 1}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        (
            {"type": "object", "additionalProperties": True},
            {"type": "string", "description": "(a JSON object, written as text)"},
        ),
        ({"type": "array", "uniqueItems": True}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b", "c"], "propertyNames": {}},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ),
        ({"type": "string", "properties": {"b": {}}, "required": ["b"], "items": {}}, {"type": "string"}),
        ({}, {"type": "string"}),
    ],
)
def test_gemini_is_given_the_part_of_openapi_that_it_knows(schema: dict[str, Any], copy: dict[str, Any]) -> None:
    assert geminis(schema) == copy


def test_gemini_is_given_no_parameters_where_there_are_none() -> None:
    assert gemini(spec({"properties": {}})) == {"name": "s__t", "description": "Does it."}


@pytest.mark.parametrize(
    ("model", "url", "flavour"),
    [
        ("gemini-2.5-flash", "https://generativelanguage.googleapis.com/v1beta/openai", gemini),
        ("any", "https://europe-west4-aiplatform.googleapis.com/v1", gemini),
        ("google/gemini-2.5-pro", "https://openrouter.ai/api/v1", gemini),
        ("gpt-4.1-mini", "https://api.openai.com/v1", plain),
        ("qwen3", "http://127.0.0.1:11434/v1", plain),
    ],
)
def test_the_address_and_the_model_decide(model: str, url: str, flavour: Any) -> None:
    assert flavour_of(model, url) is flavour
    codec = OpenAIModel(model, options=ModelOptions(base_url=url)).codec
    (sent,) = json.loads(codec.tools([tool := spec({"properties": {"a": {"const": 1}}})]))
    assert sent == {"type": "function", "function": json.loads(json.dumps(flavour(tool)))}


def test_a_copy_is_made_once_and_forgotten_with_its_tool() -> None:
    made: list[ToolSpec] = []
    codec = ChatCodec("m", flavour=lambda tool: made.append(tool) or plain(tool))
    one, other = spec({}), spec({})
    first = codec.tools([one, other])
    assert codec.tools([one]) == codec.tools([other])
    assert codec.tools([one, other]) == first
    assert made == [one, other]
    made.clear()
    del one, other
    assert not codec._tools  # pyright: ignore[reportPrivateUsage]
