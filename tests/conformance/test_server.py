"""The conformance suite of the protocol, its server half, before `orchestrator serve`: both requirement sets.

The suite wants tools of certain names. Where an agent can be what such a tool is, one of that name is served. What an
agent never is stands in `expected_failures.json` with its reason: each check that fails, no less and no more.
"""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_client import EXPECTED
from tests.serving.served import SECONDS, House
from tests.support import foreign
from tests.support.command import EFFECTS, call, plain, servers

pytestmark = [pytest.mark.xdist_group("conformance"), pytest.mark.requirement("E3")]

LEAST = {"2025-11-25": 33, "2026-07-28": 50}
"""How many scenarios are run."""

ASKER = Path(__file__).with_name("asker.py")
NOTHING = "input: {type: object, properties: {}}"
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
FORMS = {
    "test_elicitation": ["person"],
    "test_elicitation_sep1034_defaults": ["defaults"],
    "test_elicitation_sep1330_enums": ["enums"],
    "test_streaming_elicitation": ["name"],
    "test_input_required_result_elicitation": ["name"],
    "test_input_required_result_request_state": ["ok"],
    "test_input_required_result_multi_round": ["name", "color"],
    "test_input_required_result_tampered_state": ["ok"],
    "test_input_required_result_capabilities": ["name"],
    "test_tool_with_task": ["name"],
    "confirm_delete": ["confirm"],
    "multi_input": ["both", "both"],
}
"""Agents whose tool asks a person, and which forms: one after the other, `multi_input` all at once."""

LONG = ("greet", "slow_compute", "failing_job")
"""Agents that the suite calls to see which get a task; those that ask are in `FORMS`."""

WAIT = {"calls": [call("fx__wait", ms=1500)]}

CARDS = {
    "test_simple_text": f"tools: []\n{NOTHING}",
    "test_error_handling": f"tools: []\n{NOTHING}",  # nothing is recorded for it
    "test_tool_with_progress": f"tools: [fx__look]\n{NOTHING}",
    "test_logging_tool": f"tools: []\n{NOTHING}",
    "json_schema_2020_12_tool": f"tools: []\ninput: {json.dumps(SCHEMA)}",
    "test_header_tool": f"tools: []\ninput: {json.dumps(REGION)}",
    **dict.fromkeys(FORMS, f"tools: [asker__ask]\n{NOTHING}"),
    **dict.fromkeys(
        ("test_tool_with_task", "confirm_delete", "multi_input"), "tools: [asker__ask, fx__wait]\ninput: {type: object}"
    ),
    **dict.fromkeys(LONG, "tools: [fx__wait, fx__hang]\ninput: {type: object}"),
    "test_elicitation": "tools: [asker__ask]\ninput: {type: object, properties: {message: {type: string}}}",
}


def replies() -> Generator[dict[str, Any]]:
    for name in ("test_simple_text", "test_logging_tool", "test_header_tool"):
        yield {"agent": name, "text": "This is a simple text response for testing."}
    for text in ("a", "b"):
        yield {"agent": "test_tool_with_progress", "calls": [call("fx__look", text=text)]}
    yield {"agent": "test_tool_with_progress", "text": "looked twice"}
    for name, forms in FORMS.items():
        asks = [call("asker__ask", form=form) for form in forms]
        if name in ("confirm_delete", "multi_input"):
            yield {"agent": name, **WAIT}
        for calls in [asks] if name == "multi_input" else [[each] for each in asks]:
            yield {"agent": name, "calls": calls}
        if name == "test_tool_with_task":
            yield {"agent": name, **WAIT}
        yield {"agent": name, "text": "thank you, Alice"}
    yield {"agent": "failing_job", **WAIT}  # nothing more is recorded for it
    for task, first in (
        ("1", WAIT),
        ("2", WAIT),
        ("60", {"calls": [call("fx__hang", text="a")]}),
        ("0", {"text": "0"}),
    ):
        yield {"agent": "slow_compute", "turn": 1, "task": f'"seconds": {task}', **first}
    yield {"agent": "slow_compute", "turn": 2, "text": "done"}
    yield {"agent": "greet", "turn": 1, "task": "sep-2243", "text": "Hello, sep-2243!"}
    yield {"agent": "greet", "turn": 1, "text": "Hello!"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("suite")
    house = House.build(folder, CARDS, *replies())
    asker = {"command": sys.executable, "args": [str(ASKER)]}
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"), asker=asker)
    house.start()
    try:
        yield house.url
    finally:
        house.end()


@pytest.mark.parametrize("requirements", EXPECTED["server"])
def test_what_a_server_must_do(requirements: str, url: str, tmp_path: Path) -> None:
    """A check that fails or warns is expected, and what is expected does; also in scenarios that do not count."""
    try:
        suite = foreign.conformance()
    except foreign.Missing as error:
        pytest.skip(f"the conformance suite is missing: {error}")
    reasons = EXPECTED["server"][requirements]
    expected = {check for checks in reasons.values() for check in checks}
    command = [*suite, "server", "--url", url, "--requirements", requirements]
    found = failing(command, tmp_path / "first", requirements)
    if found.keys() - expected:  # some checks wait for half a second only, which a busy machine may need
        again = failing(command, tmp_path / "again", requirements)
        found = {check: why for check, why in again.items() if check in found}
    assert {check: found[check] for check in found.keys() - expected} == {}
    assert expected - found.keys() == set()


def failing(command: list[str], out: Path, requirements: str) -> dict[str, str]:
    """Which checks fail or warn, and why."""
    said = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, timeout=SECONDS * 4)
    assert said.stdout.count("\n=== Running scenario: ") >= LEAST[requirements], said.stdout + said.stderr
    checks = [check for file in out.glob("server-*/checks.json") for check in json.loads(file.read_text("utf-8"))]
    return {check["id"]: check.get("errorMessage", "") for check in checks if check["status"] in ("FAILURE", "WARNING")}
