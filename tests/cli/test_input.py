"""What a server asks of a person, through the command line: parked and answered later, or at a terminal."""

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import foreign
from tests.support.command import COMMAND, call, environment, orchestrator, plain, record, servers, write_cards

HOLDING = Path(__file__).parents[1] / "support" / "holding_server.py"


def job(folder: Path, wanted: dict[str, Any], **entries: Any) -> list[str]:
    servers(folder / ".mcp.json", **entries)
    agents = write_cards(folder, lone="")
    model = record(folder / "r.jsonl", {"text": "I book.", "calls": [wanted]}, {"text": "Done."})
    (folder / "orchestrator.toml").write_text('[policy]\nallow = ["*"]\n')
    return ["run", "do it", "--agent", "lone", "--agents", str(agents), "--model", model]


def booking(folder: Path) -> list[str]:
    return job(folder, call("fx__book", city="Rome"), fx=plain(HOLDING, folder / "ledger"))


def answers(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "ledger").read_text().splitlines()]
    return [line["answer"] for line in lines if "answer" in line]


@pytest.mark.xdist_group("foreign")
@pytest.mark.requirement("C2", "C7")
def test_a_form_of_a_public_server_is_answered_later(tmp_path: Path) -> None:
    command = job(tmp_path, call("ev__trigger-elicitation-request"), ev=foreign.entry(foreign.everything))
    parked = orchestrator(*command, "--json", folder=tmp_path)
    assert parked.code == 4, parked.err
    run = parked.json["run_id"]
    (request,) = parked.json["approvals"]
    assert list(request) == ["call", "agent", "tool", "arguments", "reason", "input"]
    assert request["input"]["schema"]["required"] == ["name"]
    shown = orchestrator("runs", "show", run, folder=tmp_path)
    assert "fields: " in shown.out
    wrong = orchestrator("approve", run, "--arguments", '{"name": "Ada", "integer": 500}', folder=tmp_path)
    assert (wrong.code, "100" in wrong.err) == (2, True)
    assert orchestrator("approve", run, "--arguments", '{"name": "Ada", "integer": 7}', folder=tmp_path).code == 0
    ended = orchestrator("resume", run, "--json", folder=tmp_path)
    assert ended.code == 0, ended.err
    observation = ended.json["steps"][0]["actions"][0]["observation"]
    assert "Name: Ada" in observation
    assert "Favorite Integer: 7" in observation


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.ours, theirs = pty.openpty()
        names = environment(folder / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"})
        self.process = subprocess.Popen(
            [str(COMMAND), *command], cwd=folder, env=names, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = b""

    def until(self, words: bytes) -> None:
        """Reads on until these words have come since the last time."""
        fresh = b""
        while words not in fresh:
            fresh += os.read(self.ours, 4096)
        self.seen += fresh

    def type(self, *lines: tuple[bytes, bytes]) -> None:
        for question, answer in lines:
            self.until(question)
            os.write(self.ours, answer + b"\n")

    def end(self) -> int:
        with contextlib.suppress(OSError):  # the terminal has gone: everything was read
            while chunk := os.read(self.ours, 4096):
                self.seen += chunk
        os.close(self.ours)
        return self.process.wait(60)


@pytest.mark.requirement("C7")
def test_a_form_at_the_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, booking(tmp_path))
    terminal.type((b"cancel [c]? ", b"a"), (b"  seats: ", b"many"), (b"  seats: ", b"12"), (b"  seats: ", b"3"))
    terminal.type((b"  window: ", b"y"), (b"again [e]? ", b"a"))
    assert terminal.end() == 0
    shown = terminal.seen.decode()
    assert "server fx asks you" in shown
    assert shown.count("this does not fit") == 2
    assert answers(tmp_path) == [{"action": "accept", "content": {"seats": 3, "window": True}}]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("key", "action"), [(b"a", "accept"), (b"d", "decline"), (b"c", "cancel")])
def test_a_page_at_the_terminal(tmp_path: Path, key: bytes, action: str) -> None:
    terminal = Terminal(tmp_path, job(tmp_path, call("fx__page"), fx=plain(HOLDING, tmp_path / "ledger")))
    terminal.type((b"cancel [c]? ", key))
    assert terminal.end() == 0
    shown = terminal.seen.decode()
    assert "at:   pay.example" in shown
    assert "\x1b[2J this" not in shown, "a server's words move no cursor"
    observation = json.loads(orchestrator("runs", "show", "last", "--json", folder=tmp_path).out)["steps"][0]
    assert observation["actions"][0]["observation"].endswith(f"page: {action}")


@pytest.mark.requirement("C7", "H1")
def test_a_process_that_is_killed_while_it_asks(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, booking(tmp_path))
    terminal.until(b"cancel [c]? ")
    terminal.process.kill()
    terminal.end()
    assert orchestrator("approve", "last", "--arguments", '{"seats": 2}', folder=tmp_path).code == 0
    ended = orchestrator("resume", "last", "--json", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert answers(tmp_path) == [{"action": "accept", "content": {"seats": 2}}]
