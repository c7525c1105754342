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
    return results.observation(CallToolResult.model_validate({"content": content, **more}))


@pytest.mark.requirement("C8")
def test_blocks_become_text_and_pictures_references() -> None:
    text = read(TEXT, PICTURE, LINK, RESOURCE, BLOB)
    assert text.splitlines() == [
        "two rows",
        "[image, image/png, 3000 bytes; not shown]",
        "[resource a.csv: file:///tmp/a.csv]",
        "inside",
        "[resource file:///tmp/c.bin]",
    ]


@pytest.mark.requirement("C8")
def test_structured_content_is_read_once() -> None:
    body = {"rows": [{"name": "é 数"}]}
    assert read({"type": "text", "text": json.dumps(body)}, structuredContent=body) == json.dumps(body)
    assert read(structuredContent=body) == '{"rows": [{"name": "é 数"}]}'
    assert read(TEXT, structuredContent=body) == "two rows"


def test_an_error_keeps_its_structured_body() -> None:
    body = {"field": "amount", "code": 17}
    text = read({"type": "text", "text": "refused"}, structuredContent=body, isError=True)
    assert text == 'refused\n{"field": "amount", "code": 17}'
    said = {"type": "text", "text": json.dumps(body, indent=2)}
    assert read(said, structuredContent=body, isError=True) == json.dumps(body, indent=2)


def test_nothing_is_said_to_be_nothing() -> None:
    assert read() == "Done; no output."
    assert read({"type": "text", "text": ""}) == "Done; no output."
    assert read(isError=True) == "The tool failed without a message."


@pytest.mark.requirement("C8")
def test_four_megabytes_become_a_small_text_that_says_so() -> None:
    whole = "head " + "x" * 4_000_000 + " tail"
    text = read({"type": "text", "text": whole})
    assert len(text) < results.LONGEST + 200
    assert text.startswith("head xxx")
    assert text.endswith("xxx tail")
    assert "characters left out here" in text
    assert results.cut("x" * results.LONGEST) == "x" * results.LONGEST


def test_what_the_cut_leaves_out_is_counted_right() -> None:
    text = results.cut("".join(map(str, range(10))) * 10, 20)
    head, note, tail = text.split("\n")
    assert len(head) + len(tail) == 20
    assert note == "[... 80 of 100 characters left out here; ask for a smaller part ...]"
