"""`orchestrator init`: what it takes from other hosts, what it never takes, and that it overwrites nothing."""

import json
from pathlib import Path

import pytest

from tests.support.command import Ended, orchestrator

pytestmark = pytest.mark.requirement("C2")

SECRET = "ghp_0123456789abcdef0123"
CASES = Path(__file__).parents[1] / "cases" / "configs"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A home with files of several hosts."""
    home = tmp_path / "user"
    files = {
        ".config/Claude/claude_desktop_config.json": json.dumps(
            {
                "mcpServers": {
                    "github": {
                        "command": "python",
                        "args": ["gh.py", "--api-key", SECRET, f"--token={SECRET}9"],
                        "env": {"GITHUB_TOKEN": SECRET, "MODE": "read"},
                    },
                    "paid": {"url": f"https://paid.example/mcp?key={SECRET}"},
                }
            }
        ),
        ".cursor/mcp.json": (CASES / "06-secret-inline.json").read_text(),
        ".config/Code/User/mcp.json": '{"servers": {"desk": {"type": "http", "url": "https://desk.example/mcp", '
        '"headers": {"Authorization": "Bearer ${input:token}"}}}, "inputs": [{"id": "token", "password": true}]}',
        ".codex/config.toml": '[mcp_servers.notes]\ncommand = "python"\nargs = ["n.py"]\nenabled_tools = ["read"]\n',
        ".claude.json": json.dumps(
            {
                "numStartups": 3,
                "projects": {str(tmp_path / "work"): {"mcpServers": {"here": {"command": "python", "args": ["h.py"]}}}},
                "mcpServers": {"github": {"command": "python", "args": ["other.py"]}},
            }
        ),
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (tmp_path / "work").mkdir()
    return home


def init(machine: Path, *arguments: str) -> Ended:
    env = {"HOME": str(machine), "XDG_CONFIG_HOME": "", "CODEX_HOME": "", "ORCHESTRATOR_HOME": str(machine / "state")}
    return orchestrator(*(arguments or ("init", "--yes", "--json")), folder=machine.parent / "work", env=env)


def test_without_a_terminal_it_says_what_it_would_write_and_how(machine: Path) -> None:
    ended = init(machine, "init")
    assert (ended.code, ended.out) == (2, "")
    assert f"to write: {machine.parent / 'work' / '.mcp.json'}" in ended.err
    assert "pass --yes" in ended.err
    assert list((machine.parent / "work").iterdir()) == []


def test_the_servers_of_all_hosts_are_merged_and_no_secret_is_copied(machine: Path) -> None:
    ended = init(machine)
    assert ended.code == 0, ended.err
    text = (machine.parent / "work" / ".mcp.json").read_text()
    for said in (text, ended.out, ended.err):
        assert SECRET not in said
        assert "sk-live" not in said
    entries = json.loads(text)["mcpServers"]
    assert list(entries) == ["here", "github", "paid", "crm", "desk", "notes"]
    assert entries["github"]["args"] == ["other.py"], "the first of several of one name"
    assert any("left out: `github`" in note for note in ended.json["notes"])
    assert entries["paid"]["url"] == "${PAID_URL}"
    assert entries["crm"]["headers"] == {"X-Api-Key": "${CRM_X_API_KEY}"}
    assert entries["desk"]["headers"] == {"Authorization": "Bearer ${DESK_TOKEN}"}
    assert entries["notes"]["orchestrator"] == {"allow": ["read"]}
    assert ended.json["variables"] == {"PAID_URL": "paid", "CRM_X_API_KEY": "crm", "DESK_TOKEN": "desk"}


def test_secrets_in_arguments_and_environment_become_variables(machine: Path) -> None:
    (machine / ".claude.json").unlink()
    init(machine)
    github = json.loads((machine.parent / "work" / ".mcp.json").read_text())["mcpServers"]["github"]
    assert github["args"] == ["gh.py", "--api-key", "${GITHUB_API_KEY}", "--token=${GITHUB_TOKEN}"]
    assert github["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN_2}", "MODE": "read"}


def test_doctor_finds_nothing_but_what_it_said_to_set(machine: Path) -> None:
    variables = init(machine).json["variables"]
    before = init(machine, "doctor", "--offline", "--json")
    wrong = [finding["message"] for finding in before.json["findings"] if finding["level"] == "error"]
    assert before.code == 2
    assert len(wrong) == len(variables)
    assert all(any(f"`{name}` is not set" in message for message in wrong) for name in variables)
    env = {"HOME": str(machine), **dict.fromkeys(variables, "https://x.example/mcp")}
    after = orchestrator("doctor", "--offline", "--json", folder=machine.parent / "work", env=env)
    assert after.code == 0, after.out


def test_nothing_is_overwritten(machine: Path) -> None:
    work = machine.parent / "work"
    mine = {".mcp.json": '{"mcpServers": {}}', "orchestrator.toml": "# mine\n"}
    for name, text in mine.items():
        (work / name).write_text(text)
    (work / "agents").mkdir()
    ended = init(machine)
    assert (ended.code, ended.json["written"], ended.json["variables"]) == (0, [], {})
    assert {name: (work / name).read_text() for name in mine} == mine
    assert list((work / "agents").iterdir()) == []
    assert len([note for note in ended.json["notes"] if note.endswith("stays as it is")]) == 3


def test_a_machine_without_other_hosts_gets_settings_and_a_card(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    ended = init(tmp_path / "user")
    assert [Path(path).name for path in ended.json["written"]] == ["orchestrator.toml", "assistant.md"]
    checked = init(tmp_path / "user", "doctor", "--offline", "--json")
    assert (checked.code, checked.json["ok"]) == (0, True)
