"""How many tokens a text has, before a model has said so.

An estimate only has to be right until the first reply: from then on the reported input of the last request is the
base, and only what was added since is estimated. `estimate` of a text is all that most need. Whoever keeps many
messages keeps `count` of each (once, when it is appended), sums them by `added` and asks `tokens` with the run's
weights: they are in its events, and change with what its model reports.
"""

from orchestrator.models.counting import FRESH, Weights, count, tokens

MOST_CHARACTERS = 6
"""A token has fewer, in all but odd texts; English prose has five."""

MOST_TOKENS = 1.5
"""A character has no more."""

IMAGE_TOKENS = 1600
"""An image of 1.2 megapixels at Anthropic, about the most that vendors count: they scale larger ones down."""

REQUEST_OVERHEAD = 48
"""What a request has beside its messages and tools: its settings, and the template that a model wraps around it."""


def estimate(encoded: bytes, weights: Weights = FRESH) -> int:
    """Tokens of UTF-8 text, or of a message as it is encoded, rounded up."""
    return tokens(count(encoded), weights)
