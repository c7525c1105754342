"""The MCP Inspector's command line before served agents (E3): both eras, over HTTP with a token and over stdio."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.serving.served import SECONDS, WAYS, House
from tests.serving.site import TOKENS, tables
from tests.support import foreign
from tests.support.command import COMMAND, Ended, call, environment

pytestmark = pytest.mark.requirement("E3")

ERAS = {"2026-07-28": "modern", "2025-11-25": "legacy"}
AGENTS = {
    "analyst": "tools: [fx__look]\noutput: {type: object, properties: {month: {type: string}}, required: [month]}"
}
REPLIES = (
    {"agent": "analyst", "calls": [call("fx__look", text="sales.csv")]},
    {"agent": "analyst", "text": '{"month": "May"}'},
)


def inspect(house: House, way: str, era: str, *words: str, token: str = TOKENS["ann"]) -> Ended:
    """The Inspector, ended, on one method."""
    try:
        inspector = foreign.inspector()
    except foreign.Missing as error:
        pytest.skip(f"the Inspector is missing: {error}")
    env = environment(house.folder / "home", {"HOME": str(house.folder), "PATH": os.environ["PATH"]})
    if way == "http":
        to = ["--server-url", house.url, "--header", f"Authorization: Bearer {token}"]
    else:
        # The Inspector hands its server's process no variables but those that it is told.
        home = f"ORCHESTRATOR_HOME={house.folder / 'home'}"
        to = ["-e", home, "--", str(COMMAND), "serve", "--stdio", *house.arguments]
    options = ["--format", "json", "--protocol-era", ERAS[era], *words]
    made = subprocess.run(
        [*inspector, "--cli", *options, *to],
        cwd=house.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS * 2,
    )
    return Ended(code=made.returncode, out=made.stdout, err=made.stderr)


@pytest.mark.parametrize(("way", "era"), WAYS)
def test_the_inspector_lists_and_calls_an_agent(tmp_path: Path, way: str, era: str) -> None:
    house = House.build(tmp_path, AGENTS, *REPLIES, settings=tables())
    if way == "http":
        house.start()
    try:
        # --strict ends with 6 for a schema that some hosts would not take
        listed = inspect(house, way, era, "--method", "tools/list", "--strict")
        task = ("--tool-name", "analyst", "--tool-arg", "task=Which month sold most?")
        called = inspect(house, way, era, "--method", "tools/call", *task)
        if way == "http":
            refused = inspect(house, way, era, "--method", "tools/list", token="no such token")
            assert (refused.code, json.loads(refused.err)["error"]["code"]) == (3, "auth_required")
    finally:
        if way == "http":
            house.end()
    tools = {tool["name"]: tool for tool in listed.json["result"]["tools"]}
    assert list(tools) == ["analyst", "run_result"], listed
    assert tools["analyst"]["description"] == "The analyst."
    assert tools["analyst"]["inputSchema"]["required"] == ["task"]
    assert tools["analyst"]["outputSchema"]["properties"] == {"month": {"type": "string"}}
    assert tools["analyst"]["annotations"]["readOnlyHint"] is True
    result = called.json["result"]
    assert (result["structuredContent"], result["isError"]) == ({"month": "May"}, False)
    assert json.loads(result["content"][0]["text"]) == {"month": "May"}
    assert house.effects == ["look"]
