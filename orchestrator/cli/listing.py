"""`tools`, `agents` and `runs`: what there is."""

import json
import os
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.cli.progress import printable, say
from orchestrator.cli.running import options, waiting
from orchestrator.config import Settings, hide_secrets, home
from orchestrator.errors import ConfigurationError, UnknownRun
from orchestrator.masking import mask
from orchestrator.options import Options

if TYPE_CHECKING:
    from orchestrator.runtime.journal import RunRow, SqliteJournal
    from orchestrator.runtime.runstate import RunState


async def tools(arguments: Namespace) -> int:
    """Starts every configured server and lists its tools; a server that does not start is listed with the reason."""
    from orchestrator.inspection import list_tools  # noqa: PLC0415 - imports the MCP package

    found = await list_tools(options(arguments))
    if arguments.json:
        _print_json(found)
        return 0
    for server in found["servers"]:
        state = f"{server['tools']} tools" if server["up"] else f"not available: {printable(server['problem'])}"
        print(f"{server['name']}: {state}")
        for tool in found["tools"]:
            if tool["server"] == server["name"]:
                plain = tool["name"] == f"{tool['server']}__{tool['tool']}"
                own = "" if plain else f"  (its own name: {_first_line(tool['tool'])})"
                print(f"  {tool['name']}{own}  {tool['effect']}  {_first_line(tool['description'])}")
    for tool in found["left_out"]:
        print(f"left out: {tool['name']}: {printable(tool['problem'])}")
    return 0


async def agents(arguments: Namespace) -> int:
    """Lists the cards, those with mistakes included; exit 2 when there is one."""
    chosen = options(arguments)
    settings, cards = chosen.load_settings(), chosen.load_cards()
    bundled = {name for name, server in settings.servers.items() if server.bundled}
    findings = cards.validate(None, bundled)
    rows = [
        {
            "name": card.name,
            "title": card.title,
            "description": card.description,
            "tool": card.tool_name,
            "model": list(card.model),
            "tools": None if card.tools is None else list(card.tools),
            "agents": [each.name for each in cards.agents_of(card)],
            "limits": card.limits.model_dump(exclude_none=True),
            "source": card.source,
            "file": str(card.file) if card.file else None,
        }
        for card in cards.cards.values()
    ]
    problems = [str(problem) for error in findings.errors.values() for problem in error.problems]
    if arguments.json:
        _print_json({"agents": rows, "errors": problems, "warnings": [str(each) for each in findings.warnings]})
        return 2 if problems else 0
    for row in rows:
        print(f"{row['name']} ({row['source']})  {_first_line(str(row['description']))}")
        if row["agents"]:
            print(f"  agents: {', '.join(row['agents'])}")
        if row["tools"]:
            print(f"  tools: {', '.join(row['tools'])}")
    for label, texts in (("warning", findings.warnings), ("error", problems)):
        for text in texts:
            print(f"{label}: {printable(str(text))}")
    return 2 if problems else 0


async def runs(arguments: Namespace) -> int:
    chosen = looking(arguments)
    if arguments.action == "audit":
        # Only this command needs it.
        from orchestrator.cli.auditing import audit  # noqa: PLC0415

        return await audit(arguments)
    if arguments.action == "show":
        if arguments.run_id is None:
            raise ConfigurationError("`runs show` needs a run's id, or `last`")
        return await _show(chosen, arguments.run_id, as_json=arguments.json)
    journal = open_journal(chosen)
    try:
        rows = await journal.runs()
    finally:
        await journal.aclose()
    if arguments.json:
        _print_json([_row(row) for row in rows])
        return 0
    for row in rows:
        began = datetime.fromtimestamp(row.started_at).strftime("%Y-%m-%d %H:%M")
        print(f"{row.run_id}  {row.status:9}  {began}  {row.agent}  {_first_line(mask(row.task))}")
    if not rows:
        print("no runs yet")
    return 0


