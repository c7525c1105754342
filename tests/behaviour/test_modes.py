"""B4, B5: runs of models that act by tool calls, JSON or text, over real HTTP; and of weak ones."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from orchestrator import Limits, Options, Orchestrator
from orchestrator.cards import AgentCard
from orchestrator.config.settings import MemorySettings
from orchestrator.events import ModelIntent, RunStarted
from orchestrator.memory.tokens import estimate
from orchestrator.models.acting import ActingCodec
from orchestrator.models.base import Mode
from orchestrator.runtime.offered import specs_of
from orchestrator.runtime.requests import Wire, rebuilt, tool_lists
from orchestrator.testing import NullTracer, SqliteJournal, call
from tests.behaviour.stage import Stage, allow
from tests.behaviour.test_memory import LONG, pages
from tests.support.model_server import ModelServer, model_server
from tests.support.models import tables_of
from tests.support.runs import card, cards

TEAM = card("boss", tools=("fx__*",))


def in_words(mode: Mode, name: str, **arguments: Any) -> str:
    if mode == "react":
        return f"Thought: next\nAction: {name}\nAction Input: {json.dumps(arguments)}"
    return json.dumps({"thought": "next", "action": name, "arguments": arguments})


def as_answer(mode: Mode, text: str) -> str:
    return f"Thought: done\nFinal Answer: {text}" if mode == "react" else in_words(mode, "final", answer=text)


class Served(Stage):
    """A stage whose model stands behind HTTP."""

    url: str
    mode: Mode
    weak: bool = False

    def open(self) -> Orchestrator:
        table = {"provider": "loopback", "base_url": self.url, "mode": self.mode, "weak": self.weak}
        models = tables_of({"m": table, "strong": {**table, "weak": False}})
        settings = self._settings.model_copy(update={"models": models, "model": "m"})
        options = Options(
            settings=settings,
            cards=cards(*self._team),
            servers=self._servers,
            home=self.folder,
            tracer=NullTracer(),
        )
        return Orchestrator(options, agent="boss")


@contextmanager
def served(
    folder: Path,
    answers: Callable[[Mapping[str, Any], int], str | None],
    mode: Mode,
    *,
    weak: bool = False,
    team: tuple[AgentCard, ...] = (TEAM,),
    **settings: Any,
) -> Iterator[tuple[Served, ModelServer]]:
    """`answers` gives the text of a reply for a request's body and its number, from 1; without one it is too large."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        text = answers(body, len(server.seen))
        return {"status": 400, "error": "context length exceeded"} if text is None else {"text": text}

    with model_server(answer) as server:
        stage = Served(folder, {}, *team, **settings)
        stage.url, stage.mode, stage.weak = server.url, mode, weak
        yield stage, server


def script(*texts: str) -> Callable[[Any, int], str]:
    return lambda _, number: texts[number - 1]


async def requests(stage: Stage, run_id: str, mode: Mode, *, weak: bool = False) -> list[Any]:
    """What the run's requests were, by its journal."""
    journal = SqliteJournal(stage.folder / "journal.sqlite")
    try:
        events = await journal.read(run_id)
        start = events[0]
        assert isinstance(start, RunStarted)
        system = (await journal.body(start.system)).decode()
        tools = {digest: specs_of(await journal.body(digest)) for digest in tool_lists(events)}
        codec = ActingCodec("m", temperature=0.2, mode=mode, weak=weak)
        made = list(rebuilt(events, [Wire(codec, vision=False)], system, tools, {}))
        assert all(one.checked for one in made)
        assert len(made) == sum(isinstance(event, ModelIntent) for event in events)
        return [json.loads(one.body) for one in made]
    finally:
        await journal.aclose()


@pytest.mark.requirement("B4")
@pytest.mark.parametrize("mode", ["json", "react"])
def test_a_run_acts_by_text_and_goes_on_in_another_process(tmp_path: Path, mode: Mode) -> None:
    import anyio

    texts = (in_words(mode, "fx__look", text="a"), in_words(mode, "fx__pay", text="b"), as_answer(mode, "all done"))
    with served(tmp_path, script(*texts), mode, policy=allow("fx__look")) as (stage, server):
        parked = stage.run()
        assert parked.status == "parked", "what writes waits for a person, whichever way it was asked for"
        stage.decide(parked.run_id)
        result = stage.resume(parked.run_id)
        assert (result.status, result.answer) == ("finished", "all done")
        assert stage.effects == {"look": 1, "pay": 1}
        assert [step.thought for step in result.steps][:2] == ["next", "next"]
        assert anyio.run(lambda: requests(stage, result.run_id, mode)) == server.seen


@pytest.mark.requirement("B5")
@pytest.mark.parametrize("mode", ["tools", "json", "react"])
def test_what_cannot_be_read_goes_back_with_the_fragment_and_a_right_example(tmp_path: Path, mode: Mode) -> None:
    texts = ("Call fx__look(a) now.", as_answer(mode, "done") if mode != "tools" else "done")
    with served(tmp_path, script(*texts), mode) as (stage, server):
        result = stage.run()
    assert (result.status, result.answer) == ("finished", "done")
    told = server.seen[1]["messages"][-1]["content"]
    assert "fx__look(a) now." in told
    assert '{"text": ' in told, "a right example"


