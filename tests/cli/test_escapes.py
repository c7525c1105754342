"""What servers, models and cards say never steers the terminal that it is shown at."""

import json
import unicodedata
from pathlib import Path

import pytest

from tests.support.command import AWKWARD, Ended, call, orchestrator, plain, record, servers, write_cards

EVIL = "\x1b[2Jgone \x1b]0;title\x07 \u202etxt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose server, tool, model and task are all hostile."""
    folder = tmp_path_factory.mktemp("escapes")
    listed = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    tools = [{"name": "read", "description": EVIL, **listed}, {"name": f"n{EVIL}", "description": "Other.", **listed}]
    (folder / "tools.json").write_text(json.dumps([*tools, {"name": "bad", "inputSchema": {"type": EVIL}}]))
    fell = {"command": "sh", "args": ["-c", "printf '\\033[2J\\n' >&2; exit 3"]}
    servers(folder / ".mcp.json", fx=plain(AWKWARD, "--tools", folder / "tools.json"), fell=fell)
    write_cards(folder, lone='tools: ["fx__*"]', other='tools: ["\x1b[2J"]')
    replies = [{"text": EVIL, "calls": [call("fx__read", text=EVIL)]}, {"text": f"answer {EVIL}"}]
    record(folder / "r.jsonl", *replies)
    flags = ("--agent", "lone", "--agents", "cards", "--model", "scripted:r.jsonl")
    first = orchestrator("run", f"task {EVIL}", *flags, folder=folder)
    assert first.code == 0, first.err
    (folder / "tools.json").write_text(json.dumps([{"name": "read", "description": f"new {EVIL}", **listed}]))
    changed = orchestrator("run", "again", *flags, "--quiet", folder=folder)
    assert "warning: server fx changed its tool read" in changed.err
    for ended in (first, changed):
        assert obeyed(ended.err) == set()
    return folder


def obeyed(text: str) -> set[str]:
    """The characters that a terminal would act on."""
    return {char for char in text if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf")}


@pytest.mark.parametrize(
    "command",
    [
        ("tools",),
        ("agents", "--agents", "cards"),
        ("runs",),
        ("runs", "show", "last"),
        ("runs", "audit"),
        ("replay", "last"),
        ("doctor", "--agents", "cards"),
    ],
    ids=" ".join,
)
def test_what_is_listed_has_nothing_that_a_terminal_obeys(folder: Path, command: tuple[str, ...]) -> None:
    shown = orchestrator(*command, folder=folder)
    assert shown.out
    assert obeyed(shown.out + shown.err) == set()


def test_tools_are_counted_without_those_that_are_left_out(folder: Path) -> None:
    (folder / "more.json").write_text(json.dumps([{"name": "a", "inputSchema": {"type": "object"}}, {"name": "b"}]))
    servers(folder / "more.mcp.json", fx=plain(AWKWARD, "--tools", folder / "more.json"))
    shown: Ended = orchestrator("tools", "--mcp-config", "more.mcp.json", folder=folder)
    assert "left out: fx__b: " in shown.out
    assert "fx: 1 tools\n" in shown.out
