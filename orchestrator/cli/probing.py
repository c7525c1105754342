"""`doctor --probe MODEL`: shows what a trial found, and writes it into the model's table after asking."""

import json
import re
import sys
import tomllib
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.asking import yes
from orchestrator.cli.progress import say
from orchestrator.cli.running import options
from orchestrator.config.folders import SETTINGS_FILE
from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from orchestrator.doctor.probe import Probe
    from orchestrator.doctor.tasks import Trial


async def probing(arguments: Namespace) -> int:
    """Runs the trial. Only a person at a terminal is asked to have the answer written; else the lines are printed."""
    from orchestrator.doctor.probe import probe  # noqa: PLC0415 - imports the MCP package

    chosen = options(arguments)
    settings, spec = chosen.load_settings(), arguments.probe.strip()
    found = await probe(spec, settings)
    keys: dict[str, Any] = {"mode": found.mode, "weak": found.weak} if found.mode else {}
    lines = _lines(keys) if not keys or spec in settings.models else _table(spec, keys)
    if arguments.json:
        print(json.dumps({**found.model_dump(mode="json"), "lines": lines}, ensure_ascii=False))
    else:
        _show(found)
    if not keys:
        say(f"error: {spec} did none of the tasks right in any way of acting, so nothing is advised")
        return 1
    file = arguments.config or chosen.folder / SETTINGS_FILE
    there = sys.stdin.isatty() and sys.stderr.isatty() and not arguments.json
    if there and spec in settings.models and _write(file, spec, keys):
        return 0
    if not arguments.json:
        where = f"[models.{_key(spec)}] of " if spec in settings.models else ""
        print(f"to paste into {where}{SETTINGS_FILE}:", *lines, sep="\n")
    return 0


def _show(found: "Probe") -> None:
    for trial in found.trials:
        say(f"{trial.mode}{' + weak' if trial.weak else ''}: {_said(trial, found.tasks)}")
    cost = "cost unknown" if found.cost is None else f"${found.cost:.4f}"
    say(f"{found.requests} requests · {found.tokens:,} tokens · {cost} · {found.seconds:.1f} s")
    if found.stopped:
        say(f"stopped at {found.stopped}, which is as long as a trial may be: what was not tried counts as not right")
    if found.mode:
        print(f"best: {found.mode}{' with weak = true' if found.weak else ''}")


def _said(trial: "Trial", tasks: int) -> str:
    if trial.problem or not trial.tried:
        return trial.problem or "not tried"
    short = f"; only {trial.tried} were tried" if trial.tried < tasks else ""
    return (
        f"{trial.right} of {tasks} tasks right; calls {trial.calls}, answers {trial.answers}, "
        f"calls as text {trial.as_text}, unasked calls {trial.unasked}{short}"
    )


def _lines(keys: dict[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]


def _table(spec: str, keys: dict[str, Any]) -> list[str]:
    """The table that a vendor's spec stands for; its name is the model's, which is then how it is chosen."""
    provider, _, name = spec.partition(":")
    return [f"[models.{_key(name)}]", *_lines({"provider": provider}), *_lines(keys)]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _write(file: Path, name: str, keys: dict[str, Any]) -> bool:
    """Changes these keys of one table, after asking. False: nothing is written, and the user is to do it."""
    try:
        before = file.read_bytes().decode()
        after = edited(before, name, keys)
        if after is None:
            say(f"the table of {name} in {file} is not one that can be changed safely")
            return False
        say(f"to write into [models.{_key(name)}] of {file}:\n  " + "\n  ".join(_lines(keys)))
        if not yes("Write these lines?"):
            say("nothing is written")
            return False
        file.write_bytes(after.encode())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    print(f"written: {file}")
    return True


def edited(text: str, name: str, keys: dict[str, Any]) -> str | None:
    """The file with these keys set in `[models.NAME]`, all else as it is; None where lines alone cannot do that."""
    lines = text.splitlines(keepends=True)
    quoted = rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    header = re.compile(rf"\s*\[\s*models\s*\.\s*{quoted}\s*\]\s*(?:#.*)?$")
    start = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        return None
    ending = "\r\n" if lines[start].endswith("\r\n") else "\n"
    if not lines[start].endswith("\n"):
        lines[start] += ending
    end = next((n for n in range(start + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    for key, line in reversed([*zip(keys, _lines(keys), strict=True)]):
        old = re.compile(rf"(\s*){key}\s*=\s*(?:\"\w*\"|'\w*'|\w+)(?=\s*(?:#.*)?$)")
        at = next((number for number in range(start + 1, end) if old.match(lines[number])), None)
        if at is None:
            lines.insert(start + 1, line + ending)
            end += 1
        else:
            lines[at] = old.sub(lambda found, line=line: found[1] + line, lines[at], count=1)
    after = "".join(lines)
    try:
        wanted, got = tomllib.loads(text), tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return None
    wanted["models"][name].update(keys)
    return after if got == wanted else None
