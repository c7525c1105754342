"""One MCP server as configured, and how its values are filled in when it is started.

`read_entry` (in `entries.py`) makes these from the files of several hosts.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.config.expand import Ask, Expander, Input, Unresolved, parse_env_file
from orchestrator.config.report import Report, read_text
from orchestrator.errors import ConfigurationError, Problem

Transport = Literal["stdio", "http", "sse"]

_DRIVE = re.compile(r"^(?:--?[\w-]+=)?[A-Za-z]:[\\/]")
_WINDOWS = re.compile(r"^(?:cmd|powershell|pwsh|.*\.(?:exe|cmd|bat|ps1))$", re.IGNORECASE)


class ServerSettings(BaseModel):
    """A configured MCP server. Times are in seconds. Values are as written until `expand` has filled them in.

    `allow` and `deny` are globs over the server's own tool names; `auto_approve` are globs of tools that are not asked
    for. The time of a `long_running` tool (globs too) starts anew with each report of progress. `call_timeout` None
    means `[tools] timeout`, `concurrency` None no bound of its own. A `required` server that cannot be reached ends the
    run. Values never show in `repr`, as they may be secrets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    transport: Transport = "stdio"
    command: str | None = None
    args: tuple[str, ...] = Field(default=(), repr=False)
    env: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    env_file: str | None = Field(default=None, repr=False)
    cwd: str | None = Field(default=None, repr=False)
    url: str | None = Field(default=None, repr=False)
    headers: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    start_timeout: float = 30.0
    call_timeout: float | None = None
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    long_running: tuple[str, ...] = ()
    concurrency: int | None = None
    required: bool = False
    disabled: bool = False
    bundled: bool = False
    file: Path | None = None
    line: int | None = None
    lines: Mapping[str, int] = Field(default_factory=dict[str, int], repr=False, exclude=True)
    inputs: Mapping[str, Input] = Field(default_factory=dict[str, Input], repr=False, exclude=True)
    warnings: tuple[Problem, ...] = Field(default=(), repr=False, exclude=True)

    def expand(self, environ: Mapping[str, str], workspace: Path, ask: Ask | None = None) -> "ServerSettings":
        """This server with every `${…}` replaced, its `env_file` read into `env`, and `cwd` absolute.

        Call it when the server is about to be started: what a server that nobody uses needs may be missing. Relative
        paths are of `workspace`, which is also the default `cwd`.

        Raises:
            ConfigurationError: all that is missing, by name and line; never with a value.
        """
        report = Report(self.file, {(key,): line for key, line in self.lines.items()} | self._fallback())
        expander = Expander(environ=environ, workspace=workspace, inputs=self.inputs, ask=ask)

        def fill(key: str, text: str) -> str:
            try:
                return expander.expand(text)
            except Unresolved as error:
                report.error(f"server `{self.name}`, {key}: {error}", (key,) if key in self.lines else ("",))
            return ""

        env = {key: fill(f"env.{key}", value) for key, value in self.env.items()}
        if self.env_file is not None:
            env = self._env_file(workspace / fill("env_file", self.env_file), report) | env
        changed = {
            "command": self.command and fill("command", self.command),
            "args": tuple(fill(f"args.{at}", value) for at, value in enumerate(self.args)),
            "env": env,
            "env_file": None,
            "cwd": str(workspace / fill("cwd", self.cwd or "")),
            "url": self.url and fill("url", self.url),
            "headers": {key: fill(f"headers.{key}", value) for key, value in self.headers.items()},
        }
        if changed["url"] and not str(changed["url"]).startswith(("http://", "https://")):
            report.error(f"server `{self.name}`: `url` must start with `http://` or `https://`.", ("url",))
        if report.errors:
            raise ConfigurationError(*sorted(report.errors, key=lambda problem: problem.line or 0))
        return self.model_copy(update=changed)

    def _fallback(self) -> dict[tuple[str | int, ...], int]:
        return {("",): self.line} if self.line else {}

    def _env_file(self, path: Path, report: Report) -> dict[str, str]:
        if report.errors:
            return {}
        try:
            found, wrong = parse_env_file(read_text(path, "environment file"))
        except ConfigurationError as error:
            for problem in error.problems:
                report.error(f"server `{self.name}`: `envFile` {problem}", ("env_file",))
            return {}
        if wrong:
            report.errors.append(Problem("this line is not `NAME=value`.", path, wrong[0]))
        return found


def on_windows() -> bool:
    """Whether this system is Windows."""
    return os.name == "nt"


def foreign_system(server: ServerSettings) -> str | None:
    """What in a stdio server's command belongs to another operating system than this one, as a sentence."""
    if on_windows() or server.command is None:
        return None
    if _WINDOWS.match(server.command):
        arguments = [part for part in server.args if part.lower() != "/c"]
        instead = ""
        if server.command.lower() in ("cmd", "cmd.exe") and arguments and len(arguments) < len(server.args):
            instead = f' Here, write "command": "{arguments[0]}" and the rest in "args".'
        return f"server `{server.name}`: the command `{server.command}` is of Windows.{instead}"
    if any(_DRIVE.match(part) for part in (server.command, *server.args)):
        return f"server `{server.name}`: a path with a drive letter is of Windows; there is none such on this system."
    return None
