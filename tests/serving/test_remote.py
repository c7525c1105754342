"""Agents of a server that calls itself an orchestrator: what it says it used is its word alone, and frees no budget."""

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Ended, call, orchestrator, record, servers, write_cards
from tests.support.model_server import model_server, turn_of
from tests.support.runs import ledger_lines

pytestmark = pytest.mark.requirement("A3", "E3", "F1")

BOASTING = Path(__file__).parents[1] / "support" / "boasting_server.py"
LIMIT, OWN = 700_000, 110
USAGE = {"input_tokens": 100, "output_tokens": 10}


def spent(tokens: Any, cost: Any = "0", **more: Any) -> dict[str, Any]:
    said = {"run": "there", "status": "finished", "stop_reason": "answered", "usage": {"input_tokens": tokens}}
    return {"orchestrator/spent": {**said, "cost": {"amount": cost}, **more}}


def build(
    folder: Path, script: Mapping[str, list[Any]], *replies: Mapping[str, Any], allow: str = "boaster__*"
) -> None:
    """One agent before the boasting server, whose agents it may call."""
    (folder / "script.json").write_text(json.dumps(script))
    arguments = [str(BOASTING), str(folder / "ledger"), str(folder / "script.json")]
    servers(folder / ".mcp.json", boaster={"command": sys.executable, "args": arguments})
    write_cards(folder, lone="tools: [boaster__*]")
    (folder / "orchestrator.toml").write_text(f'[policy]\nallow = ["{allow}"]\n')
    record(folder / "r.jsonl", *({"usage": USAGE, **reply} for reply in replies))


@contextmanager
def priced(folder: Path, script: Mapping[str, list[Any]], *replies: Mapping[str, Any]) -> Generator[None]:
    """The same with a model that is known to cost nothing, as a limit on cost needs."""
    build(folder, script, *replies)
    with (
        model_server(lambda body: replies[turn_of(body) - 1]) as server,
        (folder / "orchestrator.toml").open("a") as to,
    ):
        to.write(f'[models.free]\nbase_url = "{server.url}"\nprices = {{ input = 0, output = 0 }}\n')
        to.flush()
        yield


def run(folder: Path, *more: object, model: str = "scripted:r.jsonl") -> Ended:
    command = ["run", "the job", "--agent", "lone", "--agents", "cards", "--model", model, "--json"]
    return orchestrator(*command, *more, folder=folder)


def asked(task: str, tool: str = "agent") -> dict[str, Any]:
    return call(f"boaster__{tool}", task=task)


LIES: dict[str, Any] = {
    "negative": spent(-5_000),
    "costs less than nothing": spent(0, "-1"),
    "not a number": spent(5, "NaN"),
    "without end": spent(10**30),
    "a word": spent("many"),
    "no object": {"orchestrator/spent": 7},
    "nothing": {},
}


def test_what_cannot_be_true_counts_as_the_whole_share_and_is_said_once(tmp_path: Path) -> None:
    """What is left for the next call shows what was counted. A run that is named as ours is none of ours."""
    script = {task: [said] for task, said in LIES.items()}
    script |= {"honest": [spent(600, "0.25", run="{run}")], "refused": [{"orchestrator/unbegun": True}]}
    script |= {"then": [spent(40)]}
    first = {"calls": [asked(task) for task in (*LIES, "honest", "refused")]}
    with priced(tmp_path, script, first, {"calls": [asked("then")]}, {"text": "done"}):
        ended = run(tmp_path, "--max-tokens", LIMIT, "--max-cost", 8, model="free")
    assert ended.code == 0, ended.err
    told = {line["task"]: line["orchestrator/limits"] for line in ledger_lines(tmp_path / "ledger")}
    tokens, cost = (LIMIT - OWN) // 9, 8 / 9
    first_told = [(each["tokens"], each["cost"]) for task, each in told.items() if task != "then"]
    assert first_told == [(tokens, pytest.approx(cost, abs=1e-6))] * 9
    assert told["then"]["tokens"] == LIMIT - 2 * OWN - 7 * tokens - 600
    assert told["then"]["cost"] == pytest.approx(8 - 7 * cost - 0.25, abs=1e-5)
    assert ended.json["usage"]["input_tokens"] == 300 + 600 + 40
    assert ended.json["cost"]["amount"] == pytest.approx(0.25)
    assert ended.err.count("does not say what it used") == 1
    spans = map(json.loads, (tmp_path / "home/traces/spans.jsonl").read_bytes().splitlines())
    (facts,) = (span["attributes"] for span in spans if span["name"] == "invoke_workflow lone")
    assert (facts["orchestrator.tree.input_tokens"], facts["orchestrator.own.input_tokens"]) == (940, 300)
    assert facts["orchestrator.cost.amount"] == pytest.approx(0.25)
    shown = orchestrator("runs", "show", ended.json["run_id"], folder=tmp_path)
    assert (shown.code, shown.out.count("boaster__agent  honest done")) == (0, 1), shown.err


