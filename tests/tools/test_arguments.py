"""C4, A5, L12: arguments coerced and validated by the tool's schema; what stays wrong is told with an example."""

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.tools import coerce as coercing
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments, canonical
from orchestrator.tools.dates import NoDate, iso_date, iso_datetime

INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
STRING: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
DATE: dict[str, Any] = {"type": "string", "format": "date"}
MOMENT: dict[str, Any] = {"type": "string", "format": "date-time"}
STATUS: dict[str, Any] = {"type": "string", "enum": ["in_progress", "done", "-done"]}
NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"value": INTEGER, "next": {"$ref": "#/$defs/Node"}, "tags": {"type": "array", "items": STRING}},
    "required": ["value"],
    "additionalProperties": False,
}
SHAPE: dict[str, Any] = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": NUMBER}, "required": ["kind", "r"]},
        {"type": "object", "properties": {"kind": {"const": "square"}, "w": NUMBER}, "required": ["kind", "w"]},
    ]
}


def array(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def schema_of(argument: dict[str, Any], *, required: bool = True, **more: Any) -> ArgumentSchema:
    return ArgumentSchema(
        {
            "type": "object",
            "properties": {"value": argument, "other": INTEGER},
            "required": ["value"] if required else [],
            "$defs": {"Node": NODE},
            **more,
        }
    )


def refusal(schema: ArgumentSchema, arguments: dict[str, Any] | str) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        schema.prepare(arguments if isinstance(arguments, str) else json.dumps(arguments))
    return caught.value


@pytest.mark.parametrize(
    ("argument", "written", "sent"),
    [
        (INTEGER, "5", 5),
        (INTEGER, " -1,000 ", -1000),
        (INTEGER, "５", 5),
        (INTEGER, "1e3", 1000),
        (INTEGER, "5.0", 5),
        (INTEGER, 5.0, 5),
        (INTEGER, "03", 3),
        (NUMBER, "1,234.50", 1234.5),
        (NUMBER, ".5", 0.5),
        (NUMBER, "１，０００．５", 1000.5),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False", False),
        (BOOLEAN, "1", True),
        (BOOLEAN, 0, False),
        (STRING, 5, "5"),
        (STRING, 1.5, "1.5"),
        (STRING, True, "true"),
        (STRING, {"title": "x", "notes": [1, "é"]}, '{"title": "x", "notes": [1, "é"]}'),
        (STRING, [1, None], "[1, null]"),
        (array(STRING), "a", ["a"]),
        (array(STRING), "a, b，c", ["a", "b", "c"]),
        (array(STRING), '["a, b", 1]', ["a, b", "1"]),
        (array(STRING), "['a', 'b',]", ["a", "b"]),
        (array(STRING), "", []),
        (array(STRING), '{"a": 1, "b": 2}', ['{"a": 1, "b": 2}']),
        (array(STRING), 5, ["5"]),
        (array(INTEGER), "1, 2", [1, 2]),
        (array(INTEGER), "1,000", [1000]),
        (array(INTEGER), ["1", 2.0], [1, 2]),
        (array({"type": "string", "format": "uri"}), "https://x.org/?a=1,2", ["https://x.org/?a=1,2"]),
        (array({"type": "object"}), {"a": 1}, [{"a": 1}]),
        (array({"type": "object"}), '[{"a": 1}]', [{"a": 1}]),
        ({"type": "array", "prefixItems": [INTEGER, STRING]}, ["1", 2], [1, "2"]),
        ({"type": "object", "properties": {"n": INTEGER}}, "{'n': '5'}", {"n": 5}),
        (STATUS, " Done", "done"),
        (STATUS, "In Progress", "in_progress"),
        (STATUS, "IN-PROGRESS", "in_progress"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"const": "go"}, "GO", "go"),
        ({"const": 5}, "5", 5),
        ({"anyOf": [INTEGER, NULL]}, "5", 5),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        ({"anyOf": [INTEGER, NULL]}, 5.0, 5),
        ({"type": ["integer", "null"]}, "", None),
        ({"type": ["number", "boolean"]}, "True", True),
        ({"anyOf": [STRING, NODE]}, {"value": "5"}, {"value": 5}),
        ({"anyOf": [INTEGER, STRING]}, [1], "[1]"),
        (SHAPE, {"kind": "square", "w": "2"}, {"kind": "square", "w": 2}),
        (SHAPE, {"kind": "Circle", "r": "1"}, {"kind": "circle", "r": 1}),
        (
            {"allOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}}]},
            {"a": "1", "b": "2"},
            {"a": 1, "b": 2},
        ),
        ({"$ref": "#/$defs/Node"}, {"value": 1, "next": {"value": "2"}}, {"value": 1, "next": {"value": 2}}),
        ({"$ref": "#/$defs/Node"}, '{"Value": "1", "tags": "a"}', {"value": 1, "tags": ["a"]}),
        ({"if": {"required": ["a"]}, "then": {"properties": {"b": INTEGER}}}, {"a": 1, "b": "2"}, {"a": 1, "b": 2}),
        (DATE, "2025/3/9", "2025-03-09"),
        (MOMENT, "2025/3/9", "2025-03-09T00:00:00Z"),
    ],
    ids=str,
)
def test_coerced(argument: dict[str, Any], written: Any, sent: Any) -> None:
    schema = schema_of(argument)
    for got in (schema.check({"value": written}), schema.prepare(json.dumps({"value": written}))):
        assert json.dumps(got) == json.dumps({"value": sent})  # 5.0 == 5, but not as text


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        (INTEGER, "5.5"),
        (INTEGER, "1,00"),
        (INTEGER, "five"),
        (INTEGER, True),
        (INTEGER, None),
        (INTEGER, ""),
        (INTEGER, [5]),
        (NUMBER, "1,5"),
        (NUMBER, "1e999"),
        (NUMBER, "5 apples"),
        (BOOLEAN, "yes"),
        (BOOLEAN, 2),
        (STRING, None),
        (STATUS, "don"),
        ({"enum": ["a", "A"]}, " a"),
        (STATUS, "- done"),
        (STATUS, ["done"]),
        (array(INTEGER), "1, x"),
        (array(INTEGER, minItems=2), "1"),
        ({"type": "integer", "minimum": 3}, "1"),
        ({"anyOf": [INTEGER, NULL]}, "x"),
        (SHAPE, {"kind": "line"}),
        ({"$ref": "#/$defs/Node"}, {"value": 1, "next": {"value": "x"}}),
        ({"type": "object"}, "x"),
        ({"type": "string", "format": "email"}, "x"),
        (DATE, "03/09/2025"),
        (DATE, "9 March"),
    ],
    ids=str,
)
def test_not_guessed(argument: dict[str, Any], written: Any) -> None:
    schema = schema_of(argument)
    arguments = {"value": written}
    before = copy.deepcopy(arguments)
    with pytest.raises(InvalidArguments) as caught:
        schema.check(arguments)
    assert arguments == before
    assert caught.value.problem.startswith("\n- value")
    schema.check(caught.value.example)
    assert "value" in caught.value.example