@pytest.mark.requirement("B5")
def test_replies_that_cannot_be_read_end_a_run_that_never_calls_them_an_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"boss": 'Use fx__look with {"text": "a"}'}, TEAM)
    result = stage.run()
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    assert result.answer.startswith("Stopped before the task was done")
    assert not stage.effects


@pytest.mark.requirement("B5")
def test_a_call_that_came_as_text_is_made(tmp_path: Path) -> None:
    text = 'Sure.\n```json\n{"name": "fx__look", "arguments": {"text": "a"}}\n```'
    stage = Stage(tmp_path, {("boss", 1): text, ("boss", 2): "done"}, TEAM)
    assert stage.run().answer == "done"
    assert stage.effects == {"look": 1}
    (assistant,) = [m for m in stage.bodies("boss")[1]["messages"] if m["role"] == "assistant"]
    assert assistant["tool_calls"][0]["function"] == {"name": "fx__look", "arguments": '{"text":"a"}'}
    assert assistant["content"] == "Sure.", "history holds the call as it should have been written"


@pytest.mark.requirement("B4")
def test_the_last_step_of_a_budget_is_left_for_the_answer(tmp_path: Path) -> None:
    def answers(body: Mapping[str, Any], number: int) -> str:
        offered = [one["properties"]["action"]["const"] for one in _branches(body)]
        return in_words("json", "fx__look", text=f"{number}") if "fx__look" in offered else as_answer("json", "enough")

    with served(tmp_path, answers, "json") as (stage, server):
        result = stage.run(limits=Limits(steps=3))
    assert (result.status, result.answer, len(server.seen)) == ("finished", "enough", 3)


def weak(**properties: Any) -> str:
    return json.dumps({"action": properties.pop("call"), **({"arguments": properties} if properties else {})})


def _branches(body: Mapping[str, Any]) -> list[Any]:
    return body["response_format"]["json_schema"]["schema"].get("anyOf", [])


def offered(body: Mapping[str, Any]) -> list[str]:
    return [one["properties"]["action"]["const"].removeprefix("fx__") for one in _branches(body)]


@pytest.mark.requirement("B4")
def test_a_weak_model_answers_in_a_step_of_its_own_from_results_only(tmp_path: Path) -> None:
    import anyio

    reply = '{"working": "saw it", "answer": "It saw the mug."}'
    texts = (weak(call="fx__look", text="mug"), weak(call="final"), reply)
    with served(tmp_path, script(*texts), "json", weak=True) as (stage, server):
        result = stage.run("Look at the mug")
        assert (result.status, result.answer) == ("finished", "It saw the mug.")
        last = server.seen[-1]
        assert [message["role"] for message in last["messages"]] == ["system", "user"]
        assert "- fx__look" in last["messages"][1]["content"]
        assert last["messages"][1]["content"].endswith("Question: Look at the mug")
        assert anyio.run(lambda: requests(stage, result.run_id, "json", weak=True)) == server.seen


PAGES = 14
FILLER = "The shelf by the window holds boxes of paper and some old lamps. "


def reader(refuse: int = 0) -> Callable[[Mapping[str, Any], int], str | None]:
    """Reads page after page, then answers; its server refuses `refuse` requests for an answer as too large."""
    left = [refuse]

    def answers(body: Mapping[str, Any], number: int) -> str | None:
        if "anyOf" not in json.dumps(body.get("response_format")):
            if left[0]:
                left[0] -= 1
                return None
            return json.dumps({"working": "read", "answer": "All pages were read."})
        return weak(call="pages__read", n=number) if number <= PAGES else weak(call="final")

    return answers


@pytest.mark.requirement("B4", "D1")
@pytest.mark.parametrize("long", [False, True], ids=["results", "results and task"])
def test_a_weak_models_answer_keeps_to_the_window(tmp_path: Path, long: bool) -> None:
    """Results that are larger than the window have a fair share of it each; a task has its constraints beside it."""
    import anyio

    numbers = ", ".join(map(str, range(1, PAGES + 1)))
    task = f"Read the pages {numbers}. {f'{FILLER * 60}Answer in French. {FILLER * 60}' if long else ''}Begin."
    window, told = 3500, 12 * PAGES
    settings = {"servers": {"pages": pages(1900)}, "memory": MemorySettings(window_tokens=window)}
    with served(tmp_path, reader(), "json", weak=True, team=(card("boss", tools=("pages__*",)),), **settings) as (
        stage,
        server,
    ):
        result = stage.run(task, limits=LONG)
        assert (result.status, result.answer) == ("finished", "All pages were read.")
        assert anyio.run(lambda: requests(stage, result.run_id, "json", weak=True)) == [
            body for body in server.seen if "You keep the notes" not in json.dumps(body)
        ]
    last = server.seen[-1]["messages"][1]["content"]
    assert told < estimate(last.encode()) <= window
    assert all(f"page {n}: the quick" in last for n in range(1, PAGES + 1))
    assert ("- Answer in French" in last.partition("Question: ")[2]) == long


