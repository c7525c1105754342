"""The public reference servers, in the file of a user who has them all: over real pipes, HTTP and SSE."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import foreign
from tests.support.command import Ended, call, orchestrator, record, servers
from tests.support.oauth_server import free_port

pytestmark = [pytest.mark.xdist_group("public"), pytest.mark.requirement("C2")]

TOOLS = {"everything": 15, "filesystem": 14, "memory": 9, "thinking": 1, "git": 12, "time": 2, "sqlite": 6}
"""How many each server lists to a client that declares nothing of its own."""

READY = {"streamableHttp": "listening on port", "sse": "is running on port"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository and a `.mcp.json`, such as a user has."""
    folder = tmp_path_factory.mktemp("public").resolve()
    subprocess.run(["git", "init", "--quiet", "-b", "trunk", str(folder / "repo")], check=True)
    servers(
        folder / ".mcp.json",
        everything=foreign.entry(foreign.everything),
        filesystem=foreign.entry(foreign.filesystem, folder / "repo"),
        memory=foreign.entry(foreign.memory, env={"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
        thinking=foreign.entry(foreign.thinking),
        git=foreign.entry(foreign.git, "--repository", folder / "repo"),
        time=foreign.entry(foreign.time, "--local-timezone", "UTC"),
        sqlite=foreign.entry(foreign.sqlite, "--db-path", folder / "notes.db"),
    )
    return folder


def test_every_tool_is_offered_or_left_out_with_a_reason(folder: Path) -> None:
    listed = orchestrator("tools", "--json", folder=folder)
    assert listed.code == 0, listed.err
    assert {each["name"]: each["problem"] for each in listed.json["servers"] if not each["up"]} == {}
    offered = [tool["name"] for tool in listed.json["tools"]]
    left_out = {each["name"]: each["problem"] for each in listed.json["left_out"]}
    for server, count in TOOLS.items():
        known = {name for name in [*offered, *left_out] if name.startswith(f"{server}__")}
        assert len(known) == count, sorted(known)
    assert set(left_out) <= {"everything__simulate-research-query"}, left_out
    assert all(left_out.values())


@pytest.fixture(scope="module")
def job(folder: Path) -> Ended:
    """The bundled team over that file: a supervisor, and a generalist who calls a tool of each server."""
    repo = str(folder / "repo")
    entity = {"name": "release", "entityType": "note", "observations": ["written down by an agent"]}
    thought = {"thought": "All is there.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    hand_over = call("agents__generalist", task="Write the note, remember it, and look at everything.")
    model = record(
        folder / "team.jsonl",
        {"agent": "supervisor", "calls": [hand_over]},
        {
            "agent": "generalist",
            "calls": [
                call("filesystem__write_file", path=f"{repo}/note.txt", content="The note."),
                call("memory__create_entities", entities=[entity]),
                call("sqlite__create_table", query="CREATE TABLE notes (text TEXT)"),
            ],
        },
        {
            "agent": "generalist",
            "calls": [
                call("everything__get-sum", a=17, b=25),
                call("filesystem__read_text_file", path=f"{repo}/note.txt"),
                call("memory__search_nodes", query="release"),
                call("git__git_status", repo_path=repo),
                call("time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
                call("thinking__sequentialthinking", **thought),
                call("sqlite__list_tables"),
            ],
        },
        {"agent": "generalist", "text": "The note is there."},
        {"agent": "supervisor", "text": "Done."},
    )
    mine = ("--mcp-config", folder / ".mcp.json")
    flags = ("--model", model, "--approve", "all", "--events", folder / "events.jsonl", "--json")
    return orchestrator("run", "keep the note", *mine, *flags, folder=folder)


def test_one_team_run_over_all_of_them(folder: Path, job: Ended) -> None:
    assert job.code == 0, job.err
    assert (job.json["answer"], job.json["status"]) == ("Done.", "finished")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    results = [event for event in events if event["type"] == "tool_result"]
    seen = {str(event["tool"]): event for event in results}
    assert [name for name, event in seen.items() if event["is_error"]] == []
    expected = {
        "everything__get-sum": "42",
        "filesystem__read_text_file": "The note.",
        "memory__search_nodes": "written down by an agent",
        "git__git_status": "note.txt",
        "time__convert_time": "21:00",
        "thinking__sequentialthinking": "thoughtHistoryLength",
        "sqlite__list_tables": "notes",
    }
    assert {
        name: seen[name]["observation"] for name, words in expected.items() if words not in seen[name]["observation"]
    } == {}
    assert (folder / "repo" / "note.txt").read_text("utf-8") == "The note."
    assert "written down by an agent" in (folder / "memory.jsonl").read_text("utf-8")


@pytest.fixture(scope="module")
def everything_on_the_web() -> Iterator[dict[str, Any]]:
    """`server-everything` over streamable HTTP and over SSE: entries of a file of servers, by their names."""
    program = foreign.entry(foreign.everything)
    ports = {kind: free_port() for kind in READY}
    running = {
        kind: subprocess.Popen(
            [program["command"], *program["args"], kind],
            env={**os.environ, "PORT": str(ports[kind])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for kind in READY
    }
    try:
        for kind, process in running.items():
            assert process.stderr is not None
            assert any(READY[kind] in line for line in process.stderr), f"{kind} did not come up"
        yield {
            "web": {"url": f"http://127.0.0.1:{ports['streamableHttp']}/mcp"},
            "old": {"type": "sse", "url": f"http://127.0.0.1:{ports['sse']}/sse"},
        }
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def test_everything_over_http_and_sse(tmp_path: Path, everything_on_the_web: dict[str, Any]) -> None:
    servers(tmp_path / ".mcp.json", **everything_on_the_web)
    long = "trigger-long-running-operation"
    lines = [
        call(f"{name}__{tool}", **arguments)
        for name in everything_on_the_web
        for tool, arguments in (("echo", {"message": f"over {name}"}), (long, {"duration": 0.2, "steps": 2}))
    ]
    model = record(
        tmp_path / "r.jsonl", {"agent": "generalist", "calls": lines}, {"agent": "generalist", "text": "Heard."}
    )
    ended = orchestrator("run", "echo", "--agent", "generalist", "--model", model, "--json", folder=tmp_path)
    assert ended.code == 0, ended.err
    texts = {each["tool"]: each["observation"] for each in ended.json["steps"][0]["actions"]}
    assert texts["web__echo"] == "Echo: over web"
    assert texts["old__echo"] == "Echo: over old"
    for name in everything_on_the_web:
        assert texts[f"{name}__{long}"].startswith("Long running operation completed"), texts
