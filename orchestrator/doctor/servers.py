"""Every configured server: is it right, does it start, what does it offer, and what does that cost."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import anyio

from orchestrator.assembly import open_server
from orchestrator.config import Ask, ServerSettings, Settings
from orchestrator.config.names import listed, sanitise
from orchestrator.config.secrets import looks_secret, mask_text, mask_url, mask_words, secret_words
from orchestrator.doctor.findings import Finding, Level, RemarkSeen, ServerSeen, ToolSeen
from orchestrator.doctor.lint import RULES, Described, lint
from orchestrator.errors import ConfigurationError
from orchestrator.lifetimes import Servers
from orchestrator.memory.tokens import estimate
from orchestrator.models.base import ToolSpec
from orchestrator.models.lenient import dump
from orchestrator.tools.names import LONGEST, SEPARATOR, distinct, model_name
from orchestrator.tools.process import Process
from orchestrator.tools.servers import Server
from orchestrator.tools.toolset import Offer, Toolset

LAST_LINES = 5
NAMED = 6  # tools by name in one finding; each has its own remarks as well
MODERN = "2026-07-28"
"""The first version of the protocol without a handshake."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found; `known` are the tools of each server, None where they are not known, as cards are judged by."""

    servers: tuple[ServerSeen, ...]
    findings: tuple[Finding, ...]
    known: Mapping[str, Sequence[str] | None]


class Watched(Servers):
    """Servers of which is kept what their processes write to standard error, also after their end."""

    def __init__(self, settings: Settings, workspace: Path, ask: Ask | None = None, store: Path | None = None) -> None:
        super().__init__(settings, workspace, ask, store)
        self._processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        self._processes[name] = super().process(name)
        return self._processes[name]

    def stderr(self, name: str) -> list[str]:
        """The last lines that a server wrote there."""
        return self._processes[name].last_words(LAST_LINES).splitlines() if name in self._processes else []

    def noise(self, name: str) -> str:
        """The first line on a server's standard output that was none of the protocol's."""
        return self._processes[name].noise if name in self._processes else ""


def read_servers(settings: Settings, workspace: Path, ask: Ask | None) -> Looked:
    """What can be said of the servers without starting any."""
    servers = Watched(settings, workspace, ask)
    findings = [finding for server in settings.servers.values() for finding in _written(server)]
    for name in servers.settings:
        expanded, wrong = _expanded(servers, name)
        findings += wrong if expanded is None else _command(expanded)
    seen = tuple(_seen(server) for server in settings.servers.values())
    return Looked(seen, tuple(findings), dict.fromkeys(servers.settings))


async def look_at_servers(settings: Settings, workspace: Path, ask: Ask | None, store: Path) -> Looked:
    """Starts all servers at once, each with its own deadline, and looks at what comes up."""
    servers = Watched(settings, workspace, ask, store)
    findings = [finding for server in settings.servers.values() for finding in _written(server)]
    secrets: dict[str, list[str]] = {}
    for name in servers.settings:
        expanded, wrong = _expanded(servers, name)
        findings += wrong
        secrets[name] = _secrets(expanded) if expanded is not None else []
        if wrong:
            servers.problems[name] = "; ".join(finding.message for finding in wrong)
    names = list(servers.settings)
    toolset = Toolset([open_server(name, servers) for name in names])
    seconds: dict[str, float] = {}

    async def time(name: str) -> None:
        began = perf_counter()
        toolset.start([name])
        await toolset.servers[name].settled()
        seconds[name] = round(perf_counter() - began, 3)

    known: dict[str, Sequence[str] | None] = {}
    seen: dict[str, ServerSeen] = {server.name: _seen(server) for server in settings.servers.values()}
    async with toolset.running():
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(time, name)
        await toolset.ready(names)
        for name in names:
            look = _Look(servers, toolset, name, secrets[name])
            seen[name] = look.seen(seen[name], seconds[name])
            findings += look.findings(seen[name]) if name not in servers.problems else []
            up = toolset.servers[name].up
            known[name] = [tool.name for tool in toolset.servers[name].tools] if up else None
    return Looked(tuple(seen.values()), tuple(findings), known)


