"""Verdicts on calls of runs that nobody drives at the moment."""

import json
import time
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import ConfigurationError
from orchestrator.events import ApprovalDecided
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.result import ApprovalRequest, pending
from orchestrator.runtime.runstate import CallState, RunState
from orchestrator.runtime.sittings import history
from orchestrator.runtime.tree import Verdict
from orchestrator.runtime.who import os_user
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments
from orchestrator.tools.elicitation import said


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
        given = [await _arguments(journal, *_found(states, root, request), verdict) for request in chosen]
        for request, arguments in zip(chosen, given, strict=True):
            state, asked = _found(states, root, request)
            event = ApprovalDecided(
                seq=state.seq + 1,
                at=time.time(),
                run=state.run.run,
                agent=state.run.agent,
                turn=state.turn,
                call=asked.call.id,
                approved=verdict.approved,
                digest=asked.digest,
                note=verdict.note.encode("utf-8", "replace").decode(),
                arguments=arguments,
                dismissed=verdict.dismissed,
                by=verdict.by or os_user(),
            )
            await journal.append(claim, [event], durable=True)
            states = await history(journal, root)
        return chosen
    finally:
        await journal.release(claim)


def _found(states: Mapping[str, RunState], root: str, request: ApprovalRequest) -> tuple[RunState, CallState]:
    parent, _, own = request.call.rpartition("/")
    state = states[f"{root}/{parent}" if parent else root]
    call = state.find(own)
    assert call is not None, "a call that waits is in the state"
    return state, call


async def _arguments(journal: Journal, state: RunState, call: CallState, verdict: Verdict) -> dict[str, Any] | None:
    """What a verdict sends. Refuses what would be refused later, before the one verdict on the call is spent on it."""
    if verdict.dismissed:
        return None
    try:
        if call.input is not None and (asked := call.input.open) is not None:
            return said(asked, verdict.arguments, verdict.note, approved=verdict.approved)
        if not verdict.approved:
            return None
        if verdict.arguments is not None:
            await _check(journal, state.run.tools, call.call.name, verdict.arguments)
    except InvalidArguments as error:
        raise ConfigurationError(f"{call.call.name}: {error}") from error
    return verdict.arguments


async def _check(journal: Journal, tools: str, tool: str, arguments: dict[str, Any]) -> None:
    for spec in json.loads(await journal.body(tools)):
        if spec["name"] == tool:
            ArgumentSchema(spec["parameters"]).check(dict(arguments))


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
