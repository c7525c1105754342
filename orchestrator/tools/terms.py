"""What the configuration says of a server's calls."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.tools.listing import Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the configuration says of a server's calls. Globs are over the server's own tool names.

    `timeout` (seconds) goes before the general one; `concurrency` is calls at once; while a `long_running` tool reports
    progress, its time starts anew.
    """

    timeout: float | None = None
    concurrency: int | None = None
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    long_running: tuple[str, ...] = ()
    trust: Trust = "ask"

    def offers(self, tool: str) -> bool:
        return fits(tool, self.allow) and not fits(tool, self.deny)


def fits(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
