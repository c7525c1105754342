"""Cards as people really have them (C3): each row of `cases/cards/README.md`."""

import shutil
from pathlib import Path

import pytest

from orchestrator.cards import check_tools, load_card, load_cards, model_specs
from orchestrator.config import Settings
from orchestrator.errors import ConfigurationError

CASES = Path(__file__).parent.parent / "cases" / "cards"
KNOWN = {"tables": ["query", "describe"], "files": ["read", "search", "list", "write", "edit"]}


def test_01_a_card_of_claude_code() -> None:
    card, warnings = load_card(CASES / "01-reviewer.md")
    assert card.name == card.tool_name == "reviewer"
    assert card.description.startswith(
        "Use this agent when code was changed and needs a second look. Examples: <example>"
    )
    assert card.description.endswith("<commentary>Code changed, so: review.</commentary></example>")
    assert card.instructions == "You review changes. Report what matters first."
    assert card.tools == ("files__read", "files__search", "files__list", "git__git_diff")
    assert card.limits.steps == 8
    assert [problem.message for problem in warnings] == [
        "keys of other hosts are ignored: `color`.",
        "tools: left out, as there is no equivalent of another host's tool here: `Bash`.",
    ]
    errors, said = check_tools(card, KNOWN, {"tables", "files"})
    assert not errors
    assert [(problem.line, problem.message) for problem in said] == [
        (4, "tools: there is no tool `mcp__git__git_diff`. Tools are named `server__tool`. "
            "Configured: `tables` and `files`.")
    ]  # fmt: skip
    specs, said = model_specs(card, Settings(model="ollama:x"))
    assert specs == ("ollama:x",)
    assert len(said) == 1
    assert "`sonnet`" in said[0].message
    assert said[0].line == 5
    assert model_specs(card, Settings(model_aliases={"Sonnet": "anthropic:s"})) == (("anthropic:s",), [])


def test_02_a_card_of_vs_code() -> None:
    card, warnings = load_card(CASES / "02-planner.agent.md")
    assert card.name == "02-planner"
    assert card.description == "Plans work: reads, never writes"
    assert card.model == ("Some Model (preview)", "other-model")
    assert card.tools == ("files__read", "git__*")
    assert [problem.message for problem in warnings] == [
        "keys of other hosts are ignored: `handoffs`.",
        "tools: left out, as there is no equivalent of another host's tool here: `search`.",
    ]
    errors, said = check_tools(card, KNOWN, {"tables", "files"})
    assert not errors
    assert "there is no tool `git/*`" in said[0].message


def test_03_all_three_misspellings_are_said_at_once(tmp_path: Path) -> None:
    shutil.copy(CASES / "03-misspelt.md", tmp_path)
    (tmp_path / "analyst.md").write_text("---\nname: analyst\ndescription: d\n---\nx")
    cards = load_cards([(tmp_path, "user")])
    findings = cards.validate(KNOWN, {"tables", "files"})
    path = tmp_path / "03-misspelt.md"
    assert list(findings.errors) == [path]
    assert [(p.file, p.line, p.message) for p in findings.errors[path].problems] == [
        (path, 3, "unknown key `descripton`. Did you mean `description`?"),
        (path, 5, "tools: there is no tool `tables__qurey`. Did you mean `tables__query`?"),
        (path, 6, "agents: there is no agent `analist`. Did you mean `analyst`?"),
    ]
    assert set(cards.cards) == {"analyst"}


def test_04_no_front_matter_shows_the_smallest_card(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no front matter") as caught:
        load_card(CASES / "04-no-front-matter.md")
    smallest = caught.value.problems[0].message.split(":\n", 1)[1]
    (tmp_path / "reviewer.md").write_text(smallest)
    card, warnings = load_card(tmp_path / "reviewer.md")
    assert (card.name, warnings) == ("reviewer", [])


def test_05_a_chinese_name_has_a_stable_tool_name_and_keeps_its_title() -> None:
    card, warnings = load_card(CASES / "05-crlf.md")
    assert card.name == card.title == "数据分析师"
    assert card.tool_name == "agent-32f619c0"
    assert card.description == "当用户询问销售数据时使用。\n不要用于商品详情。"
    assert card.instructions == "你是数据分析师。"
    assert card.tools == ("tables__*",)
    assert not warnings


def test_06_traps_of_yaml() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_card(CASES / "06-yaml-traps.md")
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (4, "`temperature` must be a number, which `0,2` is not here; write 0.2."),
        (5, "`limits.cost` must be a number, which `$0.50` is not here; write 0.50."),
        (5, "`limits.seconds` must be a number, which `2m` is not here; write 120."),
        (6, '`tools` is not YAML: put the items in quotes, like ["*"].'),
    ]


def test_06_yes_and_no_are_text(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("---\nname: no\ndescription: yes\n---\nx")
    card, _ = load_card(path)
    assert (card.name, card.description) == ("no", "yes")
