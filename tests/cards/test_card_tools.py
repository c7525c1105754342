"""Which tools a card may use, and what is said of names that do not exist (C3)."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.cards import AgentCard, Offer, check_tools, load_card, select

OFFERS = [
    Offer("git", "diff", "git__diff"),
    Offer("git", "push", "git__push"),
    Offer("my.srv", "do.it", "my_srv__do_it"),
    Offer("long" * 20, "get", "longlong-1a2b3c__get"),
    Offer("tables", "query", "tables__query"),
    Offer("files", "read", "files__read"),
    Offer("files", "write", "files__write"),
]
BUNDLED = {"tables", "files"}
KNOWN = {"git": ["diff", "push"], "my.srv": ["do.it"], "down": None, "tables": ["query", "describe"], "files": ["read"]}


def card(**fields: Any) -> AgentCard:
    return AgentCard(name="n", tool_name="n", title="n", **fields)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["git__diff", "git__push", "my_srv__do_it", "longlong-1a2b3c__get"]),
        ({"agents": ("a",)}, []),
        ({"agents": ("a",), "tools": ("git__*",)}, ["git__diff", "git__push"]),
        ({"tools": ()}, []),
        ({"tools": ("*",)}, ["git__diff", "git__push", "my_srv__do_it", "longlong-1a2b3c__get"]),
        (
            {"tools": ("*", "tables__*")},
            ["git__diff", "git__push", "my_srv__do_it", "longlong-1a2b3c__get", "tables__query"],
        ),
        ({"tools": ("*__read", "t*__query", "[ft]iles__read")}, []),
        ({"tools": ("files__read",)}, ["files__read"]),
        ({"tools": ("files__*", "git__d*")}, ["git__diff", "files__read", "files__write"]),
        ({"tools": ("GIT__diff",)}, []),
        ({"tools": ("my_srv__do_it",)}, ["my_srv__do_it"]),
        ({"tools": ("my.srv__*",)}, ["my_srv__do_it"]),
        ({"tools": ("longlong-1a2b3c__get",)}, ["longlong-1a2b3c__get"]),
        ({"tools": ("long" * 20 + "__*",)}, ["longlong-1a2b3c__get"]),
        ({"mcp_servers": ("git",)}, ["git__diff", "git__push"]),
        ({"mcp_servers": ("my.srv", "files"), "agents": ("a",)}, ["my_srv__do_it", "files__read", "files__write"]),
        ({"without": ("git__push", "*__get")}, ["git__diff", "my_srv__do_it"]),
        ({"tools": ("files__*",), "without": ("files__write",)}, ["files__read"]),
    ],
)
def test_select(fields: dict[str, Any], names: list[str]) -> None:
    assert [offer.name for offer in select(card(**fields), OFFERS, BUNDLED)] == names


@pytest.mark.parametrize(
    "tool",
    [
        "*",
        "git__diff",
        "git__*",
        "*__diff",
        "my.srv__do.it",
        "my_srv__*",
        "tables__query",
        "retrieve_result",
        "find_tools",
    ],
)
def test_names_that_are_right(tool: str) -> None:
    assert check_tools(card(tools=(tool,), approve=(tool,)), KNOWN, BUNDLED) == ([], [])


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("git__dif", "there is no tool `git__dif`. Did you mean `git__diff`?"),
        ("git__zzzzzz", "there is no tool `git__zzzzzz`. `git` has `diff` and `push`."),
        ("git__z*", "there is no tool `git__z*`. Did you mean `git__*`?"),
        ("gti__diff", "there is no tool `gti__diff`. Did you mean `git__diff`?"),
        ("tabels__*", "there is no tool `tabels__*`. Did you mean `tables__*`?"),
        (
            "zzzzzz__x",
            "there is no tool `zzzzzz__x`. Tools are named `server__tool`. "
            "Configured: `git`, `my.srv`, `down`, `tables` and `files`.",
        ),
        ("git", "there is no tool `git`. Did you mean `git__*`?"),
        ("gitt", "there is no tool `gitt`. Did you mean `git__*`?"),
        ("query", "there is no tool `query`. Did you mean `tables__query`?"),
        ("qurey", "there is no tool `qurey`. Did you mean `tables__query`?"),
        ("Raed", "there is no tool `Raed`. Did you mean `files__read`?"),
        ("Gerp", "there is no tool `Gerp`. Did you mean `Grep`?"),
    ],
)
def test_names_that_are_wrong(tool: str, said: str) -> None:
    errors, warnings = check_tools(card(tools=("git__diff", tool)), KNOWN, BUNDLED)
    assert [problem.message for problem in errors] == [f"tools: {said}"]
    assert not warnings


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("down__x", "`down__x` cannot be checked: the server `down` cannot be reached."),
        ("*__zzz", "`*__zzz` matches no tool."),
        (
            "someExtensionTool",
            "there is no tool `someExtensionTool`. Tools are named `server__tool`. "
            "Configured: `git`, `my.srv`, `down`, `tables` and `files`.",
        ),
    ],
)
def test_what_cannot_be_judged_is_a_warning(tool: str, said: str) -> None:
    errors, warnings = check_tools(card(tools=(tool,)), KNOWN, BUNDLED)
    assert not errors
    assert [problem.message for problem in warnings] == [f"tools: {said}"]


def test_a_glob_over_servers_that_matches_nothing_is_an_error_when_all_are_known() -> None:
    errors, _ = check_tools(card(tools=("*__zzz",)), {"git": ["diff"]})
    assert [problem.message for problem in errors] == ["tools: `*__zzz` matches no tool."]
    assert check_tools(card(tools=("*",)), {}) == ([], [])


def test_approve_and_servers_are_judged_too() -> None:
    errors, warnings = check_tools(
        card(approve=("git__pusj", "*__zzz", "writer"), agents=("writer",), mcp_servers=("git", "gti")), KNOWN, BUNDLED
    )
    assert [problem.message for problem in errors] == [
        "approve: there is no tool `git__pusj`. Did you mean `git__push`?",
        "mcp-servers: there is no server `gti`. Did you mean `git`?",
    ]
    assert not warnings


def test_another_hosts_spelling_is_judged_only_where_the_server_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text(
        "---\nname: x\ndescription: d\ntools: mcp__git__dif, mcp__jira__get, Write\nmcpServers: jira\n---\nx"
    )
    found, _ = load_card(path)
    errors, warnings = check_tools(found, KNOWN, BUNDLED)
    assert [(p.file, p.line, p.message) for p in errors] == [
        (path, 4, "tools: there is no tool `mcp__git__dif`. Did you mean `git__diff`?")
    ]
    assert [problem.message.partition(".")[0] for problem in warnings] == [
        "tools: there is no tool `mcp__jira__get`",
        "tools: there is no tool `Write`",
        "mcp-servers: there is no server `jira`",
    ]
