"""`doctor --probe`: models behind real HTTP that act well, badly or not at all, through the command line."""

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import COMMAND, Ended, environment, orchestrator
from tests.support.model_server import model_server

KEY = {"TRIAL_KEY": "sk-loopback"}
BEFORE = '# mine\nmodel = "m"\n\n[models.m]  # a table\n'
AFTER = "temperature = 0.1  # kept\nweak = true  # was\n\n[limits]\nsteps = 3\n"
DONE = {"price": "41 and 96", "stock": "17", "order": "K208"}


def wish(body: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    task = next(each["content"] for each in body["messages"] if each["role"] == "user")
    if "stock" in task:
        return "shop__stock", {"item": "chair", "city": "Leeds"}
    if "Order" in task:
        return "shop__order", {"item": "lamp", "count": 3}
    if "price" in task:
        return "shop__price", {"item": "lamp" if "lamp" in task else "desk"}
    return None


def capable(body: dict[str, Any]) -> dict[str, Any]:
    wanted, native = wish(body), "tools" in body
    acted = any(each["role"] == "assistant" for each in body["messages"])
    answer = DONE[wanted[0][6:]] if wanted else "7"
    if native:
        return {"text": answer} if acted or not wanted else {"calls": [{"name": wanted[0], "arguments": wanted[1]}]}
    name, arguments = wanted if wanted and not acted else ("final", {"answer": answer})
    if "response_format" in body:
        return {"text": json.dumps({"thought": "so", "action": name, "arguments": arguments})}
    if name == "final":
        return {"text": f"Thought: so\nFinal Answer: {answer}"}
    return {"text": f"Thought: so\nAction: {name}\nAction Input: {json.dumps(arguments)}"}


def in_text(body: dict[str, Any]) -> dict[str, Any]:
    """Its calls are text where they have a place of their own."""
    reply = capable(body)
    if "tools" in body and "calls" in reply:
        return {"text": json.dumps(reply["calls"][0])}
    return reply


def refusing(body: dict[str, Any]) -> dict[str, Any]:
    return {"status": 400, "error": "this model does not support tools"} if "tools" in body else capable(body)


def configured(folder: Path, url: str) -> Path:
    file = folder / "orchestrator.toml"
    table = f'provider = "loopback"\nbase_url = "{url}"\napi_key_env = "TRIAL_KEY"\n'
    file.write_text(BEFORE + table + AFTER)
    return file


def probed(folder: Path, url: str, *more: str, env: dict[str, str] = KEY) -> Ended:
    configured(folder, url)
    return orchestrator("doctor", "--probe", "m", *more, folder=folder, env=env)


@pytest.mark.requirement("B4")
@pytest.mark.parametrize(("answer", "mode"), [(capable, "tools"), (in_text, "json"), (refusing, "json")])
def test_the_best_way_of_acting_is_found(tmp_path: Path, answer: Any, mode: str) -> None:
    with model_server(answer) as server:
        ended = probed(tmp_path, server.url, "--json")
    assert ended.code == 0, ended.err
    found = ended.json
    assert (found["mode"], found["weak"]) == (mode, False), found
    assert found["lines"] == [f'mode = "{mode}"', "weak = false"]
    by_mode = {trial["mode"]: trial for trial in found["trials"]}
    assert by_mode[mode]["right"] == by_mode["react"]["right"] == 5, found
    assert found["requests"] > 0
    assert found["tokens"] == 110 * found["requests"]
    if answer is in_text:
        assert by_mode["tools"]["as_text"] == 4
    if answer is refusing:
        assert "no tools" in by_mode["tools"]["problem"]


def test_a_dead_server_and_a_missing_key_are_told(tmp_path: Path) -> None:
    dead = probed(tmp_path, "http://127.0.0.1:9/v1")
    assert (dead.code, "error:" in dead.err) == (1, True), dead.err
    keyless = probed(tmp_path, "http://127.0.0.1:9/v1", env={})
    assert (keyless.code, "TRIAL_KEY" in keyless.err) == (2, True), keyless.err


def test_without_a_terminal_nothing_is_written(tmp_path: Path) -> None:
    with model_server(capable) as server:
        before = configured(tmp_path, server.url).read_text()
        ended = probed(tmp_path, server.url)
    assert 'mode = "tools"\nweak = false\n' in ended.out
    assert (tmp_path / "orchestrator.toml").read_text() == before


def test_at_a_terminal_two_keys_are_written_and_all_else_stays(tmp_path: Path) -> None:
    with model_server(capable) as server:
        file = configured(tmp_path, server.url)
        before = file.read_text()
        ours, theirs = pty.openpty()
        command = [str(COMMAND), "doctor", "--probe", "m"]
        env = environment(tmp_path / "home", KEY)
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, encoding="utf-8"
        )
        os.close(theirs)
        os.write(ours, b"y\n")
        out, _ = process.communicate(timeout=90)
        os.close(ours)
    assert (process.returncode, "written:" in out) == (0, True), out
    wanted = before.replace("# a table\n", '# a table\nmode = "tools"\n').replace("weak = true  #", "weak = false  #")
    assert file.read_text() == wanted
