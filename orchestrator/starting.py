"""A starting set of files, from the MCP servers that other hosts on this machine are set up with.

Nothing is overwritten. No secret is copied: where one stands in a host's file, `${NAME}` is written, and the name said.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from orchestrator.config import ServerFile, ServerSettings, read_mcp_config
from orchestrator.config.entries import EntryReader
from orchestrator.config.folders import MCP_FILES, SETTINGS_FILE
from orchestrator.config.names import sanitise
from orchestrator.config.parsers import parse_json
from orchestrator.config.report import mapping, read_document
from orchestrator.config.secrets import mask_url, may_be_secret, secret_words

MCP_FILE = ".mcp.json"
CARD = "agents/assistant.md"
_UNFIT = re.compile(r"[^A-Za-z0-9]+")
_INPUT = re.compile(r"\$\{input:([^{}]+)\}")

SETTINGS_TEXT = """\
# Settings of orchestrator. All that is left out has a default; `orchestrator doctor` checks this file.

# model = "openai:NAME"        # or "anthropic:NAME", "ollama:NAME"; ORCHESTRATOR_MODEL goes before it

[limits]
steps = 12                     # model turns of each agent
seconds = 1800                 # of a whole run

[policy]
# Calls that write wait for a person. Globs over server__tool:
# allow = ["git__git_add"]     # goes ahead
# deny = ["*__delete*"]        # is refused
"""

CARD_TEXT = """\
---
name: assistant
description: >-
  Use for work with the tools of this folder's own servers. Not for table files, charts or logs.
---
You do one task with the tools you were given.

- Read before you write, and check the result of a write.
- When a call fails, change the arguments or use another tool; do not repeat it.
- Answer with what you found or did, and with what you could not do.
"""


@dataclass(slots=True)
class Start:
    """What would be written: texts by path. `taken` are servers by name with the file each is from; `variables` must be
    set for them to work, by name with what needs each; `notes` are what else to say."""

    files: dict[Path, str] = field(default_factory=dict[Path, str])
    taken: dict[str, Path] = field(default_factory=dict[str, Path])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])

    def write(self) -> None:
        """Writes the files. Raises OSError; FileExistsError where one has come into being since."""
        for path, text in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)


def places(workspace: Path, environ: Mapping[str, str], platform: str = sys.platform) -> list[Path]:
    """Where hosts keep their servers: this folder's first, then Claude Code, Claude Desktop, Cursor, VS Code, Codex."""
    user = Path(environ.get("HOME") or Path.home())
    settings = Path(environ.get("XDG_CONFIG_HOME") or user / ".config")
    if platform == "darwin":
        settings = user / "Library" / "Application Support"
    elif platform == "win32":
        settings = Path(environ.get("APPDATA") or user / "AppData" / "Roaming")
    return [
        *(workspace / name for name in MCP_FILES),
        user / ".claude.json",
        settings / "Claude" / "claude_desktop_config.json",
        user / ".cursor" / "mcp.json",
        settings / "Code" / "User" / "mcp.json",
        Path(environ.get("CODEX_HOME") or user / ".codex") / "config.toml",
    ]


def prepare(workspace: Path, environ: Mapping[str, str]) -> Start:
    """Reads what hosts have, and says what to write into `workspace`. Writes nothing."""
    start = Start()
    texts = {SETTINGS_FILE: SETTINGS_TEXT, CARD: CARD_TEXT}
    if not (workspace / MCP_FILE).exists():
        servers = _found(start, workspace, [path for path in places(workspace, environ) if path.is_file()])
        values: dict[str, str] = {}
        entries = {server.name: _Entry(server, start, values).written() for server in servers}
        if entries:
            texts = {MCP_FILE: json.dumps({"mcpServers": entries}, ensure_ascii=False, indent=2) + "\n"} | texts
    else:
        start.notes.append(f"{workspace / MCP_FILE} is there already and stays as it is")
    for name, text in texts.items():
        path = workspace / name
        if (there := path.parent if name == CARD else path).exists():
            start.notes.append(f"{there} is there already and stays as it is")
        else:
            start.files[path] = text
    return start


