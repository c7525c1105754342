"""A tool's schema as models are shown it, beside the original, which validates."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.shown import ROOM, shown
from orchestrator.tools.toolset import Toolset
from tests.support.toolsets import awkward_server, call, with_toolset, write

NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}}


def size(schema: Any) -> int:
    return len(json.dumps(schema, ensure_ascii=False).encode())


def nested(levels: int, **bottom: Any) -> dict[str, Any]:
    node: dict[str, Any] = {"name": "leaf", **bottom}
    for level in range(levels):
        node = {"name": f"level {level}", "children": [node]}
    return node


def test_s6_the_copy_stands_by_itself_to_a_bounded_depth_and_the_original_validates(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        (offer,) = toolset.offers()
        copy = json.dumps(offer.spec.parameters)
        assert "$ref" not in copy
        assert "$defs" not in copy
        assert copy.count('"children"') == 2, "once, and once more within itself"
        assert "(the same form again)" in copy
        good = {"root": nested(6)}
        assert offer.schema.prepare(json.dumps(good)) == good
        assert (await call(toolset, offer.name, good)).text == "grow"
        with pytest.raises(InvalidArguments, match=r"nmae"):
            offer.schema.prepare(json.dumps({"root": nested(6, nmae="deeper than the copy goes")}))
        assert offer.spec is offer.spec, "the copy is made once"

    listed = [{"name": "grow", "inputSchema": TREE}]
    with_toolset(test, awkward_server("--tools", write(tmp_path / "tools.json", json.dumps(listed)), name="s"))


def test_references_may_lead_anywhere_within_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "by_pointer": {"$ref": "#/properties/here/properties/x"},
            "by_old_name": {"$ref": "#/definitions/a~1b", "description": "its own words win"},
            "here": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 3}}},
            "nowhere": {"$ref": "#/$defs/none"},
        },
        "definitions": {"a/b": {"type": "boolean", "description": "theirs"}},
    }
    properties = shown(schema)["properties"]
    assert properties["by_pointer"] == {"type": "integer", "minimum": 3}
    assert properties["by_old_name"] == {"type": "boolean", "description": "its own words win"}
    assert properties["nowhere"] == {}
    assert shown({"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"a": True}}}}) == {
        "type": "object",
        "properties": {"a": {}},
    }
    assert shown({"$ref": "#"}) == {"type": "object", "properties": {}}, "a schema that is itself for ever"


def test_what_only_validators_read_is_gone_but_not_a_property_of_that_name() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "x",
        "title": "Arguments",
        "x-order": ["title"],
        "properties": {"title": {"title": "Title", "type": "string"}, "x-y": {"enum": ["a"]}, "$ref": {"const": 1}},
        "required": ["title"],
    }
    assert shown(schema) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "x-y": {"enum": ["a"], "type": "string"}, "$ref": {"const": 1}},
        "required": ["title"],
    }


@pytest.mark.parametrize(
    ("source", "copy"),
    [
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"anyOf": [{"not": {}}, {"type": "integer"}]}, {"type": "integer"}),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, {"oneOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            {"allOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
            {"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "type": "object"},
        ),
        ({"items": {"type": "string"}}, {"items": {"type": "string"}, "type": "array"}),
        ({"properties": {}}, {"properties": {}, "type": "object"}),
        ({"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": False}),
        ({"properties": {"no": False, "any": True}}, {"properties": {"any": {}}, "type": "object"}),
        (True, {}),
    ],
)
def test_forms(source: Any, copy: dict[str, Any]) -> None:
    assert shown({"type": "object", "properties": {"a": source}})["properties"]["a"] == copy


def test_the_size_is_bounded_where_inlining_would_double_it_at_each_level() -> None:
    levels = {f"d{n}": {"properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "lr"}} for n in range(40)}
    copy = shown({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**levels, "d40": {"type": "string"}}})
    assert size(copy) < 2 * ROOM
    assert "(what is inside is not shown here)" in json.dumps(copy)


def test_parts_that_double_at_each_level_are_joined_within_bounds() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    assert shown({"$ref": "#/$defs/d0", "$defs": {**levels, "d40": {"required": ["a"]}}})["type"] == "object"


def test_of_two_hundred_kilobytes_the_upper_levels_and_the_required_arguments_are_shown() -> None:
    many = {f"p{n}": {"type": "string", "description": "How it is. " * 20} for n in range(800)}
    properties = {**many, "last": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["last"], "description": "Many."}
    assert size(schema) > 200_000
    copy = shown(schema)
    assert size(copy) < 2 * ROOM
    assert copy["properties"]["last"] == {"type": "integer"}
    assert re.match(r"Many\. \(\d+ more are not shown here: p", copy["description"])


_leaves = st.sampled_from([True, False, {}, {"type": "string"}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"enum": [1]}])
_schemas = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(lambda named: {"properties": named}, st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
        st.builds(
            lambda key, several: {key: several},
            st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda key, one: {key: one}, st.sampled_from(["items", "additionalProperties", "not"]), inner),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abc"), _schemas, max_size=3), _schemas)
def test_any_schema_becomes_a_bounded_object_without_references(named: dict[str, Any], a: Any) -> None:
    copy = shown({"properties": named, "$defs": {"a": a}})
    assert copy["type"] == "object"
    assert '"$ref"' not in json.dumps(copy)
    assert size(copy) < 3 * ROOM
    jsonschema_rs.validator_for(copy)  # it is a schema
