"""What the configuration says of a server's calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from orchestrator.tools.listing import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the configuration says of a server's calls. Globs are over the server's own tool names.

    `timeout` (seconds) goes before the general one; `concurrency` is calls at once; while a `long_running` tool reports
    progress, its time starts anew. `result_tokens` by glob are those of a result that are shown at once.
    """

    timeout: float | None = None
    concurrency: int | None = None
    result_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    long_running: tuple[str, ...] = ()
    trust: Trust = "ask"

    def shown_tokens(self, tool: str, otherwise: int) -> int:
        """Tokens of a tool's result that are shown at once: those of the first glob that fits it."""
        return next((tokens for glob, tokens in self.result_tokens.items() if fnmatchcase(tool, glob)), otherwise)

    def offers(self, tool: str) -> bool:
        return fits(tool, self.allow) and not fits(tool, self.deny)


def fits(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
