"""`run` and `resume`: drive a run, show it, and print what came of it."""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from orchestrator.cli.asking import ask
from orchestrator.cli.forms import is_verdict
from orchestrator.cli.interrupts import parking
from orchestrator.cli.progress import Progress, printable, say, wanted
from orchestrator.config import Settings
from orchestrator.errors import ConfigurationError
from orchestrator.events import Limits, PublicEvent, Status
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator

if TYPE_CHECKING:
    from orchestrator.runtime.result import ApprovalRequest, RunResult
    from orchestrator.runtime.sittings import RunOptions

EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "stopped": 3, "parked": 4, "cancelled": 130}

STDOUT = "-"

Watch = Callable[[PublicEvent], None]


def options(arguments: Namespace) -> Options:
    """The options that the common flags stand for."""
    workspace = arguments.workspace
    if workspace is not None and not workspace.is_dir():
        raise ConfigurationError(f"--workspace: there is no folder {workspace}")
    return Options(
        workspace=workspace,
        config=arguments.config,
        mcp_configs=arguments.mcp_config,
        agents=arguments.agents,
        model=arguments.model,
        ask=ask if sys.stdin.isatty() and sys.stderr.isatty() else None,
    )


async def run(arguments: Namespace) -> int:
    limits = Limits(
        steps=arguments.max_steps,
        tokens=arguments.max_tokens,
        cost=arguments.max_cost,
        seconds=arguments.timeout,
    )
    with watching(arguments) as (watch, progress):
        async with Orchestrator(options(arguments), agent=arguments.agent) as orchestrator:
            with parking(orchestrator.park):
                chosen = run_options(arguments, progress)
                # Under a locale that is not UTF-8, Python hands on bytes in a form that nothing can write.
                task = os.fsencode(arguments.task).decode("utf-8", "replace")
                result = await orchestrator.run(task, limits=limits, options=chosen, on_event=watch)
        progress.close()
    return report(result, arguments, orchestrator.settings)


async def resume(arguments: Namespace) -> int:
    from orchestrator.cli.listing import find_run  # noqa: PLC0415

    run_id, recorded = await find_run(options(arguments), arguments.run_id)
    with watching(arguments) as (watch, progress):
        async with Orchestrator(overlaid(recorded.options, arguments), agent=recorded.agent) as orchestrator:
            with parking(orchestrator.park):
                chosen = run_options(arguments, progress)
                result = await orchestrator.resume(run_id, options=chosen, on_event=watch)
        progress.close()
    return report(result, arguments, orchestrator.settings)


def overlaid(recorded: Options, arguments: Namespace) -> Options:
    """The options that a run was started with, but for those that flags name now."""
    flags = {name: getattr(arguments, name) for name in ("workspace", "config", "agents", "model")}
    given = {name: value for name, value in flags.items() if value is not None}
    if arguments.mcp_config:
        given["mcp_configs"] = arguments.mcp_config
    return replace(recorded, ask=options(arguments).ask, **given)


def run_options(arguments: Namespace, progress: Progress) -> "RunOptions":
    """How this run is to be approved, and by whom: a person is asked where there is a terminal to ask at."""
    from orchestrator.cli.approving import TerminalApprover  # noqa: PLC0415
    from orchestrator.runtime.sittings import RunOptions  # noqa: PLC0415 - imports the MCP package

    there = sys.stdin.isatty() and sys.stderr.isatty()
    # With `all`, only what a server asks is left to ask: nobody but a person knows the answer.
    approver = TerminalApprover(progress) if there and arguments.approve != "none" else None
    return RunOptions(approve=arguments.approve, approver=approver, role=getattr(arguments, "role", None))


