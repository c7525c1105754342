"""A run goes on with another model when its own fails for good: by real HTTP, with another vendor's wire."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models.rules import broken_for_anthropic
from tests.support.command import EFFECTS, Ended, call, end, orchestrator, servers, start, write_cards
from tests.support.model_server import Reply, model_server, turn_of

LOOK = {"text": "Let me look.", "calls": [call("fx__look", text="a")]}
ANSWER = {"text": "beta says so"}
DOWN = {"status": 503, "error": "overloaded", "headers": {"Retry-After": "0"}}
REFUSALS: dict[str, Reply] = {
    "authentication": {"status": 401, "error": "wrong key"},
    "not_found": {"status": 404, "error": "no such model"},
    "overloaded": DOWN,
    "rate_limit": {"status": 429, "error": "slow down", "headers": {"Retry-After": "0"}},
    "context_overflow": {"status": 400, "error": "maximum context length exceeded"},
}
TOML = """
model = "first"

[models.first]
model = "alpha"
base_url = "{url}"
fallback = ["second"]
prices = {{ input = 1, output = 1 }}

[models.second]
provider = "anthropic"
model = "beta"
base_url = "{url}"
api_key_env = "ANTHROPIC_API_KEY"
prices = {{ input = 1000, output = 1000 }}

[policy]
allow = ["fx__look"]
"""


def stage(folder: Path, url: str, toml: str = TOML, **cards: str) -> tuple[object, ...]:
    """The files of a run whose first model is `alpha`, at OpenAI's wire, and its second `beta`, at Anthropic's."""
    (folder / "orchestrator.toml").write_text(toml.format(url=url))
    fx = {"command": sys.executable, "args": ["-S", str(EFFECTS), str(folder / "ledger")]}
    servers(folder / ".mcp.json", fx=fx)
    return "--agents", write_cards(folder, **(cards or {"lone": "tools: fx__*"}))


def asked(model: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [body for body in requests if body["model"] == model]


def failing_at(turn: int, refusal: Reply, first: Reply = LOOK) -> Callable[[dict[str, Any]], Reply]:
    """`alpha` works until this turn, and fails from then on; `beta` answers."""

    def answer(body: dict[str, Any]) -> Reply:
        if body["model"] == "beta":
            return ANSWER
        return first if turn_of(body) < turn else refusal

    return answer


def events(folder: Path, ended: Ended, agent: str = "lone") -> list[dict[str, Any]]:
    """The run's lines in the log, which has one for each event of the journal."""
    (log,) = (folder / "home/logs").glob("*.jsonl")
    lines = map(json.loads, log.read_text().splitlines())
    return [line for line in lines if line.get("agent") == agent and line.get("trace_id") == ended.json["trace_id"]]


@pytest.mark.requirement("B3")
@pytest.mark.parametrize("kind", REFUSALS)
def test_a_run_goes_on_with_the_next_model_in_the_middle(tmp_path: Path, kind: str) -> None:
    with model_server(failing_at(2, REFUSALS[kind])) as server:
        files = stage(tmp_path, server.url)
        ended = orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
        assert (ended.code, ended.json["answer"]) == (0, "beta says so"), ended.err
    retried = kind in ("overloaded", "rate_limit")
    assert len(asked("alpha", server.seen)) == (4 if retried else 2), "one that may pass is tried again first"
    (request,) = asked("beta", server.seen)
    assert broken_for_anthropic(request) is None
    assert [block["type"] for block in request["messages"][1]["content"]] == ["text", "tool_use"]
    assert "goes on with model beta in place of alpha" in ended.err

    # What the first cost is at its price, what the second cost at its own.
    assert ended.json["cost"] == {"amount": pytest.approx(110e-6 + 110_000e-6), "currency": "USD", "known": True}
    (changed,) = [line for line in events(tmp_path, ended) if line["event"] == "model.changed"]
    assert (changed["model"], changed["previous"], changed["reason"]) == ("beta", "alpha", kind)


@pytest.mark.requirement("B3")
def test_a_request_that_every_model_would_refuse_is_put_to_no_other(tmp_path: Path) -> None:
    with model_server(failing_at(1, {"status": 400, "error": "messages.1: something is wrong"})) as server:
        files = stage(tmp_path, server.url)
        ended = orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
    assert (ended.code, ended.json["status"]) == (1, "failed")
    assert not asked("beta", server.seen)


