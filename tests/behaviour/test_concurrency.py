"""What happens at once: bounded, in order, apart from each other, and ended when it is left."""

import gc
import json
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import Limits, Options, Orchestrator, RunOptions, RunResult
from orchestrator.config import Settings, ToolSettings
from orchestrator.events import PublicEvent
from orchestrator.messages import UserMessage
from orchestrator.models.base import ModelRequest
from orchestrator.testing import MemoryJournal, NullTracer, ScriptedModel, call
from tests.behaviour.stage import SECONDS, Bell, Stage, allow
from tests.support.runs import card, cards, ledger_lines


def boss(**more: Any) -> Any:
    return card("boss", **{"tools": ("fx__*",), **more})


class Crowd:
    """A server whose tool stays inside until nobody else comes, and knows the most that were there."""

    def __init__(self) -> None:
        self.server = MCPServer("fx", log_level="ERROR")
        self.inside = self.most = 0
        self.server.tool(name="come")(self.come)

    async def come(self, text: str) -> str:
        """Comes in."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(20):
            await anyio.wait_all_tasks_blocked()
        self.inside -= 1
        return f"{text} was in"


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(("bound", "most"), [(None, 4), (1, 1), (3, 3), (20, 8)])
def test_the_calls_of_a_run_at_once_are_bounded(tmp_path: Path, bound: int | None, most: int) -> None:
    crowd = Crowd()
    turn = [call("fx__come", {"text": text}) for text in "abcdefgh"]
    more = {} if bound is None else {"tools": ToolSettings(parallel=bound)}
    stage = Stage(tmp_path, {("boss", 1): turn, "boss": "done"}, boss(), servers={"fx": crowd.server}, **more)
    result = stage.run()
    assert crowd.most == most
    shown = [message["content"] for message in stage.bodies("boss")[-1]["messages"] if message["role"] == "tool"]
    assert shown == [f"{text} was in" for text in "abcdefgh"], "results are in call order"
    assert len(result.steps[0].actions) == 8


@pytest.mark.requirement("A8", "E2")
def test_the_bound_holds_over_the_whole_tree_and_agents_take_no_place_in_it(tmp_path: Path) -> None:
    crowd = Crowd()
    kids = ("ann", "bob", "cat")
    script = {
        ("boss", 1): [call(f"agents__{kid}", {"task": "go"}) for kid in kids],
        "boss": "done",
        **{(kid, 1): [call("fx__come", {"text": f"{kid}{number}"}) for number in range(3)] for kid in kids},
        **{kid: f"{kid} is done" for kid in kids},
    }
    team = (boss(agents=kids), *(card(kid, tools=("fx__*",)) for kid in kids))
    stage = Stage(tmp_path, script, *team, servers={"fx": crowd.server}, tools=ToolSettings(parallel=2))
    result = stage.run()
    assert [action.observation for action in result.steps[0].actions] == [f"{kid} is done" for kid in kids]
    assert crowd.most == 2


@pytest.mark.requirement("A8")
def test_a_server_may_want_one_call_at_a_time(tmp_path: Path) -> None:
    turn = [call("fx__wait", {"ms": 40}) for _ in range(3)]
    script = {("boss", 1): turn, "boss": "done"}
    stage = Stage(tmp_path, script, boss(), fx={"concurrency": 1})
    assert stage.run().answer == "done"
    assert [line["inside"] for line in ledger_lines(stage.ledger)] == [1, 1, 1]


@pytest.mark.requirement("A9")
@pytest.mark.parametrize("declared", [False, True])
def test_progress_extends_the_time_of_a_tool_that_is_declared_long(tmp_path: Path, declared: bool) -> None:
    script = {("boss", 1): call("fx__slow", {"ms": 2400}), "boss": "done"}
    fx = {"call_timeout": 1.2, "long_running": ("slow",) if declared else ()}
    result = Stage(tmp_path, script, boss(), fx=fx).run()
    (action,) = result.steps[0].actions
    assert action.is_error is not declared
    assert ("slow  done" if declared else "no answer within 1.2 s") in action.observation


@pytest.mark.requirement("A9")
def test_a_tool_that_reports_nothing_is_timed_out_although_declared_long(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__hang", {"text": "a"}), "boss": "done"}
    stage = Stage(tmp_path, script, boss(), fx={"call_timeout": 0.3, "long_running": ("*",)})
    assert "no answer within 0.3 s" in stage.run().steps[0].actions[0].observation
    assert stage.effects == {"hang": 1, "cancelled": 1}


@pytest.mark.requirement("A9")
def test_a_timed_out_call_is_stopped_in_a_server_of_this_process(tmp_path: Path) -> None:
    server, ended = MCPServer("fx", log_level="ERROR"), []

    @server.tool()
    async def hang(text: str) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(text)
        return ""

    turn = [call("fx__hang", {"text": "a"}), call("fx__hang", {"text": "b"})]
    script = {("boss", 1): turn, "boss": "done"}
    stage = Stage(tmp_path, script, boss(), servers={"fx": server}, tools=ToolSettings(timeout=0.2))
    result = stage.run()
    assert sorted(ended) == ["a", "b"]
    assert all("no answer within 0.2 s" in action.observation for action in result.steps[0].actions)


@pytest.mark.requirement("A6")
def test_two_hundred_runs_at_once_see_nothing_of_each_other() -> None:
    server = MCPServer("fx", log_level="ERROR")

    @server.tool()
    async def echo(text: str) -> str:
        await anyio.lowlevel.checkpoint()
        return f"echo {text}"

    requests: dict[str, list[str]] = {}

    def answer(request: ModelRequest) -> Any:
        task = next(message.text for message in request.messages if isinstance(message, UserMessage))
        word = task.split()[-1]
        requests.setdefault(word, []).append(request.body.decode())
        match request.agent, request.turn:
            case "boss", 1:
                return [call("agents__kid", {"task": f"ask {word}"}), call("fx__echo", {"text": f"boss {word}"})]
            case "kid", 1:
                return call("fx__echo", {"text": f"kid {word}"})
            case _:
                return f"{request.agent} {word} is done"

    options = Options(
        settings=Settings(policy=allow("*")),
        cards=cards(boss(agents=("kid",)), card("kid", tools=("fx__*",))),
        servers={"fx": server},
        model=ScriptedModel(answer),
        journal=MemoryJournal(),
        tracer=NullTracer(),
    )
    words = [f"w{number:03}x" for number in range(200)]
    results: dict[str, RunResult] = {}
    events: dict[str, list[str]] = {}

    async def main() -> None:
        async with Orchestrator(options, agent="boss") as orchestrator, anyio.create_task_group() as group:

            async def one(word: str) -> None:
                seen = events.setdefault(word, [])
                results[word] = await orchestrator.run(
                    f"the job of {word}", on_event=lambda event: seen.append(event.model_dump_json())
                )

            for word in words:
                group.start_soon(one, word)

    anyio.run(main)
    ids = {result.run_id for result in results.values()}
    assert len(ids) == 200
    for word in words:
        result = results[word]
        assert result.answer == f"boss {word} is done"
        everything = [result.model_dump_json(), *requests[word], *events[word]]
        assert len(requests[word]) == 4
        named = {found for text in everything for found in words_in(text)}
        assert named == {word}
        assert {json.loads(event)["run_id"].partition("/")[0] for event in events[word]} == {result.run_id}


def words_in(text: str) -> list[str]:
    import re

    return re.findall(r"w\d{3}x", text)


class Hanging:
    """A team whose child hangs in a tool of this process; `inside` is set when it does, `ended` says how it ended."""

    def __init__(self) -> None:
        self.inside = anyio.Event()
        self.ended: list[str] = []
        self.requests: list[ModelRequest] = []
        server = MCPServer("fx", log_level="ERROR")

        @server.tool()
        async def hang(text: str) -> str:
            self.inside.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.ended.append(text)
            return ""

        def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            if request.agent == "kid":
                return ["I go in.", call("fx__hang", {"text": "kid"})]
            return call("agents__kid", {"task": "go"}) if request.turn == 1 else "done"

        self.options = Options(
            settings=Settings(policy=allow("*")),
            cards=cards(boss(agents=("kid",)), card("kid", tools=("fx__*",))),
            servers={"fx": server},
            model=ScriptedModel(answer),
            journal=MemoryJournal(),
            tracer=None,
        )


async def left_by_break(events: AsyncGenerator[PublicEvent], team: Hanging) -> None:
    async for event in events:
        if event.type == "tool_call" and event.agent == "kid":
            break
    await team.inside.wait()
    await events.aclose()


async def left_by_exception(events: AsyncGenerator[PublicEvent], team: Hanging) -> None:
    try:
        async with aclosing(events):
            async for event in events:
                if team.inside.is_set() or event.type == "tool_call":
                    raise ZeroDivisionError
    except ZeroDivisionError:
        return
    raise AssertionError("the stream ended by itself")


async def left_by_cancel(events: AsyncGenerator[PublicEvent], team: Hanging) -> None:
    async with anyio.create_task_group() as group:

        async def read() -> None:
            async with aclosing(events):
                async for _ in events:
                    pass

        group.start_soon(read)
        await team.inside.wait()
        group.cancel_scope.cancel()


async def left_at_the_first_event(events: AsyncGenerator[PublicEvent], team: Hanging) -> None:
    del team
    await anext(events)
    await events.aclose()


async def left_to_the_collector(events: AsyncGenerator[PublicEvent], team: Hanging) -> None:
    await anext(events)
    await team.inside.wait()
    # No aclose: the block of the orchestrator ends what nobody reads.


@pytest.mark.requirement("A8", "A11")
@pytest.mark.parametrize(
    "leave", [left_by_break, left_by_exception, left_by_cancel, left_at_the_first_event, left_to_the_collector]
)
def test_leaving_a_stream_cancels_its_run(
    leave: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async def main() -> Hanging:
        team = Hanging()
        with anyio.fail_after(SECONDS):
            async with Orchestrator(team.options, agent="boss") as orchestrator:
                await leave(orchestrator.stream("the job"), team)
        return team

    team = anyio.run(main)
    gc.collect()
    if team.inside.is_set():
        assert team.ended == ["kid"], "the tool was told, inside the block"
    assert len(team.requests) <= 2, "nothing starts after that"
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.requirement("A11", "F1")
def test_leaving_a_stream_is_quiet_in_a_process_of_its_own(tmp_path: Path) -> None:
    """With real spans, a real server and every warning an error: nothing is written on the way out."""
    program = """
