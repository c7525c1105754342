"""`orchestrator replay`: what a person sees, what a program reads, files from elsewhere, and spans sent later."""

import contextlib
import json
import os
import pty
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.tracing.files import SpanFile
from tests.support.command import COMMAND, EFFECTS, Ended, call, environment, orchestrator, plain, record, servers
from tests.support.command import write_cards as cards
from tests.support.model_server import model_server
from tests.tracing.receiver import http_receiver, tree

pytestmark = [pytest.mark.xdist_group("replay"), pytest.mark.requirement("F6")]

ESCAPE = "\x1b[31mred\x07"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----"
LONG = "a long way " * 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A boss that asks a helper and looks far, both at once; then pays, for which nobody is there to ask."""
    folder = tmp_path_factory.mktemp("replay")
    cards(folder, boss='agents: [helper]\ntools: ["fx__*"]', helper='tools: ["fx__*"]')
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    calls = [call("agents__helper", task="看 数字"), call("fx__look", text=LONG), call("fx__fail", text=ESCAPE)]
    model = record(
        folder / "recording.jsonl",
        {"agent": "boss", "text": f"All at once. {ESCAPE}", "calls": calls},
        {"agent": "boss", "text": "Now I pay.", "calls": [call("fx__pay", text="rent")]},
        {"agent": "boss", "text": "Paid: é 数字."},
        {"agent": "helper", "text": "我看一下。", "calls": [call("fx__look", text="数字")]},
        {"agent": "helper", "text": f"Seen.\n{KEY}"},
    )
    team = ["--agent", "boss", "--agents", "cards", "--model", model, "--quiet"]
    assert orchestrator("run", "the job", *team, folder=folder).code == 4
    return folder


def replay(folder: Path, *flags: object, run: str = "last", **more: Any) -> Ended:
    return orchestrator("replay", run, *flags, folder=folder, **more)


def row(folder: Path) -> str:
    return orchestrator("runs", "--json", folder=folder).json[0]["run_id"]


def test_a_parked_run_is_shown_in_order_as_a_tree(folder: Path) -> None:
    ended = replay(folder)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"run {row(folder)}  parked (approval)"
    assert re.fullmatch("trace [0-9a-f]{32}", lines[1])
    told = [re.sub(r"\d+(\.\d)? s|[\d,]+ \+ [\d,]+", "#", line) for line in lines[3:]]
    start = told.index("1  at #  thought #  # tokens, cost unknown")
    assert told[start + 1 : start + 3] == ["   All at once. �[31mred�", "   ⇉ 3 calls at once"]
    helper = told.index('   → helper at #  {"task": "看 数字"}')
    assert told[helper + 1] == "     helper (recorded:recording): 看 数字"
    assert told[helper + 3] == "        我看一下。"
    assert told[helper + 4 : helper + 6] == ['        → fx__look  {"text": "数字"}', "        ✓  #  look 数字 done"]
    assert told[helper + 9 : helper + 11] == ["   ✓  #  Seen.", f"     {told[helper + 8].strip()}"]
    assert told.index("   ✗ tool_error  #  Error from fx__fail: fail red� done") > helper
    assert told[-5:-3] == ["   Now I pay.", '   → fx__pay  {"text": "rent"}']
    assert told[-3].startswith("   ? a person is asked, because ")
    assert told[-2:] == ["   … waits for approval", "· parked: waits for approval"]
    assert "MIIEvQ" not in ended.out
    assert "\x1b" not in ended.out
    assert "\x07" not in ended.out


def test_what_is_huge_is_cut_for_people_and_whole_for_programs(folder: Path) -> None:
    shown = replay(folder).out
    assert "more characters, which --json shows" in shown
    found = replay(folder, "--json").json
    assert found["turns"][0]["calls"][1]["observation"] == f"look {LONG} done"
    assert found["turns"][0]["calls"][0]["run"]["turns"][0]["thought"] == "我看一下。"
    assert found["turns"][0]["thought"].endswith(ESCAPE)
    assert found["turns"][0]["calls"][0]["observation"].endswith(KEY), "masking is for people"


def test_a_file_from_elsewhere_is_read_without_its_wal_and_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "home" / "journal.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    away = tmp_path / "away"
    away.mkdir()
    shutil.copy(folder / "home" / "journal.sqlite", away / "theirs.sqlite")
    before = (away / "theirs.sqlite").read_bytes()
    away.chmod(0o500)
    try:
        there = replay(tmp_path, "--journal", away / "theirs.sqlite", "--json")
    finally:
        away.chmod(0o700)
    assert there.json == replay(folder, "--json").json
    assert [path.name for path in away.iterdir()] == ["theirs.sqlite"]
    assert (away / "theirs.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["nobody"], 2, "there is no run 'nobody' in "),
        (["last", "--svg", "gone/run.svg"], 1, "error: gone/run.svg: No such file"),
        (["last", "--journal", "gone.sqlite"], 2, "--journal: there is no file gone.sqlite"),
        (["last", "--journal", "cards/boss.md"], 1, "cannot be read: file is not a database"),
        (["last", "--journal", "other.sqlite"], 1, "other.sqlite is no journal of orchestrator"),
        (["last", "--step"], 2, "--step stops for someone at a terminal, and there is none"),
        (["last", "--from", "7"], 2, "has no step 7 (it has 1 to 2)"),
        (["last", "--otlp"], 2, "--otlp: no collector is named; give its address, or OTEL_EXPORTER_OTLP_ENDPOINT"),
        (["last", "--otlp", "--step"], 2, "not allowed with argument"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, flags: Sequence[str], code: int, message: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "other.sqlite")) as db:
        db.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
    ended = orchestrator("replay", *flags, folder=folder)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_without_any_run(tmp_path: Path) -> None:
    ended = replay(tmp_path)
    assert (ended.code, ended.err) == (2, "error: there are no runs yet\n")


def test_the_prompts_are_those_that_went_over_the_wire(tmp_path: Path) -> None:
    """The temperature, which no journal holds, comes from the configuration that the run was started with."""
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    agents = cards(tmp_path, lone="temperature: 0.7")
    replies = [{"text": "I look.", "calls": [call("fx__look", text="数字")]}, {"text": "Done."}]
    with model_server(lambda body: replies[len(body["messages"]) > 2]) as server:
        flags = ["--agent", "lone", "--agents", agents, "--model", "openai:m"]
        assert orchestrator("run", "the job", *flags, folder=tmp_path, env=server.env).code == 0
        found = replay(tmp_path, "--prompts", "--json", env=server.env)
    requests = [json.loads(turn["request"]) for turn in found.json["turns"]]
    assert requests == server.seen
    assert [request["temperature"] for request in requests] == [0.7, 0.7]
    assert all(turn["request_checked"] for turn in found.json["turns"])
    assert found.err == ""
    bare = replay(tmp_path, "--prompts")
    assert "is not configured here as it was then" in bare.err, "there is no key now"
    assert '   "content": "the job"' in bare.out


def test_running_on_by_the_command(folder: Path) -> None:
    model = record(folder / "other.jsonl", {"agent": "boss", "turn": 2, "text": "I do not pay."})
    old = row(folder)
    ended = replay(folder, "--from", "2", "--model", model, "--json")
    assert (ended.code, ended.json["answer"]) == (0, "I do not pay.")
    assert f"runs on from step 2 of run {old}; what was done after it there is not undone" in ended.err
    assert (folder / "ledger").read_text().count('"fail"') == 1, "nothing was done again"
    shown = replay(folder).out
    assert f"· runs on from step 2 of run {old}; what stands above happened there" in shown
    assert f"(run {old}/t1.1)" in shown


def test_spans_are_sent_later_from_every_file_with_their_ids_and_times(folder: Path) -> None:
    spans = folder / "home" / "traces" / "spans.jsonl"
    first = orchestrator("runs", "--json", folder=folder).json[-1]["run_id"]
    trace_id = replay(folder, "--json", run=first).json["trace_id"]
    kept = [json.loads(line) for line in spans.read_text("utf-8").splitlines()]
    kept = [span for span in kept if span["traceId"] == trace_id]
    SpanFile(spans, limit=10).append(b'{"traceId":"' + trace_id.encode() + b'", cut off')  # the rest is rotated away
    with http_receiver() as receiver:
        ended = replay(folder, "--otlp", receiver.endpoint, run=first)
        again = replay(folder, "--otlp", run=first, env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint})
    assert ended.out == f"{len(kept)} spans of trace {trace_id} were sent to {receiver.endpoint}/v1/traces\n"
    assert again.out == ended.out
    sent = receiver.spans[: len(kept)]
    assert sorted((span.span_id, span.parent_id, span.name, span.service) for span in sent) == sorted(
        (span["spanId"], span["parentSpanId"], span["name"], span["service"]) for span in kept
    )
    assert tree(sent)[0][1] == "invoke_workflow boss"
    dead = replay(folder, "--otlp", receiver.endpoint, run=first)
    assert (dead.code, dead.out) == (1, "")
    assert f"spans do not reach {receiver.endpoint}/v1/traces: " in dead.err


def test_a_picture_is_xml_whatever_the_run_said(folder: Path) -> None:
    ended = replay(folder, "--svg", "run.svg")
    assert (ended.code, ended.out) == (0, "run.svg\n")
    words = [each.text for each in ElementTree.parse(folder / "run.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert "boss" in words


def at_a_terminal(folder: Path, keys: Sequence[bytes]) -> tuple[int, str]:
    """Types `keys`, one at each stop; all that stood on a screen of 80 columns."""
    pid, ours = pty.fork()
    if pid == 0:
        os.chdir(folder)
        env = environment(folder / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLUMNS": "80"})
        os.execve(COMMAND, [str(COMMAND), "replay", "last", "--step"], env)
    seen, left = b"", list(keys)
    with contextlib.suppress(OSError):  # the terminal has gone: everything was read
        while chunk := os.read(ours, 4096):
            seen += chunk
            if left and seen.count(b"q ends --") > len(keys) - len(left):
                os.write(ours, left.pop(0))
    os.close(ours)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


def test_step_by_step_at_a_terminal_of_80_columns(folder: Path) -> None:
    code, shown = at_a_terminal(folder, [b"\n", b"\n", b"q\n"])
    assert code == 0
    assert shown.count("Enter goes on, q ends") == 3
    assert "All at once." in shown
    assert "Now I pay" not in shown, "it ended at the third stop"
    code, shown = at_a_terminal(folder, [b"\n"] * 40)
    assert code == 0
    plain_lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", line) for line in shown.replace("\r", "").split("\n")]
    assert [line for line in plain_lines if len(line) > 80] == []
    assert any(line.endswith("…") for line in plain_lines)
    assert plain_lines[0].startswith(f"run {row(folder)}  ")
