"""An agent made ready to run: its card with everything that the card only names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.cards import AgentCard
from orchestrator.models.base import Model, ToolSpec
from orchestrator.models.choice import Choice, Choices
from orchestrator.runtime.offered import Offered
from orchestrator.tools.arguments import ArgumentSchema
from orchestrator.tools.toolset import Offer, Toolset

MAX_OUTPUT_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """`specs` is what the model is shown, in a fixed order; `offers` is what can be called, by the same names. Both are
    of this moment: they may change between turns, and so may the model in use.

    `roles` all hold for its calls: the run's own and those of the agents on the way here."""

    card: AgentCard
    choices: Choices
    toolset: Toolset
    offered: Offered
    system: str
    output: ArgumentSchema | None = None
    roles: tuple[str, ...] = ()
    max_output_tokens: int = MAX_OUTPUT_TOKENS

    @property
    def choice(self) -> Choice:
        return self.choices.now

    @property
    def model(self) -> Model:
        return self.choice.model

    @property
    def offers(self) -> Mapping[str, Offer]:
        return self.offered.offers

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return self.offered.specs

    @property
    def name(self) -> str:
        return self.card.name
