"""`orchestrator doctor`: what it finds, where, and what it says to do; that it hides secrets and starts no more than
it may."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import AWKWARD, EFFECTS, Ended, orchestrator, plain, servers, write_cards
from tests.support.model_server import model_server

pytestmark = pytest.mark.requirement("C3")

CASES = Path(__file__).parents[1] / "cases"
SECRET = "sk-live-0123456789abcdef0123456789abcdef"
OBJECT = {"type": "object"}


def finding(ended: Ended, about: str, words: str = "") -> dict[str, Any]:
    """The only finding about something that holds these words."""
    (found,) = (f for f in ended.json["findings"] if f["about"] == about and words in f["message"])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with most of what can be wrong in it."""
    folder = tmp_path_factory.mktemp("doctor")
    long = "very_long_name_of_a_tool_that_somebody_thought_was_a_good_idea"
    tools = [
        {"name": "twice", "description": "The first.", "inputSchema": OBJECT},
        {"name": "twice", "description": "The second.", "inputSchema": OBJECT},
        {
            "name": "wrong",
            "description": "Cannot be judged.",
            "inputSchema": {**OBJECT, "properties": {"a": {"type": "text"}}},
        },
        {"name": long, "inputSchema": OBJECT},
    ]
    (folder / "odd.json").write_text(json.dumps(tools))
    servers(
        folder / ".mcp.json",
        fx=plain(EFFECTS, folder / "ledger"),
        odd=plain(AWKWARD, "--tools", folder / "odd.json"),
        noisy=plain(AWKWARD, "--banner"),
        falls=plain(AWKWARD, "--fall", env={"DB_TOKEN": SECRET}),
        mute=plain(AWKWARD, "--mute", orchestrator={"start_timeout": 1.5}),
        gone={"command": "/nowhere/at-all", "args": ["--token", SECRET, "postgres://me:hush@db/x"]},
        unset=plain(AWKWARD, env={"BOX_KEY": "${BOX_KEY}"}),
        remote={"url": f"http://127.0.0.1:9/mcp?api_key={SECRET}", "headers": {"X-Api-Key": SECRET}},
        old={"command": "/nowhere/old", "disabled": True},
    )
    agents = write_cards(folder, right="tools: [fx__look]", wrong="tools: [fx__lok]")
    agents.rename(folder / "agents")
    return folder