def _written(server: ServerSettings) -> list[Finding]:
    """What its entry says that should not stand there, or belongs to another system."""
    return [Finding.of(problem, "warning", f"server {server.name}") for problem in server.warnings]


def _seen(server: ServerSettings) -> ServerSeen:
    stdio = server.transport == "stdio"
    words = [server.command or "", *server.args]
    return ServerSeen(
        name=server.name,
        bundled=server.bundled,
        disabled=server.disabled,
        required=server.required,
        transport=server.transport,
        command=" ".join(mask_words(words)) if stdio else None,
        url=None if stdio else mask_url(server.url or ""),
        file=server.file,
        line=server.line,
    )


def _expanded(servers: Servers, name: str) -> tuple[ServerSettings | None, list[Finding]]:
    """A server with its variables filled in, or what is missing."""
    try:
        return servers.expanded(name), []
    except ConfigurationError as error:
        return None, [Finding.of(problem, "error", f"server {name}") for problem in error.problems]


def _command(server: ServerSettings) -> list[Finding]:
    """Whether its program is there."""
    if server.transport != "stdio" or not server.command:
        return []
    command = os.path.join(server.cwd or "", server.command) if os.sep in server.command else server.command
    if shutil.which(command, path=server.env.get("PATH")):
        return []
    return [_finding("warning", server, f"the command `{server.command}` is not found", _install(server))]


def _finding(level: Level, server: ServerSettings, message: str, fix: str = "") -> Finding:
    file, line = (None, None) if server.bundled else (server.file, server.line)
    return Finding(level=level, about=f"server {server.name}", message=message, fix=fix, file=file, line=line)


