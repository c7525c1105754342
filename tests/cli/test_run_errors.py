"""What goes wrong before, during and at the limit of a run: exit codes, and words that a person can act on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import (
    AWKWARD,
    EFFECTS,
    Ended,
    call,
    orchestrator,
    plain,
    record,
    servers,
    write_cards,
)
from tests.support.model_server import ModelServer, model_server, turn_of

Prepare = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """What the user got wrong, and the words that have to be in what they are told."""

    flags: tuple[str, ...] = ()
    says: tuple[str, ...]
    task: str = "do it"
    prepare: Prepare = lambda folder: None
    model: bool = True
    agent: str = "lone"
    env: Mapping[str, str] = field(default_factory=dict)


def broken_json(folder: Path) -> None:
    (folder / ".mcp.json").write_text('{\n  "mcpServers": {\n    "one": {"command": "x",,}\n  }\n}\n')


def no_server(folder: Path) -> None:
    servers(folder / ".mcp.json", gone={"command": "/nowhere/at-all"}, fx=plain(EFFECTS, folder / "ledger"))


MISTAKES = {
    "no model": Mistake(model=False, says=("no model is configured", "OPENAI_API_KEY", "--model ollama:", "make demo")),
    "no key": Mistake(model=False, flags=("--model", "openai:gpt-5"), says=("openai:gpt-5", "OPENAI_API_KEY")),
    "unknown model": Mistake(model=False, flags=("--model", "opnai:x"), says=("`openai`", "scripted:FILE")),
    "no recording": Mistake(model=False, flags=("--model", "scripted:gone.jsonl"), says=("gone.jsonl",)),
    "unknown agent": Mistake(agent="alone", says=("there is no agent `alone`", "Did you mean `lone`?")),
    "broken .mcp.json": Mistake(prepare=broken_json, says=(".mcp.json:3:28: ",)),
    "no --mcp-config": Mistake(flags=("--mcp-config", "gone.json"), says=("gone.json",)),
    "no --config": Mistake(flags=("--config", "gone.toml"), says=("gone.toml",)),
    "no --agents": Mistake(flags=("--agents", "gone"), says=("gone: there is no such folder of agents",)),
    "no --workspace": Mistake(flags=("--workspace", "gone"), says=("--workspace: there is no folder gone",)),
    "empty task": Mistake(task=" \n", says=("the task is empty",)),
    "no steps": Mistake(flags=("--max-steps", "0"), says=("--max-steps", "'0' is not a positive number")),
    "half a step": Mistake(flags=("--max-steps", "1.5"), says=("--max-steps", "'1.5'")),
    "endless": Mistake(flags=("--timeout", "inf"), says=("--timeout", "'inf'")),
    "no such flag": Mistake(flags=("--max-step",), says=("--max-step",)),
    "bad --events": Mistake(flags=("--events", "gone/e.jsonl"), says=("--events: gone/e.jsonl", "No such file")),
    "events and json on stdout": Mistake(flags=("--events", "-", "--json"), says=("--events - and --json",)),
    "misspelt key of a card": Mistake(
        prepare=lambda folder: write_cards(folder, lone="tols: []"), says=("lone.md:4", "`tools`")
    ),
    "misspelt agent of a card": Mistake(
        prepare=lambda folder: write_cards(folder, lone="agents: [helpr]", helper="tools: []"),
        says=("lone.md:4", "helpr", "`helper`"),
    ),
    "misspelt key in reach": Mistake(
        prepare=lambda folder: write_cards(folder, lone="agents: [helper]", helper="limts: {steps: 3}"),
        says=("helper.md:4", "`limits`"),
    ),
    "misspelt tool in reach": Mistake(
        prepare=lambda folder: (no_server(folder), write_cards(folder, lone='tools: ["fx__look", "fx__loook"]')),
        says=("lone.md:4", "fx__loook", "`fx__look`"),
    ),
    "cost without a price": Mistake(
        flags=("--max-cost", "1"), says=("a limit on cost needs a price", "prices", "[models.")
    ),
    "required server": Mistake(
        prepare=lambda folder: servers(
            folder / ".mcp.json", base=plain(AWKWARD, "--fall", orchestrator={"required": True})
        )
        and write_cards(folder, lone=""),
        says=("server `base` is required", "fatal: no database at db.example"),
    ),
}  # fmt: skip


def lone_model(folder: Path) -> str:
    return record(folder / "recording.jsonl", {"text": "done"})


def run(folder: Path, *flags: object, agent: str = "lone", task: str = "do it", **more: Any) -> Ended:
    return orchestrator("run", task, "--agent", agent, *flags, folder=folder, **more)


def assert_plain(ended: Ended) -> None:
    assert "Traceback" not in ended.err
    assert "Error(" not in ended.err
    assert "ExceptionGroup" not in ended.err


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
def test_what_the_user_has_to_mend_is_exit_2(tmp_path: Path, mistake: Mistake) -> None:
    agents = write_cards(tmp_path, lone="tools: []")
    mistake.prepare(tmp_path)
    flags = [*(["--model", lone_model(tmp_path)] if mistake.model else []), "--agents", agents, *mistake.flags]
    ended = run(tmp_path, *flags, agent=mistake.agent, task=mistake.task, env=mistake.env)
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert_plain(ended)
    for words in mistake.says:
        assert words in ended.err


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    broken_json(tmp_path)
    (tmp_path / "orchestrator.toml").write_text("[limits]\nstep = 3\n")
    ended = run(tmp_path, "--model", lone_model(tmp_path))
    assert ended.code == 2
    assert [line.split(":")[0] for line in ended.err.splitlines()] == ["error", "error"]
    assert "orchestrator.toml:2" in ended.err
    assert ".mcp.json:3:28" in ended.err


@pytest.mark.requirement("C2")
def test_a_server_that_does_not_start_is_said_once_and_the_run_goes_on(tmp_path: Path) -> None:
    no_server(tmp_path)
    agents = write_cards(tmp_path, lone="")
    model = record(tmp_path / "r.jsonl", {"calls": [call("fx__look", text="a")]}, {"text": "done"})
    ended = run(tmp_path, "--agents", agents, "--model", model, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["steps"][0]["actions"][0]["is_error"] is False
    (told,) = [line for line in ended.err.splitlines() if "gone" in line]
    assert told.startswith("warning: server `gone` is not available, going on without it:")
    assert "No such file" in told
    assert_plain(ended)


def test_what_configuration_says_without_effect_is_said(tmp_path: Path) -> None:
    servers(tmp_path / ".mcp.json", tables=plain(EFFECTS, tmp_path / "ledger"))
    agents = write_cards(tmp_path, analyst="tools: []")
    model = record(tmp_path / "r.jsonl", {"agent": "analyst", "text": "done"})
    ended = run(tmp_path, "--agents", agents, "--model", model, agent="analyst")
    assert ended.code == 0, ended.err
    assert ended.err.count("takes the place of the bundled one") == 2
    assert "warning: " in ended.err


def served(folder: Path, answer: Callable[[dict[str, Any]], Any], *flags: object) -> tuple[Ended, ModelServer]:
    agents = write_cards(folder, lone="")
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
    with model_server(answer) as server:
        ended = run(folder, "--agents", agents, "--model", "openai:m", *flags, env=server.env)
    assert_plain(ended)
    return ended, server


@pytest.mark.requirement("B3")
def test_a_wrong_key_is_exit_1_at_once(tmp_path: Path) -> None:
    ended, server = served(tmp_path, lambda body: {"status": 401, "error": "Incorrect API key provided"})
    assert (ended.code, ended.out) == (1, "")
    assert len(server.seen) == 1
    assert "Incorrect API key provided" in ended.err
    assert "OPENAI_API_KEY" in ended.err
    assert "sk-loopback" not in ended.err


@pytest.mark.requirement("B3")
def test_a_server_that_keeps_failing_is_exit_1_after_three_tries(tmp_path: Path) -> None:
    busy = {"status": 500, "error": "the engine is on fire", "headers": {"Retry-After": "0"}}
    ended, server = served(tmp_path, lambda body: busy, "--json")
    assert ended.code == 1
    assert len(server.seen) == 3
    found = ended.json
    assert (found["status"], found["stop_reason"]) == ("failed", "error")
    assert "the engine is on fire" in found["answer"]
    assert "500" in found["answer"]
    assert found["usage"]["model_calls"] == 0


def test_nobody_listens_where_the_model_should_be(tmp_path: Path) -> None:
    agents = write_cards(tmp_path, lone="tools: []")
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "k"}
    ended = run(tmp_path, "--agents", agents, "--model", "openai:m", "--timeout", "20", env=env)
    assert (ended.code, ended.out) == (1, "")
    assert "127.0.0.1:9" in ended.err
    assert_plain(ended)


def busybody(body: dict[str, Any]) -> dict[str, Any]:
    """Calls a tool in every turn; without tools to call, it sums up."""
    if "tools" not in body:
        return {"text": "So far: looked around."}
    return {"text": "I look on.", "calls": [call("fx__look", text=f"place {turn_of(body)}")]}


@pytest.mark.requirement("A2")
def test_a_limit_is_exit_3_with_what_was_found(tmp_path: Path) -> None:
    ended, server = served(tmp_path, busybody, "--max-steps", "2")
    assert ended.code == 3
    assert ended.out.startswith("So far: looked around.\n")
    assert "stopped (max_steps)" in ended.err
    assert [("tools" in body) for body in server.seen] == [True, True, False]


@pytest.mark.requirement("A2")
def test_a_limit_that_leaves_no_room_for_a_summary_still_says_something(tmp_path: Path) -> None:
    ended, _ = served(tmp_path, busybody, "--max-tokens", "600", "--json")
    assert ended.code == 3
    found = ended.json
    assert (found["status"], found["stop_reason"]) == ("stopped", "max_tokens")
    assert found["answer"].strip()


def test_a_request_that_the_recording_does_not_have_fails_loudly(tmp_path: Path) -> None:
    servers(tmp_path / ".mcp.json", fx=plain(EFFECTS, tmp_path / "ledger"))
    agents = write_cards(tmp_path, lone="")
    model = record(tmp_path / "r.jsonl", {"calls": [call("fx__look", text="a")]})
    ended = run(tmp_path, "--agents", agents, "--model", model)
    assert (ended.code, ended.out) == (1, "")
    assert "r.jsonl" in ended.err
    assert "turn 2" in ended.err


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, "--model", lone_model(tmp_path), env={"ORCHESTRATOR_HOME": "/dev/null/home"}, agent="analyst")
    assert (ended.code, ended.out) == (1, "")
    assert "/dev/null/home" in ended.err
    assert_plain(ended)


def test_unknown_runs(tmp_path: Path) -> None:
    for arguments, says in (
        (("runs", "show", "nothing"), "there is no run 'nothing'"),
        (("runs", "show", "last"), "there are no runs yet"),
        (("runs", "show"), "`runs show` needs a run's id"),
        (("resume", "nothing"), "there is no run 'nothing'"),
    ):
        ended = orchestrator(*arguments, folder=tmp_path)
        assert (ended.code, ended.out) == (2, "")
        assert says in ended.err
    empty = orchestrator("runs", "--json", folder=tmp_path)
    assert (empty.code, empty.json) == (0, [])
