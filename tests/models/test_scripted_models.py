import json
from pathlib import Path

import anyio
import pytest
from playing import ECHO, ask, request

from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.messages import AssistantMessage, ToolCall, Usage, UserMessage
from orchestrator.models.base import ModelReply, ModelRequest
from orchestrator.models.scripted import RecordedModel, Recorder, ScriptedModel, call, reply

pytestmark = pytest.mark.requirement("G1")

ADD = call("demo__add", {"a": 1})


def answers(model: ScriptedModel, turn: int = 1) -> tuple[list[str], ModelReply]:
    return anyio.run(ask, model, request(model, turn=turn))


def calls(found: ModelReply) -> list[tuple[str, str, str]]:
    return [(one.id, one.name, one.arguments) for one in found.message.calls]


def test_a_function_of_the_request():
    model = ScriptedModel(lambda request: "done" if request.turn > 1 else ADD)
    assert calls(answers(model)[1]) == [("1", "demo__add", '{"a":1}')]
    deltas, last = answers(model, turn=2)
    assert len(deltas) > 1
    assert "".join(deltas) == last.message.text == "done"
    assert last.finish == "stop"


def test_an_async_function():
    async def script(request: ModelRequest) -> str:
        await anyio.lowlevel.checkpoint()
        return f"{request.agent} at {request.turn}"

    assert answers(ScriptedModel(script))[1].message.text == "tester at 1"


def test_one_answer_a_turn_and_an_error_past_the_last():
    model = ScriptedModel(["Let me add.", ADD, ADD], "It is 2.", name="demo")
    first = answers(model)[1]
    assert first.message.text == "Let me add."
    assert [one[0] for one in calls(first)] == ["1", "2"]
    assert answers(model, turn=2)[1].message.text == "It is 2."
    with pytest.raises(ModelError, match=r"'demo' has 2 answers.*'tester' asked for turn 3") as caught:
        answers(model, turn=3)
    assert caught.value.kind == "unscripted"


def test_answers_in_every_form():
    message = AssistantMessage(text="", calls=(ToolCall(id="1", name="x", arguments="{"),))
    assert answers(ScriptedModel(message))[1].message == message
    assert answers(ScriptedModel(message))[1].finish == "tool_calls"
    assert calls(answers(ScriptedModel(call("x", "{")))[1]) == [("1", "x", "{")]
    cut = answers(ScriptedModel(reply("half", finish="length", usage=Usage(input_tokens=1), extra={"r": 1})))[1]
    assert (cut.finish, cut.usage, cut.message.extra) == ("length", Usage(input_tokens=1), {"r": 1})
    assert answers(ScriptedModel(""))[0] == []
    with pytest.raises(ModelError, match="busy"):
        answers(ScriptedModel(ModelError("overloaded", "busy")))


