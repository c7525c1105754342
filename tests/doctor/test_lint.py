"""What is said of tools' descriptions (C9): each rule on a tool that breaks it and on one that keeps it."""

from typing import Any

import pytest

from orchestrator.doctor.lint import LONG, RULES, Described, lint

pytestmark = pytest.mark.requirement("C9")

GOOD = "Finds orders of a customer, e.g. C-1042. Use it before a change. Not for totals."
TEXT = {"type": "string"}


def remarks(description: str = GOOD, required: bool = True, tokens: int = 50, **properties: Any) -> dict[str, Any]:
    """What is said of a tool that stands beside one that is well described."""
    schema = {"type": "object", "properties": properties, "required": list(properties) if required else []}
    beside = Described("count_orders", "Counts orders, e.g. of C-1042. Use it for totals, not for lists.", {}, 50)
    return dict(lint([Described("find_orders", description, schema, tokens), beside])[0])


def test_a_tool_that_is_described_well_is_left_in_peace() -> None:
    assert remarks(customer={**TEXT, "description": "Name or number"}, limit={"type": "integer"}) == {}


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("", "no_description"),
        ("   ", "no_description"),
        ("Finds orders", "short_description"),
        ("Finds the orders of a customer, never totals, e.g. C-1042.", "when"),
        ("Use it to find the orders of a customer, e.g. C-1042.", "when_not"),
        ("Counts orders, e.g. of C-1042. Use it for totals,  not for lists.", "same_description"),
    ],
)
def test_the_description_itself(description: str, rule: str) -> None:
    assert list(remarks(description)) == [rule]


def test_naming_the_other_tool_says_when_not() -> None:
    assert remarks("Use it to find the orders of a customer. Totals come from count_orders.") == {}


def test_a_server_with_one_tool_need_not_say_when_not() -> None:
    (only,) = lint([Described("find_orders", "Use it to find the orders of a customer.", {}, 50)])
    assert only == {}


def test_chinese_descriptions_are_read() -> None:
    assert remarks("查询客户的订单，用于修改订单之前。不用于统计。例如 C-1042。") == {}
    assert list(remarks("查询订单")) == ["when", "when_not"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (TEXT, True),
        ({"type": "array", "items": TEXT}, True),
        ({"anyOf": [TEXT, {"type": "null"}]}, True),
        ({}, True),
        ({**TEXT, "description": "Name"}, False),
        ({**TEXT, "enum": ["a"]}, False),
        ({"anyOf": [{**TEXT, "format": "uri"}, {"type": "null"}]}, False),
        ({"type": "integer"}, False),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, False),
        ({"$ref": "#/$defs/Order"}, False),
    ],
)
def test_an_argument_that_nobody_described(schema: dict[str, Any], said: bool) -> None:
    assert remarks(x=schema) == ({"argument": ("x",)} if said else {})


@pytest.mark.parametrize(
    ("name", "schema", "said"),
    [
        ("since", {**TEXT, "description": "The beginning"}, True),
        ("due_date", {**TEXT, "description": "When it is due"}, True),
        ("since", {**TEXT, "description": "The beginning, YYYY-MM-DD"}, False),
        ("since", {**TEXT, "description": "The beginning", "format": "date"}, False),
        ("update", {**TEXT, "description": "What changes"}, False),
        ("timestamp", {"type": "integer", "description": "Seconds"}, False),
    ],
)
def test_a_time_without_its_form(name: str, schema: dict[str, Any], said: bool) -> None:
    assert remarks(**{name: schema}) == ({"date_format": (name,)} if said else {})


def test_an_example_is_missed_only_where_anything_may_be_written() -> None:
    plain = "Finds orders of a customer. Use it before a change. Not for totals."
    described = {**TEXT, "description": "The customer"}
    assert remarks(plain, customer=described) == {"example": ()}
    assert remarks(plain, required=False, customer=described) == {}
    assert remarks(plain, count={"type": "integer"}) == {}
    assert remarks(plain, customer={**described, "description": "The customer, e.g. C-1042"}) == {}
    assert remarks(plain, customer={**described, "examples": ["C-1042"]}) == {}


def test_a_tool_that_costs_much() -> None:
    assert remarks(tokens=LONG + 1) == {"long": ()}


def test_every_rule_says_what_to_do() -> None:
    assert all(rule.says and rule.fix for rule in RULES.values())


@pytest.mark.parametrize("schema", [{"properties": 5}, {"properties": {"a": 5}}, {"required": "a"}, {"anyOf": 3}])
def test_strange_schemas_are_judged_too(schema: dict[str, Any]) -> None:
    assert isinstance(lint([Described("t", GOOD, schema, 1)])[0], dict)