def test_a_total_that_shrinks_between_sittings_gives_nothing_back(tmp_path: Path) -> None:
    first = spent(900, "0.5", status="parked", stop_reason="approval")
    script = {"ask": [{"ask": True, **first}, spent(300, "0.1", run="another")], "then": [spent(0)]}
    with priced(tmp_path, script, {"calls": [asked("ask")]}, {"calls": [asked("then")]}, {"text": "done"}):
        parked = run(tmp_path, "--max-tokens", LIMIT, "--max-cost", 8, model="free")
        assert parked.code == 4, parked.err
        assert parked.json["usage"]["input_tokens"] == 100 + 900
        assert orchestrator("approve", parked.json["run_id"], folder=tmp_path).code == 0
        ended = orchestrator("resume", parked.json["run_id"], "--json", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.json["usage"]["input_tokens"] == 300 + 900
    assert ended.json["cost"]["amount"] == pytest.approx(0.5)
    then = ledger_lines(tmp_path / "ledger")[-1]["orchestrator/limits"]
    assert (then["tokens"], then["cost"]) == (LIMIT - 2 * OWN - 900, pytest.approx(7.5))


def test_more_than_its_share_counts_in_full_and_stops_the_run(tmp_path: Path) -> None:
    script = {"greedy": [spent(LIMIT)], "another": [spent(LIMIT)], "then": [spent(0)]}
    both = {"calls": [asked("greedy"), asked("another")]}
    build(tmp_path, script, both, {"calls": [asked("then")]}, {"text": "done"})
    ended = run(tmp_path, "--max-tokens", LIMIT)
    assert (ended.code, ended.json["stop_reason"]) == (3, "max_tokens"), ended.err
    assert ended.json["usage"]["input_tokens"] == 100 + 2 * LIMIT
    assert [line["task"] for line in ledger_lines(tmp_path / "ledger")] == ["greedy", "another"]
    assert ended.err.count("used more than its share") == 1


@pytest.mark.parametrize(("left", "words"), [(0, "5000 of 5000 tokens are spent"), (1, "for each of 2 calls")])
def test_a_call_that_gets_no_share_is_not_made_and_the_model_reads_why(tmp_path: Path, left: int, words: str) -> None:
    usage = {"input_tokens": 4990 - left, "output_tokens": 10}
    build(tmp_path, {"a": [spent(0)]}, {"calls": [asked("a"), asked("a")], "usage": usage}, {"text": "done"})
    ended = run(tmp_path, "--max-tokens", 5000)
    (step,) = ended.json["steps"]
    assert [words in action["observation"] for action in step["actions"]] == [True, True]
    assert ended.json["stop_reason"] == "max_tokens"
    assert not ledger_lines(tmp_path / "ledger")


def test_a_call_that_waited_for_a_person_does_not_wait_for_the_share_of_one_that_goes_on(tmp_path: Path) -> None:
    """Both go on in one sitting. The first has all that is left, and keeps it: it is not sent before the other is."""
    script = {"ask": [{"ask": True, **spent(50)}, spent(70)], "late": [spent(9)], "then": [spent(0)]}
    both = {"calls": [asked("ask"), asked("late", "other")]}
    build(tmp_path, script, both, {"calls": [asked("then")]}, {"text": "done"}, allow="boaster__agent")
    parked = run(tmp_path, "--max-tokens", LIMIT)
    assert parked.code == 4, parked.err
    for waiting in ("t1.1", "t1.2"):
        assert orchestrator("approve", parked.json["run_id"], waiting, folder=tmp_path).code == 0
    ended = orchestrator("resume", parked.json["run_id"], "--json", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert [line["task"] for line in ledger_lines(tmp_path / "ledger")] == ["ask", "ask", "then"]
    assert "it was not called" in ended.json["steps"][0]["actions"][1]["observation"]
    assert ended.json["usage"]["input_tokens"] == 300 + 70
