"""Captured content: off by default, valid JSON within its bound whatever it was."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.tracing.content import MAX_BYTES, capped_json, capped_result, clean
from orchestrator.tracing.port import ToolOutcome
from orchestrator.tracing.setup import make_tracer

from .runs import SUPERVISOR, tool_facts
from .test_files import spans_of

TEXT = st.text(st.characters(), max_size=60)  # lone surrogates included
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXT, inner, max_size=8),
    max_leaves=40,
)


@settings(deadline=None)
@given(VALUES, st.integers(min_value=64, max_value=400))
def test_captured_json_is_json_and_fits(value: Any, limit: int) -> None:
    text = capped_json(value, limit)
    assert len(text.encode()) <= limit
    json.loads(text)


@settings(deadline=None)
@given(TEXT | VALUES.map(json.dumps), st.integers(min_value=64, max_value=400))
def test_captured_results_are_json_and_fit(answer: str, limit: int) -> None:
    text = capped_result(answer, limit)
    assert len(text.encode()) <= limit
    json.loads(text)


def test_what_fits_is_left_as_it_is_and_what_does_not_is_cut_inside() -> None:
    assert capped_json({"a": "ü"}) == '{"a":"ü"}'
    cut = capped_json({"path": "a.csv", "text": "x" * 100_000})
    assert len(cut) < MAX_BYTES
    assert json.loads(cut) == {"path": "a.csv", "text": "x" * 4096 + "… (95904 more characters)"}
    assert json.loads(capped_json(list(range(100_000))))[-1] == "… (95904 more)"
    assert json.loads(capped_json({str(n): n for n in range(100_000)}))["…"] == "98976 more fields"


def test_a_result_that_is_json_stays_a_tree_and_other_text_is_a_string() -> None:
    assert capped_result('{"rows": [1]}') == '{"rows":[1]}'
    assert capped_result("[not json") == '"[not json"'
    assert capped_result("[" * 100_000)[:4] == '"[[['


@settings(deadline=None)
@given(st.text(st.characters()), st.integers(min_value=1, max_value=50))
def test_cleaned_text_is_utf8_and_bounded(text: str, limit: int) -> None:
    assert len(clean(text, limit)) <= limit
    clean(text, limit).encode()


@pytest.mark.parametrize("capture", ["", "true"])
def test_arguments_and_results_are_in_spans_only_when_asked_for(capture: str, tmp_path: Path) -> None:
    tracer = make_tracer(tmp_path, {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": capture})
    with tracer.tool(tool_facts(SUPERVISOR, "t1.1", "read", "files")) as scope:
        scope.settle(ToolOutcome(text="no such file", error="tool_error"))
    anyio.run(tracer.aclose)
    [span] = spans_of(tmp_path / "traces" / "spans.jsonl")
    content = {key: value for key, value in span["attributes"].items() if key.startswith("gen_ai.tool.call.")}
    del content["gen_ai.tool.call.id"]
    if capture:
        assert content == {
            "gen_ai.tool.call.arguments": '{"month":7}',
            "gen_ai.tool.call.result": '"no such file"',
        }
    assert bool(content) == bool(capture)
    assert span["status"]["message"] == ("no such file" if capture else "tool_error")