def _install(server: ServerSettings) -> str:
    known = {"npx": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv", "docker": "Docker"}
    what = known.get(server.command or "", "it")
    return f"install {what}, or write the program's whole path as `command`"


def _secrets(server: ServerSettings) -> list[str]:
    """The values of a server that nobody should read in what it says."""
    tables = {**server.headers, **server.env}
    found = [value for name, value in tables.items() if looks_secret(name, value)]
    found += [value.removeprefix("Bearer ") for value in found]
    return [*found, *filter(None, secret_words([server.command or "", *server.args]))]


@dataclass(frozen=True, slots=True)
class _Look:
    """One server that was tried."""

    servers: Watched
    toolset: Toolset
    name: str
    secrets: Sequence[str]
    offers: list[Offer] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offers", list(self.toolset.offers([self.name])))

    @property
    def settings(self) -> ServerSettings:
        return self.servers.settings[self.name]

    @property
    def server(self) -> Server:
        return self.toolset.servers[self.name]

    def seen(self, seen: ServerSeen, seconds: float) -> ServerSeen:
        server, noise = self.server, self.servers.noise(self.name)
        trouble = not server.up or bool(noise)
        problem = (
            self._masked(server.problem).partition(". Its last lines:")[0].partition(" [type=")[0]
            if not server.up
            else ""
        )
        if noise:
            problem = problem or f"it writes to its standard output what is none of the protocol: {self._masked(noise)}"
        tools = _tools(self.offers)
        changed = {
            "up": server.up,
            "protocol": server.protocol,
            "era": ("modern" if server.protocol >= MODERN else "handshake") if server.protocol else "",
            "start_s": seconds,
            "problem": problem,
            "stderr": tuple(map(self._masked, self.servers.stderr(self.name))) if trouble else (),
            "tools": tools,
            "tokens": sum(tool.tokens for tool in tools),
            "left_out": self._left_out(),
        }
        return seen.model_copy(update=changed)

    def findings(self, seen: ServerSeen) -> list[Finding]:
        """What is wrong with the server and its tools."""
        found: list[Finding] = []
        if not seen.up:
            found.append(_finding("warning" if seen.bundled else "error", self.settings, seen.problem, self._fix(seen)))
        elif seen.problem:
            found.append(
                _finding("warning", self.settings, seen.problem, "let it write its messages to standard error")
            )
        for name, reason in seen.left_out.items():
            fix = "mend it in the server, or `deny` the tool"
            found.append(_finding("warning", self.settings, f"the tool `{name}` is left out: {reason}", fix))
        if seen.up and not seen.tools and not seen.left_out:
            found.append(_finding("warning", self.settings, "it offers no tools", "look at its `allow` and `deny`"))
        return [*found, *self._names(), *_descriptions(self.settings, seen)]

    def _masked(self, text: str) -> str:
        url = self.servers.expanded(self.name).url if self.name not in self.servers.problems else None
        return mask_text(text.replace(url, mask_url(url)) if url else text, self.secrets)

    def _left_out(self) -> dict[str, str]:
        """Tools that cannot be offered, by the server's own names."""
        reasons = self.toolset.left_out
        names = {
            tool.name: (model_name(self.name, tool.name), distinct(self.name, tool.name)) for tool in self.server.tools
        }
        return {tool: reasons[full] for tool, both in names.items() for full in both if full in reasons}

    def _names(self) -> list[Finding]:
        """Names that are not simply `server__tool`, and why."""
        found: list[Finding] = []
        cut: list[str] = []
        for offer in self.offers:
            plain = sanitise(self.name) + SEPARATOR + sanitise(offer.tool.name)
            if len(plain) > LONGEST:
                cut.append(f"`{offer.name}` for `{offer.tool.name}`")
            elif offer.name != plain and (self.name + offer.tool.name).isascii():
                message = f"`{offer.tool.name}` would have the name of another tool, so models see it as `{offer.name}`"
                found.append(_finding("warning", self.settings, message, "rename one of the two servers"))
        if cut:
            message = f"names over {LONGEST} characters are cut: {', '.join(cut)}"
            found.append(_finding("warning", self.settings, message, "give the server a shorter name"))
        return found

    def _fix(self, seen: ServerSeen) -> str:
        """What most often helps against the reason that a server is not up."""
        problem = seen.problem
        if seen.bundled:
            return 'install what it needs: pip install "orchestrator-mcp[servers]"'
        if "No such file" in problem:
            return _install(self.settings)
        if "did not answer within" in problem:
            return "give it more time with `start_timeout`, or run its command by hand and see what it waits for"
        if self.settings.transport != "stdio":
            return "check that it runs, and that `url`, `type` and `headers` are what it expects"
        return "run its command by hand and mend what it says"


def _tools(offers: Sequence[Offer]) -> tuple[ToolSeen, ...]:
    costs = [_tokens(offer.spec) for offer in offers]
    described = [
        Described(offer.tool.name, offer.spec.description, offer.tool.input_schema, cost)
        for offer, cost in zip(offers, costs, strict=True)
    ]
    return tuple(
        ToolSeen(
            name=offer.name,
            tool=offer.tool.name,
            effect=offer.effect,
            tokens=cost,
            remarks=tuple(
                RemarkSeen(rule=rule, message=RULES[rule].says, fix=RULES[rule].fix, arguments=arguments)
                for rule, arguments in remarks.items()
            ),
        )
        for offer, cost, remarks in zip(offers, costs, lint(described), strict=True)
    )


def _tokens(spec: ToolSpec) -> int:
    """What a tool costs in each request, about: its name, its description and its schema as JSON."""
    return estimate(dump({"name": spec.name, "description": spec.description, "parameters": spec.parameters}))


def _descriptions(settings: ServerSettings, seen: ServerSeen) -> list[Finding]:
    """One finding for each rule that some of the server's tools do not keep."""
    found: list[Finding] = []
    for key, rule in RULES.items():
        names = [tool.tool for tool in seen.tools if any(remark.rule == key for remark in tool.remarks)]
        if names:
            which = f": {listed(names, NAMED)}" if len(names) < len(seen.tools) else ""
            message = f"{len(names)} of {len(seen.tools)} tools {rule.says}{which}"
            found.append(_finding("warning" if rule.serious else "hint", settings, message, rule.fix))
    return found
