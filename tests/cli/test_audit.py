"""`runs audit`: a record of each request, call, approval and limit, in a child and after a resume. F3."""

import os
import pwd
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers, write_cards

pytestmark = [pytest.mark.xdist_group("audit"), pytest.mark.requirement("F3")]

ME = pwd.getpwuid(os.getuid()).pw_name
HOLDING = Path(__file__).parents[1] / "support" / "holding_server.py"
CONFIG = '[roles.clerk]\ntools = ["fx__*", "agents__*"]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was parked in a child, approved, and resumed; and one that a limit stopped."""
    folder = tmp_path_factory.mktemp("audit")
    write_cards(folder, boss="agents: [helper]\ntools: []", helper='tools: ["fx__*"]')
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    (folder / "orchestrator.toml").write_text(CONFIG)
    usage = {"usage": {"input_tokens": 100, "output_tokens": 10}}
    model = record(
        folder / "recording.jsonl",
        {"agent": "boss", "text": "Over to you.", "calls": [call("agents__helper", task="pay")], **usage},
        {"agent": "boss", "text": "Done.", **usage},
        {
            "agent": "helper",
            "calls": [call("fx__fail", text="x"), call("fx__pay", text="to alice@example.com, token=abcdef")],
            **usage,
        },
        {"agent": "helper", "text": "Paid.", **usage},
    )
    team = ["--agent", "boss", "--agents", "cards", "--model", model, "--role", "clerk"]
    assert orchestrator("run", "the job", *team, folder=folder).code == 4
    run_id = orchestrator("runs", "--json", folder=folder).json[0]["run_id"]
    assert orchestrator("approve", run_id, "--note", "fine", folder=folder).code == 0
    assert orchestrator("resume", run_id, folder=folder).code == 0
    assert orchestrator("run", "short", *team, "--max-steps", "1", "--approve", "none", folder=folder).code == 3
    return folder


def audit(folder: Path, *arguments: object) -> Ended:
    return orchestrator("runs", "audit", *arguments, folder=folder)


def runs(folder: Path) -> tuple[str, str]:
    """The run that a limit stopped, and the one before it."""
    newest, first = (row["run_id"] for row in orchestrator("runs", "--json", folder=folder).json)
    return newest, first