def test_usage_is_made_up_the_same_each_time():
    model = ScriptedModel("12345678")
    usage = answers(model)[1].usage
    assert usage == answers(model)[1].usage == Usage(input_tokens=len(request(model).body) // 4, output_tokens=2)


HEADER = {"recording": 1, "source": "by hand", "model": "gpt-x", "date": "2026-01-01"}


def recording(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "sales.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    )
    return path


def play(model: RecordedModel, agent: str, turn: int = 1, task: str = "hello", tools: bool = True) -> ModelReply:
    asked = request(model, [UserMessage(text=task)], [ECHO] if tools else [], agent=agent, turn=turn)
    return anyio.run(ask, model, asked)[1]


ECHOED = {"name": "demo__echo", "arguments": {"text": "ü"}}


def test_a_recording_answers_by_agent_and_turn(tmp_path: Path):
    model = RecordedModel(
        recording(
            tmp_path,
            HEADER,
            "",
            {"agent": "a", "turn": 1, "text": "Look.", "calls": [ECHOED]},
            {"agent": "a", "turn": 2, "text": "Done.", "usage": {"input_tokens": 5, "output_tokens": 2}},
            {"agent": "b", "turn": 1, "text": "other", "finish": "length"},
        )
    )
    assert (model.name, model.provider, model.header.model) == ("recorded:sales", "scripted", "gpt-x")
    first = play(model, "a")
    assert first.message.text == "Look."
    assert calls(first) == [("1", "demo__echo", '{"text":"ü"}')]
    assert first.usage
    assert play(model, "a", 2).usage == Usage(input_tokens=5, output_tokens=2)
    assert play(model, "b").finish == "length"


def test_runs_of_one_agent_are_told_apart_by_task(tmp_path: Path):
    lines = [
        {"agent": "a", "turn": 1, "text": text, "task": task}
        for text, task in (("any", None), ("tea", "tea"), ("green", "green tea"))
    ]
    model = RecordedModel(recording(tmp_path, HEADER, *lines))
    said = [play(model, "a", task=task).message.text for task in ("coffee", "black tea", "a green tea please")]
    assert said == ["any", "tea", "green"]


def test_what_was_not_recorded_is_an_error_that_says_what_was(tmp_path: Path):
    path = recording(
        tmp_path,
        HEADER,
        {"agent": "a", "turn": 2, "text": "x"},
        {"agent": "a", "turn": 1, "text": "x", "task": "tea"},
    )
    model = RecordedModel(path)
    for agent, turn, task in (("b", 1, "tea"), ("a", 3, "tea"), ("a", 1, "coffee")):
        with pytest.raises(ModelError) as caught:
            play(model, agent, turn, task)
        said = str(caught.value)
        assert caught.value.kind == "unscripted"
        assert all(part in said for part in (str(path), repr(agent), f"turn {turn}", repr(task), "a: turns 1, 2"))


def test_a_call_of_a_tool_that_is_not_offered_is_an_error(tmp_path: Path):
    model = RecordedModel(
        recording(tmp_path, HEADER, {"agent": "a", "turn": 1, "calls": [ECHOED, {"name": "s__gone"}]})
    )
    with pytest.raises(ModelError, match=r"calls s__gone,.*offers demo__echo") as caught:
        play(model, "a")
    assert caught.value.kind == "unscripted"
    with pytest.raises(ModelError, match="offers no tools"):
        play(model, "a", tools=False)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], ["sales.jsonl: the recording is empty"]),
        (["nonsense"], ["sales.jsonl:1: ", "the first line must be"]),
        ([{"agent": "a", "turn": 1}], ["sales.jsonl:1: recording: ", "the first line must be"]),
        ([{**HEADER, "recording": 2}], ["sales.jsonl:1: recording: "]),
        ([HEADER, "{", {"agent": "a", "turn": 0}], ["sales.jsonl:2: Invalid JSON", "sales.jsonl:3: turn: "]),
        ([HEADER, {"agent": "a", "turn": 1, "txt": ""}], ["sales.jsonl:2: txt: "]),
        ([HEADER, *[{"agent": "a", "turn": 1}] * 2], ["sales.jsonl:3: agent 'a', turn 1 is recorded twice"]),
    ],
)
def test_a_bad_recording_names_the_lines(tmp_path: Path, lines: list[object], says: list[str]):
    with pytest.raises(ConfigurationError) as caught:
        RecordedModel(recording(tmp_path, *lines))
    assert all(part in str(caught.value) for part in says)


def test_a_recording_that_is_not_there(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"gone\.jsonl: the recording cannot be read"):
        RecordedModel(tmp_path / "gone.jsonl")


def test_a_recorder_writes_what_a_recorded_model_plays(tmp_path: Path):
    path = tmp_path / "taped.jsonl"
    source = ScriptedModel(["Look…", call("demo__echo", {"text": "ü"})], call("demo__echo", "{broken"), "Done.")
    taped = Recorder(source, path, source="test")

    async def run(model: Recorder | RecordedModel) -> list[ModelReply]:
        asked = [request(model, tools=[ECHO], turn=turn) for turn in (1, 2, 3, 3)]
        return [(await ask(model, one))[1] for one in asked]

    first = anyio.run(run, taped)
    again = anyio.run(run, RecordedModel(path))
    assert [(one.message, one.finish, one.usage) for one in first] == [
        (one.message, one.finish, one.usage) for one in again
    ]
    anyio.run(taped.aclose)