def report(result: "RunResult", arguments: Namespace, settings: Settings) -> int:
    """Prints a result on stdout, unless the events have it there already, and a closing line on stderr."""
    from orchestrator.tracing.links import trace_link  # noqa: PLC0415

    if arguments.json:
        print(result.model_dump_json())
    elif result.status == "failed":
        say(f"error: {result.answer}")
    elif result.status == "parked":
        say(how_to_go_on(result), personal=False)
    elif arguments.events != STDOUT:
        print(result.answer)
    if not arguments.quiet and not arguments.json:
        # A terminal would break the line inside an id.
        say(closing_line(result, "\n" if sys.stderr.isatty() else " · "))
        if link := trace_link(result.trace_id, settings.telemetry.trace_url, os.environ):
            say(link)
    return EXIT_CODES[result.status]


def how_to_go_on(result: "RunResult") -> str:
    """What a parked run waits for, and the commands that let it go on."""
    lines = [line for request in result.approvals for line in (*waiting(request), _command(result, request))]
    if not lines:
        lines.append(f"interrupted; run {result.run_id} is parked")
    return "\n".join([*lines, f"then: orchestrator resume {result.run_id}"])


def waiting(request: "ApprovalRequest") -> list[str]:
    """What waits, and why, with nothing in it that a terminal would obey."""
    what = f"waiting for approval: {request.call}  {request.agent} wants {request.tool} {wanted(request.arguments)}"
    lines = [what, f"  because: {' '.join(request.reason.split())}"]
    asked = request.input or {}
    if "schema" in asked and not is_verdict(request):
        lines.append(f"  fields: {wanted(asked['schema'])}")
    if "url" in asked:
        lines.append(f"  page: {asked['url']}  at {asked['host']}; open it yourself, if you trust this host")
    return [printable(line) for line in lines]


def _command(result: "RunResult", request: "ApprovalRequest") -> str:
    """How to answer it. A form that has fields needs their values."""
    fields = (request.input or {}).get("schema", {}).get("properties")
    values = " --arguments '{…}'" if fields and not is_verdict(request) else ""
    return f"  orchestrator approve {result.run_id} {request.call}{values}        (or with --deny)"


def closing_line(result: "RunResult", between: str = " · ") -> str:
    """Time, tokens and cost; then, after `between`, the two ids by which a run is found again."""
    usage = result.usage
    cost = f"${result.cost.amount:.4f}" if result.cost.known else "cost unknown"
    status = "" if result.status == "finished" else f"{result.status} ({result.stop_reason}) · "
    return (
        f"{status}{result.duration_s:.1f} s · {usage.input_tokens:,} + {usage.output_tokens:,} tokens · "
        f"{usage.model_calls} model calls · {usage.tool_calls} tool calls · {cost}{between}"
        f"run {result.run_id} · trace {result.trace_id}"
    )


class watching:
    """Where a run's events go while it runs: progress on stderr, and a file or stdout when asked."""

    def __init__(self, arguments: Namespace) -> None:
        self._where: str | None = arguments.events
        self._quiet: bool = arguments.quiet
        if self._where == STDOUT and arguments.json:
            raise ConfigurationError("--events - and --json both want stdout; give --events a file")
        self._stack = ExitStack()

    def __enter__(self) -> tuple[Watch, Progress]:
        out = self._open()
        progress = self._stack.enter_context(Progress(quiet=self._quiet))
        if out is None:
            return progress.show, progress

        def watch(event: PublicEvent) -> None:
            out.write(event.model_dump_json() + "\n")
            out.flush()
            progress.show(event)

        return watch, progress

    def _open(self) -> TextIO | None:
        if self._where is None or self._where == STDOUT:
            return None if self._where is None else sys.stdout
        try:
            return self._stack.enter_context(open(self._where, "w", encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"--events: {self._where} cannot be written: {error.strerror}") from error

    def __exit__(self, *exc: object) -> None:
        try:
            self._stack.close()
        except OSError as error:  # the answer is not lost with the list of events
            logging.getLogger(__name__).warning("--events: %s is not complete: %s", self._where, error.strerror)
