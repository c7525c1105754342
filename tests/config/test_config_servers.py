"""Server entries: what each spelling comes to, and what is said of those that cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import ServerSettings, read_mcp_config
from orchestrator.config.entries import RESERVED
from orchestrator.errors import ConfigurationError


def one(tmp_path: Path, entry: Any, name: str = "s") -> ServerSettings:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {name: entry}}, indent=1))
    found = read_mcp_config(path)
    assert not found.errors, found.errors
    return found.servers[name]


def errors(tmp_path: Path, text: str, name: str = "mcp.json") -> list[str]:
    (tmp_path / name).write_text(text)
    return [f"{problem.line}: {problem.message}" for problem in read_mcp_config(tmp_path / name).errors]


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"command": "x"}, "stdio"),
        ({"url": "https://a.invalid"}, "http"),
        ({"type": "stdio", "command": "x"}, "stdio"),
        ({"type": "local", "command": "x"}, "stdio"),
        ({"type": "streamable-http", "url": "https://a.invalid"}, "http"),
        ({"transport": "streamableHttp", "url": "https://a.invalid"}, "http"),
        ({"type": "streamable_http", "url": "https://a.invalid"}, "http"),
        ({"type": "SSE", "url": "https://a.invalid"}, "sse"),
        ({"httpUrl": "https://a.invalid"}, "http"),
        ({"serverUrl": "https://a.invalid"}, "http"),
        ({"type": "http", "command": "x", "url": "${URL}"}, "http"),
    ],
)
def test_transports(tmp_path: Path, entry: dict[str, Any], transport: str) -> None:
    assert one(tmp_path, entry).transport == transport


def test_our_own_keys_stand_under_one_key(tmp_path: Path) -> None:
    own = {"start_timeout": 5, "call_timeout": 5000, "allow": ["read_*"], "deny": ["x"], "auto_approve": ["y"]}
    server = one(
        tmp_path, {"command": "x", "disabledTools": ["z"], "orchestrator": own | {"concurrency": 2, "required": True}}
    )
    assert (server.start_timeout, server.call_timeout, server.concurrency, server.required) == (5, 5000, 2, True)
    assert (server.allow, server.deny, server.auto_approve) == (("read_*",), ("z", "x"), ("y",))


def test_defaults(tmp_path: Path) -> None:
    server = one(tmp_path, {"command": "x"})
    assert (server.start_timeout, server.call_timeout, server.concurrency) == (30, None, None)
    assert (server.allow, server.deny, server.required, server.disabled, server.bundled) == (
        ("*",),
        (),
        False,
        False,
        False,
    )


def test_origin_and_lines(tmp_path: Path) -> None:
    server = one(tmp_path, {"command": "x", "args": ["a", "${B}"], "env": {"C": "${D}"}})
    assert (server.file, server.line) == (tmp_path / "mcp.json", 3)
    with pytest.raises(ConfigurationError) as caught:
        server.expand({}, tmp_path)
    assert [problem.line for problem in caught.value.problems] == [7, 10]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1: the file is empty."]),
        ("{}", ["1: there is no `mcpServers` here."]),
        (
            '{"mcpServer": {"a": {"command": "x"}}}',
            ["1: there is no `mcpServers` here (there is `mcpServer`. Did you mean"],
        ),
        ("[]", ["1: an object is expected"]),
        ('{"mcpServers": []}', ["1: `mcpServers` must be tables or objects, one a server"]),
        ('{"mcpServers": {"a": {}}}', ["1: server `a`: `command` (for a program) or `url`"]),
        ('{"mcpServers": {"a": "x"}}', ["1: server `a`: an object like"]),
        (
            '{"mcpServers": {"a": {"command": "x", "required": true}}}',
            ['1: server `a`: unknown key `required`. It goes into `"orchestrator": {"required": …}` there.'],
        ),
        ('{"mcpServers": {"a": {"comand": "x"}}}', ["1: server `a`: unknown key `comand`. Did you mean `command`?"]),
        ('{"mcpServers": {"a": {"type": "http"}}}', ["1: server `a`: `url` is missing"]),
        (
            '{"mcpServers": {"a": {"type": "ws", "url": "ws://a"}}}',
            ["1: server `a`: `type` must be 'stdio', 'http' or 'sse'."],
        ),
        ('{"mcpServers": {"a": {"url": "unix:///x"}}}', ["1: server `a`: `url` must start with"]),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://a"}}}', ["1: server `a`: both `command` and `url`"]),
        (
            '{"mcpServers": {"a": {"command": ["npx", "-y", "b"]}}}',
            ["1: server `a`: `command` must be text."],
        ),
        ('{"mcpServers": {"a": {"command": "x", "args": [null]}}}', ["1: server `a`: `args.0` must be text."]),
        ('{"mcpServers": {"a": {"command": "x", "env": ["A=b"]}}}', ["1: server `a`: `env` must be a table"]),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": []}}}}', ["1: server `a`: `env.A` must be text."]),
        (
            '{"mcpServers": {"a": {"command": "x", "env": {"A": "\\u0000"}}}}',
            ["1: server `a`: `env.A` must have no null character."],
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "timeout": -1}}}',
            ["1: server `a`: `timeout` must be greater than 0."],
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "disabled": "no"}}}',
            ["1: server `a`: `disabled` must be true or false"],
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "disabledTools": 1}}}',
            ["1: server `a`: `disabledTools` must be a list."],
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "orchestrator": {"alow": []}}}}',
            ["1: server `a`: unknown key `alow`. Did you mean `allow`?"],
        ),
        (
            '{"mcpServers": {"a": {"command": "x", "orchestrator": 1}}}',
            ["1: `orchestrator` must be an object"],
        ),
        (
            '{"mcpServers": {"a.b": {"command": "x"},\n "a_b": {"command": "y"}}}',
            ["2: the server `a_b` is configured already, as `a.b` in "],
        ),
        (
            '{"mcpServers": {"a": {"command": "x",\n "command": "y"}}}',
            ["2: `mcpServers.a.command` is there twice; leave one."],
        ),
        ('{"mcpServers": {"a": {"command": "x"}}, "inputs": [1]}', ["1: each of `inputs`"]),
    ],
)
def test_errors(tmp_path: Path, text: str, expected: list[str]) -> None:
    found = errors(tmp_path, text)
    assert len(found) >= len(expected)
    for message, start in zip(found, expected, strict=False):
        assert message.startswith(start)


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names(tmp_path: Path, name: str) -> None:
    assert "is reserved" in errors(tmp_path, json.dumps({"mcpServers": {name: {"command": "x"}}}))[0]


def test_all_errors_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {},\n"b": {"url": "x"},\n"c": {"command": "x", "args": "-y z"}}}'
    assert [message[0] for message in errors(tmp_path, text)] == ["1", "2", "3"]


def test_both_roots(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{"mcpServers": {"a": {"command": "x"}}, "inputs": [{"id": "i"}], "servers": {"b": {"command": "x"}}}'
    )
    found = read_mcp_config(path)
    assert set(found.servers) == {"a", "b"}
    assert set(found.servers["a"].inputs) == {"i"}


def test_codex_toml(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'model = "m"\n[mcp_servers.docs]\ncommand = "docs"\nargs = ["-v"]\nenv = { A = "b" }\n'
        "startup_timeout_sec = 12\ntool_timeout_sec = 90\n"
        'disabled_tools = ["x"]\n\n[mcp_servers.far]\nurl = "https://far.invalid"\nbearer_token_env_var = "FAR"\n'
        "enabled = false\n"
    )
    found = read_mcp_config(path)
    assert not found.errors
    docs, far = found.servers["docs"], found.servers["far"]
    assert (docs.line, docs.start_timeout, docs.call_timeout, docs.deny) == (2, 12, 90, ("x",))
    assert docs.env == {"A": "b"}
    assert far.disabled
    assert far.expand({"FAR": "f"}, tmp_path).headers == {"Authorization": "Bearer f"}


def test_secrets_are_in_no_message(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "mcpServers": {
                "a": {"command": "x", "args": "--token hunter2hunter2 --api-key=abcdefghijkl -y"},
                "b": {"command": ["x", "--password", "hunter2"]},
                "c": {"command": "x", "env": {"A": ["hunter2"]}, "headers": "hunter2"},
            }
        }
    )
    said = "\n".join(errors(tmp_path, text))
    assert "hunter2" not in said
    assert "abcdefghijkl" not in said
    assert '`args` must be a list: "args": ["--port", "3000"]' in said


def test_secret_warnings(tmp_path: Path) -> None:
    entry = {
        "command": "x",
        "args": ["--token", "abcdefgh", "--root", "/data"],
        "env": {"GITHUB_TOKEN": "abcdefgh12", "MODE": "fast-and-loose", "MAX_TOKENS": "100000000", "KEY": "${KEY}"},
    }
    server = one(tmp_path, entry)
    said = [problem.message for problem in server.warnings]
    assert len(said) == 2
    assert "`GITHUB_TOKEN`" in said[0]
    assert "`args`" in said[1]
    assert not one(tmp_path, {"command": "x", "args": ["--token", "${TOKEN}", "-v"]}).warnings


def test_nothing_secret_is_in_a_repr_even_after_expansion(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["${S}"], "env": {"A": "${S}"}, "headers": {"B": "${S}"}}
    server = one(tmp_path, entry).expand({"S": "hunter2"}, tmp_path)
    assert server.env == {"A": "hunter2"}
    assert "hunter2" not in repr(server) + str(server)


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", "\ufeff{}".encode()])
def test_byte_order_marks(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mcp.json").write_bytes(data)
    with_mark = read_mcp_config(tmp_path / "mcp.json")
    assert with_mark.errors[0].message.startswith("there is no `mcpServers`")


def test_a_file_that_is_no_text_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_bytes(b'{\n"a": "\xe9"}')
    assert "mcp.json:2: this configuration file is not text; save it as UTF-8" in str(
        read_mcp_config(tmp_path / "mcp.json").errors[0]
    )
    assert "there is no such configuration file" in str(read_mcp_config(tmp_path / "none.json").errors[0])
    assert "cannot be read" in str(read_mcp_config(tmp_path).errors[0])


SIGN_INS: dict[str, Any] = {
    "Claude Code": ({"oauth": {"clientId": "c", "callbackPort": 8080, "scopes": "a b"}}, ("c", None, ("a", "b"), 8080)),
    "Cursor": ({"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${S}", "scopes": ["a"]}}, ("c", "from S", ("a",), None)),
    "FastMCP": ({"auth": "oauth"}, (None, None, (), None)),
    "Gemini": ({"oauth": {"enabled": True, "clientId": None}}, (None, None, (), None)),
    "plain": ({"oauth": True}, (None, None, (), None)),
}


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("host", SIGN_INS)
def test_how_hosts_say_that_a_server_is_signed_in_to(host: str, tmp_path: Path) -> None:
    entry, wanted = SIGN_INS[host]
    server = one(tmp_path, {"url": "https://a.invalid/mcp", **entry})
    assert server.warnings == ()
    oauth = server.expand({"S": "from S"}, tmp_path).oauth
    assert oauth is not None
    assert (oauth.client_id, oauth.client_secret, oauth.scopes, oauth.callback_port) == wanted
    assert "from S" not in repr(oauth)


@pytest.mark.requirement("C2")
@pytest.mark.parametrize("entry", [{}, {"oauth": False}, {"auth": "none"}, {"auth": ["what"]}, {"oauth": None}])
def test_a_server_that_is_not_said_to_be_signed_in_to(entry: Any, tmp_path: Path) -> None:
    assert one(tmp_path, {"url": "https://a.invalid/mcp", **entry}).oauth is None


@pytest.mark.requirement("C2")
def test_a_token_under_auth_is_a_header(tmp_path: Path) -> None:
    server = one(tmp_path, {"url": "https://a.invalid/mcp", "auth": "${T}", "headers": {"X": "y"}})
    assert server.headers == {"Authorization": "Bearer ${T}", "X": "y"}


@pytest.mark.requirement("C2")
def test_what_is_wrong_in_a_sign_in_is_told_with_its_line(tmp_path: Path) -> None:
    (told,) = errors(tmp_path, '{"mcpServers": {"s": {"url": "https://a.invalid",\n"oauth": {"callbackPort": 0}}}}')
    assert told.startswith("2: server `s`:")
    (told,) = errors(tmp_path, '{"mcpServers": {"s": {"url": "https://a.invalid",\n"oauth": 7}}}')
    assert "must be true or a table" in told


@pytest.mark.requirement("C2")
def test_a_client_secret_in_the_file_is_warned_of(tmp_path: Path) -> None:
    entry = {"url": "https://a.invalid/mcp", "oauth": {"clientId": "c", "clientSecret": "hush-hush"}}
    (warning,) = one(tmp_path, entry).warnings
    assert "client_secret" in warning.message
    assert "hush" not in warning.message
