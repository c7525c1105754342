"""Long runs in a small window: what stays, what leaves, what is got back, and that no request is ever invalid."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from orchestrator.config.settings import MemorySettings
from orchestrator.errors import ModelError
from orchestrator.events import JournalEvent, Limits, MemoryCompacted, ModelIntent, ToolResult, WindowCut
from orchestrator.messages import ToolMessage
from orchestrator.models.base import ModelRequest
from orchestrator.testing import SqliteJournal, call
from tests.behaviour.stage import Stage
from tests.models.rules import broken_for_openai
from tests.support.runs import card

WINDOW = 8000
LONG = Limits(steps=300, tokens=10**9, model_calls=10**4)
SUMMARY = "Goal: the job.\nDone: pages were read.\nFound: page 1 says 42.\nOpen: the rest."


def pages(size: int = 4000) -> Server[Any]:
    """A server of this process whose one tool reads a page of so many characters, never twice the same."""
    tool = Tool(
        name="read",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        annotations=ToolAnnotations(read_only_hint=True),
    )

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        text = page(params.arguments["n"], size)
        return CallToolResult(content=[TextContent(type="text", text=text)])

    return Server("pages", on_list_tools=list_tools, on_call_tool=call_tool)


def page(n: int, size: int = 4000) -> str:
    line = f"page {n}: the quick brown fox jumps over the lazy dog.\n"
    return (line * (size // len(line) + 1))[:size]


def reads(steps: int, summary: Any = SUMMARY) -> Any:
    """Reads page after page, then answers."""

    def script(request: ModelRequest) -> Any:
        if request.summary:
            return summary(request) if callable(summary) else summary
        return call("pages__read", {"n": request.turn}) if request.turn <= steps else "done"

    return script


def stage_of(folder: Path, script: Any, *, window: int | None = WINDOW, size: int = 4000, **more: Any) -> Stage:
    boss = more.pop("boss", card("boss", tools=("pages__*",)))
    memory = MemorySettings(window_tokens=window)
    team = more.pop("team", ())
    return Stage(folder, script, boss, *team, servers={"pages": pages(size)}, memory=memory, **more)


def turns(stage: Stage) -> list[ModelRequest]:
    return [request for request in stage.requests if not request.summary]


def events(stage: Stage, run: str) -> list[JournalEvent]:
    async def main() -> list[JournalEvent]:
        journal = SqliteJournal(stage.folder / "journal.sqlite")
        try:
            return list(await journal.read(run))
        finally:
            await journal.aclose()

    return anyio.run(main)


def messages(request: ModelRequest) -> list[dict[str, Any]]:
    return json.loads(request.body)["messages"]


@pytest.mark.requirement("D3", "D1", "B8")
def test_two_hundred_steps_in_a_small_window_are_bounded_flat_and_lose_nothing(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, reads(200))
    result = stage.run(limits=LONG)
    assert result.answer == "done"
    sizes = [len(request.body) for request in turns(stage)]
    assert max(sizes) < WINDOW * 4
    assert max(sizes[-40:]) <= max(sizes[40:80]) * 1.1
    journal = events(stage, result.run_id)
    results = [event for event in journal if isinstance(event, ToolResult)]
    assert [event.observation for event in results] == [page(n) for n in range(1, 201)]
    cuts = [event for event in journal if isinstance(event, WindowCut)]
    assert [cut.first for cut in cuts[1:]] == [cut.through for cut in cuts[:-1]]
    before: list[dict[str, Any]] = []
    rewritten = 0
    for request in turns(stage):
        now = messages(request)
        assert broken_for_openai(json.loads(request.body)) is None
        rewritten += now[: len(before)] != before
        before = now
    assert rewritten == len(cuts)
    assert len(cuts) < 60


@pytest.mark.requirement("D2", "A3")
def test_what_leaves_is_summarised_in_the_background_and_paid_for(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, reads(30))
    result = stage.run(limits=LONG)
    journal = events(stage, result.run_id)
    made = [event for event in journal if isinstance(event, MemoryCompacted)]
    asked = [request for request in stage.requests if request.summary]
    assert made
    assert len(made) == len(asked)
    assert all(not request.tools and b'"tools"' not in request.body for request in asked)
    assert SUMMARY in turns(stage)[-1].messages[1].text
    spent = sum(len(request.body) // 4 for request in stage.requests)
    assert result.usage.input_tokens == spent
    assert result.usage.model_calls == len(stage.requests)
    # It was asked for before the window was full: the turn under way then went out with the old window.
    first = next(n for n, event in enumerate(journal) if isinstance(event, MemoryCompacted))
    assert any(isinstance(event, ModelIntent) for event in journal[first:][:50])
    cut = next(event for event in journal if isinstance(event, WindowCut))
    assert cut.through == made[0].through
    told = asked[1].messages[1].text
    assert SUMMARY in told  # the notes so far are part of the next ones


@pytest.mark.requirement("D2")
@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x" * 20_000,
        call("pages__read", {"n": 1}),
        ModelError("bad_request", "no"),
        ModelError("broken_stream", "gone"),
    ],
    ids=["empty", "too long", "a call", "refused", "broken"],
)
def test_a_bad_summary_never_ends_a_run(tmp_path: Path, bad: Any) -> None:
    stage = stage_of(tmp_path, reads(20, bad))
    result = stage.run(limits=LONG)
    assert result.answer == "done"
    assert "without a summary" in turns(stage)[-1].messages[1].text
    assert "the job" in turns(stage)[-1].messages[1].text


@pytest.mark.requirement("C8", "D3")
def test_what_has_left_is_got_back_by_its_id(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        if request.turn == 31:
            assert "- t1.1 pages__read" in request.messages[1].text
            return call("retrieve_result", {"id": "t1.1", "limit": 2})
        if request.turn == 32:
            return request.messages[-1].text
        return call("pages__read", {"n": request.turn})

    result = stage_of(tmp_path, script, size=1500).run(limits=LONG)
    assert page(1).partition("\n")[0] in result.answer


@pytest.mark.requirement("D2", "B3")
def test_a_request_that_is_too_large_for_its_server_is_cut_and_tried_once_more(tmp_path: Path) -> None:
    refused: list[int] = []

    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        if len(request.body) > 30_000:
            refused.append(request.turn)
            return ModelError("context_overflow", "too long")
        return call("pages__read", {"n": request.turn}) if request.turn <= 40 else "done"

    stage = stage_of(tmp_path, script, window=None)
    result = stage.run(limits=LONG)
    assert result.answer == "done"
    assert len(refused) == 1  # what the server can take is known from then on
    stage = stage_of(tmp_path / "never", lambda request: always(request), window=None)
    (tmp_path / "never").mkdir()
    result = stage.run(limits=LONG)
    assert result.status == "failed"
    assert [request.turn for request in turns(stage)].count(6) == 2


def always(request: ModelRequest) -> Any:
    if request.summary or request.turn < 6:
        return SUMMARY if request.summary else call("pages__read", {"n": request.turn})
    return ModelError("context_overflow", "too long")


@pytest.mark.requirement("D1")
def test_a_call_is_never_parted_from_its_results(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Any:
        if request.summary:
            return SUMMARY
        both = [call("pages__read", {"n": 2 * request.turn}), call("pages__read", {"n": 2 * request.turn + 1})]
        return both if request.turn <= 20 else "done"

    stage = stage_of(tmp_path, script)
    assert stage.run(limits=LONG).answer == "done"
    for request in turns(stage):
        asked = [each.id for message in request.messages for each in getattr(message, "calls", ())]
        assert asked == [message.call.id for message in request.messages if isinstance(message, ToolMessage)]
