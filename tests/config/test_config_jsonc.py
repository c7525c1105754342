"""JSON with comments and trailing commas, and what its errors say."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config.parsers import parse_json as parse
from orchestrator.errors import ConfigurationError, Problem

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 1]))
def test_all_json_is_read(value: object, indent: int | None) -> None:
    assert parse(json.dumps(value, indent=indent)).value == value
    assert parse(json.dumps(value, ensure_ascii=False)).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1,2,]", [1, 2]),
        ('{"a": 1,}', {"a": 1}),
        ('// x\n{"a": /* y\n z */ "// no", }// end', {"a": "// no"}),
        ("[]", []),
        ("{ }", {}),
        ('"\\u00e9"', "é"),
    ],
)
def test_what_people_write(text: str, value: object) -> None:
    assert parse(text).value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1: the file is empty"),
        ("// only\n", "2:1: the file is empty"),
        ('{"a": 1', "1:8: the file ends here: `}` is missing, for the `{` of line 1."),
        ('{\n "a": [1,\n2', "3:2: the file ends here: `]` is missing, for the `[` of line 2."),
        ('{"a": 1}}', "1:9: this is not JSON: Extra data"),
        ('{"a": 1 "b": 2}', "1:9: this is not JSON: Expecting ',' delimiter"),
        ('{"a" 1}', "1:6: this is not JSON: Expecting ':' delimiter"),
        ("{a: 1}", "1:2: this is not JSON: Expecting property name enclosed in double quotes"),
        ("{'a': 1}", "1:2: this is not JSON: Expecting property name enclosed in double quotes"),
        ("{\"a\": 'b'}", "1:7: this is not JSON: Expecting value"),
        ('{"a": b}', "1:7: this is not JSON: Expecting value"),
        ('{"a": }', "1:7: this is not JSON: Expecting value"),
        ('{"a":', "1:6: the file ends here: `}` is missing"),
        ('{"a": "b\n"}', "1:9: this is not JSON: Invalid control character"),
        ('{"a": "C:\\dir"}', "1:10: this is not JSON: Invalid \\escape"),
        ('{"a": "\\ud800"}', "None:None: this is not JSON: "),
        ("[1,,2]", "1:4: this is not JSON: Expecting value"),
        ("[01]", "1:3: this is not JSON: Expecting ',' delimiter"),
        ("/* x", "1:1: this is not JSON: Expecting value"),
        ("[" * 100_000, "None:None: this is nested too deeply"),
        ("9" * 5000, "None:None: this is not JSON: Exceeds the limit"),
    ],
)
def test_errors_have_a_place_and_say_what_is_missing(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert f"{problem.line}:{problem.column}: {problem.message}".startswith(said)


def test_lines_and_repeated_names() -> None:
    document = parse('{\n"a": {"b": [1,\n2]},\n"a": 3}')
    assert document.lines == {("a",): 4, ("a", "b"): 2, ("a", "b", 0): 2, ("a", "b", 1): 3}
    assert document.repeated == {("a",): 4}


def problems(text: str) -> Sequence[Problem]:
    try:
        parse(text)
    except ConfigurationError as error:
        return error.problems
    return ()


@given(st.text(alphabet='{}[]",:/*\\ \n0a-.tu\ufeff', max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    assert all(problem.line for problem in problems(text))
