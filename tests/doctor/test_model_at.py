"""`make demo MODEL=URL`: the model of a server is found, tried out, and configured."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.doctor.test_probe import Answer, blurting, capable
from tests.support.command import ROOT, environment
from tests.support.model_server import model_server

pytestmark = pytest.mark.requirement("B4")


def asked(folder: Path, url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, ROOT / "examples" / "model_at.py", url, folder / "orchestrator.toml"]
    env = environment(folder / "home")
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=90)


@pytest.mark.parametrize(("answer", "mode", "weak"), [(capable, "tools", False), (blurting, "json", True)])
def test_its_table_says_how_it_acts_best(tmp_path: Path, answer: Answer, mode: str, weak: bool) -> None:
    with model_server(answer) as server:
        server.key = ""
        done = asked(tmp_path, server.url + "/")
        assert done.returncode == 0, done.stderr
        table = tomllib.loads((tmp_path / "orchestrator.toml").read_text())["models"]["demo"]
        assert (table["base_url"], table["mode"], table["weak"]) == (server.url, mode, weak)


def test_a_wrong_url_is_told_in_a_line(tmp_path: Path) -> None:
    done = asked(tmp_path, "http://127.0.0.1:9/v1")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "http://127.0.0.1:9/v1/models does not list a model" in done.stderr
