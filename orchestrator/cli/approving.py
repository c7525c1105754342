"""`approve`, and the question at a terminal."""

import json
import os
import sys
import termios
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from orchestrator.cli import forms
from orchestrator.cli.listing import open_journal, resolve_run
from orchestrator.cli.progress import Progress, printable, wanted
from orchestrator.cli.running import options
from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from orchestrator.runtime.result import ApprovalRequest
    from orchestrator.runtime.tree import Verdict

QUESTION = "approve [a], deny [d], deny with a note [n], edit the arguments [e]? "
ELSEWHERE = "approve [a], deny [d], deny with a note [n]? "
"""The call waits inside another orchestrator, which takes no other arguments for it."""


async def approve(arguments: Namespace) -> int:
    """Writes a verdict into the journal of a run that nobody drives."""
    from orchestrator.runtime.approvals import give_verdict, waiting  # noqa: PLC0415 - imports the MCP package
    from orchestrator.runtime.tree import Verdict  # noqa: PLC0415

    edited = read_arguments(arguments.arguments) if arguments.arguments is not None else None
    if edited is not None and (arguments.deny or arguments.all):
        raise ConfigurationError("--arguments goes with the approval of one call")
    if arguments.call is not None and arguments.all:
        raise ConfigurationError("name one call, or use --all; not both")
    verdict = Verdict(approved=not arguments.deny, note=arguments.note, arguments=edited)
    journal = open_journal(options(arguments))
    try:
        run_id = await resolve_run(journal, arguments.run_id)
        decided = await give_verdict(journal, run_id, verdict, call=arguments.call, every=arguments.all)
        left = await waiting(journal, run_id)
    finally:
        await journal.aclose()
    if arguments.json:
        print(json.dumps({"run_id": run_id, "decided": _dump(decided), "pending": _dump(left)}, ensure_ascii=False))
        return 0
    for request in decided:
        print(f"{'denied' if arguments.deny else 'approved'} {request.call}  {request.tool}")
    for request in left:
        print(f"still waiting: {request.call}  {request.tool}")
    print(f"then: orchestrator resume {run_id}", file=sys.stderr)
    return 0


def read_arguments(text: str) -> dict[str, Any]:
    """`--arguments`: a JSON object, or @ and the name of a file that holds one."""
    try:
        text = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--arguments: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"--arguments must be a JSON object such as {{}}, not {text[:60]!r}")
    return value  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys


class TerminalApprover:
    """Asks at the terminal, one question at a time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._turn = anyio.Lock()

    async def __call__(self, request: "ApprovalRequest", /) -> "Verdict | None":
        async with self._turn:
            with self._progress.paused():
                termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before the question is no answer to it
                if request.input is None or forms.is_verdict(request):
                    return await _ask(request)
                return await forms.ask(request, _line)


async def _ask(request: "ApprovalRequest") -> "Verdict | None":
    """The dialogue itself; None when the terminal has gone."""
    from orchestrator.runtime.tree import Verdict  # noqa: PLC0415

    out = sys.stderr
    print(f"\n{request.agent} wants to call {request.tool}   ({request.call})", file=out)
    print(wanted(request.arguments, indent=2), file=out)
    print(f"asked because: {printable(request.reason)}", file=out)
    whole = request.input is None
    while True:
        print(QUESTION if whole else ELSEWHERE, end="", file=out, flush=True)
        answer = await _line()
        match answer.strip().lower():
            case "a" | "approve" | "y" | "yes":
                return Verdict(approved=True)
            case "d" | "deny" | "no":
                return Verdict(approved=False)
            case "n" | "note":
                print("note: ", end="", file=out, flush=True)
                return Verdict(approved=False, note=(await _line()).strip())
            case "e" | "edit" if whole:
                print("arguments as JSON: ", end="", file=out, flush=True)
                try:
                    return Verdict(approved=True, arguments=read_arguments(await _line()))
                except ConfigurationError as error:
                    print(error, file=out)
            case _ if not answer:
                return None
            case _:
                continue


async def _line() -> str:
    """A line from the terminal, empty at its end. No thread waits for it, so that an interrupt ends the question."""
    await anyio.wait_readable(sys.stdin)
    return os.read(sys.stdin.fileno(), 1 << 16).decode("utf-8", "replace")


def _dump(requests: "list[ApprovalRequest]") -> list[dict[str, Any]]:
    return [request.model_dump(mode="json") for request in requests]
