"""What an evaluation is of: a TOML file of tasks, each with what must be true of a run of it.

[[tasks]]
name = "best month"
task = "Which month of shop/sales.csv sold most?"
agent = "analyst"
workspace = "shop"
checks = { contains = ["November"], calls = ["tables__*"] }
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationError

from orchestrator.config.parsers import parse_toml
from orchestrator.config.report import mapping, read_document
from orchestrator.config.table import Table
from orchestrator.errors import ConfigurationError


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression, but {error}") from None
    return text


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _inside(path: str) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("must lie inside the folder that the run works in")
    return str(PurePosixPath(path))


def _of_files(glob: str) -> str:
    if glob == "." or any("**" in part and part != "**" for part in PurePosixPath(glob).parts):
        raise ValueError("must name files, and `**` stands for whole folders")
    return glob


Text = Annotated[str, AfterValidator(_said)]
Inside = Annotated[Text, AfterValidator(_inside)]
Glob = Annotated[Inside, AfterValidator(_of_files)]


class Checks(Table):
    """What must be true of a run that has finished; all of it. Without any, it is enough that the run finished.

    `contains` and `not_contains` are texts that must and must not be in the answer, whatever their case, and however
    the thousands of a number are parted. `matches` is a regular expression that is found in it. `files` are globs,
    under the folder of the run, of which each must be met by a file that the run made or changed. `calls` are globs of
    tools of which each must have worked, `not_calls` of those that must not be called, both by whatever agent. `judge`
    says in words what a model looks for in the answer.
    """

    contains: tuple[Text, ...] = ()
    not_contains: tuple[Text, ...] = ()
    matches: Annotated[Text, AfterValidator(_pattern)] | None = None
    files: tuple[Glob, ...] = ()
    calls: tuple[Text, ...] = ()
    not_calls: tuple[Text, ...] = ()
    judge: Text | None = None


class EvalTask(Table):
    """A task. `workspace` is a folder beside the file, of which each run works in a copy; without it they all work in
    the folder where `orchestrator` works."""

    name: Annotated[Text, Field(max_length=80)]
    task: Text
    agent: Text = "supervisor"
    workspace: Inside | None = None
    checks: Checks = Checks()

    @property
    def digest(self) -> str:
        """Changes with whatever makes results of before and after incomparable; a check is not the task."""
        return hashlib.sha256(f"{self.agent}\0{self.workspace}\0{self.task}".encode()).hexdigest()[:16]


class Suite(Table):
    """The tasks of a file. `judge_model` is the spec of the model that judges; without it, it is that of the runs."""

    judge_model: Text | None = None
    tasks: tuple[EvalTask, ...]


_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "": tuple(Suite.model_fields),
    "tasks": tuple(EvalTask.model_fields),
    "tasks.*": tuple(EvalTask.model_fields),
    "tasks.*.checks": tuple(Checks.model_fields),
}


def read_suite(path: Path) -> Suite:
    """Reads the file.

    Raises:
        ConfigurationError: with everything that is wrong in it.
    """
    value, report = read_document(path, "file of tasks", parse_toml)
    suite: Suite | None = None
    if not report.errors:
        try:
            suite = Suite.model_validate(mapping(value) or {})
        except ValidationError as error:
            report.explain(error, _KNOWN)
    if suite is not None and not suite.tasks:
        report.error("there are no tasks; each is a [[tasks]] table.")
    names: set[str] = set()
    for number, task in enumerate(suite.tasks if suite else ()):
        if task.name in names:
            report.error(f"two tasks have the name `{task.name}`; results are kept by it.", ("tasks", number, "name"))
        if task.workspace is not None and not (path.parent / task.workspace).is_dir():
            report.error(f"there is no folder {path.parent / task.workspace}.", ("tasks", number, "workspace"))
        names.add(task.name)
    if suite is None or report.errors:
        raise ConfigurationError(*report.errors)
    return suite
