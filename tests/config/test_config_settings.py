"""`orchestrator.toml`, and how all files come together (C2, C3)."""

import os
import stat
import sys
from pathlib import Path

import pytest

from orchestrator.config import ModelSettings, Settings, bundled_folder, bundled_servers, home, load_settings
from orchestrator.config.folders import make_private
from orchestrator.errors import ConfigurationError


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    folder = tmp_path / "bundled"
    folder.mkdir()
    for name in ("tables", "charts", "_shared"):
        (folder / f"{name}.py").write_text("")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def load(workspace: Path, bundled: Path, text: str = "", **environ: str) -> Settings:
    if text:
        (workspace / "orchestrator.toml").write_text(text)
    return load_settings(None, [], workspace, environ, bundled=bundled)


def said(workspace: Path, bundled: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(workspace, bundled, text)
    assert all(problem.file == workspace / "orchestrator.toml" for problem in caught.value.problems)
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


def test_defaults(workspace: Path, bundled: Path) -> None:
    settings = load(workspace, bundled)
    limits = settings.limits
    assert (limits.steps, limits.model_calls, limits.tokens, limits.seconds, limits.cost) == (
        12,
        100,
        1_000_000,
        1800,
        None,
    )
    assert (settings.tools.parallel, settings.tools.timeout) == (4, 60)
    assert (settings.model, settings.files, settings.warnings) == (None, (), ())
    assert set(settings.servers) == {"tables", "charts"}
    tables = settings.servers["tables"]
    assert (tables.command, tables.args) == (sys.executable, ("-P", str(bundled / "tables.py")))
    assert tables.bundled


def test_everything_that_can_be_set(workspace: Path, bundled: Path) -> None:
    settings = load(
        workspace,
        bundled,
        """
        model = "local"
        [limits]
        steps = 3
        cost = 0.5
        [tools]
        parallel = 1
        timeout = 2.5
        [policy]
        allow = ["charts__*"]
        ask = ["git__*"]
        deny = ["*__drop_*"]
        [roles.guest]
        tools = ["tables__*"]
        [models.local]
        base_url = "http://127.0.0.1:1/v1"
        [model_aliases]
        sonnet = "local"
        [journal]
        lease = 60
        [telemetry]
        service_per_agent = true
        [servers.git]
        command = "git-mcp"
        env = { N = 1 }
        call_timeout = 9
        """,
    )
    assert settings.model == "local"
    assert (settings.limits.steps, settings.limits.cost, settings.limits.tokens) == (3, 0.5, 1_000_000)
    assert (settings.tools.parallel, settings.tools.timeout) == (1, 2.5)
    assert settings.policy.deny == ("*__drop_*",)
    assert settings.roles["guest"].tools == ("tables__*",)
    assert settings.models == {"local": ModelSettings(base_url="http://127.0.0.1:1/v1")}
    assert settings.model_aliases == {"sonnet": "local"}
    assert settings.journal.lease == 60
    assert settings.telemetry.service_per_agent
    git = settings.servers["git"]
    assert (git.env, git.call_timeout, git.file, git.line) == ({"N": "1"}, 9, workspace / "orchestrator.toml", 23)
    assert settings.files == (workspace / "orchestrator.toml",)


def test_the_environment_goes_before_the_files_model(workspace: Path, bundled: Path) -> None:
    assert load(workspace, bundled, 'model = "a"', ORCHESTRATOR_MODEL="b").model == "b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[limit]\nsteps = 1", ["1: unknown key `limit`. Did you mean `limits`?"]),
        ("[limits]\nstep = 1", ["2: unknown key `limits.step`. Did you mean `steps`?"]),
        ("[limits]\nsteps = 0", ["2: `limits.steps` must be greater than 0."]),
        ("[limits]\n\ncost = inf", ["3: `limits.cost` must be a finite number."]),
        ('[tools]\nparallel = "x"', ["2: `tools.parallel` must be a valid integer"]),
        ('[policy]\ndeny = "x"', ["2: `policy.deny` must be a list."]),
        (
            "[roles.a]\ntool = []",
            ["1: `roles.a.tools` is missing.", "2: unknown key `roles.a.tool`. Did you mean `tools`?"],
        ),
        ("[models.a]\nbase_ulr = 'x'", ["2: unknown key `models.a.base_ulr`. Did you mean `base_url`?"]),
        (
            "[models.a.prices]\ninput = -1\noutput = 1\ncachd = 1\n[models.b]\ntemperature = 'hot'",
            [
                "2: `models.a.prices.input` ",
                "4: unknown key `models.a.prices.cachd`. Did",
                "6: `models.b.temperature` ",
            ],
        ),
        ("[models.a]\nmode = 'text'", ["2: `models.a.mode` must be 'tools', 'json' or 'react'"]),
        ("[models.a]\nweak = true\nmode = 'tools'", ["1: `models.a` `weak = true` goes with"]),
        ("[models.a]\nweak = true\napi = 'anthropic'", ["1: `models.a` `mode` and `weak` are for"]),
        ("[serve.traffic]\nbodi = 1", ["2: unknown key `serve.traffic.bodi`. Did you mean `body`?"]),
        ("files = []", ["1: unknown key `files`."]),
        ("servers = 1", ["1: `servers` must be tables"]),
        ("[servers.a]\ncomand = 'x'", ["2: server `a`: unknown key `comand`. Did you mean `command`?"]),
        ("[servers.a]\ncommand = 'x'\nicon = 'y'", ["3: server `a`: unknown key `icon`."]),
        ("[servers.agents]\ncommand = 'x'", ["1: `agents` cannot be the name of a server"]),
        ("a = 1\n[b\n", ["2: this is not TOML: Expected ']'"]),
        ("a = '''x", ["1: this is not TOML"]),
        ("a = " + "[" * 3000, ["None: this is nested too deeply."]),
    ],
)
def test_errors_have_a_line_and_the_nearest_key(workspace: Path, bundled: Path, text: str, expected: list[str]) -> None:
    found = said(workspace, bundled, text)
    assert len(found) >= len(expected)
    for message, start in zip(found, expected, strict=False):
        assert message.startswith(start)


