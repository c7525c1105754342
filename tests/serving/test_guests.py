"""A caller with a token over MCP is who the token says, in both eras and beside others (C6, E3)."""

import json
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, InputRequiredResult

from tests.serving.served import ERAS, SECONDS, bell, rung, text
from tests.serving.site import TOKENS, caller, site, tables
from tests.support.command import call
from tests.support.runs import ledger_lines

pytestmark = pytest.mark.requirement("C6", "E3")
both = pytest.mark.parametrize("era", ERAS)
TASK = {"task": "x"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    more = {"bob": {"agents": '["oth*"]'}, "sam": {"limits": "{ tokens = 1 }"}}
    with site(tmp_path_factory.mktemp("guests"), tables(**more)) as served:
        yield served


@asynccontextmanager
async def client(address: str, era: str, name: str, **more: Any) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {TOKENS[name]}"}
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        with anyio.fail_after(SECONDS):
            async with Client(transport, mode=ERAS[era], **more) as opened:
                yield opened


@both
def test_each_sees_calls_and_spends_what_their_token_says(address: str, era: str) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            ann, bob, sam = [await stack.enter_async_context(client(address, era, name)) for name in TOKENS]
            assert [tool.name for tool in (await bob.list_tools()).tools] == ["other", "run_result"]
            assert {"lone", "other", "generalist"} < {tool.name for tool in (await ann.list_tools()).tools}
            stopped = await sam.call_tool("lone", TASK)
            assert stopped.meta["orchestrator/spent"]["stop_reason"] == "max_tokens"
            done = await ann.call_tool("lone", TASK)
            assert text(done) == "done"
            with pytest.raises(MCPError, match="no agent 'lone'"):
                await bob.call_tool("lone", TASK)
            theirs = await bob.call_tool("run_result", {"run": done.meta["orchestrator/spent"]["run"]})
            assert theirs.is_error

    anyio.run(main)
    for name in ("ann", "sam"):
        with caller(address, name) as http:
            runs = http.get("/api/runs").json()["runs"]
            assert {run["by"] for run in runs} == {name}
    with caller(address, "bob") as http:
        assert http.get("/api/runs").json()["runs"] == []


@both
def test_the_same_key_of_two_guests_means_two_runs(address: str, era: str) -> None:
    async def main() -> list[str]:
        runs: list[str] = []
        for name in ("ann", "bob"):
            async with client(address, era, name) as opened:
                done = await opened.call_tool("other", TASK, meta={"orchestrator/key": f"one of {era}"})
                runs.append((done.meta or {})["orchestrator/spent"]["run"])
        return runs

    ann, bob = anyio.run(main)
    assert ann != bob


def test_a_session_is_of_who_began_it(address: str) -> None:
    told = {"accept": "application/json, text/event-stream"}
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with caller(address, "ann", **told) as ann, caller(address, "bob", **told) as bob:
        begun = ann.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        ann.post("/mcp", headers=session, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert "lone" in ann.post("/mcp", headers=session, json=listing).text
        refused = bob.post("/mcp", headers=session, json=listing)
        assert refused.status_code in (403, 404)
        assert "lone" not in refused.text


BOASTING = Path(__file__).parents[1] / "support" / "boasting_server.py"


@pytest.mark.requirement("A3")
def test_nesting_over_processes_gives_a_guest_no_more(tmp_path: Path) -> None:
    """Role, tokens and depth hold in the agent they call, in the one below it, and in what these call elsewhere."""
    replies = [
        {"agent": "mid", "calls": [call("boaster__agent", task="a"), call("boaster__other", task="b")]},
        {"agent": "mid", "calls": [call("agents__low", task="c")]},
        {"agent": "mid", "text": "done"},
        {"agent": "low", "calls": [call("boaster__agent", task="d"), call("boaster__other", task="e")]},
        {"agent": "low", "text": "so far"},
    ]
    said = {"run": "r", "status": "finished", "stop_reason": "answered", "usage": {"input_tokens": 5}, "cost": {}}
    (tmp_path / "script").write_text(json.dumps({task: [{"orchestrator/spent": said}] * 2 for task in "abde"}))
    boaster = {"command": sys.executable, "args": [str(BOASTING), str(tmp_path / "told"), str(tmp_path / "script")]}
    bounds = {"role": '"reader"', "limits": "{ tokens = 20000 }"}
    toml = f'{tables(ann=bounds)}[policy]\nallow = ["boaster__*"]\n[roles.reader]\ntools = ["boaster__agent"]\n'
    cards = {"mid": "tools: [boaster__*]\nagents: [low]", "low": "tools: [boaster__*]"}

    async def main(address: str) -> list[Any]:
        async with client(address, "2026-07-28", "ann") as ann:
            limits: list[Any] = [{"tokens": 10**6, "depth": depth} for depth in (3, 1)]
            return [await ann.call_tool("mid", TASK, meta={"orchestrator/limits": each}) for each in limits]

    with site(tmp_path, toml, *replies, entries={"boaster": boaster}, **cards) as address:
        deep, flat = anyio.run(main, address)
    told = [(line["task"], line["orchestrator/limits"]) for line in ledger_lines(tmp_path / "told")]
    assert [(task, each["depth"]) for task, each in told] == [("a", 2), ("d", 1)]
    assert max(each["tokens"] for _, each in told) < 20_000
    assert (text(deep), "does not offer" in text(flat)) == ("done", True)


def test_a_run_that_goes_on_after_an_approval_is_one_of_those_at_once(tmp_path: Path) -> None:
    pipe = bell(tmp_path)
    replies = ({"calls": [call("fx__pay", text="a")]}, {"calls": [call("fx__hang", text="b")]}, {"text": "done"})
    more = {"ann": {"runs": "1"}}
    with site(tmp_path, tables(**more), *replies) as address, caller(address, "ann") as ann:
        begin = {"agent": "lone", "input": TASK}
        run = ann.post("/api/runs", json=begin).json()["run_id"]
        ann.get(f"/api/runs/{run}/events")  # until it waits
        (waiting,) = ann.get("/api/approvals").json()["approvals"]
        ann.post(f"/api/approvals/{run}/{waiting['call']}", json={"decision": "approve"})
        anyio.run(rung, pipe)
        refused = ann.post("/api/runs", json=begin)
        assert (refused.status_code, "1 runs of ann are under way" in refused.json()["detail"]) == (429, True)
        assert ann.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
        assert ann.post("/api/runs", json=begin).status_code == 202


def test_a_role_and_an_approval_are_of_their_own_token(tmp_path: Path) -> None:
    """Sam may only look, over MCP and beside it; what Ann is asked, Bob cannot answer."""
    replies = ({"calls": [call("fx__pay", text="a")]}, {"text": "written"})
    toml = tables(sam={"role": '"reader"'}) + '[roles.reader]\ntools = ["fx__look"]\n'
    yes = {"t1.1": ElicitResult(action="accept", content={"decision": "approve"})}

    async def person(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("asked by hand here")

    async def main(address: str) -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            ann, bob, sam = [
                await enter(client(address, "2026-07-28", name, elicitation_callback=person)) for name in TOKENS
            ]
            refused = await sam.call_tool("lone", TASK)
            assert text(refused) == "written"  # without a question to anyone
            asked = await ann.session.call_tool("lone", TASK, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            more: Any = {"request_state": asked.request_state, "input_responses": yes, "allow_input_required": True}
            with pytest.raises(MCPError, match="another caller"):
                await bob.session.call_tool("lone", TASK, **more)
            assert not (tmp_path / "ledger").exists()
            done = await ann.session.call_tool("lone", TASK, **more)
            assert isinstance(done, CallToolResult)
            assert text(done) == "written"

    with site(tmp_path, toml, *replies) as address:
        anyio.run(main, address)
        with caller(address, "sam") as sam:
            run = sam.post("/api/runs", json={"agent": "lone", "input": TASK}).json()["run_id"]
            sam.get(f"/api/runs/{run}/events")
            assert sam.get(f"/api/runs/{run}").json()["status"] == "finished"
    assert (tmp_path / "ledger").read_text().count('"tool"') == 1