import anyio, asyncio, sys
from pathlib import Path
from orchestrator import Options, Orchestrator
from orchestrator.testing import ScriptedModel, call
from tests.behaviour.stage import allow
from tests.support.runs import card, cards, settings

folder = Path(sys.argv[1])

def answer(request):
    if request.agent == "boss":
        return [call("agents__kid", {"task": "go"}), call("fx__look", {"text": "boss"})]
    return call("fx__look", {"text": "kid"}) if request.turn == 1 else call("fx__hang", {"text": "kid"})

options = Options(
    settings=settings(folder / "ledger"),
    cards=cards(card("boss", tools=("fx__*",), agents=("kid",)), card("kid", tools=("fx__*",))),
    model=ScriptedModel(answer),
    home=folder,
)

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is not a noisy exit
    async with Orchestrator(options, agent="boss") as orchestrator:
        for leave in (1, 4, 9):
            seen = 0
            async for event in orchestrator.stream("the job"):
                seen += 1
                if seen == leave or (event.type == "tool_call" and event.tool == "fx__hang"):
                    break

anyio.run(main)
print("left")
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=Path(__file__).parents[2],
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "left\n", "")


@pytest.mark.requirement("A8", "A11", "E2")
def test_leaving_a_stream_reaches_the_server_of_the_child(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "ledger")
    script = {"boss": call("agents__kid", {"task": "go"}), "kid": call("fx__hang", {"text": "kid"})}
    stage = Stage(tmp_path, script, boss(agents=("kid",)), card("kid", tools=("fx__*",)))

    async def work(orchestrator: Orchestrator) -> None:
        async with aclosing(orchestrator.stream("the job")) as events:
            async for event in events:
                if event.type == "tool_call" and event.tool == "fx__hang":
                    await bell.rung()
                    break

    stage.within(work)
    assert stage.effects == {"hang": 1, "cancelled": 1}


