"""`orchestrator login`: a person signs in to a server once, and later commands and runs use that."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.command import COMMAND, call, end, environment, orchestrator, plain, record, servers, start
from tests.support.oauth_server import Authority, guarded

pytestmark = pytest.mark.requirement("C2")

NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


@pytest.fixture
def sums(tmp_path: Path) -> Iterator[Authority]:
    """A server that wants a sign-in, in the user's file as any host has it."""
    with guarded() as (url, authority):
        servers(tmp_path / ".mcp.json", sums={"type": "http", "url": url}, tool=plain(Path("x.py")))
        yield authority


def browser(folder: Path) -> dict[str, str]:
    """A browser that goes wherever it is sent, and says that it was opened."""
    script = folder / "browser.py"
    script.write_text(
        f"import pathlib, sys, httpx2\npathlib.Path({str(folder / 'opened')!r}).touch()\n"
        "httpx2.get(sys.argv[1], follow_redirects=True)\n"
    )
    return {"BROWSER": f"{sys.executable} {script} %s", **NO_KEYRING}


def test_from_a_refusal_to_a_run(tmp_path: Path, sums: Authority) -> None:
    env = browser(tmp_path)
    model = record(
        tmp_path / "r.jsonl",
        {"agent": "generalist", "calls": [call("sums__add", a=2, b=3)]},
        {"agent": "generalist", "text": "5"},
    )
    job = ("run", "add", "--agent", "generalist", "--approve", "all", "--model", model, "--json")
    before = orchestrator(*job, folder=tmp_path, env=env)
    assert "`orchestrator login sums`" in before.err
    assert f"{tmp_path / '.mcp.json'}:1" in before.err

    process = start("login", "sums", folder=tmp_path, env=env)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("sign in to `sums` here: http://127.0.0.1:")
    assert "code_challenge_method=S256" in line
    page = httpx2.get(line.split()[-1], follow_redirects=True)
    assert "You can close this window." in page.text
    signed = end(process)
    assert (signed.code, signed.out) == (0, "signed in to `sums`; it has 1 tools\n"), signed.err

    ended = orchestrator(*job, folder=tmp_path, env=env)
    assert ended.code == 0, ended.err
    (action,) = ended.json["steps"][0]["actions"]
    assert (action["observation"], action["is_error"]) == ("5", False)
    assert len(sums.asked) == 1
    assert not (tmp_path / "opened").exists(), "no browser is opened where nobody is at a terminal"

    forgotten = orchestrator("login", "sums", "--forget", folder=tmp_path, env=env)
    assert (forgotten.code, forgotten.err) == (0, "the sign-in to `sums` is forgotten\n")
    again = orchestrator("login", "sums", "--forget", folder=tmp_path, env=env)
    assert (again.code, again.err) == (0, "there was no sign-in to `sums`\n")


@pytest.mark.requirement("F4", "F5")
def test_a_token_that_a_server_repeats_is_shown_nowhere(tmp_path: Path) -> None:
    with guarded(repeating=True) as (url, _):
        servers(tmp_path / ".mcp.json", sums={"type": "http", "url": url})
        token, said = repeated(tmp_path)
    assert len(token) > 20
    assert not [text for text in said if token in text]
    assert '"result":"[secret]"' in said[0]


def repeated(tmp_path: Path) -> tuple[str, list[str]]:
    """A token that a server repeats in a run, and what is said of that run: log, spans, standard error."""
    process = start("login", "sums", folder=tmp_path, env=browser(tmp_path))
    assert process.stderr is not None
    httpx2.get(process.stderr.readline().split()[-1], follow_redirects=True)
    assert end(process).code == 0
    model = record(
        tmp_path / "r.jsonl",
        {"agent": "generalist", "calls": [call("sums__repeat_token")]},
        {"agent": "generalist", "text": "done"},
    )
    capture = {**NO_KEYRING, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
    job = ("run", "who", "--agent", "generalist", "--approve", "all", "--model", model, "--json")
    ended = orchestrator(*job, folder=tmp_path, env=capture)
    assert ended.code == 0, ended.err
    token = ended.json["steps"][0]["actions"][0]["observation"]
    files = [*(tmp_path / "home/logs").iterdir(), tmp_path / "home/traces/spans.jsonl"]
    return token, [*(file.read_text() for file in files), ended.err]


def test_a_person_at_a_terminal_gets_a_browser(tmp_path: Path, sums: Authority) -> None:
    above, below = pty.openpty()
    env = environment(tmp_path / "home", browser(tmp_path))
    process = subprocess.Popen(
        [str(COMMAND), "login", "sums"], cwd=tmp_path, env=env, stdin=below, stdout=subprocess.PIPE, stderr=below
    )
    os.close(below)
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(above)
    assert out == b"signed in to `sums`; it has 1 tools\n"
    assert (tmp_path / "opened").exists()
    assert len(sums.asked) == 1


def test_what_cannot_be_signed_in_to(tmp_path: Path, sums: Authority) -> None:
    del sums
    wrong = orchestrator("login", "sum", folder=tmp_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no server `sum`. Did you mean `sums`?" in wrong.err
    program = orchestrator("login", "tool", folder=tmp_path)
    assert program.code == 2
    assert "`tool` is a program on this machine" in program.err
    servers(tmp_path / ".mcp.json", sums={"url": "http://127.0.0.1:9/mcp"})
    nobody = orchestrator("login", "sums", folder=tmp_path)
    assert nobody.code == 1
    assert "error: cannot sign in to `sums`: cannot connect to http://127.0.0.1:9/mcp" in nobody.err
    servers(tmp_path / ".mcp.json", sums={"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "${T}"}})
    given = orchestrator("login", "sums", folder=tmp_path, env={"T": "x"})
    assert given.code == 2
    assert "has an `Authorization` in its `headers`" in given.err
