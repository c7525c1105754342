"""What an evaluation measured, compared with the baseline, and kept in a file beside the tasks, a line each."""

from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.config.report import read_text
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.evaluation.measuring import Trial
from orchestrator.evaluation.suite import EvalTask

OFF: Final = 0.15
"""A mean that is more than this part away from the baseline's is flagged."""

Measure = Literal["success", "steps", "tokens", "cost", "seconds"]
MEASURES: Final[tuple[Measure, ...]] = ("success", "steps", "tokens", "cost", "seconds")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Spread(_Model):
    """Mean and standard deviation of one thing over the runs of a task; `deviation` is 0 for a single run."""

    mean: float
    deviation: float = 0.0


class Failure(_Model):
    """A run that was not right, and why."""

    run_id: str
    problems: tuple[str, ...]


class TaskResult(_Model):
    """`success` is the share of runs that were right, 0 to 1; `cost` is None where a price is not known."""

    name: str
    digest: str
    runs: int
    success: float
    steps: Spread
    tokens: Spread
    cost: Spread | None
    seconds: Spread
    failures: tuple[Failure, ...] = ()

    def mean(self, measure: Measure) -> float | None:
        if measure == "success":
            return self.success
        spread: Spread | None = getattr(self, measure)
        return None if spread is None else spread.mean


class Results(_Model):
    """An evaluation. `at` is its time (ISO 8601), `model` what was chosen for all agents, if anything was.

    `baseline`: later ones are compared with it, until there is another. `judged` is what its verdicts cost, in US
    dollars; None where a price is not known.
    """

    at: str
    version: str
    model: str | None = None
    baseline: bool = False
    judged: float | None = 0.0
    tasks: tuple[TaskResult, ...]


class Flag(_Model):
    """A mean that is far from the baseline's. `change` is the part by which, None where that was 0."""

    task: str
    measure: Measure
    before: float
    now: float
    change: float | None
    worse: bool


def summed(tasks: Sequence[EvalTask], trials: Mapping[str, Sequence[Trial]]) -> tuple[TaskResult, ...]:
    """The measures of the tasks that were run."""
    return tuple(_summed(task, trials[task.name]) for task in tasks if trials.get(task.name))


def _summed(task: EvalTask, trials: Sequence[Trial]) -> TaskResult:
    costs = [trial.cost for trial in trials if trial.cost is not None]
    wrong = [trial for trial in trials if trial.problems]
    return TaskResult(
        name=task.name,
        digest=task.digest,
        runs=len(trials),
        success=1 - len(wrong) / len(trials),
        steps=_spread([trial.steps for trial in trials]),
        tokens=_spread([trial.tokens for trial in trials]),
        cost=_spread(costs) if len(costs) == len(trials) else None,
        seconds=_spread([trial.seconds for trial in trials]),
        failures=tuple(Failure(run_id=trial.run_id, problems=trial.problems) for trial in wrong),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(mean=round(fmean(values), 6), deviation=round(stdev(values), 6) if len(values) > 1 else 0.0)


def flags(now: Sequence[TaskResult], baseline: Results | None) -> list[Flag]:
    """What is far from the baseline, for tasks that are in both and are still the same."""
    before = {task.name: task for task in baseline.tasks} if baseline else {}
    found: list[Flag] = []
    for task in now:
        old = before.get(task.name)
        if old is None or old.digest != task.digest:
            continue
        for measure in MEASURES:
            a, b = old.mean(measure), task.mean(measure)
            if a is None or b is None or a == b:
                continue
            change = round((b - a) / a, 6) if a else None
            if change is None or abs(change) > OFF:
                worse = b < a if measure == "success" else b > a
                found.append(Flag(task=task.name, measure=measure, before=a, now=b, change=change, worse=worse))
    return found


def history_file(suite: Path) -> Path:
    """Where the results of a file of tasks are kept."""
    return suite.with_name(f"{suite.stem}.results.jsonl")


def read_history(path: Path) -> list[Results]:
    """Every evaluation, the oldest first; none where there is no file.

    Raises:
        ConfigurationError: it cannot be read, or a line of it is not one of ours.
    """
    if not path.exists():
        return []
    found: list[Results] = []
    for number, line in enumerate(read_text(path, "file of results").split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(Results.model_validate_json(line))
        except ValidationError:
            message = "this line is no result of an evaluation; take it out, or move the file away."
            raise ConfigurationError(Problem(message, path, number)) from None
    return found


def baseline_of(history: Sequence[Results]) -> Results | None:
    """What is compared with: the last that was made the baseline."""
    return next((each for each in reversed(history) if each.baseline), None)


def keep(path: Path, results: Results) -> None:
    """Adds a line, in one write; an editor may have left the last one without its end."""
    with _opened(path) as file:
        parted = b"" if path.read_bytes()[-1:] in (b"", b"\n") else b"\n"
        file.write(parted + results.model_dump_json().encode() + b"\n")


def check_writable(path: Path) -> None:
    """Raises `ConfigurationError` where results cannot be kept, which is better known before runs are paid for."""
    there = path.exists()
    _opened(path).close()
    if not there:
        path.unlink()


def _opened(path: Path) -> FileIO:
    """The file, to be added to. Raises `ConfigurationError`."""
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise ConfigurationError(Problem(f"results cannot be written there: {error.strerror}.", path)) from error
