"""A card's words for models."""

import pytest

from orchestrator.cards import AgentCard, model_specs
from orchestrator.config import Settings
from orchestrator.errors import ConfigurationError


def card(*model: str) -> AgentCard:
    return AgentCard(name="n", tool_name="n", title="n", model=model)


SETTINGS = Settings(model="openai:d", models={"local": {}}, model_aliases={"sonnet": "anthropic:s"})


@pytest.mark.parametrize(
    ("words", "specs", "said"),
    [
        ((), ("openai:d",), 0),
        (("inherit",), ("openai:d",), 0),
        (("local",), ("local",), 0),
        (("Sonnet",), ("anthropic:s",), 0),
        (("ollama:llama3:8b",), ("ollama:llama3:8b",), 0),
        (("opus", "Some Model (preview)", "local"), ("openai:d", "local"), 2),
        (("sonnet", "inherit"), ("anthropic:s", "openai:d"), 0),
    ],
)
def test_specs(words: tuple[str, ...], specs: tuple[str, ...], said: int) -> None:
    found, warnings = model_specs(card(*words), SETTINGS)
    assert (found, len(warnings)) == (specs, said)


def test_without_a_default() -> None:
    assert model_specs(card(), Settings()) == ((), [])
    assert model_specs(card("haiku", "openai:x"), Settings())[0] == ("openai:x",)


def test_a_misspelt_table_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown model `locla`\. Did you mean `local`"):
        model_specs(card("locla"), SETTINGS)
