"""All cards together: which counts, who calls whom, and whom an error stops (C3)."""

from pathlib import Path

import pytest

from orchestrator.cards import Cards, load_cards
from orchestrator.errors import ConfigurationError


def write(folder: Path, **cards: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, front in cards.items():
        (folder / f"{name}.md").write_text(f"---\ndescription: d\n{front}\n---\nx")
    return folder


def load(tmp_path: Path, **cards: str) -> Cards:
    return load_cards([(write(tmp_path / "agents", **cards), "user")])


def test_get_and_names(tmp_path: Path) -> None:
    cards = load(tmp_path, a="name: Code Reviewer", b="name: 数据分析师", c="")
    assert set(cards.cards) == {"Code Reviewer", "数据分析师", "c"}
    assert cards.get("Code-Reviewer") is cards.get("Code Reviewer")
    assert cards.get("agent-32f619c0").name == "数据分析师"
    with pytest.raises(ConfigurationError, match="there is no agent `d`") as caught:
        cards.get("d")
    assert "There are `Code Reviewer`, `数据分析师` and `c`." in str(caught.value)
    with pytest.raises(ConfigurationError, match="Did you mean `Code Reviewer`"):
        cards.reachable("code reviwer")


def test_reachable(tmp_path: Path) -> None:
    cards = load(tmp_path, top="agents: [b, a]", a="agents: [c, top]", b="", c="", d="")
    assert [card.name for card in cards.reachable("top")] == ["top", "b", "a", "c"]
    assert [card.name for card in cards.reachable("d")] == ["d"]
    assert [card.name for card in cards.agents_of(cards.get("a"))] == ["c", "top"]


def test_globs_over_agents(tmp_path: Path) -> None:
    cards = load(tmp_path, top="agents: ['*']", log_a="", log_b="", one="agents: ['log_*']")
    assert {card.name for card in cards.agents_of(cards.get("top"))} == {"log_a", "log_b", "one"}
    assert [card.name for card in cards.agents_of(cards.get("one"))] == ["log_a", "log_b"]


def test_an_error_stops_only_the_runs_that_can_reach_it(tmp_path: Path) -> None:
    cards = load(tmp_path, top="agents: [mid]", mid="agents: [broken]", broken="plan: x\nagents: [nix]", other="")
    broken = tmp_path / "agents/broken.md"
    assert list(cards.errors) == [broken]
    assert set(cards.cards) == {"top", "mid", "other"}
    assert [card.name for card in cards.reachable("other")] == ["other"]
    with pytest.raises(ConfigurationError) as caught:
        cards.reachable("top")
    assert [(problem.file, problem.line) for problem in caught.value.problems] == [(broken, 3), (broken, 4)]
    with pytest.raises(ConfigurationError):
        cards.get("broken")
    assert cards.agents_of(cards.get("mid")) == []


def test_an_unknown_agent_has_file_line_and_the_nearest_name(tmp_path: Path) -> None:
    cards = load(tmp_path, top="agents:\n  - analyst\n  - writre\n  - x*", analyst="", writer="")
    (error,) = cards.errors.values()
    assert [(problem.line, problem.message) for problem in error.problems] == [
        (5, "agents: there is no agent `writre`. Did you mean `writer`?"),
        (6, "agents: there is no agent `x*`. There are `analyst` and `writer`."),
    ]


def test_the_users_card_goes_before_a_bundled_one_and_it_is_said_once(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine", supervisor="role: mine")
    bundled = write(tmp_path / "bundled", supervisor="role: theirs", generalist="")
    cards = load_cards([(bundled, "bundled"), (mine, "user")])
    assert cards.get("supervisor").role == "mine"
    assert cards.get("generalist").source == "bundled"
    assert [str(problem) for problem in cards.validate().warnings] == [
        f"{mine / 'supervisor.md'}: your agent `supervisor` takes the place of the bundled one."
    ]


def test_a_broken_card_of_the_users_still_goes_before_the_bundled_one(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine")
    (mine / "supervisor.md").write_text("nothing")
    cards = load_cards([(mine, "user"), (write(tmp_path / "bundled", supervisor=""), "bundled")])
    with pytest.raises(ConfigurationError, match="no front matter"):
        cards.reachable("supervisor")


@pytest.mark.parametrize("other", ["Code Reviewer", "Code-Reviewer"])
def test_two_cards_of_one_name_are_an_error_that_names_both(tmp_path: Path, other: str) -> None:
    cards = load(tmp_path, a="name: Code Reviewer", b=f"name: {other}", c="")
    folder = tmp_path / "agents"
    assert list(cards.errors) == [folder / "a.md", folder / "b.md"]
    assert set(cards.cards) == {"c"}
    first = cards.errors[folder / "a.md"].problems[0]
    assert first.line == 3
    assert first.message.startswith(
        f"the agent `Code Reviewer` is there twice, also (as `{other}`) in {folder / 'b.md'}."
    )
    with pytest.raises(ConfigurationError, match="is there twice"):
        cards.reachable("Code Reviewer")


def test_what_is_no_card_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "agents", a="")
    for name in ("README.md", "CLAUDE.md", ".hidden.md", "_draft.md", "notes.txt"):
        (folder / name).write_text("no card")
    (folder / "folder.md").mkdir()
    cards = load_cards([(folder, "user")])
    assert (set(cards.cards), cards.errors) == ({"a"}, {})


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such folder of agents"):
        load_cards([(tmp_path / "none", "user")])


def test_no_cards_at_all() -> None:
    with pytest.raises(ConfigurationError, match="There are no agents at all"):
        load_cards([]).get("supervisor")


def test_validate(tmp_path: Path) -> None:
    cards = load(
        tmp_path,
        top="agents: [a]\ncolor: red",
        a="tools: [git__x]",
        b="tools: [git__y, far__z]",
        c="plan: x\ntools: [git__z]",
    )
    assert list(cards.validate().errors) == [tmp_path / "agents/c.md"]
    known = {"git": ["x"], "far": None}
    findings = cards.validate(known)
    assert list(findings.errors) == [tmp_path / "agents/b.md", tmp_path / "agents/c.md"]
    assert [problem.line for problem in findings.errors[tmp_path / "agents/c.md"].problems] == [3, 4]
    assert [problem.message for problem in findings.warnings] == [
        "tools: `far__z` cannot be checked: the server `far` cannot be reached.",
        "keys of other hosts are ignored: `color`.",
    ]
    of_top = cards.validate({"git": ["y"]}, only="top")
    assert list(of_top.errors) == [tmp_path / "agents/a.md"]
    assert [problem.line for problem in of_top.warnings] == [4]
    assert not cards.validate({"git": ["x"]}, only="top").errors
