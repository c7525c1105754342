"""What a run is told and finds out shows nowhere but in its answer: in a child, and after a resume. F5."""

import json
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers, write_cards

pytestmark = [pytest.mark.xdist_group("masking"), pytest.mark.requirement("F5")]

MAIL, PHONE, CARD = "alice@example.com", "13812345678", "4111 1111 1111 1111"
PASSWORD, KEY, OWN, KNOWN, VARIABLE = (
    "correct-horse",
    "sk-proj-abcdefghijklmnop1234",
    "EMP-4711",
    "fx-server-token-1",
    "from-the-environment",
)
SECRETS = (MAIL, PHONE, CARD, PASSWORD, KEY, OWN, KNOWN, VARIABLE)
ALL = f"{MAIL} {PHONE} {CARD} password={PASSWORD} {KEY} {OWN} {KNOWN} {VARIABLE}"
CAPTURE = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
CONFIG = """
[telemetry]
capture = true
mask = ['EMP-\\d+']
mask_keys = ["nickname"]
"""


@dataclass(frozen=True)
class Told:
    """A run that a person had to approve, and everything that was said of it."""

    folder: Path
    run_id: str
    parked: Ended
    resumed: Ended

    def command(self, *arguments: object) -> Ended:
        return orchestrator(*arguments, folder=self.folder, env={"SERVICE_PASSWORD": VARIABLE})


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("masking")
    write_cards(folder, boss="agents: [helper]\ntools: []", helper='tools: ["fx__*"]')
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger", env={"FX_TOKEN": KNOWN}))
    (folder / "orchestrator.toml").write_text(CONFIG)
    model = record(
        folder / "recording.jsonl",
        {"agent": "boss", "text": f"For {ALL}.", "calls": [call("agents__helper", task=ALL)]},
        {"agent": "boss", "text": f"Done: {ALL}"},
        {
            "agent": "helper",
            "calls": [
                call("fx__fail", text=ALL),
                call("fx__look", text=json.dumps({"password": PASSWORD, "to": MAIL})),
                call("fx__pay", text=f"{MAIL} password={PASSWORD}"),
            ],
        },
        {"agent": "helper", "text": f"Paid {ALL}."},
    )
    team = ["--agent", "boss", "--agents", "cards", "--model", model]
    env = {"SERVICE_PASSWORD": VARIABLE}
    parked = orchestrator("run", f"Pay {ALL}", *team, folder=folder, env=env)
    assert parked.code == 4, parked.err
    run_id = orchestrator("runs", "--json", folder=folder).json[0]["run_id"]
    assert orchestrator("approve", run_id, folder=folder, env=env).code == 0
    resumed = orchestrator("resume", run_id, folder=folder, env=env)
    assert resumed.code == 0, resumed.err
    return Told(folder, run_id, parked, resumed)


def clean(text: str, *, but: tuple[str, ...] = ()) -> None:
    assert text
    assert [secret for secret in SECRETS if secret in text and secret not in but] == []


def test_the_answer_is_the_users_own_and_whole(told: Told) -> None:
    assert told.resumed.out == f"Done: {ALL}\n"
    shown = told.command("runs", "show", told.run_id, "--json").json
    assert shown["answer"] == f"Done: {ALL}"
    assert shown["steps"][0]["actions"][0]["arguments"] == {"task": ALL}


def test_progress_on_stderr_is_masked(told: Told) -> None:
    clean(told.resumed.err)
    progress, _, question = told.parked.err.partition("waiting for approval")
    clean(progress)
    assert "[email]" in progress
    assert "[key]" in progress
    clean(question, but=(MAIL,))
    assert f"{MAIL} password=[secret]" in question, "whoever approves sees to whom, and no secret"


def test_views_of_the_journal_are_masked(told: Told) -> None:
    for view in (["runs"], ["runs", "show", told.run_id], ["runs", "show", f"{told.run_id}~t1.1"]):
        shown = told.command(*view)
        assert shown.code == 0, shown.err
        clean(shown.out)


def test_spans_are_masked(told: Told) -> None:
    spans = [json.loads(line) for line in (told.folder / "home/traces/spans.jsonl").read_text().splitlines()]
    clean(json.dumps(spans))
    said = {span["attributes"].get("gen_ai.tool.call.arguments") for span in spans}
    hidden = "[email] [phone] [card] password=[secret] [key] [masked] [secret] [secret]"
    assert json.dumps({"task": hidden}, separators=(",", ":")) in said
    assert json.dumps({"text": hidden}, separators=(",", ":")) in said


def test_the_journal_holds_everything_and_is_readable_by_its_owner_alone(told: Told) -> None:
    home = told.folder / "home"
    assert all(secret.encode() in b"".join(path.read_bytes() for path in home.glob("journal.*")) for secret in SECRETS)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in home.iterdir()} == {
        path.name: 0 for path in home.iterdir()
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mask = ['(']", "is no regular expression"),
        ("mask = ['x*']", "matches the empty text"),
        ("mask_keys = ['']", "mask_keys"),
    ],
)
def test_a_wrong_pattern_is_said_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "orchestrator.toml").write_text(f"[telemetry]\n{line}\n")
    ended = orchestrator("agents", folder=tmp_path)
    assert ended.code == 2
    assert message in ended.err
    assert "orchestrator.toml:2" in ended.err


@pytest.mark.parametrize(
    "view", [("runs",), ("runs", "show", "last"), ("runs", "audit"), ("replay", "last")], ids=" ".join
)
def test_old_runs_can_be_looked_at_whatever_the_configuration_says(told: Told, view: tuple[str, ...]) -> None:
    config = told.folder / "wrong.toml"
    config.write_text("[telemetry]\nmask = ['(']\n")
    ended = told.command(*view, "--config", config)
    assert ended.code == 0, ended.err
    assert "warning: " in ended.err
    assert "wrong.toml:2" in ended.err
    assert "is no regular expression" in ended.err
    clean(ended.out, but=(OWN, KNOWN))


def test_capture_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    write_cards(tmp_path, lone='tools: ["fx__*"]')
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    model = record(tmp_path / "recording.jsonl", {"calls": [call("fx__look", text="hidden words")]}, {"text": "done"})
    spans = tmp_path / "home/traces/spans.jsonl"
    for setting, environment, captured in (
        ("", {}, False),
        ("capture = true", {}, True),
        ("capture = false", CAPTURE, True),
    ):
        (tmp_path / "orchestrator.toml").write_text(f"[telemetry]\n{setting}\n")
        spans.unlink(missing_ok=True)
        team = ["--agent", "lone", "--agents", "cards", "--model", model]
        ended = orchestrator("run", "the job", *team, folder=tmp_path, env=environment)
        assert ended.code == 0, ended.err
        assert ("hidden words" in spans.read_text()) is captured, setting


def test_the_shells_working_folder_is_no_secret(tmp_path: Path) -> None:
    """`PWD` is named like a password; masking what it holds would hide every path."""
    folder = str(tmp_path)
    model = record(tmp_path / "recording.jsonl", {"agent": "supervisor", "text": f"It lies in {folder}."})
    env = {"PWD": folder, "OLDPWD": folder}
    assert orchestrator("run", f"look into {folder}", "--model", model, folder=tmp_path, env=env).code == 0
    assert f"look into {folder}" in orchestrator("replay", "last", folder=tmp_path, env=env).out
