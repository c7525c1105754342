"""The log of runs: a line a step, in a child and after a resume, masked, rotated, and in nobody's way. F4."""

import json
import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers, write_cards

pytestmark = [pytest.mark.xdist_group("logs"), pytest.mark.requirement("F4")]

USAGE = {"usage": {"input_tokens": 100, "output_tokens": 10}}
SECRETS = ("alice@example.com", "correct-horse")
TEXT = "to alice@example.com, password=correct-horse"


def team(folder: Path) -> list[object]:
    """A boss whose helper looks, fails and pays, which a person has to approve."""
    write_cards(folder, boss="agents: [helper]\ntools: []", helper='tools: ["fx__*"]')
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    model = record(
        folder / "recording.jsonl",
        {"agent": "boss", "text": "Over to you.", "calls": [call("agents__helper", task=TEXT)], **USAGE},
        {"agent": "boss", "text": "Done.", **USAGE},
        {"agent": "helper", "calls": [call("fx__fail", text="x"), call("fx__pay", text=TEXT)], **USAGE},
        {"agent": "helper", "text": "Paid.", **USAGE},
    )
    return ["--agent", "boss", "--agents", "cards", "--model", model]


def run(folder: Path, **options: Any) -> Ended:
    return orchestrator("run", f"pay {TEXT}", *team(folder), "--approve", "all", folder=folder, **options)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "home/logs").iterdir())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files(folder) for line in file.read_bytes().splitlines()]


