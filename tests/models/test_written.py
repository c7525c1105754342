"""B5: a call that came as text is read where it is certain what was meant; what only looks like one is a doubt."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.models.base import ToolSpec
from orchestrator.models.lenient import is_object
from orchestrator.models.written import read_calls
from orchestrator.tools.arguments import parse

SAMPLES = Path(__file__).parents[1] / "cases" / "outputs"
EXPECTED: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text("utf-8"))


def tool(name: str, *arguments: str) -> ToolSpec:
    properties = {argument: {"type": "string"} for argument in arguments}
    return ToolSpec(name=name, description="", parameters={"type": "object", "properties": properties})


TOOLS = [tool("shop__get_order", "order_id", "note"), tool("files__read", "path"), tool("mail__send", "to", "name")]
ONE = ("shop__get_order", {"order_id": 1043})

FORMS = {
    "bare": '{"name": "shop__get_order", "arguments": {"order_id": 1043}}',
    "short name": '{"name": "get_order", "arguments": {"order_id": 1043}}',
    "fence": '```json\n{"name": "shop__get_order", "arguments": {"order_id": 1043}}\n```',
    "hermes": '<tool_call>\n{"name": "shop__get_order", "arguments": {"order_id": 1043}}\n</tool_call>',
    "mistral": '[TOOL_CALLS] [{"name": "shop__get_order", "arguments": {"order_id": 1043}}]',
    "llama": '<|python_tag|>{"name": "shop__get_order", "parameters": {"order_id": 1043}}',
    "function tag": '<function=shop__get_order>{"order_id": 1043}</function>',
    "langchain": '{"action": "shop__get_order", "action_input": {"order_id": 1043}}',
    "as string": '{"name": "shop__get_order", "arguments": "{\\"order_id\\": 1043}"}',
    "openai": '{"tool_calls": [{"id": "1", "type": "function", "function": '
    '{"name": "shop__get_order", "arguments": "{\\"order_id\\": 1043}"}}]}',
    "flat": '{"action": "shop__get_order", "order_id": 1043}',
    "keyed": '{"shop__get_order": {"order_id": 1043}}',
    "keyed by its short name": '{"get_order": {"order_id": 1043}}',
    "prose": 'I will look it up: {"name": "shop__get_order", "arguments": {"order_id": 1043}} One moment.',
    "python quotes": "{'name': 'shop__get_order', 'arguments': {'order_id': 1043}}",
    "trailing comma": '{"name": "shop__get_order", "arguments": {"order_id": 1043,},}',
    "missing brackets": '{"name": "shop__get_order", "arguments": {"order_id": 1043',
    "extra brackets": '{"name": "shop__get_order", "arguments": {"order_id": 1043}}}}',
    "full width": "｛“name”： “shop__get_order”， “arguments”： ｛“order_id”： 1043｝｝",
    "thought": '<think>{"name": "files__read", "arguments": {"path": "x"}}</think>'
    '{"name": "shop__get_order", "arguments": {"order_id": 1043}}',
    "react": 'Thought: look.\nAction: shop__get_order\nAction Input: {"order_id": 1043}',
    "chinese colons": 'Action：shop__get_order\nAction Input：{"order_id": 1043}',
    "python": "shop__get_order(order_id=1043)",
    "python list": "[shop__get_order(order_id=1043)]",
}


def read(text: str, **more: Any) -> list[tuple[str, Any]]:
    return [(name, parse(given)) for name, given in read_calls(text, TOOLS, **more).calls]


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("form", FORMS)
def test_every_known_form_of_a_call(form: str) -> None:
    assert read(FORMS[form]) == [ONE]


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("sample", EXPECTED)
def test_arguments_written_badly_inside_a_call(sample: str) -> None:
    """The samples as the input of an action: they go to the tool's own reader as they are."""
    text = f"Action: shop__get_order\nAction Input: {(SAMPLES / sample).read_text('utf-8').strip()}"
    written = read_calls(text, TOOLS)
    assert [name for name, _ in written.calls] == ["shop__get_order"] or written.doubt
    if written.calls and written.calls[0][1].lstrip().startswith("{"):
        assert parse(written.calls[0][1]) == EXPECTED[sample]


@pytest.mark.requirement("B5")
def test_several_calls_and_the_text_around_them() -> None:
    text = f'First this.\n{FORMS["fence"]}\nand\n{{"name": "files__read", "arguments": {{"path": "a"}}}}'
    written = read_calls(text, TOOLS)
    assert [name for name, _ in written.calls] == ["shop__get_order", "files__read"]
    assert "First this." in written.text
    assert "{" not in written.text


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('The tool get_order takes {"order_id": 1}.', "shop__get_order"),
        ("Call get_order(1043) first.", "shop__get_order"),
        ('{"name": "no_such_tool", "arguments": {"a": 1}}', ""),
        ('Next: read(path="a.txt") and so on.', "files__read"),
        ('{"name": "read", "file": "a.txt"}', "files__read"),
        ('{"action": "read"}', "files__read"),
    ],
)
def test_what_only_looks_like_a_call_is_a_doubt_with_its_fragment(text: str, named: str) -> None:
    written = read_calls(text, TOOLS)
    assert not written.calls
    assert written.doubt
    assert written.doubt in text
    assert written.tool == named
    assert written.text == text


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    "text",
    [
        "The order is pending.",
        'Here it is: {"status": "pending", "total": 3}',
        '{"name": "Ana", "to": "Riga"}',
        "Use a { carefully } (and get on).",
        "I looked with shop__get_order, and it is pending.",
        "I read (twice) all that you send (see above).",
        'What I read: {"path": "a.txt", "lines": 3} and {"path": "b.txt"}',
        '{"read": {"path": "a.txt", "lines": 3}}',
        '{"read": {}}',
    ],
)
def test_an_answer_stays_an_answer(text: str) -> None:
    written = read_calls(text, TOOLS)
    assert (written.text, written.calls, written.doubt) == (text, (), "")


@pytest.mark.requirement("B6")
def test_of_a_call_that_was_cut_off_nothing_is_guessed() -> None:
    written = read_calls('{"name": "shop__get_order", "arguments": {"order_id": 10', TOOLS, cut=True)
    assert written.calls == [("shop__get_order", '{"order_id": 10')]


@pytest.mark.requirement("B5")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"{}[]()\"'`:,<>=\n 1a｛“”", *FORMS.values(), "Action:", "get_order", "</think>"]), max_size=12
    )
)
def test_nothing_raises_and_nothing_is_called_that_is_not_offered(pieces: list[str]) -> None:
    for cut in (False, True):
        written = read_calls("".join(pieces), TOOLS, cut=cut)
        assert {name for name, _ in written.calls} <= {tool.name for tool in TOOLS}
        assert not (written.calls and written.doubt)


@pytest.mark.requirement("B5", "B6")
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_a_call_cut_at_any_place_is_never_another_call(form: str, data: st.DataObject) -> None:
    text = FORMS[form]
    begun = text[: data.draw(st.integers(0, len(text)))]
    for name, said in read_calls(begun, TOOLS, cut=True).calls:
        assert name == ONE[0] or form == "thought"
        if name == ONE[0] and is_object(said) and said != "{}":
            assert parse(said) == ONE[1]
