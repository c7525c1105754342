"""`eval`: runs the tasks of a file many times, shows how they went, and says what is far from the baseline."""

import json
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator import __version__
from orchestrator.cli.page import Page, columns, padded
from orchestrator.cli.progress import one_line, printable, say
from orchestrator.cli.running import options
from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.evaluation.measuring import Evaluation, Trial
    from orchestrator.evaluation.results import Flag, Results, Spread, TaskResult
    from orchestrator.evaluation.suite import EvalTask, Suite

WORSE, STOPPED = 1, 3
_SHOWN = 3  # runs that were not right, of a task
_HEAD = ("task", "success", "steps", "tokens", "cost", "seconds")


async def evaluate(arguments: Namespace) -> int:
    """Exit 1 when something is worse than the baseline, 3 when the bound on cost ended it. Time alone is no reason: it
    is the machine's as well."""
    from orchestrator.evaluation.results import baseline_of, flags, history_file, keep, read_history  # noqa: PLC0415
    from orchestrator.evaluation.suite import read_suite  # noqa: PLC0415

    suite, file = read_suite(arguments.file), history_file(arguments.file)
    history = read_history(file)
    if arguments.history:
        _show_history(history, json_too=arguments.json)
        return 0
    before = baseline_of(history)
    evaluation, whole = await _measured(arguments, suite, file)
    results = _results(arguments, evaluation, baseline=whole and (arguments.baseline or before is None))
    found = flags(results.tasks, before)
    if whole:
        keep(file, results)
    _report(arguments, results, before, found)
    if not whole:
        say(f"stopped: --max-cost {arguments.max_cost:g} is used up; these results are not kept")
        return STOPPED
    return WORSE if any(flag.worse and flag.measure != "seconds" for flag in found) else 0


async def _measured(arguments: Namespace, suite: "Suite", file: Path) -> tuple["Evaluation", bool]:
    """Runs everything. What an interruption or an error leaves is shown and not kept."""
    from orchestrator.evaluation.measuring import Evaluation  # noqa: PLC0415 - imports the MCP package
    from orchestrator.evaluation.results import check_writable  # noqa: PLC0415
    from orchestrator.runtime.sittings import RunOptions  # noqa: PLC0415

    check_writable(file)
    chosen = options(arguments)
    evaluation = Evaluation(
        suite=suite,
        folder=arguments.file.absolute().parent,
        options=chosen,
        settings=chosen.load_settings(),
        chosen=RunOptions(approve=arguments.approve),
        times=arguments.runs,
        most=arguments.max_cost,
    )

    def tell(task: "EvalTask", trial: "Trial") -> None:
        if not arguments.quiet:
            number, why = len(evaluation.trials[task.name]), " · ".join(trial.problems)
            mark = f"✗ {one_line(why, 200)}" if why else "✓"
            name = one_line(task.name)
            say(f"{name} {number}/{arguments.runs} {mark} {trial.seconds:.1f} s · run {trial.run_id}")

    try:
        return evaluation, await evaluation.run(tell)
    except (anyio.get_cancelled_exc_class(), OrchestratorError, OSError):
        if evaluation.trials:
            _report(arguments, _results(arguments, evaluation, baseline=False))
            say("interrupted: these results are not kept")
        raise


def _results(arguments: Namespace, evaluation: "Evaluation", *, baseline: bool) -> "Results":
    from orchestrator.evaluation.results import Results, summed  # noqa: PLC0415

    return Results(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        model=arguments.model or evaluation.settings.model,
        baseline=baseline,
        tasks=summed(evaluation.suite.tasks, evaluation.trials),
        judged=evaluation.judged,
    )


def _report(
    arguments: Namespace, results: "Results", before: "Results | None" = None, found: Sequence["Flag"] = ()
) -> None:
    if arguments.json:
        told = {**results.model_dump(mode="json"), "flags": [flag.model_dump(mode="json") for flag in found]}
        told["compared_with"] = before.at if before else None
        print(json.dumps(told, ensure_ascii=False))
        return
    page = Page()
    _show_tasks(results.tasks, page)
    _show_flags(results, before, found, page)
    if results.judged != 0:
        cost = "an unknown sum" if results.judged is None else f"${results.judged:.4f}"
        page.line(f"the judge cost {cost} beside these", style="dim")


def _show_tasks(tasks: Sequence["TaskResult"], page: Page) -> None:
    page.title("mean ± standard deviation")
    for row in _aligned([_HEAD, *map(_row, tasks)]):
        page.line(row)
    for task in tasks:
        for failure in task.failures[:_SHOWN]:
            page.line(f"{task.name}: {' · '.join(failure.problems)} (run {failure.run_id})", mark="✗ ", style="warn")
        if len(task.failures) > _SHOWN:
            page.line(f"{task.name}: {len(task.failures) - _SHOWN} more runs were not right", mark="✗ ", style="warn")


def _row(task: "TaskResult") -> tuple[str, ...]:
    share = f"{task.success:.0%} of {task.runs}"
    cost = "unknown" if task.cost is None else f"${_both(task.cost, '.4f')}"
    return (task.name, share, _both(task.steps, ".1f"), _both(task.tokens, ",.0f"), cost, _both(task.seconds, ".1f"))


def _both(spread: "Spread", form: str) -> str:
    return f"{spread.mean:{form}} ± {spread.deviation:{form}}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of one width a column."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(padded, row, widths)).rstrip() for row in rows]


def _show_flags(results: "Results", before: "Results | None", found: Sequence["Flag"], page: Page) -> None:
    if before is None:
        page.line("this is the baseline now" if results.baseline else "there is no baseline", style="dim")
        return
    page.title(f"against the baseline of {before.at}{f' with {before.model}' if before.model else ''}")
    for flag in found:
        change = "from nothing" if flag.change is None else f"{flag.change:+.0%}"
        line = f"{flag.task}: {flag.measure} {change} ({flag.before:g} → {flag.now:g})"
        page.line(line, mark="worse  " if flag.worse else "better ", style="bad" if flag.worse else "good")
    known = {task.name: task.digest for task in before.tasks}
    others = [task.name for task in results.tasks if known.get(task.name) != task.digest]
    if not found and len(others) < len(results.tasks):
        page.line("nothing is more than 15 % off", style="good")
    for name in others:
        page.line(f"{name} is {'another task' if name in known else 'not'} there, and is not compared")
    if results.baseline:
        page.line("this is the baseline now", style="dim")


def _show_history(history: Sequence["Results"], *, json_too: bool) -> None:
    """Each evaluation that is kept, a line a task."""
    if json_too:
        print(json.dumps([each.model_dump(mode="json") for each in history], ensure_ascii=False))
        return
    rows: list[Sequence[Any]] = [("at", "model", *_HEAD)]
    for each in history:
        at = f"{each.at}{' baseline' if each.baseline else ''}"
        rows += [(at, each.model or "", *_row(task)) for task in each.tasks]
    page = Page()
    for row in _aligned(rows) if history else ["no results here yet"]:
        page.line(row, indent=0)