@pytest.mark.parametrize("nothing", [None, "", "null", "None"])
@pytest.mark.parametrize("argument", [INTEGER, BOOLEAN, DATE, STATUS, SHAPE])
def test_nothing_for_an_optional_argument_is_left_out(argument: dict[str, Any], nothing: Any) -> None:
    assert schema_of(argument, required=False).check({"value": nothing, "other": "1"}) == {"other": 1}
    with pytest.raises(InvalidArguments):
        schema_of(argument).check({"value": nothing})


def test_text_that_is_allowed_is_kept() -> None:
    assert schema_of(STRING, required=False).check({"value": "", "other": "1"}) == {"value": "", "other": 1}
    assert schema_of(STRING, required=False).check({"value": None}) == {}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ({"maxResults": 1}, {"max_results": 1}),
        ({"Max-Results": 1, "USER ID": 2}, {"max_results": 1, "userId": 2}),
        ({"MAX_RESULTS": "1"}, {"max_results": 1}),
    ],
)
@pytest.mark.parametrize("closed", [True, False])
def test_property_names(written: dict[str, Any], sent: dict[str, Any], closed: bool) -> None:
    properties = {"max_results": INTEGER, "userId": INTEGER}
    schema = {"properties": properties, "required": list(sent), "additionalProperties": not closed}
    assert ArgumentSchema(schema).check(written) == sent


