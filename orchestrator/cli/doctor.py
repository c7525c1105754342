"""`doctor`: shows what was found. First what there is, then everything to do, the worst first."""

import json
import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.cli.page import Page, columns, padded
from orchestrator.cli.probing import probing
from orchestrator.cli.progress import printable
from orchestrator.cli.running import options

if TYPE_CHECKING:
    from orchestrator.doctor.findings import Finding, Report, ServerSeen

WRONG = 2


async def doctor(arguments: Namespace) -> int:
    """Looks at everything that runs need; exit 2 when something stands in their way."""
    if arguments.probe is not None:
        return await probing(arguments)
    from orchestrator.doctor.examine import examine  # noqa: PLC0415 - imports the MCP package

    logging.getLogger("orchestrator").setLevel(logging.CRITICAL)  # whatever would be warned of is in the report
    report = await examine(options(arguments), offline=arguments.offline)
    if arguments.json:
        print(json.dumps(report.dump(), ensure_ascii=False))
    else:
        page = Page()
        _servers(report, page)
        _agents(report, page)
        _models(report, page)
        _around(report, page)
        _findings(report, page)
    return 0 if report.ok else WRONG


def _servers(report: "Report", page: Page) -> None:
    page.title("servers")
    for file in report.files:
        page.line(f"from {file}", style="dim")
    width = max((columns(printable(server.name)) for server in report.servers), default=0)
    for server in report.servers:
        name = padded(printable(server.name), width)
        page.line(f"{name}  {_state(server)}", mark=_mark(page, None if server.disabled else server.up))
        if not server.bundled:
            page.line(server.command or server.url or "", indent=4, style="dim")
        for text in server.stderr:
            page.line(text, indent=4, mark="│ ")
    up = [server for server in report.servers if server.up]
    if up:
        tools, tokens = sum(len(server.tools) for server in up), sum(server.tokens for server in up)
        page.line(f"{tools} tools, which cost about {tokens:,} tokens in each request of an agent that has all of them")


def _state(server: "ServerSeen") -> str:
    if server.disabled:
        return "disabled"
    if server.up is None:
        return f"{server.transport}{', bundled' if server.bundled else ''}"
    took = f"{server.start_s or 0:.1f} s"
    if not server.up:
        return f"{server.transport}  down after {took}: {server.problem}"
    return f"{server.transport:5}  {server.protocol}  {took:>6}  {len(server.tools):3} tools  ~{server.tokens:,} tokens"


def _agents(report: "Report", page: Page) -> None:
    page.title("agents")
    right = [agent.name for agent in report.agents if not agent.problem]
    if right:
        page.line(", ".join(map(printable, right)), mark=_mark(page, up=True))
    for agent in report.agents:
        if agent.problem:
            page.line(f"{printable(agent.name)}  {agent.file}", mark=_mark(page, up=False))


def _models(report: "Report", page: Page) -> None:
    page.title("models")
    for model in report.models:
        key = f"  {model.key} is {'set' if model.key_set else 'not set'}" if model.key else ""
        fallback = "" if model.agents else "  (fallback)"
        page.line(
            f"{model.spec}  {model.url or ''}{key}{fallback}",
            mark=_mark(page, False if model.problem else model.reachable),
        )
    if not report.models:
        page.line("none is configured", mark=_mark(page, None))


def _around(report: "Report", page: Page) -> None:
    page.title("spans and state")
    if (collector := report.collector) is not None:
        page.line(
            f"spans go to {collector.where}", mark=_mark(page, False if collector.problem else collector.reachable)
        )
    state = report.state
    size = f"{state.bytes / 1e6:.1f} MB" if state.exists else "not made yet"
    page.line(f"state lies in {state.folder} ({size})", mark=_mark(page, state.writable))


def _findings(report: "Report", page: Page) -> None:
    for level, style, mark in (("error", "bad", "✗ "), ("warning", "warn", "! ")):
        found = [finding for finding in report.findings if finding.level == level]
        if found:
            page.title(f"{level}s")
        for finding in found:
            page.line(f"{finding.about}: {finding.message}", mark=page.style(mark, style))
            if finding.file is not None:
                place = f"{finding.file}:{finding.line}" if finding.line else str(finding.file)
                page.line(place, indent=4, style="dim")
            if finding.fix:
                page.line(finding.fix, indent=4, mark="→ ")
    _hints([finding for finding in report.findings if finding.level == "hint"], page)
    counts = [_counted(report.count("error"), "error"), _counted(report.count("warning"), "warning")]
    print(f"\n{', '.join([*counts, _counted(report.count('hint'), 'hint')])}")


def _hints(hints: Sequence["Finding"], page: Page) -> None:
    """Many servers lack the same, so what to do about it is said once."""
    if hints:
        page.title("hints: a model chooses and calls tools better when their descriptions are mended")
    for fix in dict.fromkeys(hint.fix for hint in hints):
        page.line(fix, mark="→ ")
        for hint in hints:
            if hint.fix == fix:
                page.line(f"{hint.about.removeprefix('server ')}: {hint.message}", indent=4, style="dim")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _mark(page: Page, up: bool | None) -> str:
    """Good, bad, or not looked at."""
    return "- " if up is None else page.style("✓ ", "good") if up else page.style("✗ ", "bad")