def days() -> list[str]:
    """Today and tomorrow, which it may be when a test ends."""
    now = datetime.now(UTC)
    return [f"{day:%Y-%m-%d}" for day in (now, now + timedelta(days=1))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was parked in a child, approved, and resumed in another process."""
    folder = tmp_path_factory.mktemp("logs")
    command = team(folder)
    assert orchestrator("run", f"pay {TEXT}", *command, folder=folder).code == 4
    run_id = orchestrator("runs", "--json", folder=folder).json[0]["run_id"]
    assert orchestrator("approve", run_id, folder=folder).code == 0
    assert orchestrator("resume", run_id, folder=folder).code == 0
    return folder


def test_each_step_is_a_line_with_the_state_that_was_left_and_entered(folder: Path) -> None:
    helper = [line for line in lines(folder) if line.get("agent") == "helper"]
    steps = [(line["event"], line["previous"], line["state"]) for line in helper]
    assert steps[:3] == [
        ("run.started", None, "PLANNING"),
        ("model.intent", "PLANNING", "THINKING"),
        ("model.result", "THINKING", "ACTING"),
    ]
    assert ("approval.asked", "ACTING", "WAITING") in steps
    assert steps[-4:] == [
        ("tool.result", "ACTING", "OBSERVING"),
        ("model.intent", "OBSERVING", "THINKING"),
        ("model.result", "THINKING", "THINKING"),
        ("run.finished", "THINKING", "FINISHED"),
    ]
    assert {line["step"] for line in helper} == {0, 1, 2}


def test_all_lines_of_a_run_share_its_trace_over_agents_and_processes(folder: Path) -> None:
    shown = orchestrator("runs", "show", "last", "--json", folder=folder).json
    run_id, trace_id = shown["run_id"], shown["trace_id"]
    assert {(line["run_id"], line["trace_id"]) for line in lines(folder)} == {
        (run_id, trace_id),
        (f"{run_id}/t1.1", trace_id),
    }
    assert [line["run_id"] for line in lines(folder) if line["event"] == "run.resumed"] == [run_id, f"{run_id}/t1.1"]


def test_lines_say_tokens_cost_tool_arguments_result_and_time(folder: Path) -> None:
    found = lines(folder)
    thought = next(line for line in found if line["event"] == "model.result" and line["agent"] == "boss")
    assert (thought["input_tokens"], thought["output_tokens"], thought["text"]) == (100, 10, "Over to you.")
    assert thought["seconds"] >= 0
    assert "cost" in thought
    results = {line["tool"]: line for line in found if line["event"] == "tool.result"}
    assert results["fx__pay"]["arguments"] == '{"text":"to [email], password=[secret]"}'
    assert (results["fx__pay"]["level"], results["fx__pay"]["error"]) == ("info", None)
    assert results["fx__pay"]["result"]
    assert results["fx__pay"]["seconds"] >= 0
    assert (results["fx__fail"]["level"], results["fx__fail"]["error"]) == ("warning", "tool_error")
    assert (results["agents__helper"]["input_tokens"], results["agents__helper"]["result"]) == (200, "Paid.")
    end = found[-1]
    assert (end["event"], end["status"], end["input_tokens"], end["answer"]) == (
        "run.finished",
        "finished",
        400,
        "Done.",
    )
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}\+00:00", line["at"]) for line in found)


def test_nothing_that_must_not_be_seen_is_in_it_and_nobody_else_reads_it(folder: Path) -> None:
    said = "".join(file.read_text() for file in files(folder))
    assert [secret for secret in SECRETS if secret in said] == []
    assert "[email]" in said
    assert stat.S_IMODE((folder / "home/logs").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files(folder)} == {0o600}


@pytest.mark.requirement("F5")
def test_content_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "orchestrator.toml").write_text("[telemetry]\ncapture = false\n")
    assert run(tmp_path).code == 0
    found = lines(tmp_path)
    assert {"run.started", "tool.intent", "tool.result", "run.finished"} <= {line["event"] for line in found}
    assert not {"task", "text", "arguments", "result", "answer"} & {name for line in found for name in line}


def test_a_warning_is_in_the_log_with_the_run_that_it_is_about(tmp_path: Path) -> None:
    command = team(tmp_path)
    assert orchestrator("run", "pay", *command, folder=tmp_path).code == 4
    other = tmp_path / "other.jsonl"
    other.write_bytes((tmp_path / "recording.jsonl").read_bytes())
    resumed = orchestrator("resume", "last", "--model", f"scripted:{other}", folder=tmp_path)
    assert resumed.code == 4, resumed.err
    warnings = [line for line in lines(tmp_path) if line["event"] == "log"]
    assert {(line["level"], line["logger"]) for line in warnings} == {("warning", "orchestrator.runtime.runner")}
    assert all("goes on with recorded:other" in line["message"] for line in warnings)
    shown = orchestrator("runs", "show", "last", "--json", folder=tmp_path).json
    assert [line["run_id"] for line in warnings] == [shown["run_id"], f"{shown['run_id']}/t1.1"]
    assert {line["trace_id"] for line in warnings} == {shown["trace_id"]}


def test_old_files_are_removed(tmp_path: Path) -> None:
    old, recent = (tmp_path / f"home/logs/2020-01-0{day}.jsonl" for day in (1, 2))
    old.parent.mkdir(parents=True)
    for file in (old, recent):
        file.write_text("{}\n")
    long_ago = datetime.now(UTC) - timedelta(days=7, hours=1)
    os.utime(old, (long_ago.timestamp(), long_ago.timestamp()))
    assert run(tmp_path).code == 0
    assert not old.exists()
    assert recent.exists()


def _folder_is_a_file(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "logs").write_text("in the way")


def _disk_is_full(home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    for day in days():
        (home / f"logs/{day}.jsonl").symlink_to("/dev/full")


def _disk_hangs(home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    for day in days():
        os.mkfifo(home / f"logs/{day}.jsonl")  # opening it waits for a reader, who never comes


@pytest.mark.parametrize("trouble", [_folder_is_a_file, _disk_is_full, _disk_hangs])
def test_a_log_that_cannot_be_written_hurts_no_run_and_is_said_once(tmp_path: Path, trouble: Any) -> None:
    trouble(tmp_path / "home")
    ended = run(tmp_path)
    assert (ended.code, ended.out) == (0, "Done.\n")
    assert ended.err.count("warning: runs go on without a log: ") == 1
