"""What `orchestrator tools` says of the names that models see."""

import json
from pathlib import Path

import pytest

from tests.support.command import AWKWARD, orchestrator, plain, servers

SERVER = "a-server-with-a-very-long-name-indeed-from-some-vendors-registry"
TOOL = "create_a_pull_request_review"


@pytest.mark.requirement("C3")
def test_s5_a_name_that_is_too_long_is_cut_and_shown_with_its_original(tmp_path: Path) -> None:
    assert len(SERVER + TOOL) > 90
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in (TOOL, "short")]))
    servers(tmp_path / ".mcp.json", **{SERVER: plain(AWKWARD, "--tools", file)})
    listings = [orchestrator("tools", "--json", folder=tmp_path).json["tools"] for _ in range(2)]
    assert listings[0] == listings[1], "stable over runs"
    mine = {row["tool"]: row["name"] for row in listings[0] if row["server"] == SERVER}
    assert mine.keys() == {TOOL, "short"}
    assert all(len(name) <= 64 for name in mine.values())
    assert mine[TOOL].endswith(f"__{TOOL}")
    said = orchestrator("tools", folder=tmp_path).out
    assert f"{mine[TOOL]}  (its own name: {TOOL})" in said
