"""Reads files of MCP servers: `.mcp.json`, `claude_desktop_config.json`, `.vscode/mcp.json`, Codex' `config.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.entries import EntryReader
from orchestrator.config.expand import Input
from orchestrator.config.jsonc import Document, Where, parse
from orchestrator.config.names import did_you_mean, misspelt, sanitise
from orchestrator.config.report import Report, mapping, parse_toml, read_text, sequence
from orchestrator.config.servers import ServerSettings
from orchestrator.errors import ConfigurationError, Problem

ROOTS: tuple[tuple[str, ...], ...] = (("mcpServers",), ("servers",), ("mcp_servers",), ("mcp", "servers"))
SHAPE = '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "some-mcp-server"]}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """What was read from one file: servers that are right, by name, and everything that is not."""

    servers: Mapping[str, ServerSettings]
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def read_mcp_config(path: Path) -> ServerFile:
    """Reads one file of MCP servers, of whichever host.

    Raises:
        ConfigurationError: it cannot be read at all (missing, no text, broken syntax). What is wrong in single
            entries is in `errors`, so that files can be judged together.
    """
    text = read_text(path, "configuration file")
    document = parse_toml(text, path) if path.suffix.lower() == ".toml" else parse(text, path)
    report = Report(path, document.lines)
    tables = _roots(document, report)
    _repeated(document, [where for where, _ in tables], report)
    inputs = _inputs(document.value, report)
    reader = EntryReader(report, inputs, strict=False)
    servers = read_servers(reader, tables)
    reader.warn_ignored()
    return ServerFile(servers=servers, errors=tuple(report.errors), warnings=tuple(report.warnings))


def read_servers(reader: EntryReader, tables: list[tuple[Where, Mapping[str, Any]]]) -> dict[str, ServerSettings]:
    """The servers of some tables of one file; names that would be the same to a model are an error."""
    servers: dict[str, ServerSettings] = {}
    seen: dict[str, tuple[str, Where]] = {}
    for where, table in tables:
        for name, entry in table.items():
            place = (*where, name)
            key = sanitise(name)
            if key in seen:
                other, first = seen[key]
                line = reader.report.line(first)
                reader.report.error(f"the server `{name}` is there twice (as `{other}` in line {line}).", place)
                continue
            seen[key] = (name, place)
            if (server := reader.read(name, entry, place)) is not None:
                servers[name] = server
    return servers


def merge(files: list[ServerFile]) -> tuple[dict[str, ServerSettings], list[Problem]]:
    """The servers of all files, and an error for each name that two files give."""
    servers: dict[str, ServerSettings] = {}
    owners: dict[str, ServerSettings] = {}
    errors: list[Problem] = []
    for file in files:
        for name, server in file.servers.items():
            first = owners.setdefault(sanitise(name), server)
            if first is server:
                servers[name] = server
            else:
                place = Problem("", first.file, first.line)
                text = (
                    f"the server `{name}` is configured already, as `{first.name}` in {str(place).removesuffix(': ')}."
                )
                errors.append(Problem(f"{text} Rename or remove one.", server.file, server.line))
    return servers, errors


def _roots(document: Document, report: Report) -> list[tuple[Where, Mapping[str, Any]]]:
    """The tables of servers in a file, each with its path."""
    root = mapping(document.value)
    if root is None:
        report.error(f"an object is expected: {SHAPE}", line=1)
        return []
    tables: list[tuple[Where, Mapping[str, Any]]] = []
    named = False
    for where in ROOTS:
        *outer, key = where
        holder = root
        for step in outer:
            holder = mapping(holder.get(step)) or {}
        if key not in holder:
            continue
        named, value = True, holder[key]
        if (table := mapping(value)) is not None:
            tables.append((where, table))
        elif value is not None:
            report.error(f"`{'.'.join(where)}` must be an object of servers: {SHAPE}", where)
    if not named:
        return _without_root(root, report)
    return tables


def _without_root(root: Mapping[str, Any], report: Report) -> list[tuple[Where, Mapping[str, Any]]]:
    entries = [entry for value in root.values() if (entry := mapping(value)) is not None]
    if root and len(entries) == len(root) and all({"command", "url"} & set(entry) for entry in entries):
        report.warn(f"`mcpServers` is missing; its servers were read all the same. Write {SHAPE}", line=1)
        return [((), root)]
    near = next((key for key in root if misspelt(key, ("mcpServers", "servers"))), None)
    hint = did_you_mean(near, ("mcpServers", "servers")) if near else ""
    found = f" (there is `{near}`.{hint})" if near else ""
    report.error(f"there is no `mcpServers` here{found}. The file should look like this: {SHAPE}", line=1)
    return []


def _repeated(document: Document, roots: list[Where], report: Report) -> None:
    for where, lines in document.repeated.items():
        root = next((root for root in roots if where[: len(root)] == root), None)
        if root is None and len(where) > 1:
            continue
        *outer, name = list(where)
        what = f"the {'key' if root is None or len(outer) > len(root) else 'server'} `{name}`"
        places = f"line {lines[0]}" if len(set(lines)) == 1 else f"lines {', '.join(map(str, lines))}"
        report.error(f"{what} is there {_times(len(lines))}, in {places}; only one can count.", line=lines[-1])


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _inputs(root: object, report: Report) -> dict[str, Input]:
    """VS Code's `inputs`, by id."""
    table = mapping(root) or {}
    holder = table if "inputs" in table else mapping(table.get("mcp")) or {}
    inputs: dict[str, Input] = {}
    for item in sequence(holder.get("inputs")) or []:
        entry = mapping(item)
        if entry is None or not isinstance(entry.get("id"), str):
            report.error('each of `inputs` must be an object with an "id".', ("inputs",))
            continue
        default = entry.get("default")
        inputs[entry["id"]] = Input(
            id=entry["id"],
            description=str(entry.get("description") or ""),
            secret=entry.get("password") is True,
            default=default if isinstance(default, str) else None,
            options=_options(sequence(entry.get("options")) or []),
        )
    return inputs


def _options(items: list[Any]) -> tuple[str, ...]:
    values = [(mapping(item) or {}).get("value", item) for item in items]
    return tuple(value for value in values if isinstance(value, str))


def raise_for(errors: list[Problem]) -> None:
    """Raises everything that was found, if anything was."""
    if errors:
        raise ConfigurationError(*errors)
