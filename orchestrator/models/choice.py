"""The model that a run uses, and those that it goes on with, one after the other, when that fails for good."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.models.base import Model
from orchestrator.models.counting import Tally
from orchestrator.models.pace import Pace

GOES_ON = frozenset(
    {"authentication", "not_found", "rate_limit", "overloaded", "connection", "broken_stream", "context_overflow"}
)
"""Kinds of error that are one model's own. Another may have the room that this one's window had not; what is wrong with
a bad request is wrong everywhere, and a script without an answer is a mistake in a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A model as an agent uses it: by the name that the configuration has for it, at the pace of all who use it.

    `tally` is how it counts tokens, as far as all who use it have found out.
    """

    spec: str
    model: Model
    pace: Pace
    tally: Tally = field(default_factory=Tally)


class Choices:
    """An agent's models in order. `now` is the one in use; those before it have failed and are not asked again."""

    def __init__(self, choices: Sequence[Choice], spec: str = "") -> None:
        """Begins with the model that `spec` names, else with the first."""
        self.now = next((choice for choice in choices if choice.spec == spec), choices[0])
        self._choices = choices

    def after(self, kind: str) -> Choice | None:
        """The model to go on with when the one in use has failed with an error of this kind, if there is one."""
        following = self._choices[self._choices.index(self.now) + 1 :]
        return following[0] if kind in GOES_ON and following else None

    def use(self, choice: Choice) -> None:
        self.now = choice
