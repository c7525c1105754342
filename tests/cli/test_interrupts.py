"""However a command ends, no process of a server stays behind; and a run that was broken off goes on later."""

import os
import signal
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import (
    AWKWARD,
    Ended,
    call,
    end,
    group_ended,
    orchestrator,
    plain,
    read_pipe,
    record,
    servers,
    start,
    write_cards,
)

pytestmark = [
    pytest.mark.xdist_group("interrupts"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
]

HANG, DONE = "awkward__hang_once", {"text": "done"}
HANGING = {"calls": [call(HANG, file="seen", tell="heard")]}
ECHOING = {"calls": [call("awkward__echo")]}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A run in a folder of its own, and whether processes of its server's group were left behind."""

    folder: Path
    ended: Ended
    left: bool

    def resumed(self) -> Ended:
        (self.folder / "pid").unlink()  # a pipe that nobody reads would hold the server
        return orchestrator("resume", "last", "--json", folder=self.folder)


def started(folder: Path, *replies: Mapping[str, Any], flags: tuple[str, ...] = ("--deaf",)) -> subprocess.Popen[str]:
    """A run over an awkward server, which says in pipes that it is up, and that it has a call it does not answer."""
    folder.mkdir()
    for pipe in ("pid", "heard"):
        os.mkfifo(folder / pipe)
    servers(folder / ".mcp.json", awkward=plain(AWKWARD, *flags, "--pid", folder / "pid"))
    agents, model = write_cards(folder, lone=""), record(folder / "r.jsonl", *replies)
    return start("run", "do it", "--agent", "lone", "--agents", agents, "--model", model, "--quiet", folder=folder)


def scene(folder: Path, process: subprocess.Popen[str], *signals: signal.Signals, called: bool = False) -> Scene:
    server = int(read_pipe(folder / "pid"))
    if called:
        read_pipe(folder / "heard")
    for number in signals:
        process.send_signal(number)
    ended = end(process, 120)
    left = not group_ended(server, 30)
    if left:
        os.killpg(server, signal.SIGKILL)
    return Scene(folder=folder, ended=ended, left=left)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    """Several at once, since most of their time is the patience with a deaf server."""
    base = tmp_path_factory.mktemp("scenes")

    def play(name: str) -> Scene:
        folder = base / name
        match name:
            case "finished":
                return scene(folder, started(folder, ECHOING, DONE))
            case "failed":
                return scene(folder, started(folder, ECHOING))
            case "killed":
                both = ("--deaf", "--child")  # neither the end of its input nor SIGTERM ends it, nor what it started
                return scene(folder, started(folder, HANGING, DONE, flags=both), signal.SIGKILL, called=True)
            case "twice":
                both = (signal.SIGINT, signal.SIGTERM)
                return scene(folder, started(folder, HANGING, DONE, flags=()), *both, called=True)
            case "early":
                return scene(folder, started(folder, DONE), signal.SIGINT)
            case "mute":
                return scene(folder, started(folder, DONE, flags=("--deaf", "--mute")), signal.SIGINT)
            case _:
                return scene(folder, started(folder, HANGING, DONE), signal.Signals[name], called=True)

    names = ["finished", "failed", "killed", "SIGINT", "SIGTERM", "twice", "early", "mute"]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(play, names), strict=True))


ENDS = {"finished": 0, "failed": 1, "killed": -9, "SIGINT": 130, "SIGTERM": 130, "early": 130, "mute": 130}


@pytest.mark.parametrize(("name", "code"), ENDS.items(), ids=list(ENDS))
def test_no_process_stays_behind(scenes: Mapping[str, Scene], name: str, code: int) -> None:
    found = scenes[name]
    assert found.ended.code == code, found.ended.err
    assert not found.left, f"the server's processes outlived a run that was {name}"
    assert "Traceback" not in found.ended.err


def test_a_second_signal_ends_the_command_at_once(scenes: Mapping[str, Scene]) -> None:
    assert scenes["twice"].ended.code == 130
    assert "Traceback" not in scenes["twice"].ended.err


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("name", ["killed", "SIGINT", "SIGTERM"])
def test_a_run_that_was_broken_off_goes_on(scenes: Mapping[str, Scene], name: str) -> None:
    before = orchestrator("runs", "--json", folder=scenes[name].folder).json[0]
    assert before["status"] == ("running" if name == "killed" else "parked")
    ended = scenes[name].resumed()
    assert ended.code == 0, ended.err
    found = ended.json
    assert (found["run_id"], found["status"], found["answer"]) == (before["run_id"], "finished", "done")
    (action,) = found["steps"][0]["actions"]
    assert (action["tool"], action["is_error"], action["observation"]) == (HANG, False, "hang_once")


def test_a_run_that_had_not_begun_leaves_no_run(scenes: Mapping[str, Scene]) -> None:
    for name in ("early", "mute"):
        assert orchestrator("runs", "--json", folder=scenes[name].folder).json == []


def test_whoever_interrupts_is_told_how_to_go_on(scenes: Mapping[str, Scene]) -> None:
    """Even with `--quiet`: it is no progress, and without the id the run is hard to find."""
    run_id = orchestrator("runs", "--json", folder=scenes["SIGINT"].folder).json[0]["run_id"]
    assert f"orchestrator resume {run_id}" in scenes["SIGINT"].ended.err


def test_a_reader_that_goes_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    process = start("agents", folder=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) in (0, 1)
    assert said == ""
