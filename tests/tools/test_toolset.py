"""All servers as one: names, effects, and what is left out."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.tools.toolset import Toolset, nearest
from tests.support.toolsets import awkward_server, call, running, with_toolset, write


def tools(tmp_path: Path, name: str, *several: Any) -> Any:
    """A server that offers these tools."""
    listed = [{"name": each, "inputSchema": {"type": "object"}} if isinstance(each, str) else each for each in several]
    return awkward_server("--tools", write(tmp_path / f"{name}.json", json.dumps(listed)), name=name)


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@pytest.mark.requirement("C3")
def test_s4_two_servers_may_offer_the_same_tool(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        assert [offer.name for offer in toolset.offers()] == ["one__create_issue", "two__create_issue"]
        assert (await call(toolset, "two__create_issue")).text == "create_issue"
        assert toolset.left_out == {}

    with_toolset(test, tools(tmp_path, "one", "create_issue"), tools(tmp_path, "two", "create_issue"))


@pytest.mark.requirement("C3")
def test_names_that_become_the_same_are_told_apart(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        names = [offer.name for offer in toolset.offers()]
        assert names[0] == "s__a_b"
        assert len(set(names)) == 3
        for offer in toolset.offers():
            assert (await call(toolset, offer.name)).text == offer.tool.name

    with_toolset(test, tools(tmp_path, "s", "a.b", "a_b", "a/b"))


@pytest.mark.requirement("C3")
def test_a_name_that_a_server_gives_twice_is_left_out_with_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(toolset: Toolset) -> None:
        assert [offer.tool.description for offer in toolset.offers()] == ["first", None]
        assert toolset.left_out == {"s__same": "server s offers another tool of this name, which is used"}
        await toolset.ready(["s"])

    twice = (tool("same", description="first"), tool("same", description="second"), "other")
    with caplog.at_level(logging.WARNING):
        with_toolset(test, tools(tmp_path, "s", *twice))
    assert len(caplog.records) == 1, "it is said once"


@pytest.mark.requirement("C3")
def test_a_schema_that_cannot_be_used_leaves_out_that_tool_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(toolset: Toolset) -> None:
        assert [offer.name for offer in toolset.offers()] == ["s__good"]
        assert toolset.left_out["s__bad"].startswith("its input schema cannot be used: ")
        await toolset.ready(["s"])
        assert toolset.version == 1

    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "strnig"}}}}
    with caplog.at_level(logging.WARNING):
        with_toolset(test, tools(tmp_path, "s", bad, "good"))
    (record,) = caplog.records
    assert "tool s__bad is left out" in record.getMessage()


def test_effects_are_what_the_annotations_say(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        assert {offer.tool.name: offer.effect for offer in toolset.offers()} == {
            "reads": "read",
            "sets": "idempotent",
            "silent": "write",
            "both": "read",
            "neither": "write",
        }

    listed = [
        tool("reads", annotations={"readOnlyHint": True}),
        tool("sets", annotations={"idempotentHint": True}),
        tool("silent"),
        tool("both", annotations={"readOnlyHint": True, "idempotentHint": True}),
        tool("neither", annotations={"readOnlyHint": False, "idempotentHint": False}),
    ]
    with_toolset(test, tools(tmp_path, "s", *listed))


def test_a_server_that_comes_later_moves_no_names(tmp_path: Path) -> None:
    async def main() -> None:
        toolset = Toolset([tools(tmp_path, "a.x", "look"), tools(tmp_path, "a_x", "look")])
        async with toolset.running():
            await toolset.ready(["a_x"])
            before = {offer.name: offer.server.name for offer in toolset.offers()}
            await toolset.ready(["a.x"])
            after = {offer.name: offer.server.name for offer in toolset.offers()}
        assert before == {"a_x__look": "a_x"}
        assert len(after) == 2
        assert after["a_x__look"] == "a_x"

    anyio.run(main)


def test_the_model_is_shown_an_object_without_what_only_validators_read(tmp_path: Path) -> None:
    async def test(toolset: Toolset) -> None:
        (offer,) = toolset.offers()
        assert offer.spec.parameters == {"type": "object", "properties": {"a": {"type": "integer"}}}
        assert (offer.spec.name, offer.spec.description) == ("s__t", "Adds")

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "T", "type": "object"}
    listed = tool("t", title="Adds", inputSchema={**schema, "properties": {"a": {"type": "integer"}}})
    with_toolset(test, tools(tmp_path, "s", listed))


def test_servers_run_no_longer_than_their_block() -> None:
    async def main() -> None:
        async with running(awkward_server()) as toolset:
            server = toolset.servers["awkward"]
            assert server.up
        assert not server.up
        offer = toolset.get("awkward__echo")
        assert offer is not None

    anyio.run(main)


def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async def main() -> None:
        async with running(awkward_server()):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        anyio.run(main)


def test_nearest_names() -> None:
    known = ["files__read", "files__write", "git__status"]
    assert nearest("read", known) == ["files__read"]
    assert nearest("file__read", known) == ["files__read"]
    assert nearest("files__raed", known)[0] == "files__read"
    assert nearest("zzz", known) == []
