"""`${…}` and `.env` files."""

from pathlib import Path

import pytest

from orchestrator.config import Input, ServerSettings
from orchestrator.config.expand import Expander, Unresolved, parse_env_file
from orchestrator.errors import ConfigurationError

ENVIRON = {"A": "a", "EMPTY": "", "HOME": "/home/me", "TRICK": "${A}"}


def expand(text: str) -> str:
    inputs = {"known": Input(id="known", default="fallback")}
    return Expander(environ=ENVIRON, workspace=Path("/w/here"), inputs=inputs).expand(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain $A $$ {A}", "plain $A $$ {A}"),
        ("${A}", "a"),
        ("x${A}y${env:A}z", "xayaz"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${A:-d}", "a"),
        ("${NO:-d}", "d"),
        ("${NO:-}", ""),
        ("${env:NO:-d}", "d"),
        ("${NO:-http://h:1/x}", "http://h:1/x"),
        ("${TRICK}", "${A}"),
        ("${workspaceFolder}/docs", "/w/here/docs"),
        ("${CLAUDE_PROJECT_DIR}", "/w/here"),
        ("${userHome}", "/home/me"),
        ("${input:known}", "fallback"),
        ("${A", "${A"),
        ("${}", "${}"),
        ("echo ${A%%x} ${1}", "echo ${A%%x} ${1}"),
    ],
)
def test_values(text: str, expected: str) -> None:
    assert expand(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("${NO}", "`NO` is not set"),
        ("${env:NO}", "`NO` is not set"),
        ("${input:other}", "the input `other`"),
    ],
)
def test_what_has_no_value_is_named(text: str, named: str) -> None:
    with pytest.raises(Unresolved, match=named):
        expand(text)


def test_env_file() -> None:
    text = """# comment

A=1
export B = two words # comment
C='it # is'
D="a\\nb\\"c"
E=
F=a#b
no line
G="open
H=a=b
"""
    found, wrong = parse_env_file(text)
    assert found == {
        "A": "1",
        "B": "two words",
        "C": "it # is",
        "D": 'a\nb"c',
        "E": "",
        "F": "a#b",
        "G": '"open',
        "H": "a=b",
    }
    assert wrong == [9]


def test_env_goes_before_the_env_file_and_relative_paths_are_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("A=file\nB=file\n")
    server = ServerSettings(name="s", command="x", env={"A": "entry"}, env_file="x.env", cwd="sub")
    found = server.expand({}, tmp_path)
    assert (found.env, found.cwd, found.env_file) == ({"A": "entry", "B": "file"}, str(tmp_path / "sub"), None)


def test_a_wrong_line_of_an_env_file_is_named_without_its_text(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("A=1\nhunter2\n")
    with pytest.raises(ConfigurationError, match=r"x\.env:2: this line is not `NAME=value`") as caught:
        ServerSettings(name="s", command="x", env_file="x.env").expand({}, tmp_path)
    assert "hunter2" not in str(caught.value)


def test_a_url_is_judged_once_it_is_known(tmp_path: Path) -> None:
    server = ServerSettings(name="s", transport="http", url="${URL}")
    assert server.expand({"URL": "https://a.invalid"}, tmp_path).url == "https://a.invalid"
    with pytest.raises(ConfigurationError, match="must start with") as caught:
        server.expand({"URL": "secret-thing"}, tmp_path)
    assert "secret-thing" not in str(caught.value)


def test_everything_missing_is_said_at_once(tmp_path: Path) -> None:
    server = ServerSettings(name="s", command="${X}", args=("${Y}",), env={"A": "${Z}"})
    with pytest.raises(ConfigurationError) as caught:
        server.expand({}, tmp_path)
    assert len(caught.value.problems) == 3
