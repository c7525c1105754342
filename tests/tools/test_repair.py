"""B5: what a model wrote, read. The samples are real outputs; their expected values stand in expected.json."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.models.repair import MAX_DEPTH
from orchestrator.tools.arguments import InvalidArguments, parse

SAMPLES = Path(__file__).parents[1] / "cases" / "outputs"
EXPECTED: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text("utf-8"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
HOSTILE = st.lists(
    st.sampled_from(
        [*"{}[]()\"'`:,\\a1 \n-.#“”｛｝：，１é", "//", "/*", "*/", "```json", "<think>", "</think>", '"a":', "null"]
    ),
    max_size=40,
).map("".join)


def refused(text: str) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize("name", EXPECTED)
def test_sample(name: str) -> None:
    assert parse((SAMPLES / name).read_text("utf-8")) == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_sample_cut_off_anywhere_is_read_or_refused(name: str) -> None:
    whole = (SAMPLES / name).read_bytes()
    for end in range(len(whole)):
        with suppress(InvalidArguments):
            assert isinstance(parse(whole[:end].decode("utf-8", "ignore")), dict)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ("\ufeff{}", {}),
        ('<think>{"a": 0}</think> So, finally: {"a": 1}', {"a": 1}),
        ('Not {"a": b} but\n```json\n{"a": 1}\n```', {"a": 1}),
        ("{'a': 1 // one\n, 'b': 'x' # two\n}", {"a": 1, "b": "x"}),
        ('{"a": [{"b": "' + "x" * 3000 + '"], "c": 2}', {"a": [{"b": "x" * 3000}], "c": 2}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("{'a': 1, 'a': 2}", {"a": 2}),
        ('{"a": 1} {"a": 1}', {"a": 1}),
        ('{"a": 1} as {you} asked', {"a": 1}),
        ('Here is {name}\'s call: {"a": 1}', {"a": 1}),
        ('[read_file] {"a": 1}', {"a": 1}),
        ('"a": 1, "b": 2', {"a": 1, "b": 2}),
        ('"a": 1}', {"a": 1}),
        ("“a”: “b”", {"a": "b"}),
        ('{"q": "she said "hi, all" to me", "n": 1,}', {"q": 'she said "hi, all" to me', "n": 1}),
        ("{'a': 'it's', 'b': 'rock 'n' roll'}", {"a": "it's", "b": "rock 'n' roll"}),
        ("{'a': (1, 2), 'b': None}", {"a": [1, 2], "b": None}),
        ('{"a": 1 "b": 2\n"c": 3}', {"a": 1, "b": 2, "c": 3}),
        ("{a: north west, b: 2024-07}", {"a": "north west", "b": "2024-07"}),
        ('{"a": .5, "b": +3, "c": 1_000}', {"a": 0.5, "b": 3, "c": 1000}),
        ("{'path': 'C:\\Users\\x', 're': '\\d+'}", {"path": "C:\\Users\\x", "re": "\\d+"}),
        ('{"text": "１，２：“x”",}', {"text": "１，２：“x”"}),
        ("｛「a」：［－１，２．５］｝", {"a": [-1, 2.5]}),
        ('{"t": "<think>x</think>",}', {"t": "<think>x</think>"}),
        ('<think>a</think> <thinking>{"a": 0}</thinking>{"a": 1}', {"a": 1}),
        ('or {"a": 0}?</think>\n{"a": 1}', {"a": 1}),
        ('```json\n{"md": "```py\\nx\\n```",}\n```', {"md": "```py\nx\n```"}),
        ('{"a": 1, // one "or" two\n "b": 2, # {\n}', {"a": 1, "b": 2}),
        ('{"a": [{"b": 1}, {"b": 2}', {"a": [{"b": 1}, {"b": 2}]}),
        (json.dumps(json.dumps(json.dumps({"a": 1}))), {"a": 1}),
    ],
)
def test_reading(text: str, value: dict[str, Any]) -> None:
    assert parse(text) == value


def test_a_key_without_its_value_never_becomes_empty_text() -> None:
    for lost in ('"content":', '"content": }', '"content": , "n": 1}', "'content': }"):
        assert "without a certain reading" in refused('{"path": "a.txt", ' + lost).problem
    for cut in ('"cont', "'cont", '"content"', "cont"):
        assert parse('{"path": "' + "a" * 3000 + '", ' + cut) == {"path": "a" * 3000}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2]", "a list, not an object"),
        ("[{'a': 1}]", "a list, not an object"),
        ("5", "a number, not an object"),
        ("true", "a boolean, not an object"),
        ('"hello"', "no JSON object"),
        ("I will call the tool now.", "no JSON object"),
        ('{"a": 1} {"a": 2}', "several objects"),
        ("{'a': 1} {'b': 2}", "several objects"),
        ('{"a": NaN}', "not a JSON number"),
        ("{'a': -Infinity}", "not a JSON number"),
        ('{"a": 1e999}', "not a JSON number"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": ' + "9" * 5000 + "}", "thousands of digits"),
        ('{"a": ' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "levels deep"),
    ],
)
def test_refused_with_reason_and_fragment(text: str, reason: str) -> None:
    error = refused(text)
    assert reason in error.problem
    assert text[:100] in error.problem
    assert len(str(error)) < 700
    assert "A correct example: {" in str(error)


def test_depth_is_allowed_up_to_its_bound() -> None:
    text = '{"a": ' * MAX_DEPTH + "1" + "}" * MAX_DEPTH
    assert parse(text) == parse(text[:-1])


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_valid_json_is_read_as_it_is(value: dict[str, Any]) -> None:
    assert parse(json.dumps(value)) == value
    assert parse("Call:\n```json\n" + json.dumps(value, ensure_ascii=False) + "\n```\nDone.") == value


@settings(deadline=None)
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, min_size=1, max_size=5), st.integers(0, 3))
def test_python_writes_what_is_read_back(value: dict[str, Any], ending: int) -> None:
    """`repr` quotes with either quote and escapes its own way; what it writes is never read as something else."""
    text = repr(value)
    if any(escape in text for escape in ("\\x", "\\U", "\\u")):
        return  # Python's own escapes, which JSON does not have
    try:
        read = parse(text + "}" * ending)
    except InvalidArguments:
        return
    assert read == value


@settings(max_examples=400, deadline=None)
@given(HOSTILE | st.text())
@example('{"a": \'\\')
@example('{"a":"\\u12')
def test_nothing_but_invalid_arguments_is_raised(text: str) -> None:
    with suppress(InvalidArguments):
        assert isinstance(parse(text), dict)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        '{"a":' * 100_000,
        '{"a": "' + "x" * 1_000_000 + '",}',
        '{"a": "' + '" x ' * 250_000,
        '{"a": "' + '",//' * 250_000,
        "{'" + "\\" * 1_000_000,
        "<think></think>" * 60_000 + "{'a': 1}",
        "<think>" * 100_000,
        '{"a": [' + "{b: 1}, " * 40_000,
        "｛“a”：“" + "’“ " * 300_000,
        "{a}" * 300_000,
    ],
    ids=lambda text: text[:12],
)
def test_huge_input_comes_to_an_end(text: str) -> None:
    """What takes quadratic time would not, with so much of it."""
    with suppress(InvalidArguments):
        parse(text)