@pytest.mark.requirement("A11")
def test_the_events_of_a_stream(tmp_path: Path) -> None:
    script = {
        ("boss", 1): ["Let me ", "look.", call("fx__look", {"text": "a"})],
        ("boss", 2): call("fx__pay", {"text": "b"}),
        ("boss", 3): "All seen.",
    }
    stage = Stage(tmp_path, script, boss(), policy=allow())

    async def work(orchestrator: Orchestrator) -> list[PublicEvent]:
        options = RunOptions(approve="all")
        return [event async for event in orchestrator.stream("the job", options=options)]

    events = stage.within(work)
    assert "".join(event.text for event in events if event.type == "text_delta") == "Let me look.All seen."
    kinds = [event.type for event in events if event.type not in ("text_delta", "state", "usage")]
    assert kinds == ["tool_call", "tool_result", "tool_call", "tool_result", "final_answer"]
    assert len([event for event in events if event.type == "usage"]) == 3
    states = [event.state for event in events if event.type == "state"]
    assert states == ["PLANNING", *["THINKING", "ACTING", "OBSERVING"] * 2, "THINKING", "FINISHED"]
    assert len({(event.run_id, event.trace_id) for event in events}) == 1
    assert events[-1].answer == "All seen."


@pytest.mark.requirement("A2", "A11")
def test_a_stream_of_a_run_that_is_stopped_ends_with_its_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"boss": lambda request: call("fx__look", {"text": str(request.turn)})}, boss())

    async def work(orchestrator: Orchestrator) -> list[PublicEvent]:
        return [event async for event in orchestrator.stream("the job", limits=Limits(steps=1))]

    last = stage.within(work)[-1]
    assert (last.type, last.status, last.stop_reason) == ("final_answer", "stopped", "max_steps")


