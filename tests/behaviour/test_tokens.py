"""What a model reports of its tokens changes how its next requests are estimated, also after an interruption."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from orchestrator import Limits
from orchestrator.config import PolicySettings
from orchestrator.events import ModelIntent, ModelResult, RunStarted
from orchestrator.messages import Usage
from orchestrator.models.base import ModelRequest, ToolSpec
from orchestrator.models.counting import FRESH, count, tokens
from orchestrator.models.resolve import plain_codec
from orchestrator.runtime.requests import Wire, rebuilt
from orchestrator.testing import call, reply
from tests.behaviour.stage import Stage, allow
from tests.behaviour.test_replay import reading
from tests.support.runs import card

pytestmark = pytest.mark.requirement("B7", "D2")

TEXTS = json.loads((Path(__file__).parents[1] / "models" / "token_counts.json").read_text("utf-8"))["texts"]
CHINESE = [row["text"] for row in TEXTS if row["kind"] == "chinese"]
DEAR = (*FRESH[:4], 1.5, *FRESH[5:])
"""A model that makes twice as many tokens of Chinese as was thought."""


def library() -> dict[str, Any]:
    server = MCPServer("lib", log_level="ERROR")

    @server.tool()
    async def read(page: int) -> str:
        return CHINESE[page] * 3

    @server.tool()
    async def note(text: str) -> str:
        return f"{text}: {CHINESE[2] * 3}"

    return {"lib": server}


def script(request: ModelRequest) -> Any:
    """Reads two pages, makes a note of them, answers."""
    body = json.loads(request.body)
    texts = [json.dumps(each, ensure_ascii=False).encode() for each in (*body["messages"], *body.get("tools", ()))]
    usage = Usage(input_tokens=sum(tokens(count(text), DEAR) for text in texts), output_tokens=10)
    made = [call("lib__read", {"page": 0}), call("lib__read", {"page": 1}), call("lib__note", {"text": "茶"}), "done"]
    return reply(made[min(request.turn, 4) - 1], usage=usage)


def staged(folder: Path, policy: PolicySettings) -> Stage:
    folder.mkdir()
    return Stage(folder, script, card("boss", tools=("lib__*",)), servers=library(), policy=policy)


def estimates(folder: Path, run: str) -> list[tuple[int, int]]:
    """What was estimated for each request of a run, and what was reported of it."""
    events = reading(folder, run)[0][run]
    asked = [event.reserved - event.output for event in events if isinstance(event, ModelIntent)]
    return list(zip(asked, [e.usage.input_tokens for e in events if isinstance(e, ModelResult)], strict=True))


def test_what_was_added_is_estimated_right_after_one_report_of_such_text(tmp_path: Path) -> None:
    stage = staged(tmp_path / "a", allow("*"))
    result = stage.run()
    (_, first), (surprised, second), (learned, third), _ = estimates(stage.folder, result.run_id)
    assert surprised - first < 0.7 * (second - first)
    assert learned - second == pytest.approx(third - second, rel=0.15)
    assert (surprised > first, learned > second) == (True, True), "an estimate is never below what was reported"


def test_the_next_run_of_the_process_begins_with_what_was_learned(tmp_path: Path) -> None:
    stage = staged(tmp_path / "a", allow("*"))

    async def work(orchestrator: Any) -> list[str]:
        return [(await orchestrator.run("the job")).run_id for _ in range(2)]

    _, second = stage.within(work)
    (_, first), (estimated, reported), *_ = estimates(stage.folder, second)
    assert estimated - first == pytest.approx(reported - first, rel=0.15)
    start = reading(stage.folder, second)[0][second][0]
    assert isinstance(start, RunStarted)
    assert start.weights
    assert start.weights != FRESH


def test_a_resumed_run_sends_the_very_request_that_it_would_have_sent(tmp_path: Path) -> None:
    """With a limit so near that the output limit of a request depends on how its input is estimated."""
    limits = Limits(tokens=9_000)
    straight = staged(tmp_path / "a", allow("*"))
    assert straight.run(limits=limits).answer == "done"
    parking = staged(tmp_path / "b", allow("lib__read"))
    parked = parking.run(limits=limits)
    assert parked.status == "parked"
    parking.decide(parked.run_id)
    assert parking.resume(parked.run_id).answer == "done"
    assert [each.body for each in parking.requests] == [each.body for each in straight.requests]
    assert parking.requests[-1].max_output_tokens < 4096


def test_requests_are_rebuilt_with_the_limits_they_had(tmp_path: Path) -> None:
    stage = staged(tmp_path / "a", allow("*"))
    result = stage.run(limits=Limits(tokens=9_000))
    tree, bodies = reading(stage.folder, result.run_id)
    events = tree[result.run_id]
    start = events[0]
    assert isinstance(start, RunStarted)
    specs = {start.tools: [ToolSpec(**spec) for spec in json.loads(bodies[start.tools])]}
    found = rebuilt(events, [Wire(plain_codec(start.model), vision=False)], bodies[start.system].decode(), specs, {})
    assert [each.body for each in found] == [request.body for request in stage.requests]
