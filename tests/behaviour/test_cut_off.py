"""Output that ends at its limit: an answer is gone on with, a call is made again, and nothing is guessed."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Limits
from orchestrator.events import TextDeltaEvent
from orchestrator.messages import Usage
from orchestrator.models.base import ModelRequest
from orchestrator.testing import call, reply
from tests.behaviour.stage import Stage
from tests.support.command import EFFECTS, end, orchestrator, servers, start, write_cards
from tests.support.model_server import Reply, model_server, turn_of
from tests.support.runs import card

OUTPUT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
}


def cut(*parts: Any, **more: Any) -> Any:
    return reply(*parts, finish="length", **more)


def on(folder: Path, *turns: Any, **more: Any) -> Stage:
    """One agent with the tools of the effects server, and what its model answers turn by turn."""
    folder.mkdir(exist_ok=True)
    return Stage(folder, lambda request: turns[request.turn - 1], card("boss", tools=("fx__*",), **more))


@pytest.mark.requirement("B6", "B2")
def test_an_answer_that_was_cut_off_is_gone_on_with_where_it_stopped(tmp_path: Path) -> None:
    usage = Usage(input_tokens=50, output_tokens=9)
    stage = on(tmp_path, cut("One, two, thr", usage=usage), cut("ee,", usage=usage), reply(" four.", usage=usage))
    result = stage.run()
    assert (result.status, result.answer) == ("finished", "One, two, three, four.")
    deltas = [event.text for event in stage.seen.of("text_delta") if isinstance(event, TextDeltaEvent)]
    assert "".join(deltas) == result.answer
    told = stage.bodies("boss")[-1]["messages"]
    assert [message["role"] for message in told[1:]] == ["user", "assistant", "user", "assistant", "user"]
    assert [message["content"] for message in told if message["role"] == "assistant"] == ["One, two, thr", "ee,"]
    assert "Go on exactly where it stopped" in told[-1]["content"]
    assert (result.usage.model_calls, result.usage.output_tokens) == (3, 27), "each piece is counted"


@pytest.mark.requirement("B6", "A2")
def test_an_answer_without_end_is_stopped(tmp_path: Path) -> None:
    stage = on(tmp_path, *[cut(f"piece {n}, ") for n in range(1, 9)])
    result = stage.run()
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    assert result.answer.startswith("piece 1, piece 2, piece 3, piece 4, \n\n[Stopped")
    assert len(stage.requests) == 4


@pytest.mark.requirement("B6", "A3")
@pytest.mark.parametrize("limits", [Limits(model_calls=2), Limits(steps=2)], ids=["model calls", "steps"])
def test_what_there_is_of_an_answer_is_the_partial_result(tmp_path: Path, limits: Limits) -> None:
    stage = on(tmp_path, cut("One, "), cut("two, "), "three.")
    result = stage.run(limits=limits)
    assert (result.status, result.stop_reason) == ("stopped", "max_steps")
    assert result.answer.startswith("One, two, \n\n[Stopped")
    assert len(stage.requests) == 2


@pytest.mark.requirement("B6")
@pytest.mark.parametrize(
    "begun",
    [
        cut("Paying.", call("fx__pay", '{"text": "re')),
        cut('{"name": "fx__pay", "arguments": {"text": "re'),
        cut("Action: fx__pay\nAction Input: "),
        cut("<function=fx__pay>"),
    ],
    ids=["native", "as text", "without input", "without arguments"],
)
def test_a_call_that_was_cut_off_is_asked_for_again(tmp_path: Path, begun: Any) -> None:
    stage = on(tmp_path, begun, call("fx__pay", {"text": "rent"}), "paid")
    assert stage.run().answer == "paid"
    assert stage.effects == {"pay": 1}
    assert "output limit" in stage.bodies("boss")[1]["messages"][-1]["content"]


@pytest.mark.requirement("B6", "B5")
def test_a_call_in_two_pieces_is_made_once_and_is_no_answer(tmp_path: Path) -> None:
    stage = on(tmp_path, cut('I pay now. {"na'), reply('me": "fx__pay", "arguments": {"text": "rent"}}'), "paid")
    assert stage.run().answer == "paid"
    assert stage.effects == {"pay": 1}


@pytest.mark.requirement("B6")
def test_an_answer_that_holds_brackets_is_gone_on_with(tmp_path: Path) -> None:
    code = "Here it is:\n```js\nfunction f() { return {a: 1}; }\n```\n"
    assert on(tmp_path, cut(code[:32]), code[32:]).run().answer == code


@pytest.mark.requirement("B6", "B10")
def test_json_that_a_card_asks_for_is_gone_on_with_and_then_checked(tmp_path: Path) -> None:
    stage = on(tmp_path, cut('{"city": "Ri'), 'ga", "people": 600000}', output=OUTPUT)
    assert json.loads(stage.run().answer) == {"city": "Riga", "people": 600000}
    assert len(stage.requests) == 2


@pytest.mark.requirement("B6")
def test_a_reply_that_was_cut_off_before_its_first_word_is_asked_for_again_shorter(tmp_path: Path) -> None:
    stage = on(tmp_path, cut("", usage=Usage(input_tokens=9, output_tokens=4096)), "a short answer")
    assert stage.run().answer == "a short answer"
    assert "cut off at its output limit" in stage.last("boss")


@pytest.mark.requirement("B6")
def test_the_output_limit_is_4096_tokens_and_shrinks_only_for_a_budget(tmp_path: Path) -> None:
    whole = on(tmp_path / "whole", "done")
    whole.run()
    assert [request.max_output_tokens for request in whole.requests] == [4096]
    needs = len(whole.requests[0].body)  # more tokens than the input has
    scarce = on(tmp_path / "scarce", "done")
    assert scarce.run(limits=Limits(tokens=needs)).answer == "done"
    assert 256 <= scarce.requests[0].max_output_tokens < 2048
    refused = on(tmp_path / "refused", "done")
    assert refused.run(limits=Limits(tokens=256)).stop_reason == "max_tokens"
    assert not refused.requests


MODES: dict[str, list[str]] = {
    "tools": ["one two ", "three"],
    "json": [
        '{"thought": "I know.", "action": "final", "arguments": {"answer": "one two ',
        '{"thought": "", "action": "final", "arguments": {"answer": "three"}}',
    ],
    "react": ["Thought: I know.\nFinal Answer: one two ", "Final Answer: three"],
}
TOO_EARLY = {"json": '{"thought": "I wonder', "react": "Thought: I wonder"}


def ready(folder: Path, url: str, mode: str) -> tuple[object, ...]:
    (folder / "orchestrator.toml").write_text(f'model = "m"\n[models.m]\nbase_url = "{url}"\nmode = "{mode}"\n')
    fx = {"command": sys.executable, "args": ["-S", str(EFFECTS), str(folder / "ledger")]}
    servers(folder / ".mcp.json", fx=fx)
    return "--agent", "lone", "--agents", write_cards(folder, lone="tools: fx__*")


@pytest.mark.requirement("B6", "B4")
@pytest.mark.parametrize(("mode", "early"), [*((mode, False) for mode in MODES), *((mode, True) for mode in TOO_EARLY)])
def test_in_every_way_of_acting_an_answer_is_gone_on_with(tmp_path: Path, mode: str, early: bool) -> None:
    first: list[Reply] = [{"text": TOO_EARLY[mode], "finish": "length"}] if early else []
    replies = [*first, {"text": MODES[mode][0], "finish": "length"}, {"text": MODES[mode][1]}]
    with model_server(lambda body: replies[turn_of(body) - 1]) as server:
        command = ("run", "go", "--json", "--events", tmp_path / "events", *ready(tmp_path, server.url, mode))
        ended = orchestrator(*command, folder=tmp_path, env=server.env)
    assert (ended.code, ended.json["answer"]) == (0, "one two three"), ended.err
    if early:
        assert "Write the whole of it again, shorter" in server.seen[1]["messages"][-1]["content"]
    told = map(json.loads, (tmp_path / "events").read_text().splitlines())
    shown = "".join(event["text"] for event in told if event["type"] == "text_delta")
    assert shown.endswith("one two three")


@pytest.mark.requirement("B6", "H1")
def test_after_a_kill_an_answer_is_gone_on_with_by_the_same_bytes(tmp_path: Path) -> None:
    process = None

    def answer(body: dict[str, Any]) -> Reply:
        if turn_of(body) == 1:
            return {"text": "one two ", "finish": "length"}
        if process is not None and process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        return {"text": "three"}

    with model_server(answer) as server:
        process = start("run", "go", *ready(tmp_path, server.url, "tools"), folder=tmp_path, env=server.env)
        assert end(process).code == -signal.SIGKILL
        ended = orchestrator("resume", "last", "--json", folder=tmp_path, env=server.env)
    assert (ended.code, ended.json["answer"]) == (0, "one two three"), ended.err
    assert len(server.raw) == 3
    assert server.raw[2] == server.raw[1]


@pytest.mark.requirement("B6", "E2")
def test_an_agent_that_was_called_gives_its_caller_the_whole_answer(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.agent == "kid":
            return cut("one two ") if request.turn == 1 else "three"
        return call("agents__kid", {"task": "count"}) if request.turn == 1 else "done"

    stage = Stage(tmp_path, script, card("boss", agents=("kid",)), card("kid"))
    assert stage.run().answer == "done"
    assert stage.last("boss") == "one two three"