@pytest.mark.requirement("B4", "D2")
def test_an_answer_whose_request_a_server_finds_too_large_is_asked_for_with_less(tmp_path: Path) -> None:
    task = f"Read the pages {', '.join(map(str, range(1, PAGES + 1)))}."
    team, memory = (card("boss", tools=("pages__*",)),), MemorySettings(window_tokens=60_000)
    with served(tmp_path, reader(1), "json", weak=True, team=team, servers={"pages": pages(1900)}, memory=memory) as (
        stage,
        server,
    ):
        result = stage.run(task, limits=LONG)
    assert (result.status, result.answer) == ("finished", "All pages were read.")
    refused, sent = (estimate(body["messages"][1]["content"].encode()) for body in server.seen[-2:])
    assert sent <= refused * 0.75


@pytest.mark.requirement("B4")
def test_a_weak_models_invention_is_withheld_and_leaves_the_transcript(tmp_path: Path) -> None:
    texts = (
        weak(call="fx__look", text="kettle"),  # nobody spoke of a kettle
        weak(call="fx__put", text="mug"),  # nobody asked for a write
        weak(call="fx__look", text="mug"),
        weak(call="fx__look", text="mug"),  # again
        weak(call="final"),
        '{"working": "", "answer": "A mug."}',
    )
    with served(tmp_path, script(*texts), "json", weak=True) as (stage, server):
        result = stage.run("What is the mug?")
    assert result.answer == "A mug."
    assert stage.effects == {"look": 1}
    assert "look" not in offered(server.seen[1]), "the next try must be another"
    assert not {"look", "put"} & set(offered(server.seen[2]))
    assert server.seen[0]["messages"] == server.seen[1]["messages"] == server.seen[2]["messages"]
    said = json.dumps([body["messages"] for body in server.seen])
    assert "kettle" not in said
    assert sum(action.is_error for step in result.steps for action in step.actions) == 3, "told to people all the same"


@pytest.mark.requirement("B4")
@pytest.mark.parametrize(("destroys", "wiped"), [(True, []), (False, ["mugs in all rooms"])])
def test_a_weak_models_invention_is_not_left_out_of_what_destroys(
    tmp_path: Path, destroys: bool, wiped: list[str]
) -> None:
    """A wipe of one room must not become one of all rooms because nobody spoke of that room."""
    server, done = MCPServer("house", log_level="ERROR"), list[str]()

    @server.tool(annotations=ToolAnnotations(destructive_hint=destroys))
    def wipe(what: str, room: str = "all rooms") -> str:
        done.append(f"{what} in {room}")
        return "wiped"

    texts = (
        weak(call="house__wipe", what="mugs", room="attic"),
        weak(call="final"),
        '{"working": "", "answer": "So."}',
    )
    team = (card("boss", tools=("house__*",)),)
    with served(tmp_path, script(*texts), "json", weak=True, team=team, servers={"house": server}) as (stage, _):
        assert stage.run("Wipe the mugs").answer == "So."
    assert done == wiped


@pytest.mark.requirement("B4")
def test_a_weak_model_all_of_whose_calls_are_withheld_is_asked_to_answer(tmp_path: Path) -> None:
    def lost(body: Mapping[str, Any], number: int) -> str:
        tools = [name for name in offered(body) if name != "final"]
        if not offered(body):
            return '{"working": "", "answer": "I do not know."}'
        return weak(call=f"fx__{tools[0]}", text=f"kettle {number}") if tools else weak(call="final")

    with served(tmp_path, lost, "json", weak=True) as (stage, server):
        result = stage.run("What is the mug?")
    assert (result.answer, stage.effects, result.usage.model_calls) == ("I do not know.", {}, 5)
    assert offered(server.seen[3]) == ["final"]


@pytest.mark.requirement("B5")
def test_a_weak_model_that_never_answers_fails_honestly(tmp_path: Path) -> None:
    def answers(body: Mapping[str, Any], number: int) -> str:
        return weak(call="final") if offered(body) else '{"name": "fx__look", "arguments": {"text": "mug"}}'

    with served(tmp_path, answers, "json", weak=True) as (stage, _):
        result = stage.run("Look at the mug", limits=Limits(steps=8))
    assert (result.status, result.stop_reason) == ("stopped", "unparseable_output")
    assert result.answer.startswith("Stopped before the task was done")


def test_calls_of_other_models_are_not_judged_by_where_they_come_from(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {("boss", 1): call("fx__look", {"text": "kettle"}), ("boss", 2): "done"}, TEAM)
    assert stage.run("What is the mug?").answer == "done"
    assert stage.effects == {"look": 1}