@contextmanager
def two_calls_with_a_pause(go_on: threading.Event, first: str, breaks: int) -> Iterator[str]:
    """A model server that streams a first call, the beginning of a second, and the rest when it may go on.

    The first `breaks` replies break off there.
    """
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if seen[-1]["messages"][-1]["role"] == "tool":
                self.say({"content": "done"}, finish="stop")
                return
            self.say(part(0, first, '{"text":'))
            self.say(part(0, None, ' "first"}'))
            self.say(part(1, "fx__look", '{"te'))
            assert go_on.wait(SECONDS), "the first call never came"
            if len(seen) <= breaks:
                return
            self.say(part(1, None, 'xt": "second"}'), finish="tool_calls")

        def say(self, delta: dict[str, Any], finish: str | None = None) -> None:
            chunk = {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            if finish:
                usage = {"prompt_tokens": 10, "completion_tokens": 5}
                self.wfile.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        go_on.set()
        http.shutdown()
        thread.join()
        http.server_close()


def part(index: int, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    call_ = {"index": index, "function": function} | ({} if name is None else {"id": f"c{index}", "type": "function"})
    return {"tool_calls": [call_]}


def streamed(
    first: str, monkeypatch: pytest.MonkeyPatch, *, breaks: int = 0, early: bool = True, policy: Any = None
) -> tuple[Any, list[str]]:
    """Runs a turn whose reply pauses until a tool is reached; where none may be, until all was quiet for a while."""
    go_on, order, server = threading.Event(), [], MCPServer("fx", log_level="ERROR")
    from mcp_types import ToolAnnotations

    def add(name: str, hints: ToolAnnotations | None) -> None:
        async def tool(text: str) -> str:
            order.append(f"{name} {text} {'after' if go_on.is_set() else 'before'}")
            go_on.set()
            return f"{name} {text}"

        server.tool(name=name, description=f"{name}s", annotations=hints)(tool)

    add("look", ToolAnnotations(read_only_hint=True))
    add("pay", None)
    with two_calls_with_a_pause(go_on, first, breaks) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-loopback")

        async def main() -> RunResult:
            options = Options(
                settings=Settings(policy=policy or allow("*")),
                cards=cards(boss()),
                servers={"fx": server},
                model="openai:m",
                journal=MemoryJournal(),
                tracer=NullTracer(),
            )
            async with Orchestrator(options, agent="boss") as orchestrator, anyio.create_task_group() as group:

                async def let_go() -> None:
                    await anyio.to_thread.run_sync(go_on.wait, 0.4)
                    go_on.set()

                if not early:
                    group.start_soon(let_go)
                return await orchestrator.run("the job", options=RunOptions(approve="all"))

        return anyio.run(main), order


@pytest.mark.requirement("A10")
def test_a_call_that_only_reads_starts_before_the_reply_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    result, order = streamed("fx__look", monkeypatch)
    assert result.answer == "done"
    assert order == ["look first before", "look second after"]
    assert [action.observation for action in result.steps[0].actions] == ["look first", "look second"]


@pytest.mark.requirement("A10", "H1")
def test_a_call_that_writes_waits_for_the_whole_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    result, order = streamed("fx__pay", monkeypatch, early=False)
    assert result.answer == "done"
    assert sorted(order) == ["look second after", "pay first after"]


@pytest.mark.requirement("A10", "B3")
def test_a_turn_that_is_asked_again_reuses_what_started_early(monkeypatch: pytest.MonkeyPatch) -> None:
    result, order = streamed("fx__look", monkeypatch, breaks=1)
    assert result.answer == "done"
    assert order == ["look first before", "look second after"]
    assert result.usage.tool_calls == 2


@pytest.mark.requirement("A10", "C7")
def test_a_call_that_must_be_asked_for_does_not_start_early(monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestrator.config import PolicySettings

    result, order = streamed("fx__look", monkeypatch, early=False, policy=PolicySettings(deny=("fx__look",)))
    assert result.answer == "done"
    assert not order
