"""The runs of an evaluation: each task so many times, one after the other, since times of runs at once say little."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import Error, copytree
from tempfile import TemporaryDirectory

import anyio

from orchestrator.config import Settings
from orchestrator.errors import ConfigurationError
from orchestrator.evaluation.checks import Calls, files_of, problems, unmatched
from orchestrator.evaluation.judge import judge, question, rejected
from orchestrator.evaluation.suite import EvalTask, Suite
from orchestrator.events import Limits
from orchestrator.masking import mask
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator
from orchestrator.runtime.result import RunResult
from orchestrator.runtime.sittings import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run. `problems` is why it was not right. `steps` are turns of its agent, `tokens` and `cost` (US dollars,
    None where a price is not known) of its whole tree, `seconds` without waiting for people."""

    run_id: str
    problems: tuple[str, ...]
    steps: int
    tokens: int
    cost: float | None
    seconds: float


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """An evaluation under way. `most` bounds the cost of all runs and verdicts together, in US dollars.

    `trials` are by the name of the task; `judged` is what the verdicts cost, and None where a price is not known.
    `spent` is what everything has cost so far, as far as that is known.
    """

    suite: Suite
    folder: Path
    options: Options
    settings: Settings
    chosen: RunOptions
    times: int
    most: float | None = None
    trials: dict[str, list[Trial]] = field(default_factory=dict[str, list[Trial]])
    judged: float | None = 0.0
    spent: float = 0.0

    async def run(self, on_trial: Callable[[EvalTask, Trial], None]) -> bool:
        """Runs everything; False: the bound on cost was reached before that.

        Raises:
            ConfigurationError: an agent, a model or a server cannot be used.
        """
        async with AsyncExitStack() as stack:
            judging: Orchestrator | None = None
            if any(task.checks.judge for task in self.suite.tasks):
                made = judge(self.options, self.settings, self.suite.judge_model, self.most)
                judging = await stack.enter_async_context(made)
                await judging.check(judging.agent)
            for task in self._others():
                async with self._stage(task):
                    pass
            for task in self.suite.tasks:
                for _ in range(self.times):
                    if self.most is not None and self._left() <= 0:
                        return False
                    if (trial := await self._try(task, judging)) is None:
                        return False
                    self.trials.setdefault(task.name, []).append(trial)
                    on_trial(task, trial)
        return True

    def _others(self) -> list[EvalTask]:
        """A task for each agent and workspace that the first run of all does not try: a mistake in the last of them is
        known before anything is paid for."""
        first = self.suite.tasks[0]
        tasks = {(task.agent, task.workspace): task for task in self.suite.tasks}
        return [task for key, task in tasks.items() if key != (first.agent, first.workspace)]

    async def _try(self, task: EvalTask, judging: Orchestrator | None) -> Trial | None:
        """None where the run or its verdict was stopped by the bound of the whole, and not by one of its own."""
        calls, left = Calls(), self._left()
        async with self._stage(task) as (orchestrator, folder):
            before = files_of(folder, task.checks.files)
            result = await orchestrator.run(task.task, options=self._within(), on_event=calls)
            self.spent += _cost(result) or 0.0
            if result.stop_reason == "max_cost" and self._bound(orchestrator, left):
                return None
            found = problems(task.checks, result, calls, folder, before)
        if result.status == "finished":
            found += await unmatched(task.checks.matches, result.answer)
        if judging is not None and task.checks.judge is not None and not found:
            verdict = await judging.run(question(task, result.answer), options=self._within())
            cost = _cost(verdict)
            self.judged = None if cost is None or self.judged is None else self.judged + cost
            self.spent += cost or 0.0
            if self.most is not None and verdict.stop_reason == "max_cost":
                return None
            found = rejected(verdict)
        return Trial(
            run_id=result.run_id,
            problems=tuple(map(_in_short, found)),
            steps=len(result.steps),
            tokens=result.usage.input_tokens + result.usage.output_tokens,
            cost=_cost(result),
            seconds=result.duration_s,
        )

    def _bound(self, orchestrator: Orchestrator, left: float) -> bool:
        """Whether less was left of the whole than a run may cost by itself."""
        own = orchestrator.cards.get(orchestrator.agent).limits.cost or self.settings.limits.cost
        return self.most is not None and (own is None or left < own)

    def _within(self) -> RunOptions:
        return self.chosen if self.most is None else replace(self.chosen, within=Limits(cost=self._left()))

    def _left(self) -> float:
        return (self.most or 0.0) - self.spent

    @asynccontextmanager
    async def _stage(self, task: EvalTask) -> AsyncGenerator[tuple[Orchestrator, Path]]:
        """An orchestrator for one run, with its servers, and the folder that it works in: nothing of another run is
        there, in the memory of a server or in a file."""
        with TemporaryDirectory(prefix="eval-", ignore_cleanup_errors=True) as scratch:
            options = replace(self.options, settings=self.settings)
            if task.workspace is not None:
                source = self.folder / task.workspace
                folder = Path(scratch) / source.name
                await anyio.to_thread.run_sync(_copy, source, folder)
                options = replace(options, workspace=folder, cards=self.options.load_cards())
            async with Orchestrator(options, agent=task.agent) as orchestrator:
                await orchestrator.check(task.agent)
                yield orchestrator, options.folder


def _copy(source: Path, target: Path) -> None:
    try:
        copytree(source, target, symlinks=True, ignore=_special)
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, Error) else error
        raise ConfigurationError(f"{source} cannot be copied: {why}") from error


def _special(folder: str, names: list[str]) -> list[str]:
    """Sockets and the like, which cannot be copied and belong to a process that is not in the copy."""
    paths = {name: Path(folder, name) for name in names}
    return [name for name, path in paths.items() if not (path.is_symlink() or path.is_file() or path.is_dir())]


def _in_short(problem: str) -> str:
    """A line of at most 300 characters; it is kept in a file to commit, and may quote an answer."""
    return " ".join(mask(problem).split())[:300]


def _cost(result: RunResult) -> float | None:
    return result.cost.amount if result.cost.known else None