def told(records: list[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(each["kind"], each["agent"], each["what"], each["outcome"]) for each in records]


def test_every_request_call_and_approval_is_a_record(folder: Path) -> None:
    _, run = runs(folder)
    ended = audit(folder, "--run", run, "--json")
    assert ended.code == 0, ended.err
    records = ended.json["records"]
    assert sorted(told(records)) == sorted(
        [
            ("run", "boss", "boss", "started"),
            ("model", "boss", "recorded:recording", "ok"),
            ("run", "helper", "helper", "started"),
            ("model", "helper", "recorded:recording", "ok"),
            ("approval", "helper", "fx__pay", "asked"),
            ("tool", "helper", "fx__fail", "tool_error"),
            ("run", "helper", "helper", "parked"),
            ("run", "boss", "boss", "parked"),
            ("approval", "helper", "fx__pay", "approved"),
            ("run", "boss", "boss", "resumed"),
            ("run", "helper", "helper", "resumed"),
            ("tool", "helper", "fx__pay", "ok"),
            ("model", "helper", "recorded:recording", "ok"),
            ("run", "helper", "helper", "finished"),
            ("tool", "boss", "agents__helper", "ok"),
            ("model", "boss", "recorded:recording", "ok"),
            ("run", "boss", "boss", "finished"),
        ]
    )
    assert {(each["by"], each["role"]) for each in records} == {(ME, "clerk")}
    assert [each["at"] for each in records] == sorted(each["at"] for each in records)
    [pay] = [each for each in records if (each["kind"], each["what"]) == ("tool", "fx__pay")]
    assert (pay["run"], pay["call"]) == (f"{run}/t1.1", "t1.2")
    assert pay["detail"] == '{"text":"to [email], token=[secret]"}'
    assert pay["seconds"] >= 0
    assert [each["tokens"] for each in records if each["kind"] == "model"] == [110] * 4
    [verdict] = [each for each in records if each["outcome"] == "approved"]
    assert verdict["detail"] == "fine"


def test_what_a_server_asks_and_what_it_was_answered_are_records(tmp_path: Path) -> None:
    write_cards(tmp_path, lone='tools: ["fx__*"]')
    servers(tmp_path / ".mcp.json", fx=plain(HOLDING, tmp_path / "ledger"))
    (tmp_path / "orchestrator.toml").write_text('[policy]\nallow = ["*"]\n')
    model = record(tmp_path / "r.jsonl", {"calls": [call("fx__book", city="Rome")]}, {"text": "Done."})
    team = ["--agent", "lone", "--agents", "cards", "--model", model]
    parked = orchestrator("run", "the job", *team, "--json", folder=tmp_path)
    assert parked.code == 4, parked.err
    answer = ["--arguments", '{"seats": 2}']
    assert orchestrator("approve", parked.json["run_id"], *answer, folder=tmp_path).code == 0
    assert orchestrator("resume", "last", folder=tmp_path).code == 0
    records = audit(tmp_path, "--run", "last", "--tool", "fx__book", "--json").json["records"]
    asked, answered, done = ([each[key] for key in ("kind", "outcome", "call", "by")] for each in records)
    assert asked == ["approval", "asked by the server", "t1.1", ME]
    assert answered == ["approval", "approved", "t1.1", ME]
    assert done == ["tool", "ok", "t1.1", ME]
    assert "Rome" in records[0]["detail"]
    assert '"seats": 2' in records[1]["detail"]


def test_a_limit_is_a_record(folder: Path) -> None:
    run, _ = runs(folder)
    records = audit(folder, "--run", run, "--json").json["records"]
    assert ("limit", "boss", "max_steps", "reached") in told(records)
    assert told(records)[-1] == ("run", "boss", "boss", "stopped")


def test_records_are_chosen_by_tool_and_time(folder: Path) -> None:
    found = audit(folder, "--tool", "fx__p*", "--json").json["records"]
    assert {(each["kind"], each["what"]) for each in found} == {("tool", "fx__pay"), ("approval", "fx__pay")}
    assert audit(folder, "--since", "2h", "--json").json["records"] == audit(folder, "--json").json["records"]
    assert audit(folder, "--since", "2999-01-01", "--json").json["records"] == []


def test_people_read_a_line_a_record_without_secrets(folder: Path) -> None:
    ended = audit(folder, "--run", "last")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == len(audit(folder, "--run", "last", "--json").json["records"])
    assert f"{ME} (clerk)" in ended.out
    assert "the chain is whole" in ended.err
    assert "alice" not in audit(folder).out


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--run", "no-such-run")])
def test_what_cannot_be_meant_is_said(folder: Path, arguments: tuple[str, str]) -> None:
    ended = audit(folder, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert arguments[1] in ended.err


def test_a_changed_journal_is_told_with_the_place(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(folder / "home/journal.sqlite")) as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "journal.sqlite"),))
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db, db:
        db.execute(
            "UPDATE events SET body = CAST(replace(body, 'alice', 'mallory') AS BLOB) "
            "WHERE CAST(body AS TEXT) LIKE '%tool.intent%alice%'"
        )
    ended = orchestrator("runs", "audit", "--json", folder=folder, env={"ORCHESTRATOR_HOME": str(tmp_path)})
    assert ended.code == 1
    _, run = runs(folder)
    assert f"of run {run}/t1.1" in ended.json["chain"]["broken"]
    assert "is broken at event" in ended.err
    assert len(ended.json["records"]) == len(audit(folder, "--json").json["records"])