@pytest.mark.requirement("B3")
def test_each_model_is_tried_as_often_as_the_first(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return ANSWER if len(asked("beta", server.seen)) == 3 else DOWN

    with model_server(answer) as server:
        files = stage(tmp_path, server.url)
        ended = orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
    assert (ended.code, ended.json["answer"]) == (0, "beta says so"), ended.err
    assert [body["model"] for body in server.seen] == ["alpha"] * 3 + ["beta"] * 3


@pytest.mark.requirement("B3", "H1")
@pytest.mark.parametrize("after", ["the change", "a turn with it"])
def test_after_a_kill_the_run_stays_with_the_model_it_changed_to(tmp_path: Path, after: str) -> None:
    process = None
    dying = 1 if after == "the change" else 2

    def answer(body: dict[str, Any]) -> Reply:
        if body["model"] == "alpha":
            return LOOK if turn_of(body) == 1 else REFUSALS["authentication"]
        if process is not None and process.returncode is None and len(asked("beta", server.seen)) == dying:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        return {"calls": [call("fx__look", text="b")]} if turn_of(body) == 2 else ANSWER

    with model_server(answer) as server:
        files = stage(tmp_path, server.url)
        process = start("run", "go", "--agent", "lone", *files, folder=tmp_path, env=server.env)
        assert end(process).code == -signal.SIGKILL
        before = len(server.seen)
        ended = orchestrator("resume", "last", "--json", folder=tmp_path, env=server.env)
        assert (ended.code, ended.json["answer"]) == (0, "beta says so"), ended.err
    assert not asked("alpha", server.seen[before:])
    assert server.raw[before] == server.raw[before - 1], "the next request is the same, byte for byte"


@pytest.mark.requirement("B3", "E2")
def test_an_agent_that_was_called_changes_its_model_alone_and_keeps_it_while_parked(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        child = "You are kid" in json.dumps(body["messages"][0])
        if child and body["model"] == "alpha":
            return REFUSALS["authentication"]
        if child:
            return {"calls": [call("fx__pay", text="rent")]} if turn_of(body) == 1 else {"text": "paid"}
        return {"calls": [call("agents__kid", task="pay")]} if turn_of(body) == 1 else {"text": "it is paid"}

    cards = {"lone": "agents: [kid]\ntools: []", "kid": "tools: fx__*"}
    with model_server(answer) as server:
        files = stage(tmp_path, server.url, **cards)
        parked = orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
        assert parked.code == 4, parked.err
        before = len(server.seen)
        done = orchestrator("approve", parked.json["run_id"], "--all", folder=tmp_path, env=server.env)
        assert done.code == 0, done.err
        ended = orchestrator("resume", "last", "--json", folder=tmp_path, env=server.env)
        assert (ended.code, ended.json["answer"]) == (0, "it is paid"), ended.err
    assert [body["model"] for body in server.seen[:before]] == ["alpha", "alpha", "beta"]
    assert [body["model"] for body in server.seen[before:]] == ["beta", "alpha"], "its caller has a model of its own"


@pytest.mark.requirement("B3", "F3", "F6")
def test_what_is_told_of_a_run_names_the_model_in_use(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return DOWN if len(asked("beta", server.seen)) == 1 else failing_at(2, REFUSALS["not_found"])(body)

    with model_server(answer) as server:
        files = stage(tmp_path, server.url)
        orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
        told = orchestrator("replay", "last", "--prompts", "--json", folder=tmp_path, env=server.env).json
        audit = orchestrator("runs", "audit", "--run", "last", "--json", folder=tmp_path, env=server.env)
    bodies = [json.loads(turn["request"]) for turn in told["turns"]]
    assert [body["model"] for body in bodies] == ["alpha", "beta"]
    assert all(turn["request_checked"] for turn in told["turns"])
    assert told["turns"][1]["request"].encode() == server.raw[-1]
    assert any("goes on with model beta" in note["text"] for note in told["notes"])
    models = [(each["what"], each["outcome"]) for each in audit.json["records"] if each["kind"] == "model"]
    failed = [("alpha", "not_found"), ("beta", "changed"), ("beta", "overloaded")]
    assert models == [("played", "ok"), *failed, ("played", "ok")]

    spans = map(json.loads, (tmp_path / "home/traces/spans.jsonl").read_text().splitlines())
    chats = sorted(
        (span for span in spans if span["name"].startswith("chat")), key=lambda span: span["startTimeUnixNano"]
    )
    assert [span["name"] for span in chats] == ["chat alpha", "chat alpha", "chat beta"]


@pytest.mark.requirement("B3")
def test_several_models_of_a_card_are_tried_in_order_and_then_the_ones_of_all(tmp_path: Path) -> None:
    toml = TOML.replace('fallback = ["second"]\n', "").replace('"first"\n', '"first"\nfallback = ["second"]\n', 1)
    toml += '\n[models.third]\nmodel = "gamma"\nbase_url = "{url}"\n'
    with model_server(lambda body: ANSWER if body["model"] == "beta" else REFUSALS["not_found"]) as server:
        files = stage(tmp_path, server.url, toml, lone="model: [first, third]")
        ended = orchestrator("run", "go", "--agent", "lone", "--json", *files, folder=tmp_path, env=server.env)
    assert (ended.code, ended.json["answer"]) == (0, "beta says so"), ended.err
    assert [body["model"] for body in server.seen] == ["alpha", "gamma", "beta"]


@pytest.mark.requirement("B3", "A3")
def test_a_limit_on_cost_needs_the_price_of_every_model_that_may_come(tmp_path: Path) -> None:
    with model_server(lambda body: ANSWER) as server:
        files = stage(tmp_path, server.url, TOML.replace("prices = {{ input = 1000, output = 1000 }}", ""))
        command = ("run", "go", "--agent", "lone", "--max-cost", 1, *files)
        ended = orchestrator(*command, folder=tmp_path, env=server.env)
        assert ended.code == 2
        assert "'beta'" in ended.err
        wrong = TOML.replace('["second"]', '["secnd"]')
        files = stage(tmp_path, server.url, wrong)
        ended = orchestrator("run", "go", "--agent", "lone", *files, folder=tmp_path, env=server.env)
        assert ended.code == 2
        assert "fallback 'secnd'" in ended.err
        assert "second" in ended.err
    assert not server.seen


@pytest.mark.requirement("B3")
def test_doctor_shows_models_to_go_on_with(tmp_path: Path) -> None:
    with model_server(lambda body: ANSWER) as server:
        files = stage(tmp_path, server.url)
        env = {**server.env, "ANTHROPIC_API_KEY": "wrong"}
        report = orchestrator("doctor", "--json", *files, folder=tmp_path, env=env).json
        shown = orchestrator("doctor", *files, folder=tmp_path, env=env)
    (second,) = [model for model in report["models"] if model["spec"] == "second"]
    assert (second["agents"], second["reachable"]) == ([], False)
    assert "lone" in second["fallback_of"]
    assert {found["level"] for found in report["findings"] if found["about"] == "model second"} == {"warning"}
    assert "(fallback)" in shown.out
