"""Configuration files as people really have them (C2, C3): each row of `cases/configs/README.md`."""

from pathlib import Path

import pytest

from orchestrator.config import Input, ServerFile, read_mcp_config
from orchestrator.errors import ConfigurationError

CASES = Path(__file__).parent.parent / "cases" / "configs"


def read(name: str) -> ServerFile:
    return read_mcp_config(CASES / name)


def test_01_keys_of_other_hosts_are_ignored_with_one_line_and_known_ones_honoured() -> None:
    found = read("01-extra-keys.json")
    notes, old = found.servers["notes"], found.servers["old"]
    assert (notes.transport, notes.command, notes.disabled) == ("stdio", "notes-server", False)
    assert (notes.deny, notes.auto_approve, notes.call_timeout) == (("drop_all",), ("read_note",), 30)
    assert old.disabled
    assert not found.errors
    assert [problem.message for problem in found.warnings] == [
        "keys of other hosts are ignored here: `description` and `icon`."
    ]


def test_02_comments_trailing_commas_inputs_and_env_file(tmp_path: Path) -> None:
    found = read("02-vscode-comments.json")
    assert not found.errors
    assert not found.warnings
    asked: list[Input] = []

    def ask(wanted: Input) -> str:
        asked.append(wanted)
        return "typed"

    tickets = found.servers["tickets"].expand({}, tmp_path, ask)
    assert tickets.transport == "http"
    assert tickets.headers == {"Authorization": "Bearer typed"}
    assert asked == [Input(id="token", description="API token", secret=True)]

    (tmp_path / ".env").write_text("# the docs\nexport DOCS_KEY='k # k'\nEMPTY=\n")
    docs = found.servers["docs"].expand({}, tmp_path)
    assert docs.args[-1] == f"{tmp_path}/docs"
    assert docs.env == {"DOCS_KEY": "k # k", "EMPTY": ""}
    assert docs.cwd == str(tmp_path)


def test_02_an_input_that_nobody_can_be_asked_for_is_named(tmp_path: Path) -> None:
    tickets = read("02-vscode-comments.json").servers["tickets"]
    with pytest.raises(ConfigurationError, match="the input `token` \\(API token\\)") as caught:
        tickets.expand({}, tmp_path)
    assert caught.value.problems[0].line == 10


def test_02_an_env_file_that_is_missing_is_named(tmp_path: Path) -> None:
    docs = read("02-vscode-comments.json").servers["docs"]
    with pytest.raises(ConfigurationError, match=r"\.env: there is no such environment file") as caught:
        docs.expand({}, tmp_path)
    assert caught.value.problems[0].line == 12


def test_03_a_cut_off_file_says_what_is_missing_and_where_it_was_opened() -> None:
    (problem,) = read("03-cut-off.json").errors
    assert (problem.file, problem.line, problem.column) == (CASES / "03-cut-off.json", 8, 1)
    assert problem.message == "the file ends here: `}` is missing, for the `{` of line 1."


def test_04_windows_is_noticed_and_an_unset_variable_is_an_error_only_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.config.entries.on_windows", lambda: False)
    found = read("04-windows.json")
    assert not found.errors
    box, drive = found.servers["box"], found.servers["drive"]
    assert [str(problem) for problem in box.warnings] == [
        f"{CASES / '04-windows.json'}:1: server `box`: the command `cmd` is of Windows; "
        "name the program itself here, like `npx`."
    ]
    assert "drive letter" in drive.warnings[0].message
    assert drive.warnings[0].line == 2
    assert box.expand({"BOX_KEY": "k"}, tmp_path).env == {"BOX_KEY": "k"}
    with pytest.raises(ConfigurationError, match="`BOX_KEY` is not set") as caught:
        box.expand({}, tmp_path)
    assert caught.value.problems[0].line == 1


def test_04_nothing_is_said_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.config.entries.on_windows", lambda: True)
    assert not read("04-windows.json").servers["box"].warnings


def test_05_a_missing_root_key_is_accepted_and_said() -> None:
    found = read("05-no-root.json")
    assert found.servers["github"].args == ("stdio",)
    assert '{"mcpServers": {' in found.warnings[0].message


def test_06_a_secret_in_the_file_is_warned_of_and_never_shown() -> None:
    crm = read("06-secret-inline.json").servers["crm"]
    assert crm.transport == "http"
    (warning,) = crm.warnings
    assert "`X-Api-Key`" in warning.message
    assert "sk-live" not in f"{crm!r}{crm}{warning}"


def test_07_marks_types_and_transports() -> None:
    found = read("07-bom-and-types.json")
    (problem,) = found.errors
    assert problem.line == 1
    assert problem.message == 'server `a`: `args` must be a list: "args": ["--flag", "--port", "3"].'
    assert {name: server.transport for name, server in found.servers.items()} == {"b": "http", "c": "sse"}


def test_07_numbers_and_booleans_in_env_are_text_and_null_is_left_out(tmp_path: Path) -> None:
    text = (CASES / "07-bom-and-types.json").read_text().replace('"--flag --port 3"', '["--port", 3]')
    (tmp_path / "mcp.json").write_text(text)
    server = read_mcp_config(tmp_path / "mcp.json").servers["a"]
    assert server.env == {"PORT": "3000", "DEBUG": "true"}
    assert server.args == ("--port", "3")


def test_08_a_duplicate_server_is_named() -> None:
    (problem,) = read("08-duplicate-keys.json").errors
    assert problem.message == "`mcpServers.same` is there twice; leave one."