def test_property_names_that_are_ambiguous_or_unlike_are_told() -> None:
    schema = ArgumentSchema({"properties": {"max_results": INTEGER}, "additionalProperties": False})
    for strays in ({"maxResults": 1, "max-results": 2}, {"maxResults": 1, "max_results": 2}, {"max_result": 1}):
        assert 'did you mean "max_results"?' in refusal(schema, strays).problem
    assert "known are: max_results" in refusal(schema, {"zzz": 1}).problem


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2025/3/9",
            "2025-3-9",
            "2025.03.09",
            "20250309",
            "9 Mar 2025",
            "9-Mar-2025",
            "March 9, 2025",
            "9th of March 2025",
        ),
        *("Sun, March 9th 2025", "2025 March 9", "2025年3月9日", "２０２５年 3 月 9 日", "2025-03-09T00:00:00Z"),
    ],
)
def test_dates(text: str) -> None:
    assert iso_date(text) == "2025-03-09"


def test_a_part_above_twelve_is_the_day() -> None:
    assert (iso_date("13/09/2025"), iso_date("09/13/2025"), iso_date("3.3.2025")) == ("2025-09-13",) * 2 + (
        "2025-03-03",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("03/09/2025", "cannot be told apart"),
        ("9 March", "year is missing"),
        ("3/9", "year is missing"),
        ("3月9日", "year is missing"),
        ("March 2025", "day, month and a year"),
        ("9 March 25", "day, month and a year"),
        ("2025-02-30", "no such day"),
        ("tomorrow", "this is no date"),
        ("next week", "this is no date"),
        ("9 March 2025, about noon", "this is no date"),
        ("2025-03-09T10:00:00Z", "without a time of day"),
    ],
)
def test_dates_refused(text: str, reason: str) -> None:
    with pytest.raises(NoDate, match=reason):
        iso_date(text)
    error = refusal(schema_of(DATE), {"value": text})
    assert reason in str(error)
    assert "2025-03-09" in str(error)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-03-09 14:30Z", "2025-03-09T14:30:00Z"),
        ("March 9, 2025 2:30 pm UTC", "2025-03-09T14:30:00Z"),
        ("9 Mar 2025 12:05:06.5 am +0100", None),
        ("9 Mar 2025 00:05:06.5 +0100", "2025-03-09T00:05:06.5+01:00"),
        ("2025-03-09T14:30:00", None),
        ("2025-03-09T25:00:00Z", None),
    ],
)
def test_moments(text: str, moment: str | None) -> None:
    if moment:
        assert iso_datetime(text) == moment
        assert schema_of(MOMENT).check({"value": text}) == {"value": moment}
    elif text.endswith("am +0100"):
        assert iso_datetime(text) == "2025-03-09T00:05:06.5+01:00"
    else:
        with pytest.raises(NoDate):
            iso_datetime(text)