def _found(start: Start, workspace: Path, files: Sequence[Path]) -> list[ServerSettings]:
    """The servers of all files that can be used; of several of one name the first."""
    servers: dict[str, ServerSettings] = {}
    for path in files:
        for read in _read(path, workspace):
            start.notes += [
                f"left out: {problem}" for problem in read.errors if "there is no `mcpServers`" not in str(problem)
            ]
            for server in read.servers.values():
                earlier = servers.setdefault(sanitise(server.name), server)
                if earlier is server:
                    start.taken[server.name] = path
                elif (earlier.command, earlier.args, earlier.url) != (server.command, server.args, server.url):
                    start.notes.append(
                        f"left out: `{server.name}` of {path}, as {earlier.file} has another of this name"
                    )
    return list(servers.values())


def _read(path: Path, workspace: Path) -> Iterator[ServerFile]:
    """A host's file; Claude Code's has servers of single folders as well."""
    if path.name == ".claude.json":
        value, report = read_document(path, "configuration file", parse_json)
        folders = mapping((mapping(value) or {}).get("projects")) or {}
        if table := (mapping(folders.get(str(workspace))) or {}).get("mcpServers"):
            servers = EntryReader(report, {}, strict=False).read_all("mcpServers", table)
            yield ServerFile(servers=servers, errors=tuple(report.errors))
    yield read_mcp_config(path)


class _Entry:
    """A server as it is written into `.mcp.json`."""

    def __init__(self, server: ServerSettings, start: Start, values: dict[str, str]) -> None:
        """`values` is what stands for each variable so far; it is written nowhere."""
        self._server = server
        self._start = start
        self._values = values

    def written(self) -> dict[str, Any]:
        server = self._server
        entry: dict[str, Any] = {}
        if server.transport == "stdio":
            parts = secret_words(server.args)
            args = [
                word.replace(part, self._variable(word.partition("=")[0] if "=" in word else before, part))
                if part
                else word
                for before, word, part in zip(["", *server.args], server.args, parts, strict=False)
            ]
            entry = {"command": server.command, "args": [self._plain(word) for word in args]}
            entry |= {"cwd": server.cwd} if server.cwd else {}
            entry |= {"envFile": server.env_file} if server.env_file else {}
        else:
            url = server.url or ""
            entry = {
                "type": server.transport,
                "url": self._plain(url if mask_url(url) == url else self._variable("URL", url)),
            }
        for key, table in (("env", server.env), ("headers", server.headers)):
            if table:
                entry[key] = {name: self._value(name, value) for name, value in table.items()}
        own = {"allow": list(server.allow)} if server.allow != ("*",) else {}
        own |= {"deny": list(server.deny)} if server.deny else {}
        entry |= {"orchestrator": own} if own else {}
        return entry | ({"disabled": True} if server.disabled else {})

    def _value(self, name: str, value: str) -> str:
        if not may_be_secret(name, value):
            return self._plain(value)
        scheme = next((word for word in ("Bearer ", "Basic ") if value.startswith(word)), "")
        return scheme + self._variable(name, value)

    def _plain(self, text: str) -> str:
        """A text without inputs of a host, which become variables."""
        return _INPUT.sub(lambda match: self._variable(match[1], match[0]), text)

    def _variable(self, name: str, value: str) -> str:
        """A variable in place of `value`, under a name that no other value has."""
        server, plain = (_UNFIT.sub("_", text).strip("_").upper() or "MCP" for text in (self._server.name, name))
        base = plain if plain.startswith(server) else f"{server}_{plain}"
        base = f"MCP_{base}" if base[0].isdigit() else base
        own = [name] if name in self._server.env and name.isidentifier() and name.isascii() else []
        for variable in chain(own, [base], (f"{base}_{number}" for number in count(2))):
            if self._values.setdefault(variable, value) == value:
                self._start.variables[variable] = self._server.name
                return f"${{{variable}}}"
        raise AssertionError("there is always one more number")