def looking(arguments: Namespace) -> Options:
    """The options of a command that only shows old runs, and hides what the configuration says is to be hidden.

    One that is wrong is no reason not to look: it is warned of, and the usual is hidden.
    """
    chosen = options(arguments)
    try:
        chosen.load_settings()
    except ConfigurationError as error:
        hide_secrets(Settings(), os.environ)
        for problem in error.problems:
            say(f"warning: {problem}")
        say("warning: without the configuration, only the usual secrets and personal data are masked here")
    return chosen


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run was started with, as its journal has it."""

    agent: str
    options: Options


async def find_run(chosen: Options, run_id: str) -> tuple[str, Recorded]:
    """Finds a top-level run by its id or as `last`, with the options that it was started with."""
    journal = open_journal(chosen)
    try:
        run_id = await resolve_run(journal, run_id)
        events = await journal.read(run_id)
        started = next((event for event in events if event.type == "run.started"), None)
        if started is None:
            raise _unknown(run_id)
        recorded = Options.recorded(await journal.body(started.settings)) if started.settings else chosen
        return run_id, Recorded(started.agent, recorded)
    finally:
        await journal.aclose()


async def _show(chosen: Options, run_id: str, *, as_json: bool) -> int:
    from orchestrator.runtime.journal import root_of  # noqa: PLC0415
    from orchestrator.runtime.result import run_result  # noqa: PLC0415
    from orchestrator.runtime.state import fold  # noqa: PLC0415

    journal = open_journal(chosen)
    try:
        run_id = await resolve_run(journal, run_id)
        states = {run: fold(events) for run, events in (await journal.tree(root_of(run_id))).items()}
    finally:
        await journal.aclose()
    if run_id not in states:
        raise _unknown(run_id)
    result = run_result(run_id, states)
    if as_json:
        print(result.model_dump_json())
        return 0
    print(f"{result.run_id}  {result.status} ({result.stop_reason})  trace {result.trace_id}")
    _print_tree(states, run_id, 0)
    for request in result.approvals:
        print("\n".join(waiting(request)))
    print(printable(mask(result.answer)))
    return 0


def _print_tree(states: "dict[str, RunState]", run: str, depth: int) -> None:
    """Who did what: an agent, its calls, and below a call of an agent what that one did."""
    state, indent = states[run], "  " * depth
    print(f"{indent}{state.run.agent}  {state.own.model_calls} thoughts, {state.own.tokens:,} tokens")
    for step in state.steps:
        for action in step.actions:
            mark = "✗" if action.is_error else "✓"
            print(f"{indent}  {mark} {_first_line(action.call.name)}  {_first_line(mask(action.observation))}")
            child = f"{run}/{action.call.id}"  # what another orchestrator calls its run is its own word
            if child in states:
                _print_tree(states, child, depth + 2)


async def resolve_run(journal: "SqliteJournal", run_id: str) -> str:
    """A run's id as the journal has it, from what was typed: an id, one with `~` for `/`, or `last`."""
    if run_id != "last":
        return run_id.replace("~", "/")
    rows = await journal.runs(limit=1)
    if not rows:
        raise UnknownRun("there are no runs yet")
    return rows[0].run_id


def open_journal(chosen: Options) -> "SqliteJournal":
    """The journal that a command reads."""
    from orchestrator.runtime.journal import SqliteJournal  # noqa: PLC0415

    return SqliteJournal((chosen.home or home(os.environ)) / "journal.sqlite")


def _unknown(run_id: str) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id!r}; `orchestrator runs` lists them")


def _row(row: "RunRow") -> dict[str, Any]:
    return {
        "run_id": row.run_id,
        "status": row.status,
        "agent": row.agent,
        "task": row.task,
        "started_at": _iso(row.started_at),
        "ended_at": _iso(row.ended_at) if row.ended_at is not None else None,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _first_line(text: str, width: int = 100) -> str:
    """The beginning of what a model, a server or a card says, on one line, with nothing that a terminal would obey."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False))
