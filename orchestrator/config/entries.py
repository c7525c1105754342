"""Reads files of MCP servers: `.mcp.json`, `claude_desktop_config.json`, `.vscode/mcp.json`, Codex' `config.toml`."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from orchestrator.config.expand import Input
from orchestrator.config.names import did_you_mean, listed, misspelt, sanitise
from orchestrator.config.oauth import sign_in_keys
from orchestrator.config.parsers import parse_json, parse_toml
from orchestrator.config.report import Report, Where, mapping, read_document, sequence
from orchestrator.config.secrets import hold_secret, looks_secret
from orchestrator.config.servers import ServerSettings
from orchestrator.errors import Problem

ROOTS = ("mcpServers", "servers", "mcp_servers")
SHAPE = '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "some-mcp-server"]}}}'
RESERVED = ("agents", "builtin")
OWN_KEY = "orchestrator"
_SHAPE = ("command", "args", "env", "env_file", "cwd", "url", "headers", "oauth", "type", "disabled")
_OURS = (
    "start_timeout",
    "call_timeout",
    "allow",
    "deny",
    "auto_approve",
    "long_running",
    "concurrency",
    "required",
    "trust",
    "result_tokens",
)
_ALIASES: Mapping[str, str] = {
    "envFile": "env_file",
    "serverUrl": "url",
    "httpUrl": "url",
    "http_headers": "headers",
    "type": "transport",
    "disabledTools": "deny",
    "disabled_tools": "deny",
    "excludeTools": "deny",
    "enabledTools": "allow",
    "enabled_tools": "allow",
    "includeTools": "allow",
    "tools": "allow",
    "autoApprove": "auto_approve",
    "alwaysAllow": "auto_approve",
    "timeout": "call_timeout",
    "startup_timeout_sec": "start_timeout",
    "tool_timeout_sec": "call_timeout",
}
_SPECIAL = ("transport", "enabled", "auth", "bearer_token_env_var")
_OTHER_HOSTS = ("dev", "icon", "name", "roots", "trust", "sandbox", "version")
KEYS = (*_SHAPE, *_ALIASES, *_SPECIAL, OWN_KEY)
"""All keys of an entry that mean something here."""

_DRIVE = re.compile(r"^(?:--?[\w-]+=)?[A-Za-z]:[\\/]")
_WINDOWS = re.compile(r"^(?:cmd|powershell|pwsh|.*\.(?:exe|cmd|bat|ps1))$", re.IGNORECASE)
_WAY_OUT = "keep it in an environment variable, and write `${NAME}` here."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """What was read from one file: servers that are right, by name, and everything that is not."""

    servers: Mapping[str, ServerSettings]
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_mcp_config(path: Path) -> ServerFile:
    """Reads one file of MCP servers, of whichever host; raises nothing, so that files can be judged together."""
    parse = parse_toml if path.suffix.lower() == ".toml" else parse_json
    value, report = read_document(path, "configuration file", parse)
    servers: dict[str, ServerSettings] = {}
    if (root := mapping(value)) is not None:
        reader = EntryReader(report, _inputs(root, report), strict=False)
        for key, table in _tables(root, report).items():
            for server in reader.read_all(key, table).values():
                add(server, servers, report.errors)
        if reader.ignored:
            report.warn(f"keys of other hosts are ignored here: {listed(reader.ignored)}.")
    elif not report.errors:
        report.error(f"an object is expected: {SHAPE}", line=1)
    return ServerFile(servers=servers, errors=tuple(report.errors), warnings=tuple(report.warnings))


class EntryReader:
    """Reads the entries of one file. `strict` files are our own, where a key that is unknown is an error."""

    def __init__(self, report: Report, inputs: Mapping[str, Input], *, strict: bool) -> None:
        self.report = report
        self.inputs = inputs
        self.strict = strict
        self.ignored: dict[str, None] = {}

    def read_all(self, key: str, table: object) -> dict[str, ServerSettings]:
        """The servers of the table under `key` (empty: the whole file) that are right."""
        where = (key,) if key else ()
        entries = mapping(table)
        if entries is None:
            self.report.error(f"`{key}` must be tables or objects, one a server: {SHAPE}", where)
        servers: dict[str, ServerSettings] = {}
        for name, entry in (entries or {}).items():
            if (server := self.read(name, entry, (*where, name))) is not None:
                add(server, servers, self.report.errors)
        return servers

    def read(self, name: str, value: object, where: Where) -> ServerSettings | None:
        """The server of an entry; None when it is so wrong that only the errors in the report are left of it."""
        entry = mapping(value)
        if not name or name in RESERVED:
            self.report.error(f"`{name}` cannot be the name of a server: it is reserved. Give it another name.", where)
            return None
        if entry is None:
            self.report.error(f'server `{name}`: an object like {{"command": "…", "args": []}} is expected.', where)
            return None
        errors = len(self.report.errors)
        data, places = self._sorted(name, entry, where)
        data |= {"name": name, "file": self.report.file, "line": self.report.line(where), "inputs": self.inputs}
        try:
            server = ServerSettings(**data, places=places, lines=self.report.lines)
        except ValidationError as error:
            self.report.explain(error, {}, places, inside=where, before=f"server `{name}`: ")
            return None
        if fault := _fault(server):
            self.report.error(f"server `{name}`: {fault}", places.get("url", where))
        if len(self.report.errors) > errors:
            return None
        said = [Problem(f"server `{name}`: {remark}", server.file, server.line) for remark in _remarks(server)]
        return server.model_copy(update={"warnings": tuple(said)})

    def _sorted(self, name: str, entry: Mapping[str, Any], where: Where) -> tuple[dict[str, Any], dict[str, Where]]:
        """The entry's values under our names, and where each stands; other keys are remembered or reported."""
        data: dict[str, Any] = {}
        places: dict[str, Where] = {}
        for place, value, known in self._members(entry, where):
            key = str(place[-1])
            if key in known:
                if value is not None:
                    ours = _ALIASES.get(key, key)
                    earlier, items = sequence(data.get(ours)), sequence(value)
                    data[ours] = [*earlier, *items] if earlier is not None and items is not None else value
                    places[ours] = place
            elif known[-1] in _SPECIAL and (key in _OTHER_HOSTS or not misspelt(key, (*known, *_OURS))):
                self.ignored[key] = None
            else:
                elsewhere = f' It goes into `"{OWN_KEY}": {{"{key}": …}}` there.' if key in _OURS else ""
                hint = elsewhere or did_you_mean(key, (*known, *_OURS))
                self.report.error(f"server `{name}`: unknown key `{key}`.{hint} Known: {listed(known, 20)}.", place)
        if data.pop("enabled", True) is False:
            data["disabled"] = True
        given = sign_in_keys(data.pop("auth", None))
        if variable := data.pop("bearer_token_env_var", None):
            given["headers"] = {"Authorization": f"Bearer ${{{variable}}}"}
        if "headers" in given:
            data["headers"] = given["headers"] | (mapping(data.get("headers")) or {})
        if "oauth" in given:
            data.setdefault("oauth", given["oauth"])
            places.setdefault("oauth", places["auth"])
        if "url" in data and "command" not in data:
            data.setdefault("transport", "http")
        return data, places

    def _members(self, entry: Mapping[str, Any], where: Where) -> Iterator[tuple[Where, Any, tuple[str, ...]]]:
        """Where each member of an entry stands, its value, and the keys that may stand there."""
        known = (*_SHAPE, *_OURS) if self.strict else (*_SHAPE, *_ALIASES, *_SPECIAL)
        for key, value in entry.items():
            place = (*where, key)
            if key != OWN_KEY or self.strict:
                yield place, value, known
            elif (own := mapping(value)) is not None:
                yield from (((*place, inner), item, _OURS) for inner, item in own.items())
            else:
                self.report.error(f'`{OWN_KEY}` must be an object like {{"call_timeout": 120}}.', place)


