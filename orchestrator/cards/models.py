"""A card's words for models, as specs of this product."""

from orchestrator.cards.card import AgentCard
from orchestrator.config import Settings
from orchestrator.config.names import misspelt
from orchestrator.errors import ConfigurationError, Problem


def model_specs(card: AgentCard, settings: Settings) -> tuple[tuple[str, ...], list[Problem]]:
    """The specs to try, in order, and warnings; no specs where the default is meant and none is configured.

    A name of `[models]` or of `[model_aliases]` counts first, then whatever has a vendor (`openai:NAME`). `inherit` is
    the default, and so is any other word, which is another host's: that is said. Several names that come to the
    default give it once.

    Raises:
        ConfigurationError: a word is a misspelling of a configured model.
    """
    specs: dict[str | None, None] = {}
    warnings: list[Problem] = []
    aliases = {name.lower(): spec for name, spec in settings.model_aliases.items()}
    for word in card.model or ("inherit",):
        if word in settings.models:
            specs[word] = None
        elif word.lower() in aliases:
            specs[aliases[word.lower()]] = None
        elif ":" in word:
            specs[word] = None
        else:
            specs[settings.model] = None
            if word.lower() in ("inherit", "default"):
                continue
            if near := misspelt(word, settings.models):
                raise ConfigurationError(card.problem(f"unknown model `{word}`. Did you mean `{near}`?", "model", word))
            message = f"model: `{word}` is another host's name, so the default model is used; give it a meaning"
            warnings.append(card.problem(f'{message} with `[model_aliases]` "{word}" = "SPEC".', "model", word))
    return tuple(spec for spec in specs if spec is not None), warnings
