"""Three hundred tools of ten servers, found by an agent that another one calls, over the death of the process."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import many
from tests.support.command import end, orchestrator, servers, start, write_cards
from tests.support.model_server import ModelServer, model_server, turn_of

pytestmark = [pytest.mark.requirement("C5"), pytest.mark.xdist_group("many")]

FOUND = "payroll__fetch_payroll_invoice"
WISH = {"query": "fetch an invoice of the payroll", "limit": 2}


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


PLAY = {
    ("boss", 1): calling("agents__clerk", task="fetch invoice 7"),
    ("boss", 2): {"text": "the boss is done"},
    ("clerk", 1): calling("find_tools", **WISH),
    ("clerk", 2): calling(FOUND, id="7"),
    ("clerk", 3): {"text": "the clerk is done"},
}


def agent_of(body: dict[str, Any]) -> str:
    return "clerk" if "You are clerk" in body["messages"][0]["content"] else "boss"


def asked(server: ModelServer, agent: str) -> list[dict[str, Any]]:
    return [body for body in server.seen if agent_of(body) == agent]


def names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


def command(folder: Path, *flags: Any) -> tuple[Any, ...]:
    servers(folder / ".mcp.json", **many.servers(folder))
    agents = write_cards(folder, boss="agents: [clerk]", clerk='tools: ["*"]')
    return ("run", "the job", "--agent", "boss", "--agents", agents, "--model", "openai:m", "--json", *flags)


def test_three_hundred_tools_are_found_by_a_child_agent_and_stay_over_a_crash(tmp_path: Path) -> None:
    dying: list[int] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if (agent_of(body), turn_of(body)) == ("clerk", 3) and dying:
            os.kill(dying.pop(), signal.SIGKILL)
        return PLAY[agent_of(body), turn_of(body)]

    with model_server(answer) as server:
        process = start(*command(tmp_path), folder=tmp_path, env=server.env)
        dying.append(process.pid)
        assert end(process, 120).code == -signal.SIGKILL
        ended = orchestrator("resume", "last", "--json", folder=tmp_path, env=server.env)
    assert ended.code == 0, ended.err
    assert ended.json["answer"] == "the boss is done"
    first, second, before, after = asked(server, "clerk")
    assert json.dumps(before) == json.dumps(after), "the request that was under way goes out again, byte for byte"
    assert before["messages"][-1]["content"] == "fetch_payroll_invoice"
    always = names(first)
    assert names(second)[: len(always)] == always
    assert names(second)[len(always)] == FOUND
    assert len(names(second)) == len(always) + WISH["limit"]
    assert names(after) == names(second)
    of_boss = {name for body in asked(server, "boss") for name in names(body)}
    assert of_boss == {"agents__clerk", "plan"}, "each has its own"


def test_three_hundred_tools_cost_the_prompt_less_than_a_tenth_of_listing_them(tmp_path: Path) -> None:
    sizes: list[int] = []
    for number, limit in enumerate((30, 0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "orchestrator.toml").write_text(f"[tools]\ngroups_above = {limit}\n")
        with model_server(lambda _: {"text": "done"}) as server:
            ended = orchestrator(*command(folder, "--agent", "clerk"), folder=folder, env=server.env)
        assert ended.code == 0, ended.err
        (body,) = server.seen
        sizes.append(len(json.dumps(body["tools"])))
        assert sum("__" in name for name in names(body)) == (0 if limit else 300)
    assert sizes[0] < sizes[1] / 10