def test_what_the_model_is_told() -> None:
    schema = ArgumentSchema(
        {
            "type": "object",
            "properties": {
                "path": STRING,
                "limit": {"type": "integer", "minimum": 1, "title": "Limit"},
                "deep": BOOLEAN,
            },
            "required": ["path"],
            "additionalProperties": False,
        }
    )
    assert str(refusal(schema, '{"limit": "many"}')) == (
        "Invalid arguments: \n"
        '- limit: "many" is not of type "integer"\n'
        "- path is required but missing\n"
        'Expected: path (required): {"type":"string"}; limit: {"type":"integer","minimum":1}\n'
        'A correct example: {"path": "text", "limit": 10}'
    )
    assert 'Expected: path (required): {"type":"string"}; limit' in str(refusal(schema, "what?"))
    assert refusal(schema, "what?").example == {"path": "text"}


def test_the_model_is_told_of_what_it_wrote() -> None:
    assert refusal(schema_of(INTEGER), {"value": None}).problem == '\n- value: null is not of type "integer"'
    assert '\n- value: ["done"] is not of type "string"' in refusal(schema_of(STATUS), {"value": ["done"]}).problem
    assert "is less than the minimum of 3" in refusal(schema_of({**INTEGER, "minimum": 3}), {"value": "1"}).problem
    optional = schema_of({"anyOf": [{"$ref": "#/$defs/Node"}, NULL]})
    assert refusal(optional, {"value": {"value": "x"}}).problem == '\n- value.value: "x" is not of type "integer"'
    told = refusal(schema_of({"$ref": "#/$defs/Node"}), {"value": {"value": 1, "next": {"value": "x"}, "tags": [[]]}})
    assert told.problem == '\n- value.next.value: "x" is not of type "integer"'


