"""Reads one server entry, whichever host it was written for, into `ServerSettings`."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from orchestrator.config.expand import Input, placeholders
from orchestrator.config.jsonc import Where
from orchestrator.config.names import did_you_mean, listed, misspelt
from orchestrator.config.report import Report, mapping, sequence
from orchestrator.config.secrets import looks_secret, shown
from orchestrator.config.servers import ServerSettings, Transport, foreign_system

RESERVED = ("agents", "builtin")
OWN_KEY = "orchestrator"
_SHAPE = ("command", "args", "env", "env_file", "cwd", "url", "headers", "type", "disabled")
_OURS = ("start_timeout", "call_timeout", "allow", "deny", "auto_approve", "long_running", "concurrency", "required")
_ALIASES: Mapping[str, str] = {
    "transport": "type",
    "envFile": "env_file",
    "serverUrl": "url",
    "httpUrl": "url",
    "http_headers": "headers",
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
_SPECIAL = ("enabled", "bearer_token_env_var", "env_http_headers", "env_vars")
_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
_OTHER_HOSTS = ("dev", "auth", "oauth", "icon", "name", "roots", "trust", "sandbox", "version")
KEYS = (*_SHAPE, *_ALIASES, *_SPECIAL, OWN_KEY)
"""All keys of an entry that mean something here."""
_LISTS = ("allow", "deny", "auto_approve", "long_running")


class EntryReader:
    """Reads the entries of one file. `strict` files are our own, where a key that is unknown is an error."""

    def __init__(self, report: Report, inputs: Mapping[str, Input], *, strict: bool) -> None:
        self.report = report
        self.inputs = inputs
        self.strict = strict
        self.ignored: dict[str, None] = {}

    def read(self, name: str, value: object, where: Where) -> ServerSettings | None:
        """The server of an entry; None when it is so wrong that only the errors in the report are left of it."""
        entry = mapping(value)
        if not name or name in RESERVED:
            self.report.error(f"`{name}` cannot be the name of a server: it is reserved. Give it another name.", where)
            return None
        if entry is None:
            self.report.error(f'server `{name}`: an object like {{"command": "…", "args": []}} is expected.', where)
            return None
        return _Entry(self, name, entry, where).server()

    def warn_ignored(self) -> None:
        """One line for all keys of other hosts that were met."""
        if self.ignored:
            self.report.warn(f"keys of other hosts are ignored here: {listed(self.ignored)}.")


class _Entry:
    def __init__(self, reader: EntryReader, name: str, entry: Mapping[str, Any], where: Where) -> None:
        self.reader = reader
        self.report = reader.report
        self.name = name
        self.entry = entry
        self.where = where
        self.found: dict[str, Any] = {}
        self.wheres: dict[str, Where] = {}
        self.unknown: list[str] = []

    def server(self) -> ServerSettings | None:
        self.collect()
        errors = len(self.report.errors)
        fields = self.fields()
        self.shape(fields)
        if len(self.report.errors) > errors:
            return None
        server = ServerSettings(
            name=self.name,
            **fields,
            file=self.report.file,
            line=self.report.line(self.where),
            lines=self.lines(fields),
            inputs=self.reader.inputs,
        )
        before = len(self.report.warnings)
        self.remark(server)
        own, self.report.warnings[before:] = tuple(self.report.warnings[before:]), []
        return server.model_copy(update={"warnings": own})

    def error(self, message: str, key: str = "") -> None:
        self.report.error(f"server `{self.name}`: {message}", self.wheres.get(key, self.where))

    def collect(self) -> None:
        """Sorts the entry's keys under our names; another host's are remembered, misspelt ones reported."""
        for key, value in self.entry.items():
            where = (*self.where, key)
            if key == OWN_KEY and not self.reader.strict:
                self.own(mapping(value), where)
                continue
            ours = key if key in _SHAPE or (self.reader.strict and key in _OURS) else _ALIASES.get(key)
            if key == "tools" and mapping(value) is not None:
                ours = None  # FastMCP's table of changes to tools, not a list of names
            if ours is None and key in _SPECIAL:
                ours = key
            if ours is not None:
                self.put(ours, value, where)
                if key == "httpUrl":
                    self.found.setdefault("type", "http")
            else:
                self.foreign(key, where)

    def own(self, value: Mapping[str, Any] | None, where: Where) -> None:
        self.wheres[OWN_KEY] = where
        if value is None:
            self.error(f'`{OWN_KEY}` must be an object like {{"call_timeout": 120}}.', OWN_KEY)
            return
        for key, item in value.items():
            if key in _OURS:
                self.put(key, item, (*where, key))
            else:
                self.wheres[key] = (*where, key)
                known = listed(_OURS)
                self.error(f"unknown key `{key}` in `{OWN_KEY}`.{did_you_mean(key, _OURS)} Known: {known}.", key)

    def put(self, key: str, value: Any, where: Where) -> None:
        if value is None:
            return
        earlier, items = sequence(self.found.get(key)), sequence(value)
        if key in _LISTS and earlier is not None and items is not None:
            value = [*earlier, *items]
        self.found[key] = value
        self.wheres[key] = where

    def foreign(self, key: str, where: Where) -> None:
        near = misspelt(key, (*_SHAPE, *_OURS, "envFile")) if key not in _OTHER_HOSTS else None
        if self.reader.strict:
            known = (*_SHAPE, *_OURS)
            self.report.error(f"server `{self.name}`: unknown key `{key}`.{did_you_mean(key, known)}", where)
        elif near is not None:
            self.report.error(f"server `{self.name}`: unknown key `{key}`. Did you mean `{near}`?", where)
        else:
            self.reader.ignored[key] = None

    def fields(self) -> dict[str, Any]:
        found = self.found
        fields: dict[str, Any] = {}
        for key in ("command", "url", "cwd", "env_file"):
            if key in found and (text := self.text(key, found[key])) is not None:
                fields[key] = text
        if "args" in found:
            fields["args"] = self.arguments(found["args"])
        for key in ("env", "headers"):
            fields[key] = self.table(key, found.get(key, {}))
        self.codex(fields)
        for key in _LISTS:
            if key in found:
                fields[key] = self.globs(key, found[key])
        for key in ("start_timeout", "call_timeout"):
            if key in found and (seconds := self.seconds(key, found[key])) is not None:
                fields[key] = seconds
        if "concurrency" in found:
            fields["concurrency"] = self.count("concurrency", found["concurrency"])
        for key in ("required", "disabled"):
            fields[key] = self.flag(key, default=False)
        fields["disabled"] = fields["disabled"] or not self.flag("enabled", default=True)
        return fields

    def shape(self, fields: dict[str, Any]) -> None:
        """Settles the transport, and what must be there for it."""
        fields["transport"] = self.transport(fields)
        needed = "command" if fields["transport"] == "stdio" else "url"
        if not fields["disabled"] and needed not in self.found:
            if "type" in self.found:
                self.error(f"`{needed}` is missing, which a server of this type needs.")
            else:
                self.error("`command` (for a program) or `url` (for a server that runs already) is missing.")
        url = fields.get("url")
        if url and not placeholders(url) and not url.startswith(("http://", "https://")):
            self.error("`url` must start with `http://` or `https://`.", "url")

    def transport(self, fields: Mapping[str, Any]) -> Transport:
        if "type" not in self.found:
            if "command" in fields and "url" in fields:
                self.error('both `command` and `url` are given; say which counts with `"type": "stdio"` or `"http"`.')
            return "http" if "url" in fields and "command" not in fields else "stdio"
        written = self.found["type"]
        plain = written.lower().replace("-", "").replace("_", "") if isinstance(written, str) else ""
        if plain not in _TRANSPORTS:
            known = listed(("stdio", "http", "sse"))
            self.error(f"the transport {json.dumps(written, default=str)[:40]} is not known here; use {known}.", "type")
        return _TRANSPORTS.get(plain, "stdio")

    def codex(self, fields: dict[str, Any]) -> None:
        """Codex names environment variables where other hosts write `${VAR}`."""
        if "bearer_token_env_var" in self.found:
            variable = self.text("bearer_token_env_var", self.found["bearer_token_env_var"])
            fields["headers"].setdefault("Authorization", f"Bearer ${{{variable}}}")
        for header, variable in self.table("env_http_headers", self.found.get("env_http_headers", {})).items():
            fields["headers"].setdefault(header, f"${{{variable}}}")
        for variable in self.globs("env_vars", self.found.get("env_vars", [])):
            fields["env"].setdefault(variable, f"${{{variable}}}")

    def text(self, key: str, value: object) -> str | None:
        if isinstance(value, str) and value.strip() and "\0" not in value:
            return value
        if key == "command" and (words := sequence(value)) and all(isinstance(word, str) for word in words):
            first, *rest = shown(words)
            self.error(f'`command` must be text; write "command": "{first}", "args": {json.dumps(rest)}.', key)
        else:
            self.error(f"`{key}` must be text, and not empty.", key)
        return None

    def arguments(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            try:
                words = shlex.split(value)
            except ValueError:
                words = value.split()
            self.error(f'`args` must be a list: "args": {json.dumps(shown(words), ensure_ascii=False)}.', "args")
            return ()
        items = sequence(value)
        words = [_plain(item) for item in items or ()]
        if items is None or any(word is None or "\0" in word for word in words):
            self.error('`args` must be a list of texts, like ["--port", "3000"].', "args")
        return tuple(word for word in words if word is not None)

    def table(self, key: str, value: object) -> dict[str, str]:
        table = mapping(value)
        if table is None:
            self.error(f'`{key}` must be an object like {{"NAME": "value"}}.', key)
            return {}
        result: dict[str, str] = {}
        for name, item in table.items():
            plain = _plain(item)
            if item is None:
                continue
            if plain is None or "\0" in plain + name or not name or (key == "env" and "=" in name):
                self.error(f"`{key}`: the value of `{name}` must be text (or a number, true or false).", key)
            else:
                result[name] = plain
        return result

    def globs(self, key: str, value: object) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else sequence(value)
        if items is None or not all(isinstance(item, str) for item in items):
            self.error(f'`{key}` must be a list of names, like ["read_*"].', key)
            return ()
        return tuple(items)

    def seconds(self, key: str, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            self.error(f"`{key}` must be a number of seconds above 0.", key)
            return None
        # Hosts disagree about the unit of `timeout`: seconds in some, milliseconds in others; nobody means 1000 s.
        return value / 1000 if self.wheres[key][-1] == "timeout" and value >= 1000 else float(value)

    def count(self, key: str, value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.error(f"`{key}` must be a whole number, 1 or more.", key)
            return None
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.found.get(key, default)
        if not isinstance(value, bool):
            self.error(f"`{key}` must be true or false.", key)
            return default
        return value

    def lines(self, fields: Mapping[str, Any]) -> dict[str, int]:
        """The line of each value that may have something to expand, by `env.NAME`, `args.0`, `url`, ..."""
        wheres = {key: where for key, where in self.wheres.items() if key in fields}
        for key in ("env", "headers"):
            wheres |= {f"{key}.{name}": (*self.wheres.get(key, self.where), name) for name in fields[key]}
        for at in range(len(fields.get("args", ()))):
            wheres[f"args.{at}"] = (*self.wheres.get("args", self.where), at)
        return {key: line for key, where in wheres.items() if (line := self.report.line(where)) is not None}

    def remark(self, server: ServerSettings) -> None:
        """Warns of secrets in the file, and of what another operating system would understand."""
        if found := foreign_system(server):
            self.report.warn(found, self.where)
        named = [("env", server.env), ("headers", server.headers)]
        for key, table in named:
            for name, value in table.items():
                if looks_secret(name, value) and not placeholders(value):
                    message = f"server `{self.name}`: `{key}` holds what looks like a secret, `{name}`"
                    self.report.warn(f"{message}; {_WAY_OUT}", (*self.wheres.get(key, self.where), name))
        if shown(list(server.args)) != list(server.args):
            self.report.warn(f"server `{self.name}`: `args` hold what looks like a secret; {_WAY_OUT}", self.where)
        if server.url and looks_secret("", server.url):
            self.report.warn(f"server `{self.name}`: `url` holds what looks like a secret; {_WAY_OUT}", self.where)


_WAY_OUT = "keep it in an environment variable, and write `${NAME}` here."


def _plain(value: object) -> str | None:
    """A value as text for an environment or a command line; None when it is no plain value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None
