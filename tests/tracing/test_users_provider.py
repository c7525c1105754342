"""A user's own providers get the same tree, one span a call, and the histograms. Requirement F1."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.command import ROOT


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process of its own, since a provider can be set only once."""
    command = [sys.executable, "-m", "tests.tracing.users_provider", str(tmp_path_factory.mktemp("home"))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(ended.stdout)


@pytest.mark.requirement("F1")
def test_the_mcp_sdk_adds_no_span_to_ours(got: dict[str, Any]) -> None:
    assert sorted(map(tuple, got["spans"]), key=str) == sorted(
        [
            ("invoke_workflow boss", None),
            ("invoke_agent boss", "invoke_workflow boss"),
            ("chat scripted", "invoke_agent boss"),
            ("execute_tool agents__helper", "invoke_agent boss"),
            ("invoke_agent helper", "execute_tool agents__helper"),
            ("chat scripted", "invoke_agent helper"),
            ("execute_tool fx__look", "invoke_agent helper"),
            ("chat scripted", "invoke_agent helper"),
            ("chat scripted", "invoke_agent boss"),
        ],
        key=str,
    )


@pytest.mark.requirement("F1")
def test_histograms_count_thoughts_calls_and_runs(got: dict[str, Any]) -> None:
    assert got["metrics"] == {
        "gen_ai.client.token.usage": 8,
        "gen_ai.client.operation.duration": 4,
        "gen_ai.execute_tool.duration": 2,
        "gen_ai.invoke_agent.duration": 2,
        "gen_ai.invoke_workflow.duration": 1,
    }
