"""`init`: writes a starting set of files, after it has said which and was told to."""

import json
import os
import sys
from argparse import Namespace

from orchestrator.cli.asking import yes
from orchestrator.cli.progress import say
from orchestrator.cli.running import options
from orchestrator.errors import ConfigurationError
from orchestrator.starting import Start, prepare

NOT_WRITTEN = 2


async def init(arguments: Namespace) -> int:
    """Asks at a terminal; without one, `--yes` says yes. What is there already is never changed."""
    start = prepare(options(arguments).folder, os.environ)
    for line in _plan(start):
        say(line)
    if start.files and not arguments.yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            say("error: nothing is written, as there is no terminal to ask at; pass --yes to write these files")
            return NOT_WRITTEN
        if not yes("Write these files?"):
            say("nothing is written")
            return 0
    try:
        start.write()
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}") from error
    if arguments.json:
        files = [str(path) for path in start.files]
        print(json.dumps({"written": files, "variables": start.variables, "notes": start.notes}, ensure_ascii=False))
        return 0
    for path in start.files:
        print(f"written: {path}")
    for variable, server in start.variables.items():
        print(f"to set:  export {variable}=…   (server {server})")
    if start.files:
        print("then:    orchestrator doctor")
    return 0


def _plan(start: Start) -> list[str]:
    """What would be written, and what not."""
    lines = [f"to write: {path}" for path in start.files]
    if start.taken:
        lines.append("with the servers")
        lines += [f"  {name}  (from {path})" for name, path in start.taken.items()]
    if start.variables:
        lines.append(f"no secret is copied; these variables take their place: {', '.join(start.variables)}")
    return [*lines, *start.notes] if lines else [*start.notes, "there is nothing to write"]