def add(server: ServerSettings, servers: dict[str, ServerSettings], errors: list[Problem]) -> None:
    """Adds a server to others; one whose name would be the same to a model is an error that names both."""
    for other in servers.values():
        if sanitise(other.name) == sanitise(server.name):
            place = f"as `{other.name}` in {other.file}:{other.line}"
            message = f"the server `{server.name}` is configured already, {place}. Rename or remove one."
            errors.append(Problem(message, server.file, server.line))
            return
    servers[server.name] = server


def _tables(root: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The tables of servers in a file, by their keys."""
    if found := {key: root[key] for key in ROOTS if key in root}:
        return {key: table for key, table in found.items() if table is not None}
    if root and all({"command", "url"} & set(mapping(value) or ()) for value in root.values()):
        report.warn(f"`mcpServers` is missing; its servers were read all the same. Write {SHAPE}", line=1)
        return {"": root}
    near = next((key for key in root if misspelt(key, ROOTS)), None)
    hint = f" (there is `{near}`.{did_you_mean(near, ROOTS)})" if near else ""
    report.error(f"there is no `mcpServers` here{hint}. The file should look like this: {SHAPE}", line=1)
    return {}


def _inputs(root: Mapping[str, Any], report: Report) -> dict[str, Input]:
    """VS Code's `inputs`, by id."""
    inputs: list[Input] = []
    for at, item in enumerate(sequence(root.get("inputs")) or ()):
        try:
            inputs.append(Input.model_validate(item))
        except ValidationError as error:
            report.explain(error, {}, inside=("inputs", at), before="each of `inputs` must have an `id`: ")
    return {each.id: each for each in inputs}


def _fault(server: ServerSettings) -> str | None:
    """What must be there and is not, or cannot be."""
    if server.command and server.url and "transport" not in server.model_fields_set:
        return 'both `command` and `url` are given; say which counts with `"type": "stdio"` or `"http"`.'
    if server.url and "${" not in server.url and not server.url.startswith(("http://", "https://")):
        return "`url` must start with `http://` or `https://`."
    if server.disabled or (server.url if server.transport != "stdio" else server.command):
        return None
    if server.transport != "stdio":
        return "`url` is missing, which a server of this type needs."
    return "`command` (for a program) or `url` (for a server that runs already) is missing."


def on_windows() -> bool:
    """Whether this system is Windows."""
    return os.name == "nt"


def _remarks(server: ServerSettings) -> Iterator[str]:
    """What should be said about an entry: what of it belongs to another system, and where a secret is in the file."""
    words = (server.command or "", *server.args)
    if _WINDOWS.match(words[0]) and not on_windows():
        yield f"the command `{server.command}` is of Windows; name the program itself here, like `npx`."
    elif any(map(_DRIVE.match, words)) and not on_windows():
        yield "a path with a drive letter is of Windows; there is none such on this system."
    found: list[str] = []
    hidden = {"client_secret": (server.oauth and server.oauth.client_secret) or ""}
    tables = (("env", server.env), ("headers", server.headers), ("oauth", hidden), ("entry", {"url": server.url or ""}))
    for key, table in tables:
        found += [f"`{key}` `{name}`" for name, value in table.items() if looks_secret(name, value)]
    for place in [*found, *(["`args`"] if hold_secret(server.args) else [])]:
        yield f"what looks like a secret stands in the file: {place}; {_WAY_OUT}"
