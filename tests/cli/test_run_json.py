"""`run --json`: one object on stdout that others script against, whatever the run came to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers, write_cards

pytestmark = [pytest.mark.xdist_group("run json"), pytest.mark.requirement("A12")]

USAGE = ["input_tokens", "output_tokens", "cached_tokens", "model_calls", "tool_calls"]
STEP = ["n", "agent", "thought", "actions"]
ACTION = ["call", "tool", "arguments", "is_error", "observation"]
COST = ["amount", "currency", "known"]
RESULT = ["run_id", "status", "stop_reason", "answer", "agent", "steps", "approvals", "usage", "own_usage", "cost"]
RESULT += ["duration_s", "trace_id"]
USAGES = [{"input_tokens": n, "output_tokens": 7 * n, "cached_tokens": n // 2} for n in (1000, 200, 30, 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A boss with one helper, both over the effects server."""
    folder = tmp_path_factory.mktemp("json")
    write_cards(folder, boss='agents: [helper]\ntools: ["fx__*"]', helper='tools: ["fx__*"]')
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    return folder


def run(folder: Path, *flags: object, task: str = "the job", env: Mapping[str, str] = {}) -> Ended:
    model = record(
        folder / "recording.jsonl",
        {
            "agent": "boss",
            "text": "Both at once.",
            "calls": [call("agents__helper", task="look"), call("fx__pay", text="me"), call("fx__fail", text="it")],
            "usage": USAGES[0],
        },
        {"agent": "boss", "text": "Done: é 数字 \u2028 “quoted”\nsecond line", "usage": USAGES[1]},
        {"agent": "helper", "text": "Looking.", "calls": [call("fx__look", text="here")], "usage": USAGES[2]},
        {"agent": "helper", "text": "Seen.", "usage": USAGES[3]},
    )
    team = ["--agent", "boss", "--agents", "cards", "--model", model]
    return orchestrator("run", task, *team, "--approve", "all", *flags, folder=folder, env=env)


@pytest.fixture(scope="module")
def ended(folder: Path) -> Ended:
    return run(folder, "--json", "--quiet")


def test_one_object_and_nothing_else(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    assert ended.out.count("\n") == 1
    assert ended.out.endswith("}\n")
    assert ended.err == ""


def test_the_keys_at_every_level(ended: Ended) -> None:
    found = ended.json
    assert list(found) == RESULT
    assert [list(each) for each in found["steps"]] == [STEP, STEP]
    assert [list(each) for each in found["steps"][0]["actions"]] == [[*ACTION, "run_id"], ACTION, ACTION]
    assert list(found["usage"]) == list(found["own_usage"]) == USAGE
    assert list(found["cost"]) == COST
    assert found["approvals"] == []


def test_the_values(ended: Ended) -> None:
    found = ended.json
    assert (found["status"], found["stop_reason"], found["agent"]) == ("finished", "answered", "boss")
    assert found["answer"] == "Done: é 数字 \u2028 “quoted”\nsecond line"
    assert found["cost"] == {"amount": 0.0, "currency": "USD", "known": False}
    assert 0 < found["duration_s"] < 30
    assert len(found["trace_id"]) == 32
    first, last = found["steps"]
    assert (first["n"], first["agent"], first["thought"]) == (1, "boss", "Both at once.")
    assert (last["n"], last["thought"], last["actions"]) == (2, found["answer"], [])
    assert [(a["call"], a["tool"], a["is_error"]) for a in first["actions"]] == [
        ("t1.1", "agents__helper", False),
        ("t1.2", "fx__pay", False),
        ("t1.3", "fx__fail", True),
    ]
    assert first["actions"][0]["run_id"] == f"{found['run_id']}/t1.1"
    assert first["actions"][0]["observation"] == "Seen."
    assert first["actions"][1]["arguments"] == {"text": "me"}
    assert "fail it done" in first["actions"][2]["observation"]


def test_usage_adds_up(folder: Path, ended: Ended) -> None:
    found = ended.json
    child = found["steps"][0]["actions"][0]["run_id"]
    helper = orchestrator("runs", "show", child, "--json", folder=folder).json
    assert helper["usage"] == helper["own_usage"]
    assert found["usage"] == {key: found["own_usage"][key] + helper["usage"][key] for key in found["usage"]}
    assert found["own_usage"]["input_tokens"] == 1200
    assert found["own_usage"]["tool_calls"] == 3
    assert helper["usage"] == {
        "input_tokens": 34,
        "output_tokens": 238,
        "cached_tokens": 17,
        "model_calls": 2,
        "tool_calls": 1,
    }


def test_runs_show_gives_the_same_object(folder: Path, ended: Ended) -> None:
    shown = orchestrator("runs", "show", ended.json["run_id"], "--json", folder=folder)
    assert shown.json == ended.json


def test_progress_is_on_stderr_and_events_in_their_file(folder: Path) -> None:
    ended = run(folder, "--json", "--events", folder / "events.jsonl")
    assert list(ended.json) == RESULT
    assert 'boss → helper task="look"' in ended.err
    assert "boss ✗ fx__fail" in ended.err
    assert (folder / "events.jsonl").read_text("utf-8").count("\n") > 20


def test_lines_of_progress_are_never_wrapped(folder: Path) -> None:
    """A path or an id may be long, and whoever reads a log searches for it whole."""
    ended = run(folder, task="x" * 50)
    (closing,) = [line for line in ended.err.splitlines() if " · trace " in line]
    assert len(closing) > 120
    assert "\x1b" not in ended.err


def test_json_is_utf_8_whatever_the_locale(folder: Path) -> None:
    ended = run(
        folder, "--json", "--quiet", task="数字 é", env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["answer"].startswith("Done: é 数字")
    assert orchestrator("runs", "--json", folder=folder).json[0]["task"] == "数字 é"


def test_events_on_stdout_are_all_that_is_there(folder: Path) -> None:
    ended = run(folder, "--events", "-", "--quiet")
    events: list[dict[str, Any]] = ended.lines
    assert events[-1]["type"] == "final_answer"
    assert events[-1]["answer"].startswith("Done")
    assert ended.err == ""
