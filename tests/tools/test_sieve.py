"""A tool that the protocol does not allow is left out by name; its server and its other tools stay. Requirement C3."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.tools.toolset import Toolset
from tests.support.toolsets import awkward_server, call, with_toolset

GOOD = {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}

BAD: dict[str, tuple[Any, str, str]] = {
    "a list at its top": ({"name": "bad", "inputSchema": {"type": "array"}}, "awkward__bad", "type"),
    "no schema": ({"name": "bad"}, "awkward__bad", "inputSchema"),
    "a schema of another kind": ({"name": "bad", "inputSchema": "object"}, "awkward__bad", "inputSchema"),
    "required is a number": (
        {"name": "bad", "inputSchema": {"type": "object", "required": 5}},
        "awkward__bad",
        "required",
    ),
    "a number for a name": ({"name": 5, "inputSchema": {"type": "object"}}, "awkward__no__2", "name"),
    "an empty name": ({"name": "", "inputSchema": {"type": "object"}}, "awkward__no__2", "name"),
    "text": ("bad", "awkward__no__2", "not valid"),
    "nothing": (None, "awkward__no__2", "not valid"),
}


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("kind", BAD)
def test_one_bad_tool_is_left_out_with_a_reason(kind: str, tmp_path: Path) -> None:
    tool, name, reason = BAD[kind]
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([GOOD, tool, {**GOOD, "name": "other"}]))

    async def test(toolset: Toolset) -> None:
        assert not toolset.servers["awkward"].problem
        assert [offer.name for offer in toolset.offers()] == ["awkward__echo", "awkward__other"]
        assert list(toolset.left_out) == [name]
        assert reason in toolset.left_out[name]
        assert (await call(toolset, "awkward__echo", {"text": "hello"})).text == "hello"

    with_toolset(test, awkward_server("--tools", listed))
