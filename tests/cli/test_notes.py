"""`orchestrator notes`: what agents kept is listed and forgotten by the person whose notes they are."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers, write_cards

pytestmark = pytest.mark.requirement("D4")

TEXT = "Anna wants amounts in EUR\nand \x1b[31mnever in USD"


def workspace(folder: Path, name: str, notes: str = "true") -> Path:
    """A folder whose state is that of all others beside it."""
    (folder / name).mkdir()
    (folder / name / "orchestrator.toml").write_text(f"[memory]\nnotes = {notes}\n")
    servers(folder / name / ".mcp.json", fx=plain(EFFECTS, folder / name / "ledger"))
    write_cards(folder / name, lone="")
    return folder / name


def command(folder: Path, *arguments: object) -> Ended:
    return orchestrator(*arguments, folder=folder, env={"ORCHESTRATOR_HOME": str(folder.parent / "home")})


def run(folder: Path, *calls: dict[str, Any]) -> list[str]:
    """What an agent was told that made these calls."""
    model = record(folder / "r.jsonl", {"calls": list(calls)}, {"text": "done"})
    ended = command(folder, "run", "x", "--agent", "lone", "--agents", "cards", "--model", model, "--json")
    assert ended.code == 0, ended.err
    return [action["observation"] for action in ended.json["steps"][0]["actions"]]


def test_notes_are_listed_and_forgotten(tmp_path: Path) -> None:
    here = workspace(tmp_path, "here")
    assert command(here, "notes").out == "no notes here\n"
    kept = run(here, call("remember", note=TEXT), call("remember", note="The shop opens at nine"))
    assert sorted(kept) == ["Kept as n1.", "Kept as n2."]
    id = kept[0][8:-1]
    listed = command(here, "notes")
    assert listed.code == 0
    assert [line.split("  ")[0] for line in listed.out.splitlines()] == ["n2", "n1"]
    assert re.search(rf"^{id}  20[\d-]+ [\d:]+  lone  Anna wants amounts in EUR and .*never in USD$", listed.out, re.M)
    assert "\x1b" not in listed.out
    rows = {row["id"]: row for row in command(here, "notes", "--json").json}
    assert rows[id]["note"] == TEXT
    assert rows[id]["workspace"] == str(here.resolve())
    assert rows[id]["run_id"] == command(here, "runs", "--json").json[0]["run_id"]
    gone = command(here, "notes", "forget", id)
    assert (gone.code, gone.out) == (0, f"{id} is forgotten\n")
    assert [row["note"] for row in command(here, "notes", "--json").json] == ["The shop opens at nine"]
    assert run(here, call("recall", query="amounts")) == ["No note fits; try other words."]


def test_what_is_not_there_or_is_no_id_is_told(tmp_path: Path) -> None:
    here = workspace(tmp_path, "here")
    run(here, call("remember", note="a fact"))
    partly = command(here, "notes", "forget", "n7", "1", "--json")
    assert (partly.code, partly.json) == (1, {"forgotten": ["n1"]})
    assert partly.err == "error: there is no note n7 here; `orchestrator notes` lists them\n"
    for arguments, said in ((["last"], "'last' is no id of a note"), ([], "needs the id of a note")):
        ended = command(here, "notes", "forget", *arguments)
        assert (ended.code, said in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(("notes", "seen"), [("true", []), ('"user"', ["a fact"])])
def test_only_those_are_seen_that_a_run_here_would_find(tmp_path: Path, notes: str, seen: list[str]) -> None:
    run(workspace(tmp_path, "there"), call("remember", note="a fact"))
    here = workspace(tmp_path, "here", notes)
    assert [row["note"] for row in command(here, "notes", "--json").json] == seen
    assert command(here, "notes", "forget", "n1").code == (0 if seen else 1)
    assert len(command(tmp_path / "there", "notes", "--json").json) == 1 - len(seen)


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    here = workspace(tmp_path, "here")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "notes.sqlite").write_text("no database, but a text of some length")
    ended = command(here, "notes")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: the notes in ")
