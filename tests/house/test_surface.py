"""The public names, which others import: they only grow, and on purpose."""

import tomllib
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(__file__).parents[2]


def test_public_names() -> None:
    assert orchestrator.__all__ == [
        "ConfigurationError",
        "Limits",
        "ModelError",
        "Options",
        "Orchestrator",
        "OrchestratorError",
        "RunOptions",
        "RunResult",
    ]


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_each_is_there(name: str) -> None:
    assert getattr(orchestrator, name).__name__ == name


def test_no_other_name_is() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Runner'"):
        _ = orchestrator.Runner


def test_the_version_is_the_packages() -> None:
    assert orchestrator.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
