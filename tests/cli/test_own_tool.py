"""A typed function becomes a tool by one decorator (C1): the tool of docs/servers.md, as a model is shown it."""

import json
from pathlib import Path

import pytest

from tests.house.blocks import ROOT, blocks
from tests.support.command import call, orchestrator, plain, record, servers, write_cards
from tests.support.model_server import model_server

PAGE = ROOT / "docs" / "servers.md"


@pytest.mark.requirement("C1")
def test_schema_and_description_reach_the_model(tmp_path: Path) -> None:
    (source,) = (block.text for block in blocks(PAGE) if block.notes.get("file") == "shop.py")
    code = [line for line in source.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
    assert len(code) <= 10
    (tmp_path / "shop.py").write_text(source)
    entry = plain(tmp_path / "shop.py")
    servers(tmp_path / ".mcp.json", shop={**entry, "args": [str(tmp_path / "shop.py")]})
    agents = write_cards(tmp_path, lone="tools: [shop__find_orders]")
    script = tmp_path / "r.jsonl"
    record(script, {"calls": [call("shop__find_orders", customer="C-1042")]}, {"text": "one"})
    replies = [json.loads(line) for line in script.read_text().splitlines()[1:]]
    with model_server(lambda body: replies[sum(m["role"] == "assistant" for m in body["messages"])]) as model:
        arguments = ("--agent", "lone", "--agents", agents, "--model", "openai:x", "--json")
        ended = orchestrator("run", "look", *arguments, folder=tmp_path, env=model.env)
    assert ended.code == 0, ended.err
    (tool,) = (each["function"] for each in model.seen[0]["tools"] if each["function"]["name"] == "shop__find_orders")
    assert tool["description"] == (
        "Numbers of a customer's orders in one state. Use it before an order is changed. Not for totals."
    )
    customer, status = (tool["parameters"]["properties"][name] for name in ("customer", "status"))
    assert (customer["type"], customer["description"]) == ("string", "Name or number, e.g. C-1042")
    assert (status["enum"], status["default"]) == (["open", "paid", "sent"], "open")
    assert tool["parameters"]["required"] == ["customer"]
    (action,) = ended.json["steps"][0]["actions"]
    assert (action["is_error"], "open order 17 of C-1042" in action["observation"]) == (False, True)


@pytest.mark.requirement("C3")
def test_s10_a_card_that_names_a_tool_that_nobody_offers(tmp_path: Path) -> None:
    """Beside five that are there: an error with the card, the line, the tool and the nearest name; nothing runs."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("get", "put", "list", "move", "search")]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    servers(
        tmp_path / ".mcp.json", fx=plain(ROOT / "tests/support/awkward_server.py", "--tools", tmp_path / "tools.json")
    )
    names = "".join(f"  - fx__{name}\n" for name in ("get", "put", "list", "serach", "move", "search"))
    agents = write_cards(tmp_path, lone=f"tools:\n{names}")
    model = record(tmp_path / "r.jsonl", {"text": "never said"})
    ended = orchestrator("run", "x", "--agent", "lone", "--agents", agents, "--model", model, folder=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    line = 1 + (agents / "lone.md").read_text().splitlines().index("  - fx__serach")
    assert f"{agents / 'lone.md'}:{line}: tools: there is no tool `fx__serach`. Did you mean `fx__search`?" in ended.err


@pytest.mark.requirement("C3")
def test_clashing_names_of_servers_and_bad_schemas_are_told_at_the_start(tmp_path: Path) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "text"}}}
    twice = {"name": "twice", "inputSchema": {"type": "object"}}
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "bad", "inputSchema": bad}, twice, twice]))
    awkward = plain(ROOT / "tests/support/awkward_server.py", "--tools", tmp_path / "tools.json")
    servers(tmp_path / ".mcp.json", fx=awkward)
    agents = write_cards(tmp_path, lone="tools: [fx__twice]")
    model = record(tmp_path / "r.jsonl", {"text": "done"})
    common = ("run", "x", "--agent", "lone", "--agents", agents, "--model", model)
    ended = orchestrator(*common, folder=tmp_path)
    assert ended.code == 0, ended.err
    assert "tool fx__bad is left out: its input schema cannot be used: #/properties/a/type" in ended.err
    assert "tool fx__twice is left out: server fx offers another tool of this name" in ended.err
    servers(tmp_path / "more.json", **{"f.x": awkward, "f x": awkward})
    ended = orchestrator(*common, "--mcp-config", "more.json", folder=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "the server `f x` is configured already, as `f.x` in" in ended.err
