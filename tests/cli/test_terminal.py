"""What a person sees: the command in a real terminal of 80 columns, drawn by tmux."""

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.cli.page import Page, columns
from tests.support.command import AWKWARD, COMMAND, EFFECTS, call, environment, plain, record, servers, write_cards

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not on PATH")

Screen = Callable[..., list[str]]


def tmux(socket: Path, *arguments: str) -> str:
    done = subprocess.run(["tmux", "-S", str(socket), "-f", "/dev/null", *arguments], capture_output=True, timeout=60)
    return done.stdout.decode()


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """Runs the command to its end in a terminal; gives the lines that stand there then."""
    socket = tmp_path / "s"

    def show(*arguments: str, env: Mapping[str, str] = {}, styled: bool = False) -> list[str]:
        names = environment(tmp_path / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **env})
        (tmp_path / "go.sh").write_text(
            f"cd {shlex.quote(str(tmp_path))}\n{shlex.join([str(COMMAND), *arguments])}\necho code=$?\n"
            f"tmux -S {shlex.quote(str(socket))} wait-for -S done\nread forever\n"
        )
        clean = ["env", "-i", *(f"{name}={value}" for name, value in names.items() if name not in ("COLUMNS", "LINES"))]
        line = shlex.join([*clean, "bash", str(tmp_path / "go.sh")])
        tmux(socket, "-u", "new-session", "-d", "-x", "80", "-y", "50", line)
        tmux(socket, "wait-for", "done")
        drawn = tmux(socket, "capture-pane", "-p", *(["-e"] if styled else []))
        return drawn.rstrip("\n").split("\n")

    yield show
    tmux(socket, "kill-server")


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    """A run with a long argument, a failing call and a server that does not start."""
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"), gone={"command": "/nowhere/at-all"})
    agents = write_cards(tmp_path, lone="")
    calls = [call("fx__look", text="a long way " * 20), call("fx__fail", text="it")]
    model = record(tmp_path / "r.jsonl", {"text": "I look.", "calls": calls}, {"text": "The answer,\nin two lines."})
    return ["run", "do it", "--agent", "lone", "--agents", str(agents), "--model", model]


def test_a_run_in_a_terminal(screen: Screen, job: list[str]) -> None:
    lines = screen(*job)
    assert lines[0].startswith("warning: server `gone` is not available, going on without it:")
    look, fail, *rest = lines[next(n for n, line in enumerate(lines) if line.startswith("lone →")) :]
    assert look.startswith('lone → fx__look text="a long way a long way')
    assert (len(look), look[-1]) == (80, "…"), "a line of progress takes one line"
    assert fail == 'lone → fx__fail text="it"'
    assert sorted(line[:14] for line in rest[:2]) == ["lone ✓ fx__loo", "lone ✗ fx__fai"]
    assert rest[2:5] == ["lone answered", "The answer,", "in two lines."]
    assert "2 model calls" in rest[5]
    assert rest[-2].startswith("run ")
    assert len(rest[-2].split(" · trace ")[1]) == 32, "no id is broken by the edge of the terminal"
    assert rest[-1] == "code=0"
    assert not [line for line in lines if "tokens  " in line], "the moving line is gone"


def test_no_colour_where_it_is_not_wanted(screen: Screen, job: list[str]) -> None:
    plain_text = "\n".join(screen(*job, env={"NO_COLOR": "1"}, styled=True))
    assert "answered" in plain_text
    assert "\x1b[3" not in plain_text


def test_colour_tells_agents_apart(screen: Screen, job: list[str]) -> None:
    assert [line for line in screen(*job, styled=True) if line.startswith("\x1b[3") and "lone" in line]


def test_errors_before_the_run(screen: Screen) -> None:
    assert screen("run", "x", "--agent", "nobody", "--model", "scripted:gone.jsonl")[-1] == "code=2"