@pytest.fixture(scope="module")
def looked(folder: Path) -> Ended:
    with model_server(lambda _: {"status": 500, "error": "no model call is wanted"}) as server:
        env = {**server.env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        ended = orchestrator("doctor", "--json", "--model", "openai:loop", folder=folder, env=env)
        assert not server.seen, "not a token was spent"
    return ended


def server(ended: Ended, name: str) -> dict[str, Any]:
    return next(each for each in ended.json["servers"] if each["name"] == name)


def test_the_form(looked: Ended) -> None:
    assert looked.code == 2
    assert looked.err == ""
    keys = ["ok", "offline", "workspace", "files", "servers", "agents", "models", "collector", "state", "findings"]
    assert list(looked.json) == keys
    assert looked.json["ok"] is False
    assert all(f["level"] in ("error", "warning", "hint") and f["message"] for f in looked.json["findings"])
    levels = [f["level"] for f in looked.json["findings"]]
    assert levels == sorted(levels, key=["error", "warning", "hint"].index), "the worst first"


def test_a_server_that_is_up(looked: Ended, folder: Path) -> None:
    fx = server(looked, "fx")
    assert (fx["up"], fx["protocol"], fx["era"], fx["problem"], fx["stderr"]) == (
        True,
        "2025-11-25",
        "handshake",
        "",
        [],
    )
    assert 0 < fx["start_s"] < 60
    assert str(EFFECTS) in fx["command"]
    assert fx["file"] == str(folder / ".mcp.json")
    assert len(fx["tools"]) == 8
    assert fx["tokens"] == sum(tool["tokens"] for tool in fx["tools"])
    assert all(tool["tokens"] > 10 for tool in fx["tools"])


@pytest.mark.requirement("C9")
def test_descriptions_are_judged_and_each_has_a_fix(looked: Ended) -> None:
    look = next(tool for tool in server(looked, "fx")["tools"] if tool["tool"] == "look")
    assert {remark["rule"] for remark in look["remarks"]} == {"short_description", "argument", "example"}
    assert all(remark["fix"] for remark in look["remarks"])
    hint = finding(looked, "server fx", "fewer than 4 words")
    assert (hint["level"], hint["message"].split(" tools")[0]) == ("hint", "8 of 8")


@pytest.mark.requirement("C9")
def test_bundled_servers_are_described_well(looked: Ended) -> None:
    bundled = [each for each in looked.json["servers"] if each["bundled"]]
    assert {each["name"] for each in bundled} == {"charts", "files", "logs", "tables"}
    remarks = {tool["name"]: tool["remarks"] for each in bundled for tool in each["tools"] if tool["remarks"]}
    assert remarks == {}
    assert all(each["up"] for each in bundled)


def test_a_server_that_ends_at_once_is_told_with_its_last_lines(looked: Ended) -> None:
    falls = server(looked, "falls")
    assert (falls["up"], falls["tools"]) == (False, [])
    assert falls["problem"] == "its process ended with exit code 3"
    assert falls["stderr"] == ["starting up", "fatal: no database at db.example"]
    assert finding(looked, "server falls", "exit code")["level"] == "error"


def test_a_server_that_hangs_does_not_hang_doctor(looked: Ended) -> None:
    said = finding(looked, "server mute")
    assert said["message"] == "it did not answer within 1.5 s"
    assert "start_timeout" in said["fix"]


def test_a_command_that_is_not_there(looked: Ended) -> None:
    said = finding(looked, "server gone", "No such file")
    assert said["level"] == "error"
    assert "`command`" in said["fix"]


def test_a_server_that_writes_noise(looked: Ended) -> None:
    said = finding(looked, "server noisy", "none of the protocol")
    assert (said["level"], server(looked, "noisy")["up"]) == ("warning", True)
    assert "*** Awkward server 1.0 ***" in said["message"]


def test_a_variable_that_is_not_set_is_named_with_its_line(looked: Ended, folder: Path) -> None:
    said = finding(looked, "server unset")
    assert "`BOX_KEY` is not set" in said["message"]
    assert (said["level"], said["file"], said["line"]) == ("error", str(folder / ".mcp.json"), 1)


def test_tools_that_cannot_be_offered_are_named_with_the_reason(looked: Ended) -> None:
    odd = server(looked, "odd")
    assert set(odd["left_out"]) == {"twice", "wrong"}
    assert "another tool of this name" in odd["left_out"]["twice"]
    assert "its input schema cannot be used" in odd["left_out"]["wrong"]
    assert [tool["tool"][:9] for tool in odd["tools"]] == ["twice", "very_long"]


def test_names_that_were_cut_are_shown_beside_the_originals(looked: Ended) -> None:
    said = finding(looked, "server odd", "are cut")
    assert "`very_long_name_of_a_tool_that_somebody_thought_was_a_good_idea`" in said["message"]
    assert said["fix"] == "give the server a shorter name"


def test_a_disabled_server_is_left_alone(looked: Ended) -> None:
    old = server(looked, "old")
    assert (old["disabled"], old["up"]) == (True, None)
    assert not [f for f in looked.json["findings"] if f["about"] == "server old"]


def test_no_secret_is_in_any_output(looked: Ended, folder: Path) -> None:
    assert finding(looked, "server remote", "`X-Api-Key`")["level"] == "warning"
    assert server(looked, "remote")["url"] == "http://127.0.0.1:9/mcp?api_key=[secret]"
    assert server(looked, "gone")["command"] == "/nowhere/at-all --token [secret] postgres://[secret]@db/x"
    text = orchestrator("doctor", "--offline", folder=folder)
    for said in (looked.out, text.out, text.err):
        assert SECRET not in said
        assert "hush" not in said


def test_every_card_is_judged_against_the_tools_that_are_there(looked: Ended, folder: Path) -> None:
    said = finding(looked, "agents", "fx__lok")
    assert "Did you mean `fx__look`?" in said["message"]
    assert (said["level"], said["file"], said["line"]) == ("error", str(folder / "agents" / "wrong.md"), 4)
    problems = {agent["name"]: agent["problem"] for agent in looked.json["agents"]}
    assert problems["right"] == ""
    assert "fx__lok" in problems["wrong"]


def test_the_model_is_there_and_its_key_too(looked: Ended) -> None:
    (model,) = looked.json["models"]
    assert (model["spec"], model["reachable"], model["problem"]) == ("openai:loop", True, "")
    assert (model["key"], model["key_set"]) == ("OPENAI_API_KEY", True)
    assert "supervisor" in model["agents"]


def test_a_collector_that_is_not_there_is_a_warning(looked: Ended) -> None:
    assert looked.json["collector"]["reachable"] is False
    assert finding(looked, "collector")["level"] == "warning"


def test_offline_starts_and_asks_nothing(folder: Path) -> None:
    env = {"OPENAI_API_KEY": "sk-none-at-all-000", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    ended = orchestrator("doctor", "--offline", "--json", "--model", "openai:loop", folder=folder, env=env)
    assert ended.code == 2
    assert {each["up"] for each in ended.json["servers"]} == {None}
    assert (ended.json["collector"]["reachable"], ended.json["models"][0]["reachable"]) == (None, None)
    assert finding(ended, "server unset")["level"] == "error"
    assert finding(ended, "server gone", "not found")["message"] == "the command `/nowhere/at-all` is not found"
    assert not [f for f in ended.json["findings"] if f["about"] in ("server mute", "server odd")]


def offline(tmp_path: Path, *arguments: object, **env: str) -> Ended:
    return orchestrator("doctor", "--offline", "--json", *arguments, folder=tmp_path, env=env)


def test_a_folder_with_nothing_in_it_is_fine(tmp_path: Path) -> None:
    ended = offline(tmp_path)
    assert (ended.code, ended.json["ok"]) == (0, True)
    assert [f["message"] for f in ended.json["findings"]] == ["no model is configured"]
    assert (ended.json["state"]["exists"], ended.json["state"]["writable"]) == (False, True)
    assert not (tmp_path / "home").exists()


def test_case_02_inputs_are_named_where_nobody_can_be_asked(tmp_path: Path) -> None:
    ended = offline(tmp_path, "--mcp-config", CASES / "configs" / "02-vscode-comments.json")
    assert "the input `token` (API token) has to be asked for" in finding(ended, "server tickets")["message"]
    assert "there is no such environment file" in finding(ended, "server docs", "env")["message"]


def test_case_03_a_file_that_is_cut_off_is_an_error_and_nothing_starts(tmp_path: Path) -> None:
    ended = orchestrator("doctor", "--json", "--mcp-config", CASES / "configs" / "03-cut-off.json", folder=tmp_path)
    assert (ended.code, ended.json["servers"]) == (2, [])
    assert finding(ended, "configuration")["line"] == 8


def test_case_04_what_is_of_windows_is_said_and_an_unset_variable_is_an_error(tmp_path: Path) -> None:
    case = CASES / "configs" / "04-windows.json"
    ended = offline(tmp_path, "--mcp-config", case)
    assert ended.code == 2
    assert "the command `cmd` is of Windows" in finding(ended, "server box", "Windows")["message"]
    assert "drive letter" in finding(ended, "server drive", "Windows")["message"]
    unset = finding(ended, "server box", "BOX_KEY")
    assert (unset["level"], unset["line"]) == ("error", 1)
    assert offline(tmp_path, "--mcp-config", case, BOX_KEY="k").code == 0


def test_case_06_a_secret_in_the_file_is_warned_of_and_never_shown(tmp_path: Path) -> None:
    ended = offline(tmp_path, "--mcp-config", CASES / "configs" / "06-secret-inline.json")
    said = finding(ended, "server crm")
    assert (ended.code, said["level"]) == (0, "warning")
    assert "`X-Api-Key`" in said["message"]
    assert "sk-live" not in ended.out + ended.err


def test_case_07_and_08_are_errors(tmp_path: Path) -> None:
    configs = [CASES / "configs" / name for name in ("07-bom-and-types.json", "08-duplicate-keys.json")]
    ended = offline(tmp_path, "--mcp-config", configs[0], "--mcp-config", configs[1])
    assert ended.code == 2
    assert finding(ended, "configuration", '"args": ["--flag", "--port", "3"]')["level"] == "error"
    assert finding(ended, "configuration", "`mcpServers.same` is there twice")["level"] == "error"


def test_all_mistakes_of_all_cards_are_told(tmp_path: Path) -> None:
    ended = offline(tmp_path, "--agents", CASES / "cards")
    assert ended.code == 2
    wrong = {f["file"].rpartition("/")[2] for f in ended.json["findings"] if f["level"] == "error"}
    assert wrong == {"03-misspelt.md", "04-no-front-matter.md", "06-yaml-traps.md"}
    lines = [f["line"] for f in ended.json["findings"] if f["level"] == "error" and "03-" in f["file"]]
    assert lines == [3, 6]


@pytest.mark.parametrize(
    ("spec", "env", "words"),
    [
        ("openai:loop", {}, "set the environment variable OPENAI_API_KEY"),
        ("opnai:loop", {}, "Did you mean"),
        ("scripted:nowhere.jsonl", {}, "nowhere.jsonl"),
    ],
)
def test_a_model_that_cannot_be_used(tmp_path: Path, spec: str, env: dict[str, str], words: str) -> None:
    ended = offline(tmp_path, "--model", spec, **env)
    assert ended.code == 2
    assert words in finding(ended, f"model {spec}")["message"]


def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = orchestrator(
        "doctor", "--offline", "--json", folder=tmp_path, env={"ORCHESTRATOR_HOME": str(tmp_path / "file")}
    )
    assert ended.code == 2
    assert "ORCHESTRATOR_HOME" in finding(ended, "state")["fix"]


def test_in_a_pipe_no_line_is_broken_and_nothing_is_coloured(folder: Path) -> None:
    ended = orchestrator("doctor", "--offline", folder=folder)
    assert str(folder / "agents" / "wrong.md") not in ended.out, "names of tools are judged online"
    assert f"\n    {folder / '.mcp.json'}:1\n" in ended.out
    assert "\x1b" not in ended.out
    assert ended.out.splitlines()[-1].startswith("1 error, ")


@pytest.mark.parametrize(("name", "listed"), [("other", True), ("dated", True), ("oth", False)])
def test_anthropics_server_is_asked_too_and_a_dated_name_is_the_same_model(
    tmp_path: Path, name: str, listed: bool
) -> None:
    with model_server(lambda body: {"text": "no token is spent"}) as server:
        spec = f"anthropic:{name}"
        ended = orchestrator("doctor", "--json", "--model", spec, folder=tmp_path, env=server.env)
    assert not server.seen
    (model,) = ended.json["models"]
    assert (model["spec"], model["key"], model["key_set"], model["reachable"]) == (
        spec,
        "ANTHROPIC_API_KEY",
        True,
        True,
    )
    said = [found["message"] for found in ended.json["findings"] if found["about"] == f"model {spec}"]
    assert said == ([] if listed else [f"its server does not list `{name}`"])
