"""Tools found by the words of a wish."""

import pytest

from orchestrator.tools.search import Index, words

TOOLS = {
    "create_issue": "Opens a new issue in a repository.",
    "listPullRequests": "Lists the open pull requests of a repository.",
    "delete_file": "Deletes a file for ever.",
    "send_email": "Sends a message to one or more recipients.",
    "query_database": "Runs read-only SQL against the PostgreSQL database.",
    "weather_forecast": "Tells the weather of the next days for a city.",
    "查询订单": "按客户编号查询所有订单的状态和金额。",
    "发送通知": "向用户发送短信通知。",
    "HTTPRequest": "Makes a request to any URL.",
}
NAMES = list(TOOLS)
INDEX = Index([[(name, 4), (description, 1)] for name, description in TOOLS.items()])


def found(wish: str) -> list[str]:
    return [NAMES[place] for place in INDEX.rank(wish)]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize(
    ("wish", "best"),
    [
        ("create an issue", "create_issue"),
        ("creating issues", "create_issue"),
        ("pull requests", "listPullRequests"),
        ("I need a tool that can remove files", "delete_file"),
        ("mail somebody", "send_email"),
        ("postgres", "query_database"),
        ("forecast for Berlin", "weather_forecast"),
        ("http", "HTTPRequest"),
        ("查询客户的订单", "查询订单"),
        ("短信", "发送通知"),
        ("订", "查询订单"),
    ],
)
def test_the_best_comes_first(wish: str, best: str) -> None:
    assert found(wish)[0] == best


@pytest.mark.requirement("C5")
def test_what_does_not_fit_is_not_found() -> None:
    assert found("quantum chromodynamics") == []
    assert found("") == []
    assert found("a tool that can do it") == []
    assert "weather_forecast" not in found("create an issue")
    assert Index([]).rank("anything") == []


def test_words() -> None:
    assert list(words("getHTTPResponse_v2")) == ["get", "http", "respons", "v2"]
    assert list(words("查询SQL表")) == ["查询", "sql", "表"]
    assert len({tuple(words(form)) for form in ("issue", "issues")}) == 1
    assert len({tuple(words(form)) for form in ("create", "creates", "created", "creating")}) == 1
    assert len({tuple(words(form)) for form in ("query", "queries")}) == 1
