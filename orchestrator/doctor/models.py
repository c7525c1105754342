"""The models that agents use: are they configured, have they a key, does their server answer. No token is spent."""

import re
from collections.abc import Sequence
from dataclasses import replace

import anyio

from orchestrator.cards import AgentCard, Cards
from orchestrator.config import Settings
from orchestrator.doctor.findings import Finding, ModelSeen
from orchestrator.errors import ConfigurationError, ModelError
from orchestrator.lifetimes import Models
from orchestrator.models.base import Listing, Model
from orchestrator.models.resolve import NO_MODEL

SECONDS = 10.0
"""How long a model's server may take to answer."""

NO_MODEL_FIX = (
    "pass --model openai:NAME, anthropic:NAME or ollama:NAME, "
    "or set ORCHESTRATOR_MODEL, or `model` in orchestrator.toml"
)


async def look_at_models(
    chosen: str | Model | None, settings: Settings, cards: Cards, *, offline: bool
) -> tuple[tuple[ModelSeen, ...], list[Finding]]:
    """Resolves the model of every card that is right, and asks each server once whether it is there."""
    findings: list[Finding] = []
    try:
        models = Models(chosen, settings)
    except ConfigurationError as error:
        return (), [Finding.of(problem, "error", "configuration") for problem in error.problems]
    users: dict[str, list[AgentCard]] = {}
    behind: dict[str, list[AgentCard]] = {}
    for card in cards.cards.values():
        try:
            first, *others = models.specs(card)
            users.setdefault(first, []).append(card)
            for spec in others:
                behind.setdefault(spec, []).append(card)
        except ConfigurationError as error:
            if str(error) != NO_MODEL:
                findings += [Finding.of(problem, "error", f"agent {card.name}") for problem in error.problems]
            elif not any(finding.about == "models" for finding in findings):
                findings.append(
                    Finding(level="warning", about="models", message="no model is configured", fix=NO_MODEL_FIX)
                )
    seen: dict[str, ModelSeen] = {}

    async def look(spec: str) -> None:
        of, fallback = users.get(spec, ()), behind.get(spec, ())
        seen[spec], found = await _look(models, spec, [*of, *fallback], offline=offline)
        names = tuple(card.name for card in of), tuple(card.name for card in fallback)
        seen[spec] = seen[spec].model_copy(update={"agents": names[0], "fallback_of": names[1]})
        if not of and seen[spec].reachable is False:  # runs are not stopped by that alone
            found = [replace(finding, level="warning") for finding in found]
        findings.extend(found)

    try:
        async with anyio.create_task_group() as group:
            for spec in {**users, **behind}:
                group.start_soon(look, spec)
    finally:
        await models.close()
    return tuple(seen[spec] for spec in {**users, **behind}), findings


async def _look(
    models: Models, spec: str, cards: Sequence[AgentCard], *, offline: bool
) -> tuple[ModelSeen, list[Finding]]:
    about = f"model {spec}"
    try:
        model = models.of(cards[0], spec)
    except ConfigurationError as error:
        found = [Finding.of(problem, "error", about) for problem in error.problems]
        return ModelSeen(spec=spec, problem=found[0].message), found
    if not isinstance(model, Listing):
        return ModelSeen(spec=spec), []
    key, key_set = model.key
    seen = ModelSeen(spec=spec, url=model.address, key=key, key_set=key_set)
    if offline:
        return seen, []
    try:
        with anyio.fail_after(SECONDS):
            names = await model.listed()
    except TimeoutError:
        problem = f"{model.address} did not answer within {SECONDS:g} s"
    except ModelError as error:
        problem = str(error)
    else:
        seen = seen.model_copy(update={"reachable": True})
        if not names or any(_means(model.name, name) for name in names):
            return seen, []
        problem = f"its server does not list `{model.name}`"
        fix = (
            f"ollama pull {model.name}"
            if model.provider == "ollama"
            else "check the name; some servers list only a part"
        )
        return seen, [Finding(level="warning", about=about, message=problem, fix=fix)]
    fix = "start its server or mend `base_url`; with a wrong key, set the right one"
    seen = seen.model_copy(update={"reachable": False, "problem": problem})
    return seen, [Finding(level="error", about=about, message=problem, fix=fix)]


def _means(name: str, listed: str) -> bool:
    """Whether a name means the listed model: itself, Ollama's `name:latest`, or a dated snapshot (`name-20250929`)."""
    return (
        listed == name
        or listed.partition(":")[0] == name
        or re.fullmatch(rf"{re.escape(name)}-20[\d-]+", listed) is not None
    )