def test_values_are_in_no_error_and_no_repr(workspace: Path, bundled: Path) -> None:
    found = said(workspace, bundled, '[models]\na = "hunter2"\n[limits]\nsteps = "hunter2"')
    assert not any("hunter2" in message for message in found)
    found = said(workspace, bundled, '[models.a]\napi_key = "hunter2"')
    assert [message.startswith("2: unknown key `models.a.api_key`.") for message in found] == [True]
    assert "hunter2" not in found[0]
    settings = load(
        workspace, bundled, '[models.a.headers]\nX-Key = "hunter2"\n[servers.b]\nurl = "http://x/?k=hunter2"'
    )
    assert "hunter2" not in repr(settings)


def test_the_first_file_of_servers_counts_and_the_others_are_said(workspace: Path, bundled: Path) -> None:
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode/mcp.json").write_text('{"servers": {"b": {"command": "x"}}}')
    assert set(load(workspace, bundled).servers) == {"b", "tables", "charts"}
    (workspace / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    settings = load(workspace, bundled)
    assert set(settings.servers) == {"a", "tables", "charts"}
    assert settings.files == (workspace / ".mcp.json",)
    assert str(settings.warnings[0]).startswith(
        f"{workspace / '.vscode/mcp.json'}: not read, since `.mcp.json` is there"
    )


def test_a_name_in_two_files_is_an_error_that_names_both(workspace: Path, bundled: Path) -> None:
    one, two = workspace / "one.json", workspace / "two.json"
    one.write_text('{"mcpServers":\n{"a.b": {"command": "x"}}}')
    two.write_text('{"mcpServers": {"a_b": {"command": "x"}}}')
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, [one, two], workspace, {}, bundled=bundled)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (two, 1)
    assert problem.message.startswith(f"the server `a_b` is configured already, as `a.b` in {one}:2.")


def test_a_configured_server_takes_a_bundled_ones_place_and_it_is_said_once(workspace: Path, bundled: Path) -> None:
    (workspace / "mcp.json").write_text('{"mcpServers": {"tables": {"command": "mine"}, "charts": {"disabled": true}}}')
    settings = load(workspace, bundled)
    assert settings.servers["tables"].command == "mine"
    assert not settings.servers["tables"].bundled
    assert settings.servers["charts"].disabled
    assert [problem.message for problem in settings.warnings] == [
        "your server `tables` takes the place of the bundled one."
    ]


def test_a_file_named_on_the_command_line_must_be_there(workspace: Path, bundled: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(workspace / "no.toml", [workspace / "no.json"], workspace, {}, bundled=bundled)
    assert [problem.file for problem in caught.value.problems] == [workspace / "no.toml", workspace / "no.json"]


def test_errors_of_all_files_come_together(workspace: Path, bundled: Path) -> None:
    (workspace / "mcp.json").write_text('{"mcpServers": {"a": {}}}')
    (workspace / "orchestrator.toml").write_text("modle = 'x'\n[servers.b]\ncommand = 1")
    with pytest.raises(ConfigurationError) as caught:
        load(workspace, bundled)
    assert [problem.file.name for problem in caught.value.problems if problem.file] == [
        "orchestrator.toml",
        "orchestrator.toml",
        "mcp.json",
    ]


def test_home(tmp_path: Path) -> None:
    assert home({"ORCHESTRATOR_HOME": str(tmp_path)}) == tmp_path
    assert home({"ORCHESTRATOR_HOME": "here"}).is_absolute()
    assert home({}).name == "orchestrator"


def test_bundled_folders_of_a_checkout() -> None:
    root = Path(__file__).parent.parent.parent
    assert bundled_folder("agents") == root / "agents"
    assert bundled_folder("mcp_servers") == root / "mcp_servers"
    assert all(server.bundled for server in bundled_servers().values())


def test_every_folder_that_is_made_for_state_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private(tmp_path / "state" / "orchestrator" / "servers")
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
