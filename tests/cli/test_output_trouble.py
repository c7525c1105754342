"""What cannot be written is said, and costs no answer."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command import COMMAND, environment, record, write_cards

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture
def run(tmp_path: Path) -> list[str]:
    agents = write_cards(tmp_path, lone="")
    model = record(tmp_path / "r.jsonl", {"text": "the answer"})
    return [str(COMMAND), "run", "x", "--agent", "lone", "--agents", str(agents), "--model", model]


def shell(folder: Path, command: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    script = ["bash", "-c", f'exec "$@" {redirected}', "bash", *command]
    return subprocess.run(
        script, cwd=folder, env=environment(folder / "home"), capture_output=True, text=True, timeout=120
    )


def test_a_full_events_file_costs_no_answer(run: list[str], tmp_path: Path) -> None:
    done = shell(tmp_path, [*run, "--json", "--events", str(FULL)], "")
    assert (done.returncode, json.loads(done.stdout)["answer"]) == (0, "the answer")
    assert "not complete" in done.stderr


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_progress_that_cannot_be_shown_costs_no_answer(run: list[str], tmp_path: Path, redirected: str) -> None:
    done = shell(tmp_path, run, redirected)
    assert (done.returncode, done.stdout) == (0, "the answer\n")


def test_an_answer_that_cannot_be_written_is_an_error(run: list[str], tmp_path: Path) -> None:
    done = shell(tmp_path, run, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_server_that_ends_at_once_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"mcpServers": {"gone": {"command": "false"}}}')
    done = shell(tmp_path, [str(COMMAND), "tools", "--json", "--mcp-config", "bad.json"], "")
    (server,) = [each for each in json.loads(done.stdout)["servers"] if each["name"] == "gone"]
    assert server["problem"] == "its process ended with exit code 1"
