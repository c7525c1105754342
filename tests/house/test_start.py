"""The start path: what a person waits for before anything of theirs is done imports nothing heavy."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "anyio",
    "duckdb",
    "genai_prices",
    "httpx2",
    "json_repair",
    "jsonschema_rs",
    "mcp",
    "mcp_types",
    "opentelemetry",
    "pydantic",
    "rich",
    "sqlite3",
    "yaml",
)


def imported(folder: Path, *arguments: str) -> set[str]:
    """Top-level names of all modules that a Python process imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [("-c", "import orchestrator"), ("-m", "orchestrator", "--help"), ("-m", "orchestrator", "run", "--help")],
    ids=["import", "help", "run help"],
)
def test_nothing_heavy_is_imported(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = imported(tmp_path, *arguments)
    assert "orchestrator" in found
    assert found.isdisjoint(HEAVY)
