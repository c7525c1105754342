"""What `doctor` found, as data; `cli/doctor.py` shows it, and `--json` prints it as it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import Problem

Level = Literal["error", "warning", "hint"]
"""An error stops runs, or a part of them; a warning should be known; a hint makes things better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to know. `about` says whose it is: `configuration`, `server git`, `agents`, `model x`, …"""

    level: Level
    about: str
    message: str
    fix: str = ""
    file: Path | None = None
    line: int | None = None

    @classmethod
    def of(cls, problem: Problem, level: Level, about: str) -> "Finding":
        """A problem of a file, whose message says what to do already."""
        kind, _, name = about.partition(" ")
        message = problem.message.removeprefix(f"{kind} `{name}`").lstrip(":, ")
        return cls(level=level, about=about, message=message, file=problem.file, line=problem.line)


class Seen(BaseModel):
    """Something that was looked at. `problem` is empty when nothing is wrong with it."""

    model_config = ConfigDict(frozen=True)

    problem: str = ""


class RemarkSeen(BaseModel):
    """What is missing in a tool's description, by the name of the rule; `arguments` are those concerned."""

    rule: str
    message: str
    fix: str
    arguments: tuple[str, ...] = ()


class ToolSeen(BaseModel):
    """A tool under the name that models see; `tokens` is an estimate of what it costs in each request."""

    name: str
    tool: str
    effect: str
    tokens: int
    remarks: tuple[RemarkSeen, ...] = ()


class ServerSeen(Seen):
    """A server. `up` is None when nothing was started. No secret is in `command`, `url`, `problem` or `stderr`.

    `protocol` is the version that was agreed on, `era` says whether it begins with a handshake. `start_s` is the time
    until its tools were known. `tokens` is an estimate of what its tools cost in each request. `left_out` are tools
    that cannot be offered, with the reason. `stderr` are the last lines of a server in trouble.
    """

    name: str
    bundled: bool
    disabled: bool
    required: bool
    transport: str
    command: str | None
    url: str | None
    file: Path | None
    line: int | None
    up: bool | None = None
    protocol: str = ""
    era: Literal["modern", "handshake", ""] = ""
    start_s: float | None = None
    tokens: int = 0
    tools: tuple[ToolSeen, ...] = ()
    left_out: dict[str, str] = {}
    stderr: tuple[str, ...] = ()


class AgentSeen(Seen):
    """A card, right or wrong; `problem` is the first of what is wrong, all are in the findings."""

    name: str
    source: str
    file: Path | None


class ModelSeen(Seen):
    """A model that `agents` use, or that those of `fallback_of` go on with when another fails.

    `reachable` is None when nobody was asked; `key_set` None when it needs no key.
    """

    spec: str
    agents: tuple[str, ...] = ()
    fallback_of: tuple[str, ...] = ()
    url: str | None = None
    key: str | None = None
    key_set: bool | None = None
    reachable: bool | None = None


class CollectorSeen(Seen):
    """Where spans go: to a collector, to a file, or nowhere. `reachable` is None when nobody was asked."""

    to: Literal["collector", "file", "nowhere"]
    where: str
    reachable: bool | None = None


class StateSeen(Seen):
    """The folder of journal, spans and everything else that outlives a run; it may not exist yet."""

    folder: Path
    exists: bool
    writable: bool
    bytes: int


class Report(BaseModel):
    """What `doctor --json` prints. `ok`: there is no error among the findings."""

    model_config = ConfigDict(frozen=True)

    ok: bool
    offline: bool
    workspace: Path
    files: tuple[Path, ...]
    servers: tuple[ServerSeen, ...]
    agents: tuple[AgentSeen, ...]
    models: tuple[ModelSeen, ...]
    collector: CollectorSeen | None
    state: StateSeen
    findings: tuple[Finding, ...]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
