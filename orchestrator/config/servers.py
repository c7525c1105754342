"""One MCP server as configured, and how its values are filled in when it is started.

`entries.py` makes these from the files of several hosts.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation

from orchestrator.config.expand import Ask, Expander, Input, Unresolved, parse_env_file
from orchestrator.config.oauth import OAuthSettings, oauth_table
from orchestrator.config.report import Report, Where, mapping, plain_text, read_text
from orchestrator.config.secrets import hold_secret, looks_secret, secret_words
from orchestrator.errors import ConfigurationError, Problem

Transport = Literal["stdio", "http", "sse"]


def secrets_of(server: "ServerSettings") -> set[str]:
    """The values of a server, filled in or not, that look secret; of `Bearer …` the token alone as well."""
    written = [*server.env.items(), *server.headers.items()]
    with suppress(ValueError):  # what is no address is told when the server is to be started
        url = urlsplit(server.url or "")
        written += [("password", url.password or ""), *parse_qsl(url.query)]
    found = {value for name, value in written if looks_secret(name, value)}
    return found | {value.rpartition(" ")[2] for value in found} | set(secret_words(server.args, looks_secret))


def _transport(written: object) -> object:
    plain = written.lower().replace("-", "").replace("_", "") if isinstance(written, str) else written
    return {"local": "stdio", "streamablehttp": "http"}.get(str(plain), plain)


def _arguments(written: object) -> object:
    if isinstance(written, str):
        try:
            words = shlex.split(written)
        except ValueError:
            words = written.split()
        shown = ["--port", "3000"] if hold_secret(words) else words
        raise ValueError(f'must be a list: "args": {json.dumps(shown, ensure_ascii=False)}')
    return written


def _without_nulls(written: object) -> object:
    table = mapping(written)
    return written if table is None else {name: value for name, value in table.items() if value is not None}


def _names(written: object) -> object:
    return [written] if isinstance(written, str) else written


def _of_all(written: object) -> object:
    return {"*": written} if isinstance(written, int | float) else written


_Text = Annotated[str, BeforeValidator(plain_text)]
_Filled = Annotated[str, Field(pattern=r"^[^\x00]+$")]
_Table = Annotated[
    Mapping[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Text], BeforeValidator(_without_nulls), Field(repr=False)
]
_Globs = Annotated[tuple[str, ...], BeforeValidator(_names)]
_ResultTokens = Annotated[Mapping[str, Annotated[int, Field(ge=200)]], BeforeValidator(_of_all)]
_Seconds = Annotated[float, Field(gt=0, lt=1e9)]


class ServerSettings(BaseModel):
    """A configured MCP server. Times are in seconds. Values are as written until `expand` has filled them in.

    `allow` and `deny` are globs over the server's own tool names; `auto_approve` are globs of tools that are not asked
    for. The time of a `long_running` tool (globs too) starts anew with each report of progress. `call_timeout` None
    means `[tools] timeout`, `concurrency` None no bound of its own; `result_tokens`, by glob, go
    before those of `[tools]`. A `required` server that cannot be reached ends the
    run. `oauth` says how to sign in, where a server wants more than it says by itself. A tool that its server changes
    must be approved, unless you `trust` the server to. Values never show in `repr`, as they may be secrets. `places`
    say where in its file the values of each key stand, `lines` in which line each place is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    transport: Annotated[Transport, BeforeValidator(_transport)] = "stdio"
    command: _Filled | None = None
    args: Annotated[tuple[_Text, ...], BeforeValidator(_arguments)] = Field(default=(), repr=False)
    env: _Table = Field(default_factory=dict[str, str])
    env_file: _Filled | None = Field(default=None, repr=False)
    cwd: _Filled | None = Field(default=None, repr=False)
    url: _Filled | None = Field(default=None, repr=False)
    headers: _Table = Field(default_factory=dict[str, str])
    oauth: Annotated[OAuthSettings | None, BeforeValidator(oauth_table)] = None
    start_timeout: _Seconds = 30.0
    call_timeout: _Seconds | None = None
    allow: _Globs = ("*",)
    deny: _Globs = ()
    auto_approve: _Globs = ()
    long_running: _Globs = ()
    concurrency: int | None = Field(default=None, gt=0)
    result_tokens: _ResultTokens = Field(default_factory=dict[str, int])
    required: bool = Field(default=False, strict=True)
    trust: bool = Field(default=False, strict=True)
    disabled: bool = Field(default=False, strict=True)
    bundled: bool = False
    file: Path | None = None
    line: int | None = None
    places: SkipValidation[Mapping[str, Where]] = Field(default_factory=dict[str, Where], repr=False, exclude=True)
    lines: SkipValidation[Mapping[Where, int]] = Field(default_factory=dict[Where, int], repr=False, exclude=True)
    inputs: SkipValidation[Mapping[str, Input]] = Field(default_factory=dict[str, Input], repr=False, exclude=True)
    warnings: tuple[Problem, ...] = Field(default=(), repr=False, exclude=True)

    def expand(self, environ: Mapping[str, str], workspace: Path, ask: Ask | None = None) -> "ServerSettings":
        """This server with every `${…}` replaced, its `env_file` read into `env`, and `cwd` absolute.

        Call it when the server is about to be started: what a server that nobody uses needs may be missing. Relative
        paths are of `workspace`, which is also the default `cwd`.

        Raises:
            ConfigurationError: all that is missing, by name and line; never with a value.
        """
        report = Report(self.file, self.lines)
        expander = Expander(environ=environ, workspace=workspace, inputs=self.inputs, ask=ask)

        def fault(message: str, *key: str | int) -> None:
            where = (*self.places.get(str(key[0]), ()), *key[1:])
            report.error(
                f"server `{self.name}`, {'.'.join(map(str, key))}: {message}", line=report.line(where) or self.line
            )

        def fill(text: str, *key: str | int) -> str:
            try:
                return expander.expand(text)
            except Unresolved as error:
                fault(str(error), *key)
            return ""

        changed: dict[str, Any] = {
            key: fill(text, key) for key in ("command", "url", "cwd", "env_file") if (text := getattr(self, key))
        }
        changed["args"] = tuple(fill(value, "args", at) for at, value in enumerate(self.args))
        for key, table in (("env", self.env), ("headers", self.headers)):
            changed[key] = {name: fill(value, key, name) for name, value in table.items()}
        if self.oauth is not None:
            texts = {key: text for key in ("client_id", "client_secret") if (text := getattr(self.oauth, key))}
            filled = {key: fill(text, "oauth", key) for key, text in texts.items()}
            changed["oauth"] = self.oauth.model_copy(update=filled)
        if (url := changed.get("url")) and not url.startswith(("http://", "https://")):
            fault("it must start with `http://` or `https://`.", "url")
        if (file := changed.pop("env_file", None)) and not report.errors:
            try:
                found, wrong = parse_env_file(read_text(workspace / file, "environment file"))
                changed["env"] = found | changed["env"]
                report.errors += [Problem("this line is not `NAME=value`.", workspace / file, line) for line in wrong]
            except ConfigurationError as error:
                fault(str(error), "env_file")
        if report.errors:
            raise ConfigurationError(*sorted(report.errors, key=lambda problem: problem.line or 0))
        changed["cwd"] = str(workspace / changed.get("cwd", ""))
        return self.model_copy(update={**changed, "env_file": None})
