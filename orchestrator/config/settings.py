"""Settings: `orchestrator.toml` and the files of MCP servers, merged and checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.config.entries import EntryReader
from orchestrator.config.folders import SETTINGS_FILE, bundled_servers, find_mcp_configs
from orchestrator.config.jsonc import Where
from orchestrator.config.mcp_json import ServerFile, merge, raise_for, read_mcp_config, read_servers
from orchestrator.config.names import did_you_mean, listed, sanitise
from orchestrator.config.report import Report, mapping, parse_toml, read_text
from orchestrator.config.servers import ServerSettings
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.events import Limits


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LimitSettings(Limits):
    """`[limits]`: steps of each agent; model calls, tokens, US dollars and seconds of a run's whole tree."""

    model_config = ConfigDict(hide_input_in_errors=True)

    steps: int | None = Field(default=12, gt=0)
    tokens: int | None = Field(default=1_000_000, gt=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=1800.0, gt=0, allow_inf_nan=False)
    model_calls: int | None = Field(default=100, gt=0)


class ToolSettings(_Table):
    """`[tools]`: calls at once in a run, and seconds that a call may take."""

    parallel: int = Field(default=4, gt=0)
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False)


class PolicySettings(_Table):
    """`[policy]`: globs over `server__tool` of what goes ahead, what is asked for and what is refused."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class RoleSettings(_Table):
    """`[roles.X]`: globs over `server__tool` of what a run in this role may call."""

    tools: tuple[str, ...]


class TelemetrySettings(_Table):
    """`[telemetry]`. Trace viewers colour and count by service, so each agent is one unless that is switched off."""

    service_per_agent: bool = True


class FileSettings(_Table):
    """What `orchestrator.toml` holds beside its servers. `models` are raw tables, checked by the models' own reader."""

    model: str | None = Field(default=None, min_length=1)
    model_aliases: Mapping[str, str] = Field(default_factory=dict[str, str])
    models: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict[str, Mapping[str, Any]], repr=False)
    limits: LimitSettings = LimitSettings()
    tools: ToolSettings = ToolSettings()
    policy: PolicySettings = PolicySettings()
    roles: Mapping[str, RoleSettings] = Field(default_factory=dict[str, RoleSettings])
    telemetry: TelemetrySettings = TelemetrySettings()


class Settings(FileSettings):
    """Everything configured. `servers` are by name, bundled ones included where no other has their name.

    `files` are those that were read; `warnings` are what they say that has no effect, each told once.
    """

    servers: Mapping[str, ServerSettings] = Field(default_factory=dict[str, ServerSettings])
    files: tuple[Path, ...] = ()
    warnings: tuple[Problem, ...] = ()


_TABLES: Mapping[str, type[BaseModel]] = {
    "limits": LimitSettings,
    "tools": ToolSettings,
    "policy": PolicySettings,
    "roles": RoleSettings,
    "telemetry": TelemetrySettings,
}


def load_settings(
    config: Path | None,
    mcp_configs: Sequence[Path],
    workspace: Path,
    environ: Mapping[str, str],
    *,
    bundled: Path | None = None,
) -> Settings:
    """Reads and merges all configuration.

    `config` and `mcp_configs` are files that the user named; without them, `orchestrator.toml` and the first file of
    MCP servers in `workspace` are read, where there are any. `ORCHESTRATOR_MODEL` goes before `model`. `bundled` is a
    folder to take in place of the bundled servers.

    Raises:
        ConfigurationError: with everything that is wrong in all the files.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    found = workspace / SETTINGS_FILE
    path = config or (found if found.is_file() else None)
    settings, own = _collect(read_settings, path, errors) if path else (FileSettings(), None)
    paths, skipped = _mcp_paths(mcp_configs, workspace)
    warnings += skipped
    files = [own] if own else []
    files += [file for file in (_collect(_servers_of, each, errors)[1] for each in paths) if file is not None]
    servers, twice = merge(files)
    errors += [problem for file in files for problem in file.errors] + twice
    raise_for(errors)
    warnings += [problem for file in files for problem in file.warnings]
    servers, replaced = _with_bundled(servers, bundled)
    known: dict[str, Any] = {key: getattr(settings, key) for key in FileSettings.model_fields}
    known["model"] = environ.get("ORCHESTRATOR_MODEL") or settings.model
    return Settings(
        **known,
        servers=servers,
        files=tuple([path] if path else []) + tuple(paths),
        warnings=(*warnings, *replaced),
    )


def read_settings(path: Path) -> tuple[FileSettings, ServerFile]:
    """Reads one `orchestrator.toml`.

    Raises:
        ConfigurationError: with everything that is wrong in it but its servers, whose errors are in the `ServerFile`.
    """
    document = parse_toml(read_text(path, "configuration file"), path)
    report = Report(path, document.lines)
    data = dict(mapping(document.value) or {})
    table = data.pop("servers", {})
    reader = EntryReader(report, {}, strict=True)
    servers: dict[str, ServerSettings] = {}
    if (entries := mapping(table)) is not None:
        servers = read_servers(reader, [(("servers",), entries)])
    else:
        report.error("`servers` must be tables: [servers.NAME]", ("servers",))
    own = ServerFile(servers=servers, errors=tuple(report.errors), warnings=tuple(report.warnings))
    try:
        return FileSettings.model_validate(data), own
    except ValidationError as error:
        report = Report(path, document.lines)
        for found in error.errors(include_url=False, include_input=False, include_context=False):
            _explain(found["type"], found["msg"], found["loc"], report)
        raise ConfigurationError(*report.errors, *own.errors) from None


def _servers_of(path: Path) -> tuple[FileSettings, ServerFile]:
    return FileSettings(), read_mcp_config(path)


def _collect(read: Any, path: Path, errors: list[Problem]) -> tuple[FileSettings, ServerFile | None]:
    try:
        return read(path)
    except ConfigurationError as error:
        errors += error.problems
        return FileSettings(), None


def _explain(kind: str, message: str, where: Where, report: Report) -> None:
    """One of pydantic's errors in our words, with its line."""
    dotted = ".".join(map(str, where))
    if kind != "extra_forbidden":
        text = message.removeprefix("Input should be ")
        text = text.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
        report.error(f"`{dotted}` must be {text}." if text != message else f"`{dotted}`: {message}.", where)
        return
    *tables, key = map(str, where)
    model = _TABLES.get(tables[0], FileSettings) if tables else FileSettings
    known = [*model.model_fields, *(["servers"] if model is FileSettings else [])]
    report.error(f"unknown key `{dotted}`.{did_you_mean(key, known)} Known: {listed(known)}.", where)


def _mcp_paths(named: Sequence[Path], workspace: Path) -> tuple[list[Path], list[Problem]]:
    if named:
        return list(dict.fromkeys(named)), []
    found = find_mcp_configs(workspace)
    return found[:1], [
        Problem(f"not read, since `{found[0].relative_to(workspace)}` is there; name both with --mcp-config.", path)
        for path in found[1:]
    ]


def _with_bundled(
    configured: Mapping[str, ServerSettings], folder: Path | None
) -> tuple[dict[str, ServerSettings], list[Problem]]:
    servers = dict(configured)
    by_key = {sanitise(name): server for name, server in configured.items()}
    warnings: list[Problem] = []
    for name, server in bundled_servers(folder).items():
        if (own := by_key.get(name)) is None:
            servers[name] = server
        elif not own.disabled:
            warnings.append(
                Problem(f"your server `{own.name}` takes the place of the bundled one.", own.file, own.line)
            )
    return servers, warnings
