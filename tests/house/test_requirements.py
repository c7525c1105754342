"""Requirements and tests, tied both ways. The tests' files are read, so a selection of tests changes nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.behaviour.requirements import REQUIREMENTS

TESTS = Path(__file__).parents[1]


def named(source: str) -> Iterator[str]:
    """The ids in every `…mark.requirement(…)` of a file; an argument that is no plain text fails."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement":
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"line {node.lineno}: give each id as plain text"
                assert isinstance(argument.value, str), f"line {node.lineno}: give each id as plain text"
                yield argument.value


def kept() -> dict[str, list[str]]:
    """Files by the ids that their tests name."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for each in named(path.read_text()):
            found.setdefault(each, []).append(str(path.relative_to(TESTS)))
    return found


def test_ids_are_unique() -> None:
    ids = [each.id for each in REQUIREMENTS]
    assert sorted(set(ids)) == sorted(ids)


def test_tests_name_known_ids_only() -> None:
    assert set(kept()) <= {each.id for each in REQUIREMENTS}


def test_every_requirement_that_is_not_pending_is_kept_by_a_test() -> None:
    promised = {each.id for each in REQUIREMENTS if not each.pending}
    assert promised <= set(kept())


def test_how_ids_are_found() -> None:
    source = '@pytest.mark.requirement("A1", "B2")\ndef test_it(): ...\npytestmark = pytest.mark.requirement("C3")\n'
    assert set(named(source)) == {"A1", "B2", "C3"}
