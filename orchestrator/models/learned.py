"""What was found out about an endpoint while it was used: remembered for the process, by address and model."""

from dataclasses import dataclass, field
from functools import cache
from typing import Final

NULL_CONTENT: Final = "content: null"
TEXT_ARGUMENTS: Final = "arguments as text"
NO_USAGE: Final = "reports no usage"
NO_TOOLS: Final = "takes no tools"
NO_SCHEMAS: Final = "keeps to no JSON Schema"
CUTS: Final = "cuts long prompts off without saying so"


@dataclass(slots=True)
class Learned:
    """Only ever grows. `refused` are parameters, and shapes of messages, that are not sent again."""

    refused: set[str] = field(default_factory=set[str])
    facts: set[str] = field(default_factory=set[str])

    def told(self) -> tuple[str, ...]:
        """All of it, for people."""
        return (*(f"refuses {name}" for name in sorted(self.refused)), *sorted(self.facts))


@cache
def learned_at(url: str, model: str) -> Learned:
    """What is known of a model at an address; the same object for all who ask."""
    del url, model
    return Learned()