def test_what_the_model_is_told_is_short() -> None:
    properties = {f"p{index}": {**INTEGER, "description": "d" * 500} for index in range(200)}
    error = refusal(ArgumentSchema({"properties": properties}), dict.fromkeys(properties, "x" * 10_000))
    assert "and 45 more" in error.problem
    assert error.problem.startswith('\n- p0: "xxx')
    assert 'x… is not of type "integer"' in error.problem
    assert len(error.expected) <= 600
    assert len(str(error)) < 3_000


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.5, 5.0])
    | st.sampled_from(["", "5", "a,b", "[1]", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "A", "bC", "b_c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """Schemas of the kinds that tools have, each of which some value satisfies."""
    kinds = ["integer", "number", "string", "boolean", "enum", "format", "bounds", "pattern"]
    kind = draw(st.sampled_from(kinds + ["object", "array", "anyOf", "allOf", "tuple"] * (depth > 0)))
    inner = schemas(depth=depth - 1)
    match kind:
        case "object":
            properties = draw(st.dictionaries(st.sampled_from(["a", "bC", "d-e"]), inner, max_size=3))
            required = [name for name in properties if draw(st.booleans())]
            return {"type": kind, "properties": properties, "required": required, "additionalProperties": False}
        case "array":
            return {"type": kind, "items": draw(inner), "minItems": draw(st.integers(0, 2))}
        case "tuple":
            return {"type": "array", "prefixItems": draw(st.lists(inner, min_size=1, max_size=2)), "items": False}
        case "anyOf":
            return {"anyOf": [*draw(st.lists(inner, min_size=1, max_size=2)), NULL]}
        case "allOf":
            return {"allOf": [draw(inner)], "description": "wrapped"}
        case "enum":
            return {"enum": draw(st.lists(st.sampled_from(["a", "B c", 1, None]), min_size=1, unique=True))}
        case "format":
            return {
                "type": "string",
                "format": draw(st.sampled_from(["date", "date-time", "email", "uri", "uuid", "ipv4"])),
            }
        case "bounds":
            low = draw(st.integers(-5, 50))
            return draw(
                st.sampled_from(
                    [
                        {"type": "integer", "minimum": low, "maximum": low + 1},
                        {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 1},
                        {"type": "integer", "multipleOf": 7, "minimum": low},
                        {"type": "string", "minLength": max(low, 0), "maxLength": max(low, 0) + 1},
                        {"type": "array", "items": INTEGER, "minItems": 3, "uniqueItems": True},
                    ]
                )
            )
        case "pattern":
            patterns = [
                r"^[A-Z]{3}-\d+$",
                r"^(a|b)*c?$",
                r"^\w+@\w+\.org$",
                r"[^a-z]x",
                r"^(?:ab){2,3}$",
                r"^#[0-9a-fA-F]{6}$",
            ]
            return {"type": "string", "pattern": draw(st.sampled_from(patterns))}
        case _:
            return {"type": kind}


@given(st.dictionaries(st.sampled_from(["a", "bC", "d"]), schemas(), max_size=3), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_every_example_is_right_and_always_the_same(properties: dict[str, Any], random: Any) -> None:
    required = [name for name in properties if random.random() < 0.5]
    schema = {"type": "object", "properties": properties, "required": required}
    made = ArgumentSchema(schema).example()
    assert jsonschema_rs.is_valid(schema, made, validate_formats=True)
    assert ArgumentSchema(schema).example() == made


@given(schemas(), st.data())
@settings(deadline=None)
def test_what_is_valid_is_never_changed(argument: dict[str, Any], data: st.DataObject) -> None:
    """Neither in valid arguments, nor beside an argument that has to be coerced, nor beside one that cannot be."""
    value = data.draw(ANY_JSON)
    if not jsonschema_rs.is_valid(argument, value, validate_formats=True):
        value = schema_of(argument).example()["value"]
    schema = schema_of(argument)
    assert schema.check({"value": value}) == {"value": value}
    assert schema.prepare(json.dumps({"value": value})) == {"value": value}
    assert schema.check({"value": value, "other": "5"}) == {"value": value, "other": 5}
    error = refusal(schema, {"value": value, "other": "five"})
    assert error.problem == '\n- other: "five" is not of type "integer"'


@given(schemas(), ANY_JSON)
@settings(deadline=None)
def test_what_is_sent_is_valid_and_what_is_not_sent_is_explained(argument: dict[str, Any], value: Any) -> None:
    schema = schema_of(argument)
    try:
        sent = schema.check({"value": value})
    except InvalidArguments as error:
        sent = error.example
    assert schema.check(sent) == sent


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, 'arguments are an "object"'),
        ({"properties": []}, '#/properties: [] is not of type "object"'),
        ({"properties": {"a": 5}}, "#/properties/a: 5 is not of types"),
        ({"properties": {"a": {"type": "any"}}}, '#/properties/a/type: "any" is not valid'),
        ({"properties": {"a": {"required": True}}}, "#/properties/a/required: true is not"),
        ({"properties": {"a": {"minimum": "3"}}}, '#/properties/a/minimum: "3" is not of type "number"'),
        ({"properties": {"a": {"$ref": "#/$defs/Gone"}}}, "'/$defs/Gone' does not exist"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "cannot fetch https://example.com/a.json"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "cannot fetch file:///etc/passwd"),
        ({"$id": "https://example.com/x", "properties": {"a": {"$ref": "https://example.com/y"}}}, "cannot fetch"),
    ],
)
def test_unusable_schema(schema: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        ArgumentSchema(schema)
    assert problem in str(caught.value)


def test_the_dialect_is_honoured_and_an_unknown_one_is_ours() -> None:
    tuples = {"properties": {"a": {"items": [INTEGER, STRING]}}}
    draft7 = ArgumentSchema({"$schema": "http://json-schema.org/draft-07/schema#", **tuples})
    assert draft7.check({"a": ["1", 2]}) == {"a": [1, "2"]}
    unknown = ArgumentSchema({"$schema": "https://example.com/mine", "properties": {"a": {"prefixItems": [INTEGER]}}})
    assert unknown.check({"a": ["1"]}) == {"a": [1]}


def test_a_pattern_of_another_dialect_is_left_to_the_server() -> None:
    schema = ArgumentSchema({"properties": {"a": {"type": "string", "pattern": "[a-"}, "b": {"pattern": "^x"}}})
    assert schema.check({"a": "anything"}) == {"a": "anything"}
    assert "b" in refusal(schema, {"b": "y"}).problem


def test_a_float_that_decides_a_condition() -> None:
    condition = {"if": {"properties": {"a": INTEGER}}, "else": {"required": ["b"]}}
    schema = ArgumentSchema({"properties": {"a": {"oneOf": [INTEGER, NULL]}}, **condition})
    assert json.dumps(schema.check({"a": 5.0})) == '{"a": 5}'


def test_names_that_need_escaping_and_a_root_id() -> None:
    union = {"anyOf": [{"type": "object", "properties": {"n": INTEGER}}, NULL]}
    schema = ArgumentSchema({"$id": "https://example.com/tool", "properties": {"a~1/b c%": union}})
    assert schema.check({"a~1/b c%": {"n": "1"}}) == {"a~1/b c%": {"n": 1}}


def test_deep_unions_of_a_recursive_schema_come_to_an_end() -> None:
    """Trying every branch at each of forty levels would not."""
    branch = {"type": "object", "properties": {"n": {"$ref": "#/$defs/A"}}, "required": ["n"]}
    schema = ArgumentSchema(
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"anyOf": [branch, {**branch, "required": ["n", "z"]}, branch, INTEGER]}},
        }
    )
    for leaf, valid in (("5", True), ("x", False)):
        value: Any = leaf
        for _ in range(40):
            value = {"n": value}
        try:
            assert valid
            schema.check({"a": value})
        except (InvalidArguments, AssertionError):
            pass


def test_large_and_recursive_schema() -> None:
    node = {"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}, "b": {"anyOf": [{"$ref": "#/$defs/N"}, NULL]}}}
    node["required"] = ["b"]
    properties = {f"p{index}": {**node, "description": "x" * 150} for index in range(800)}
    wide = {f"w{index}": {"$ref": "#/$defs/W"} for index in range(10)}
    schema = ArgumentSchema(
        {
            "type": "object",
            "properties": {**properties, "w": {"$ref": "#/$defs/W"}},
            "required": ["p0", "w"],
            "$defs": {"N": node, "W": {"type": "object", "properties": wide, "required": list(wide)}},
        }
    )
    assert schema.example()["p0"] == {"b": {"b": None}}
    assert len(refusal(schema, {"p1": 5}).expected) <= 600


def test_many_wrong_values_are_all_mended() -> None:
    written = {"value": [str(number) for number in range(5_000)]}
    assert schema_of(array(INTEGER)).check(written) == {"value": list(range(5_000))}


def test_many_misspelt_names_are_all_mended() -> None:
    schema = ArgumentSchema({"properties": {f"a_{index}": {} for index in range(2_000)}, "additionalProperties": False})
    assert len(schema.check({f"A-{index}": 1 for index in range(2_000)})) == 2_000


def test_work_is_bounded_by_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coercing, "_BUDGET", 10)
    assert "is not of type" in refusal(schema_of(array(INTEGER)), {"value": ["1"] * 100}).problem


def test_check_refuses_what_is_not_json() -> None:
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(InvalidArguments):
            schema_of({}).check({"value": value})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": [{"b": 0}]}, {"a": [{"b": -0.0}]}, True),
        ({"a": 10**16}, {"a": 1e16}, True),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ],
)
def test_canonical(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert (canonical(one) == canonical(other)) is same
    assert canonical({"b": "é", "a": 1.0}) == '{"a":1,"b":"\\u00e9"}'


@settings(deadline=None)
@given(st.dictionaries(st.text(), ANY_JSON), st.randoms(use_true_random=False))
def test_canonical_does_not_depend_on_order(arguments: dict[str, Any], random: Any) -> None:
    items = list(arguments.items())
    random.shuffle(items)
    assert canonical(dict(items)) == canonical(arguments)
    assert json.loads(canonical(arguments)) == arguments