def test_module_and_script_are_the_same_command() -> None:
    for command in ([str(COMMAND)], [sys.executable, "-m", "orchestrator"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("orchestrator ")


def answered(folder: Path, keys: bytes) -> tuple[int, str]:
    """Types `keys` at the question of a run that wants to write; its exit code and all that stood on the screen."""
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    agents = write_cards(folder, lone="")
    model = record(folder / "r.jsonl", {"text": "I pay.", "calls": [call("fx__pay", text="rent")]}, {"text": "Paid."})
    command = [str(COMMAND), "run", "do it", "--agent", "lone", "--agents", str(agents), "--model", model]
    ours, theirs = pty.openpty()
    names = environment(folder / "home", {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"})
    process = subprocess.Popen(
        command, cwd=folder, env=names, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    while b"approve [a]" not in seen:
        seen += os.read(ours, 4096)
    if keys == b"interrupt":
        process.send_signal(signal.SIGINT)
    else:
        os.write(ours, keys)
    with contextlib.suppress(OSError):  # the terminal has gone: everything was read
        while chunk := os.read(ours, 4096):
            seen += chunk
    os.close(ours)
    return process.wait(60), seen.decode()


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    ("keys", "code", "paid"),
    [(b"a\n", 0, True), (b"d\n", 0, False), (b"abort\nd\n", 0, False), (b"interrupt", 130, False)],
    ids=["approve", "deny", "no word of ours", "interrupt"],
)
def test_a_question_at_the_terminal(tmp_path: Path, keys: bytes, code: int, paid: bool) -> None:
    ended, shown = answered(tmp_path, keys)
    assert ended == code
    assert '"text": "rent"' in shown, "the arguments are shown"
    assert (tmp_path / "ledger").exists() == paid
    assert ("orchestrator resume" in shown) == (code == 130)


def test_doctor_in_a_terminal(screen: Screen, tmp_path: Path) -> None:
    """Rows are cut between words at the terminal's width, with Chinese letters counted as two columns."""
    fall = plain(AWKWARD, "--fall")
    servers(tmp_path / ".mcp.json", 客户名单=fall, fx={"command": "${没有}", "env": {"A": "${UNSET_VARIABLE}"}})
    lines = screen("doctor", "--offline")
    assert lines[-1] == "code=2"
    wide = next(line for line in lines if "客户名单" in line)
    plainly = next(line for line in lines if line.startswith("  - fx"))
    assert columns(wide[: wide.index("stdio")]) == columns(plainly[: plainly.index("stdio")])
    start = next(n for n, line in enumerate(lines) if "UNSET_VARIABLE" in line)
    assert lines[start].startswith("  ✗ server fx: ")
    assert lines[start + 1].startswith("    "), "what goes on stands below its beginning"
    assert all(columns(line) <= 80 for line in lines)


def test_a_line_that_does_not_fit_goes_on_below_its_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Page().line("word " * 24, mark="✗ ")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("  ✗ word")
    assert len(rest) > 1
    assert all(row.startswith("    word") and len(row) <= 40 for row in rest)


def test_an_input_is_asked_for_once_and_a_secret_one_is_not_shown(tmp_path: Path) -> None:
    entry = plain(AWKWARD, "--pid", "${input:where}")
    inputs = [{"id": "where", "description": "Where to write", "password": True}]
    text = json.dumps({"servers": {"one": entry, "two": entry}, "inputs": inputs})
    (tmp_path / "mcp.json").write_text(text)
    ours, theirs = pty.openpty()
    command = [str(COMMAND), "tools", "--json"]
    env = environment(tmp_path / "home")
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        os.close(theirs)
        said = b""
        while b"where (Where to write): " not in said:
            said += os.read(ours, 1024)
        os.write(ours, f"{tmp_path}/typed-by-hand\n".encode())
        out, _ = process.communicate(timeout=60)
    with contextlib.suppress(OSError):
        while more := os.read(ours, 1024):
            said += more
    os.close(ours)
    assert said.count(b"Where to write") == 1
    assert b"typed-by-hand" not in said
    assert (tmp_path / "typed-by-hand").exists()
    assert {each["name"]: each["up"] for each in json.loads(out)["servers"] if not each["bundled"]} == {
        "one": True,
        "two": True,
    }
