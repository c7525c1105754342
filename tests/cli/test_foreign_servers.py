"""Servers of other people, as they are: what they offer under which names, and that agents can call them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import foreign
from tests.support.command import EFFECTS, Ended, call, orchestrator, plain, record, servers

pytestmark = [pytest.mark.xdist_group("foreign"), pytest.mark.requirement("C2")]

GIT_READS = ["git_branch", "git_diff", "git_diff_staged", "git_diff_unstaged", "git_log", "git_show", "git_status"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with a file of servers such as a user has."""
    folder = tmp_path_factory.mktemp("foreign")
    subprocess.run(["git", "init", "--quiet", "-b", "trunk", str(folder / "repo")], check=True)
    (folder / "repo" / "new.txt").write_text("new")
    git = foreign.entry(foreign.git, "--repository", folder / "repo")
    entries = {"everything": foreign.entry(foreign.everything), "git": git, "gone": {"command": "/nowhere/at-all"}}
    servers(folder / "mine.json", **entries)
    return folder


@pytest.fixture(scope="module")
def listed(folder: Path) -> Ended:
    return orchestrator("tools", "--mcp-config", "mine.json", "--json", folder=folder)


def tools_of(listed: Ended, server: str) -> dict[str, Any]:
    return {tool["tool"]: tool for tool in listed.json["tools"] if tool["server"] == server}


def test_the_form(listed: Ended) -> None:
    assert listed.code == 0, listed.err
    assert list(listed.json) == ["servers", "tools", "left_out"]
    assert all(list(each) == ["name", "up", "problem", "tools", "bundled"] for each in listed.json["servers"])
    keys = ["name", "server", "tool", "title", "description", "effect", "input_schema"]
    assert all(list(each) == keys for each in listed.json["tools"])


def test_every_server_is_listed_and_one_that_is_down_says_why(listed: Ended) -> None:
    found = {each["name"]: each for each in listed.json["servers"]}
    assert list(found)[:3] == ["everything", "git", "gone"]
    assert {"charts", "tables"} <= {name for name, each in found.items() if each["bundled"]}
    assert [name for name, each in found.items() if not each["up"]] == ["gone"]
    assert "No such file" in found["gone"]["problem"]
    assert (found["everything"]["tools"], found["git"]["tools"], found["gone"]["tools"]) == (14, 12, 0)


@pytest.mark.requirement("C3")
def test_the_names_that_models_see(listed: Ended) -> None:
    everything = tools_of(listed, "everything")
    assert len(everything) == 14
    left_out = {each["name"]: each["problem"] for each in listed.json["left_out"]}
    assert "only as a task" in left_out["everything__simulate-research-query"]
    assert everything["get-sum"]["name"] == "everything__get-sum"
    assert everything["echo"]["name"] == "everything__echo"
    assert tools_of(listed, "git")["git_status"]["name"] == "git__git_status"
    names = [tool["name"] for tool in listed.json["tools"]]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)


def test_schemas_are_the_servers_own(listed: Ended) -> None:
    echo = tools_of(listed, "everything")["echo"]
    assert echo["input_schema"]["required"] == ["message"]
    assert echo["description"]


def test_effects_are_what_the_servers_declare(listed: Ended) -> None:
    git = tools_of(listed, "git")
    assert sorted(name for name, tool in git.items() if tool["effect"] == "read") == GIT_READS
    assert git["git_commit"]["effect"] == "write"
    assert git["git_add"]["effect"] == "idempotent"
    assert tools_of(listed, "everything")["echo"]["effect"] == "read"


def test_the_list_for_people(folder: Path) -> None:
    servers(folder / "small.json", fx=plain(EFFECTS, folder / "ledger"), gone={"command": "/nowhere/at-all"})
    ended = orchestrator("tools", "--mcp-config", "small.json", folder=folder)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].startswith("fx: ")
    assert lines[0].endswith(" tools")
    assert lines[1] == "  fx__look  read  Reads."
    assert "gone: not available: it cannot be started: [Errno 2] No such file or directory: '/nowhere/at-all'" in lines


def test_a_generalist_calls_them(folder: Path) -> None:
    """Nothing but the user's file of servers: the bundled agent has all of their tools."""
    model = record(
        folder / "r.jsonl",
        {
            "agent": "generalist",
            "calls": [
                call("everything__echo", message="hello there"),
                call("git__git_status", repo_path=str(folder / "repo")),
                call("everything__get-sum", a="17", b=25),
            ],
        },
        {"agent": "generalist", "text": "both answered"},
    )
    common = ("--mcp-config", "mine.json", "--model", model, "--json")
    ended = orchestrator("run", "look around", "--agent", "generalist", *common, folder=folder)
    assert ended.code == 0, ended.err
    echo, status, total = ended.json["steps"][0]["actions"]
    assert [action["is_error"] for action in (echo, status, total)] == [False, False, False]
    assert echo["observation"] == "Echo: hello there"
    assert "new.txt" in status["observation"]
    assert "trunk" in status["observation"]
    assert "42" in total["observation"]
    assert ended.err.count("`gone`") == 1
