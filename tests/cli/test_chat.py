"""A conversation: at a terminal with its line editing, and over pipes."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import (
    AWKWARD,
    COMMAND,
    EFFECTS,
    Ended,
    call,
    environment,
    orchestrator,
    plain,
    read_pipe,
    record,
    servers,
    write_cards,
)
from tests.support.model_server import model_server

SECONDS = 60
_STYLE = re.compile(r"\x1b(?:\[[?>=\d;]*[A-Za-z]|[=>])")


def told(task: str, *replies: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Replies to a task, one a turn; of several tasks in a request, the longest counts."""
    return [{"task": task, "turn": turn, **reply} for turn, reply in enumerate(replies, 1)]


def flags(folder: Path, *lines: Mapping[str, Any]) -> list[str]:
    agents, model = write_cards(folder, lone=""), record(folder / "r.jsonl", *lines)
    return ["chat", "--agent", "lone", "--agents", str(agents), "--model", model]


def prompts(folder: Path, run: str = "last") -> list[dict[str, Any]]:
    """The messages of the first request of a run."""
    shown = orchestrator("replay", run, "--prompts", "--json", folder=folder).json
    return json.loads(shown["turns"][0]["request"])["messages"]


def piped(folder: Path, arguments: list[str], text: str) -> Ended:
    done = subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder / "home", {"TERM": "xterm-256color"}),
        input=text.encode(),
        capture_output=True,
        timeout=SECONDS,
    )
    return Ended(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


class Typist:
    """Someone at a terminal, who waits for what is shown before going on."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        env = environment(folder / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLUMNS": "200"})
        self.process = subprocess.Popen(
            [str(COMMAND), *arguments],
            cwd=folder,
            env=env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=own_terminal,
            start_new_session=True,
        )
        os.close(theirs)
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def sees(self, text: str) -> str:
        """Reads until `text` is there; everything up to it, without colours."""
        while text not in self._unread:
            ready, _, _ = select.select([self._ours], [], [], SECONDS)
            assert ready, f"never saw {text!r}; instead {self._unread!r}"
            try:
                chunk = os.read(self._ours, 65536).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"it ended without {text!r}: {self._unread!r}") from None
            self._unread = _STYLE.sub("", self._unread + chunk)
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def prompted(self) -> str:
        return self.sees("\n> ")

    def ends(self) -> tuple[int, str]:
        """How it ended, and what was shown until then."""
        code = self.process.wait(SECONDS)
        with contextlib.suppress(OSError):  # the terminal has gone: everything was read
            while chunk := os.read(self._ours, 65536):
                self._unread += chunk.decode("utf-8", "replace")
        return code, self._unread

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def own_terminal() -> None:
    """Ctrl-C is for those in the foreground of a terminal of their own."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def typing(folder: Path, *lines: Mapping[str, Any]) -> Iterator[Typist]:
    typist = Typist(folder, flags(folder, *lines))
    try:
        typist.prompted()
        yield typist
    finally:
        typist.close()


def test_a_turn_knows_what_was_said_before_and_is_a_run_of_its_own(tmp_path: Path) -> None:
    lines = [*told("First.", {"text": "One."}), *told("And the next?", {"text": "Two."})]
    done = piped(tmp_path, flags(tmp_path, *lines), "First.\n\nAnd the next?")
    assert (done.code, done.out) == (0, "One.\nTwo.\n")
    assert "\x1b" not in done.out + done.err
    found = orchestrator("runs", "--json", folder=tmp_path).json
    assert [each["task"] for each in found] == ["And the next?", "First."]
    assert prompts(tmp_path, found[1]["run_id"])[-1]["content"] == "First."
    content = prompts(tmp_path)[-1]["content"]
    assert json.loads(content.split("\n")[1]) == {"user": "First.", "you": "One."}
    assert content.endswith("[Now]\nAnd the next?")


OFF = "from orchestrator.memory import pins\npins.constraints = lambda text: []\n"
TALK = "Tell me of the shelf. " + "It holds boxes of paper and some old lamps. " * 90


@pytest.mark.requirement("D1")
@pytest.mark.parametrize("constraint", ["Never name a customer.", "不要包含退款。"])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_constraint_of_the_first_turn_holds_when_that_turn_is_not_shown_any_more(
    tmp_path: Path, constraint: str, pinned: bool
) -> None:
    """The model obeys only what it sees; six long turns later it says whether it still sees it."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        asked = body["messages"][-1]["content"]
        if not asked.endswith("Now?"):
            return {"text": "It is a shelf. " * 150}
        return {"text": "obeyed" if constraint.rstrip(".。") in asked else "lost"}

    write_cards(tmp_path, lone="")
    arguments = ["chat", "--agent", "lone", "--agents", "cards", "--model", "openai:loop"]
    main = f"{'' if pinned else OFF}import sys\nfrom orchestrator.__main__ import main\nsys.exit(main())"
    with model_server(answer) as server:
        done = subprocess.run(
            [sys.executable, "-c", main, *arguments],
            cwd=tmp_path,
            env=environment(tmp_path / "home", server.env),
            input="\n".join([f"We talk of orders. {constraint}", *[TALK] * 6, "Now?"]),
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
    assert done.returncode == 0, done.stderr
    assert "We talk of orders" not in server.seen[-1]["messages"][-1]["content"]
    assert done.stdout.splitlines()[-1] == ("obeyed" if pinned else "lost")


def test_what_failed_is_told_to_later_turns_and_ends_nothing(tmp_path: Path) -> None:
    lines = told("And then?", {"text": "Fine."})
    done = piped(tmp_path, flags(tmp_path, *lines), "This has no reply.\nAnd then?\n")
    assert (done.code, done.out) == (0, "Fine.\n")
    assert '"[failed: error]' in prompts(tmp_path)[-1]["content"]


def test_commands_show_what_there_is(tmp_path: Path) -> None:
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    lines = told("Look.", {"calls": [call("fx__look", text="a")]}, {"text": "Seen."})
    text = "/replay\n/tools\n/agents\nLook.\n/cost\n/replay\n/relpay\n/etc/hosts?\n/exit\nnever said\n"
    done = piped(tmp_path, flags(tmp_path, *lines, *told("/etc/hosts?", {"text": "A file."})), text)
    assert done.code == 0
    assert "nothing ran yet" in done.err
    assert re.search(r"^fx__pay  write  \w", done.out, re.MULTILINE)
    assert re.search(r"^\* lone  The lone\.$", done.out, re.MULTILINE)
    assert re.search(r"^1 runs · [\d,]+ \+ \d+ tokens · 2 model calls · 1 tool calls · cost unknown$", done.out, re.M)
    assert re.search(r"^lone \(.*\): Look\.$", done.out, re.MULTILINE), "the run again"
    assert "there is no /relpay. Did you mean `/replay`?" in done.err
    assert done.out.endswith("A file.\n"), "a path is no command, and nothing is read after /exit"


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--agent", "nobody"], "there is no agent `nobody`"), (["--role", "chief"], "there is no role `chief`")],
)
def test_what_is_wrong_ends_a_chat_that_nobody_sits_at(tmp_path: Path, more: list[str], said: str) -> None:
    done = piped(tmp_path, [*flags(tmp_path, *told("First.", {"text": "One."})), *more], "First.\n")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.requirement("E5")
def test_cards_and_servers_that_were_changed_count_from_the_next_turn_on(tmp_path: Path) -> None:
    lines = [
        *told("First.", {"text": "One."}),
        *told("Second one.", {"text": "Two."}),
        *told("The third of them.", {"calls": [call("fx__look", text="a")]}, {"text": "Seen."}),
    ]
    with typing(tmp_path, *lines) as typist:
        card = tmp_path / "cards" / "lone.md"
        typist.type("First.\r")
        assert "One." in typist.prompted()
        good = card.read_text()
        card.write_text("---\nname: lone\ntols: []\n---\nYou are lone.\n")
        typist.type("Second one.\r")
        shown = typist.prompted()
        assert "unknown key `tols`" in shown.replace("\r\n", "")
        assert "going on with the files as they were" in shown
        assert "Two." in shown
        card.write_text(good + "Be brief.\n")
        servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
        typist.type("The third of them.\r")
        assert "Seen." in typist.prompted()
        typist.type("\x04")
        assert typist.ends()[0] == 0
    system, asked = prompts(tmp_path)
    assert "Be brief." in system["content"]
    assert '"you": "Two."' in asked["content"]


def test_a_line_is_edited_and_completed(tmp_path: Path) -> None:
    with typing(tmp_path, *told("Ask lone now", {"text": "One."})) as typist:
        typist.type("/he\t\r")
        assert "/replay" in typist.prompted()
        typist.type("what was typed by mistake\x03")
        typist.prompted()
        typist.type("ask lon\tnowx\x7f\x01\x1b[3~A\r")  # completes, deletes the x, and mends the first letter
        assert "One." in typist.prompted()
        typist.type("\x1b[A\x04\x15\x04")  # the last line again, thrown away, and the end
        assert typist.ends()[0] == 0
    assert orchestrator("runs", "--json", folder=tmp_path).json[0]["task"] == "Ask lone now"


@pytest.mark.requirement("C7")
def test_a_call_is_approved_in_place(tmp_path: Path) -> None:
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    lines = told("Pay the rent.", {"text": "I pay.", "calls": [call("fx__pay", text="rent")]}, {"text": "Paid."})
    with typing(tmp_path, *lines) as typist:
        typist.type("Pay the rent.\r")
        typist.sees("approve [a]")
        typist.type("a\n")
        assert "Paid." in typist.prompted()
        typist.type("/exit\r")
        assert typist.ends()[0] == 0
    assert (tmp_path / "ledger").exists()


def test_what_nobody_can_approve_is_parked_and_goes_on_when_it_was(tmp_path: Path) -> None:
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    lines = told("Pay the rent.", {"text": "I pay.", "calls": [call("fx__pay", text="rent")]}, {"text": "Paid."})
    with subprocess.Popen(
        [str(COMMAND), *flags(tmp_path, *lines)],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("Pay the rent.\n")
        process.stdin.flush()
        said = iter(process.stderr.readline, "")
        assert any("waiting for approval: t1.1  lone wants fx__pay" in line for line in said)
        assert any("/resume" in line for line in said)
        assert not (tmp_path / "ledger").exists()
        assert orchestrator("approve", "last", folder=tmp_path).code == 0
        out, _ = process.communicate("/resume\n", timeout=SECONDS)
    assert (process.returncode, out) == (0, "Paid.\n")
    assert (tmp_path / "ledger").exists()


def hanging(folder: Path) -> list[dict[str, Any]]:
    os.mkfifo(folder / "heard")
    servers(folder / ".mcp.json", awkward=plain(AWKWARD))
    slow = call("awkward__hang_once", file="seen", tell="heard")
    return [
        *told("Slow work.", {"text": "I begin.", "calls": [slow]}, {"text": "Done at last."}),
        *told("Something else.", {"text": "Sure."}),
    ]


@pytest.mark.requirement("H1")
def test_an_interrupted_run_is_not_lost(tmp_path: Path) -> None:
    with typing(tmp_path, *hanging(tmp_path)) as typist:
        typist.type("Slow work.\r")
        read_pipe(tmp_path / "heard")
        typist.type("\x03")
        shown = typist.prompted()
        assert "or go on with it here: /resume" in shown
        typist.type("Something else.\r")
        assert "Sure." in typist.prompted()
        assert "[parked: cancelled] I begin." in prompts(tmp_path)[-1]["content"]
        typist.type("/resume\r")
        assert "Done at last." in typist.prompted()
        typist.type("/resume\r")
        assert "no run of this conversation is parked" in typist.prompted()
        typist.type("\x04")
        assert typist.ends()[0] == 0
    assert [each["status"] for each in orchestrator("runs", "--json", folder=tmp_path).json] == ["finished"] * 2


@pytest.mark.parametrize("work", [True, False], ids=["while it works", "at the prompt"])
def test_a_signal_to_end_parks_what_runs_and_ends_the_chat(tmp_path: Path, work: bool) -> None:
    with typing(tmp_path, *hanging(tmp_path)) as typist:
        if work:
            typist.type("Slow work.\r")
            read_pipe(tmp_path / "heard")
        typist.process.send_signal(signal.SIGTERM)
        code, shown = typist.ends()
    assert code == 130
    assert ("is parked" in shown) == work
    assert "Traceback" not in shown
    found = orchestrator("runs", "--json", folder=tmp_path).json
    assert [each["status"] for each in found] == (["parked"] if work else [])


def test_interrupting_twice_ends_the_process_at_once(tmp_path: Path) -> None:
    with typing(tmp_path, *hanging(tmp_path)) as typist:
        typist.type("Slow work.\r")
        read_pipe(tmp_path / "heard")
        typist.process.send_signal(signal.SIGINT)
        typist.process.send_signal(signal.SIGTERM)
        code, shown = typist.ends()
    assert code == 130
    assert "Traceback" not in shown
