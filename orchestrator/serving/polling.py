"""What hosts ask about tasks: how one stands, the answers to its questions, its end."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ElicitResult,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, ValidationError

from orchestrator.cards import AgentCard
from orchestrator.errors import OrchestratorError
from orchestrator.masking import mask
from orchestrator.runtime.delegation import answer_of, result_of
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.result import pending, status_of
from orchestrator.runtime.runstate import RunState
from orchestrator.serving.calls import Calls, Context, answerable, how_to_decide
from orchestrator.serving.guests import Guest, current_guest
from orchestrator.serving.questions import digests, request_for
from orchestrator.serving.runs import Runs
from orchestrator.serving.tasks import EXTENSION, has_tasks, task

Reply = dict[str, Any]
CardOf = Callable[[str, Guest], Awaitable[AgentCard]]


class TaskParams(RequestParams):
    """Which task; `tasks/update` brings answers as well, by the keys of their questions. Other keys mean nothing."""

    task_id: str
    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


class Polling:
    """The three methods of the extension. `card_of` raises for a run that is not the caller's."""

    def __init__(self, runs: Runs, journal: Journal, calls: Calls, card_of: CardOf) -> None:
        self._runs = runs
        self._journal = journal
        self._calls = calls
        self._card_of = card_of

    def methods(self) -> Mapping[str, Callable[[Context, TaskParams], Awaitable[Reply]]]:
        table = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        return {name: self._guarded(work) for name, work in table.items()}

    def _guarded(self, work: Callable[[Context, TaskParams], Awaitable[Reply]]) -> Any:
        async def handler(ctx: Context, params: TaskParams) -> Reply:
            _check(ctx, params)
            try:
                return await work(ctx, params)
            except OrchestratorError as error:
                raise MCPError(INVALID_PARAMS, mask(str(error))) from error

        return handler

    async def _get(self, ctx: Context, params: TaskParams) -> Reply:
        run, guest = params.task_id, current_guest()
        card, states = await self._card_of(run, guest), await self._runs.states(run)
        row = await self._journal.row(run)
        assert row is not None, "a run with a state has a row"
        if states[run].end is not None:
            if status_of(states[run])[0] == "cancelled":
                return task(row, "cancelled")
            result = result_of(answer_of(card, run, states))
            return {
                **task(row, "completed"),
                "result": result.model_dump(by_alias=True, mode="json", exclude_none=True),
            }
        waiting = list(pending(states))
        if self._runs.live(run) is not None or not waiting:
            held_up = self._runs.held_up(run)
            self._runs.go_on(run, guest.name).detached = True  # one that was interrupted goes on
            why = {"statusMessage": mask(f"it cannot go on: {held_up}; this is tried again")} if held_up else {}
            return {**task(row), **why}
        if not answerable(ctx, waiting):
            return {**task(row), "statusMessage": how_to_decide(run, waiting)}
        keys = _keys(states)
        return {**task(row, "input_required"), "inputRequests": {keys[each.call]: _request(each) for each in waiting}}

    async def _update(self, ctx: Context, params: TaskParams) -> Reply:
        del ctx
        run, guest = params.task_id, current_guest()
        await self._card_of(run, guest)
        states = await self._runs.states(run)
        keys = _keys(states)
        for waiting in pending(states):
            if (said := params.input_responses.get(keys[waiting.call])) is not None:
                await self._calls.verdict(run, waiting, _answer(said), guest.name)
        states = await self._runs.states(run)
        if states[run].end is None and not any(pending(states)):
            self._runs.go_on(run, guest.name).detached = True
        return {}

    async def _cancel(self, ctx: Context, params: TaskParams) -> Reply:
        del ctx
        await self._card_of(params.task_id, current_guest())
        await self._runs.cancel(params.task_id)
        return {}


def _check(ctx: Context, params: TaskParams) -> None:
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, f"{ctx.method} is of 2026-07-28")
    if not has_tasks(ctx):
        data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, f"{ctx.method} needs {EXTENSION} of the client", data)
    named = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
    if named is not None and decode_header_value(named) != params.task_id:
        raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} is not the taskId of the body")


def _answer(said: Any) -> ElicitResult:
    try:
        return ElicitResult.model_validate(said)
    except ValidationError as error:
        raise MCPError(INVALID_PARAMS, "an answer to a form is {action, content}") from error


def _keys(states: Mapping[str, RunState]) -> dict[str, str]:
    """A key for each question, by its call's path. A call may ask several times, so that a late answer is no answer."""
    return {path: f"{path}:{digest[:16]}" for path, digest in digests(states).items()}


def _request(waiting: Any) -> dict[str, Any]:
    return request_for(waiting).model_dump(by_alias=True, mode="json", exclude_none=True)
