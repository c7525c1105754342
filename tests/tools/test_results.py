"""Results as a model reads them."""

import json
from typing import Any

import pytest
from mcp_types import CallToolResult

from orchestrator.tools import results

TEXT = {"type": "text", "text": "two rows"}
PICTURE = {"type": "image", "data": "QUJD" * 1000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///tmp/a.csv", "name": "a.csv"}
RESOURCE = {"type": "resource", "resource": {"uri": "file:///tmp/b.txt", "mimeType": "text/plain", "text": "inside"}}
BLOB = {"type": "resource", "resource": {"uri": "file:///tmp/c.bin", "mimeType": "application/x", "blob": "QUJD"}}


def read(*content: Any, **more: Any) -> str:
    return results.text(results.read(CallToolResult.model_validate({"content": content, **more})))


@pytest.mark.requirement("C8")
def test_blocks_become_text_and_pictures_references() -> None:
    text = read(TEXT, PICTURE, LINK, RESOURCE, BLOB)
    assert text.splitlines() == [
        "two rows",
        "[image, image/png, 3000 bytes]",
        "[resource a.csv: file:///tmp/a.csv]",
        "[resource file:///tmp/b.txt]",
        "inside",
        "[resource file:///tmp/c.bin]",
        "[file, application/x, 3 bytes]",
    ]


@pytest.mark.requirement("C8")
def test_structured_content_is_read_once() -> None:
    body = {"rows": [{"name": "é 数"}]}
    assert read({"type": "text", "text": json.dumps(body)}, structuredContent=body) == '{"rows": [{"name": "é 数"}]}'
    assert read(structuredContent=body) == '{"rows": [{"name": "é 数"}]}'
    assert read(TEXT, structuredContent=body) == "two rows"


def test_an_error_keeps_its_structured_body() -> None:
    body = {"field": "amount", "code": 17}
    text = read({"type": "text", "text": "refused"}, structuredContent=body, isError=True)
    assert text == 'refused\n{"field": "amount", "code": 17}'
    said = {"type": "text", "text": json.dumps(body, indent=2)}
    assert read(said, structuredContent=body, isError=True) == json.dumps(body)


def test_nothing_is_said_to_be_nothing() -> None:
    assert read() == "Done; no output."
    assert read({"type": "text", "text": ""}) == "Done; no output."
    assert read(isError=True) == "The tool failed without a message."


@pytest.mark.requirement("C8")
def test_a_list_is_written_one_item_a_line_whichever_way_it_comes() -> None:
    items = [{"id": 1}, {"id": 2}]
    lines = '[\n{"id": 1},\n{"id": 2}\n]'
    one_text = {"type": "text", "text": json.dumps(items, indent=2)}
    texts = [{"type": "text", "text": json.dumps(item, indent=2)} for item in items]
    assert read(one_text, structuredContent={"result": items}) == lines
    assert read(*texts, structuredContent={"result": items}) == lines
    assert read(structuredContent={"result": items, "n": 2}) == f'{{"result": {lines}, "n": 2}}'
    assert read({"type": "text", "text": "hello"}, structuredContent={"result": "hello"}) == "hello"


@pytest.mark.requirement("C8")
def test_a_list_of_very_many_items_is_json_as_well() -> None:
    """It has more characters than one text may have to be compared, but each of its texts has few."""
    items = [{"id": number, "name": "x" * 1000} for number in range(results.COMPARED // 1000 + 1)]
    texts = [{"type": "text", "text": json.dumps(item, indent=2)} for item in items]
    assert json.loads(read(*texts, structuredContent={"result": items})) == items


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07end", "red end"),
        ("nul\0", "nul\ufffd"),
        ("half \ud83d of", "half \ufffd of"),
        ("\ud83d\ude00", "😀"),
        ("数据 é", "数据 é"),
    ],
)
def test_text_is_what_every_model_can_be_sent(sent: str, shown: str) -> None:
    assert results.clean(sent) == shown


def test_base64_that_is_none_is_said_so() -> None:
    assert read({"type": "image", "data": "QUJ", "mimeType": "image/png"}) == (
        "[image, image/png; its base64 cannot be read]"
    )
