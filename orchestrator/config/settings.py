"""Settings: `orchestrator.toml` and the files of MCP servers, merged and checked."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from orchestrator.config.entries import EntryReader, ServerFile, add, read_mcp_config
from orchestrator.config.folders import MCP_FILES, SETTINGS_FILE, bundled_servers
from orchestrator.config.guests import IssuerSettings, TokenSettings, TrafficSettings
from orchestrator.config.models import ModelPrices, ModelSettings
from orchestrator.config.names import sanitise
from orchestrator.config.parsers import parse_toml
from orchestrator.config.report import mapping, read_document
from orchestrator.config.secrets import looks_secret
from orchestrator.config.servers import ServerSettings, secrets_of
from orchestrator.config.table import Table
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.events import Limits
from orchestrator.masking import mask, names_secret


class LimitSettings(Limits):
    """`[limits]`: steps of each agent; model calls, tokens, US dollars and seconds of a run's whole tree."""

    model_config = ConfigDict(hide_input_in_errors=True)

    steps: int | None = Field(default=12, gt=0)
    tokens: int | None = Field(default=1_000_000, gt=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds: float | None = Field(default=1800.0, gt=0, allow_inf_nan=False)
    model_calls: int | None = Field(default=100, gt=0)


class ToolSettings(Table):
    """`[tools]`: calls at once in a run, seconds that a call may take, and how many tools a model is shown one by one.

    Above `groups_above` tools it is shown groups, and finds what it needs; 0 shows all of them always.
    `result_tokens` are those of a result that are shown at once.
    """

    parallel: int = Field(default=4, gt=0)
    timeout: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    groups_above: int = Field(default=30, ge=0)
    result_tokens: int = Field(default=8000, ge=200)


class MemorySettings(Table):
    """`[memory]`. `window_tokens` are what a request may have, its tools and instructions included; unset, what is
    known of the model's window, less the output. `notes` lets agents keep notes for later runs of the same user: in
    this workspace (true, or "project"), or in all of them ("user").
    """

    window_tokens: int | None = Field(default=None, ge=2000)
    notes: bool | Literal["project", "user"] = False


class PolicySettings(Table):
    """`[policy]`: globs over `server__tool` of what goes ahead, what is asked for and what is refused."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class RoleSettings(Table):
    """`[roles.X]`: globs over `server__tool` of what a run in this role may call."""

    tools: tuple[str, ...]


class JournalSettings(Table):
    """`[journal]`: seconds after which a run may be taken over from a process on another machine that has gone silent.

    A live process renews its claim three times in that time. One of the same machine is known to be dead at once.
    """

    lease: float = Field(default=30.0, ge=1, allow_inf_nan=False)


def _expression(text: str) -> str:
    try:
        empty = re.compile(text).search("") is not None
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if empty:
        raise ValueError("matches the empty text, and so everywhere; make it match something")
    return text


class TelemetrySettings(Table):
    """`[telemetry]`. Trace viewers colour and count by service, so each agent is one unless that is switched off.

    `trace_url` is the page of a trace, with `{trace_id}` in it; it is printed at the end of a run. `capture` puts what
    is said, sent and answered into spans; None leaves it to OpenTelemetry's variable, which goes before it. `mask` are
    regular expressions of what is hidden beside the usual, `mask_keys` names of it.
    """

    service_per_agent: bool = True
    trace_url: str | None = Field(default=None, pattern=r"^https?://.*\{trace_id\}")
    capture: bool | None = None
    mask: tuple[Annotated[str, AfterValidator(_expression)], ...] = ()
    mask_keys: tuple[Annotated[str, Field(pattern=r"[A-Za-z0-9]")], ...] = ()


class ServeSettings(Table):
    """`[serve]`: where `serve` listens, and how long it waits.

    A call that takes longer than `answer_within` seconds is told where to collect its answer, and the run goes on; 0 is
    never. On SIGTERM, runs have `grace` seconds to end before they are parked. `tokens`, `oauth` and `traffic` say who
    may call, and how much.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    answer_within: float = Field(default=50.0, ge=0, allow_inf_nan=False)
    grace: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    tokens: Mapping[str, TokenSettings] = Field(default_factory=dict[str, TokenSettings])
    oauth: IssuerSettings | None = None
    traffic: TrafficSettings = TrafficSettings()


class FileSettings(Table):
    """What `orchestrator.toml` holds beside its servers.

    `fallback` are models to go on with when any other fails for good.
    """

    model: str | None = Field(default=None, min_length=1)
    fallback: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    model_aliases: Mapping[str, str] = Field(default_factory=dict[str, str])
    models: Mapping[str, ModelSettings] = Field(default_factory=dict[str, ModelSettings])
    limits: LimitSettings = LimitSettings()
    tools: ToolSettings = ToolSettings()
    memory: MemorySettings = MemorySettings()
    policy: PolicySettings = PolicySettings()
    roles: Mapping[str, RoleSettings] = Field(default_factory=dict[str, RoleSettings])
    journal: JournalSettings = JournalSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    serve: ServeSettings = ServeSettings()


class Settings(FileSettings):
    """Everything configured. `servers` are by name, bundled ones included where no other has their name.

    `files` are those that were read; `warnings` are what they say that has no effect, each told once.
    """

    servers: Mapping[str, ServerSettings] = Field(default_factory=dict[str, ServerSettings])
    files: tuple[Path, ...] = ()
    warnings: tuple[Problem, ...] = ()


_KNOWN: Mapping[str, Sequence[str]] = {
    "": (*FileSettings.model_fields, "servers"),
    "limits": tuple(LimitSettings.model_fields),
    "tools": tuple(ToolSettings.model_fields),
    "memory": tuple(MemorySettings.model_fields),
    "policy": tuple(PolicySettings.model_fields),
    "roles": tuple(RoleSettings.model_fields),
    "models": tuple(ModelSettings.model_fields),
    "models.*.prices": tuple(ModelPrices.model_fields),
    "telemetry": tuple(TelemetrySettings.model_fields),
    "serve": tuple(ServeSettings.model_fields),
    "serve.oauth": tuple(IssuerSettings.model_fields),
    "serve.traffic": tuple(TrafficSettings.model_fields),
}


_FOLDERS = ("PWD", "OLDPWD")
"""Variables of the shell that are named like a password and hold the working folder."""


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
    if config is None and (workspace / SETTINGS_FILE).is_file():
        config = workspace / SETTINGS_FILE
    settings, own = read_settings(config) if config else (FileSettings(), ServerFile(servers={}))
    paths = list(dict.fromkeys(mcp_configs)) or [path for name in MCP_FILES if (path := workspace / name).is_file()]
    unread = [] if mcp_configs else paths[1:]
    paths = paths[: len(paths) - len(unread)]
    files = [own, *map(read_mcp_config, paths)]
    errors = [problem for file in files for problem in file.errors]
    servers: dict[str, ServerSettings] = {}
    for server in (server for file in files for server in file.servers.values()):
        add(server, servers, errors)
    if errors:
        raise ConfigurationError(*errors)
    message = "not read, since `{}` is there; name both with --mcp-config."
    warnings = [Problem(message.format(paths[0].relative_to(workspace)), path) for path in unread]
    warnings += [problem for file in files for problem in file.warnings]
    warnings += _add_bundled(servers, bundled)
    known: dict[str, Any] = {key: getattr(settings, key) for key in FileSettings.model_fields}
    known["model"] = environ.get("ORCHESTRATOR_MODEL") or settings.model
    return Settings(**known, servers=servers, files=(*([config] if config else []), *paths), warnings=tuple(warnings))


def hide_secrets(settings: Settings, environ: Mapping[str, str]) -> None:
    """From now on this process masks what these settings name, and the secrets that they and the environment hold."""
    secrets = {value for name, value in environ.items() if names_secret(name) and name not in _FOLDERS}
    for table in settings.models.values():
        secrets.add(environ.get(table.api_key_env or "", ""))
        secrets.update(value for name, value in table.headers.items() if looks_secret(name, value))
    secrets.update(*map(secrets_of, settings.servers.values()))
    mask.extend(settings.telemetry.mask, settings.telemetry.mask_keys, secrets)


def read_settings(path: Path) -> tuple[FileSettings, ServerFile]:
    """Reads one `orchestrator.toml`; everything that is wrong in it is in the `ServerFile`."""
    value, report = read_document(path, "configuration file", parse_toml)
    data = dict(mapping(value) or {})
    servers = EntryReader(report, {}, strict=True).read_all("servers", data.pop("servers", {}))
    settings = FileSettings()
    try:
        settings = FileSettings.model_validate(data)
    except ValidationError as error:
        report.explain(error, _KNOWN)
    return settings, ServerFile(servers=servers, errors=tuple(report.errors), warnings=tuple(report.warnings))


def _add_bundled(servers: dict[str, ServerSettings], folder: Path | None) -> list[Problem]:
    """Adds the bundled servers whose names are free; says which are not."""
    taken = {sanitise(name): server for name, server in servers.items()}
    warnings: list[Problem] = []
    for name, server in bundled_servers(folder).items():
        if (own := taken.get(name)) is None:
            servers[name] = server
        elif not own.disabled:
            message = f"your server `{own.name}` takes the place of the bundled one."
            warnings.append(Problem(message, own.file, own.line))
    return warnings
