"""Verdicts on calls of runs that nobody drives at the moment."""

import json
import time
from typing import Any

from orchestrator.errors import ConfigurationError
from orchestrator.events import ApprovalDecided
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.result import ApprovalRequest, pending
from orchestrator.runtime.sittings import history
from orchestrator.runtime.tree import Verdict
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments


async def waiting(journal: Journal, root: str) -> list[ApprovalRequest]:
    """Every call of a tree that waits for a person. Raises `UnknownRun`."""
    return list(pending(await history(journal, root)))


async def give_verdict(
    journal: Journal, root: str, verdict: Verdict, *, call: str | None = None, every: bool = False
) -> list[ApprovalRequest]:
    """Writes a verdict on one waiting call, or on every one, and returns those that it is on.

    `call` is a path over the tree (`t1.1/t2.1`); without it there must be exactly one call that waits, or `every`. The
    first verdict on a call stands: a second one finds nothing that waits.

    Raises:
        UnknownRun: there is no such run.
        ConfigurationError: no call, or more than one, is meant.
        RunBusy: a live process drives the run, and asks for itself.
    """
    await history(journal, root)  # before a claim is written for a run that is not there
    claim = await journal.claim(root)
    try:
        states = await history(journal, root)
        chosen = _chosen(root, list(pending(states)), call, every)
        for request in chosen:
            parent, _, own = request.call.rpartition("/")
            state = states[f"{root}/{parent}" if parent else root]
            asked = next(item for item in state.calls if item.call.id == own)
            if verdict.arguments is not None:
                await _check(journal, state.run.tools, request.tool, verdict.arguments)
            event = ApprovalDecided(
                seq=state.seq + 1,
                at=time.time(),
                run=state.run.run,
                agent=state.run.agent,
                turn=state.turn,
                call=own,
                approved=verdict.approved,
                digest=asked.digest,
                note=verdict.note.encode("utf-8", "replace").decode(),
                arguments=verdict.arguments,
            )
            await journal.append(claim, [event], durable=True)
            states = await history(journal, root)
        return chosen
    finally:
        await journal.release(claim)


async def _check(journal: Journal, tools: str, tool: str, arguments: dict[str, Any]) -> None:
    """Refuses arguments that the tool would refuse, before the one verdict on the call is spent on them."""
    for spec in json.loads(await journal.body(tools)):
        if spec["name"] == tool:
            try:
                ArgumentSchema(spec["parameters"]).check(dict(arguments))
            except InvalidArguments as error:
                raise ConfigurationError(f"{tool}: {error}") from error


def _chosen(root: str, requests: list[ApprovalRequest], call: str | None, every: bool) -> list[ApprovalRequest]:
    there = ", ".join(f"{request.call} ({request.tool})" for request in requests) or "none"
    if call is not None:
        found = [request for request in requests if request.call == call.replace("~", "/")]
        if not found:
            raise ConfigurationError(f"call {call} of run {root} does not wait for approval; waiting: {there}")
        return found
    if not requests:
        raise ConfigurationError(f"no call of run {root} waits for approval")
    if len(requests) > 1 and not every:
        raise ConfigurationError(f"{len(requests)} calls of run {root} wait: {there}. Name one, or use --all")
    return requests
