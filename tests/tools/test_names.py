"""The names that models see."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.tools.names import LONGEST, distinct, model_name

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def test_short_names_stay_as_they_are() -> None:
    assert model_name("fs", "read-file") == "fs__read-file"
    assert model_name("my.server", "repo/create issue") == "my_server__repo_create_issue"


@pytest.mark.requirement("C3")
def test_a_long_name_keeps_the_tools_part() -> None:
    server, tool = "a" * 50, "t" * 38
    name = model_name(server, tool)
    assert len(name) == LONGEST
    assert name.endswith(f"__{tool}")
    assert name.startswith("aaaa")
    assert name != model_name("a" * 49 + "b", tool), "servers that differ only in what was cut are told apart"


def test_a_tool_that_is_too_long_by_itself() -> None:
    names = {model_name("s", "t" * 90 + end) for end in "abc"}
    assert len(names) == 3
    assert all(SAFE.fullmatch(name) for name in names)


def test_names_in_other_scripts_are_told_apart_whatever_their_order() -> None:
    """All their characters become `_`: without a hash, which tool is which would hang on the order of the list."""
    names = [model_name("数据", tool) for tool in ("查询", "更新", "über")]
    assert len(set(names)) == 3
    assert all(SAFE.fullmatch(name) for name in names)
    assert model_name("数据", "查询") == names[0]


def test_names_are_the_same_in_every_process() -> None:
    """They are in journals and cards, so these very names have to stay."""
    assert model_name("a" * 50, "t" * 38) == "aaaaaaaaaaaaaaaaa-ab427d__" + "t" * 38
    assert distinct("fs", "read") == "fs-b3b621__read"


@given(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120))
def test_every_name_is_safe_for_every_vendor(server: str, tool: str) -> None:
    assert SAFE.fullmatch(model_name(server, tool))
    assert SAFE.fullmatch(distinct(server, tool))
