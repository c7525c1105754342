"""Runs and approvals over plain HTTP. Each caller sees what they began, and nothing else is there for them."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from orchestrator.errors import ConfigurationError, OrchestratorError, RunBusy, UnknownRun
from orchestrator.events import Limits
from orchestrator.masking import mask
from orchestrator.runtime.approvals import give_verdict
from orchestrator.runtime.delegation import DEFAULT_INPUT, task_text
from orchestrator.runtime.journal.base import RunRow, root_of
from orchestrator.runtime.result import ApprovalRequest, pending, run_result
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.sittings import RunOptions
from orchestrator.runtime.tree import Verdict
from orchestrator.serving.agents import Serving
from orchestrator.serving.guests import Guest, current_guest
from orchestrator.serving.problems import problem
from orchestrator.serving.request import smallest
from orchestrator.serving.runs import Busy, Order, Stopping
from orchestrator.serving.watching import place_of, stream
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments

MOST = 500
"""Runs of one list."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewRun(_Body):
    """`input` is as the agent's schema says, `{"task": …}` for most. The same `key` finds the same run again.

    `limits` are for the run and all below it, beside those that hold anyway.
    """

    agent: str
    input: dict[str, Any]
    key: str = Field(default="", max_length=1000)
    limits: Limits = Limits()


class Begun(BaseModel):
    """A run that goes on by itself."""

    run_id: str


class RunList(BaseModel):
    runs: list[RunRow]


class Decision(_Body):
    """A verdict on a call that waits. `arguments` go in the place of the asked ones, or answer a server's form."""

    decision: Literal["approve", "deny"]
    note: str = ""
    arguments: dict[str, Any] | None = None


class Waiting(ApprovalRequest):
    """A call that waits, and the run that it belongs to."""

    run_id: str


class ApprovalList(BaseModel):
    approvals: list[Waiting]


class Decided(BaseModel):
    """What was decided, and what still waits."""

    decided: list[ApprovalRequest]
    pending: list[ApprovalRequest]


class Api:
    """The handlers."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._runs = serving.runs
        self._journal = serving.journal

    def routes(self) -> list[Route]:
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("POST", "/api/runs", self.begin),
            ("GET", "/api/runs", self.list),
            ("GET", "/api/runs/{run}", self.show),
            ("GET", "/api/runs/{run}/events", self.events),
            ("POST", "/api/runs/{run}/cancel", self.cancel),
            ("GET", "/api/approvals", self.approvals),
            ("POST", "/api/approvals/{run}/{call}", self.decide),
        ]
        return [Route(path, _guarded(work), methods=[method]) for method, path, work in table]

    async def begin(self, request: Request) -> Response:
        """Begins a run, or finds the one of the same key."""
        asked, guest = NewRun.model_validate_json(await request.body()), current_guest()
        card = self._serving.offered.card(asked.agent, guest)
        if card is None:
            raise ConfigurationError(f"agent: no agent {asked.agent!r} is served here")
        given = ArgumentSchema(card.input or DEFAULT_INPUT).check(dict(asked.input))
        options = RunOptions(role=guest.role, by=guest.name, within=smallest(asked.limits, guest.limits))
        order = Order(agent=card.name, task=task_text(card, given), options=options, key=asked.key)
        if asked.key:
            with suppress(UnknownRun):
                order.check((await self._runs.states(order.run))[order.run])
        live = self._runs.start(order, guest.runs)
        live.detached = True
        await self._runs.written(live)
        headers = {"Location": f"/api/runs/{live.run}"}
        return _json(Begun(run_id=live.run), 202, headers)

    async def list(self, request: Request) -> Response:
        """Your runs, newest first. `limit` is at most 500."""
        limit = _number(request, "limit", 100)
        rows = await self._journal.runs(limit=min(limit, MOST), by=current_guest().name)
        return _json(RunList(runs=list(rows)))

    async def show(self, request: Request) -> Response:
        """A run as it stands: its answer, steps, usage, cost, and what it waits for."""
        run, states = await self._own(request)
        return _json(run_result(run, states))

    async def events(self, request: Request) -> Response:
        """What happened and happens in a run, as server-sent events; `Last-Event-ID` goes on after that one."""
        run, _ = await self._own(request)
        try:
            after = place_of(request.headers.get("last-event-id", ""))
        except ValueError as error:
            raise ConfigurationError(f"Last-Event-ID: {error}; send one that this stream gave you, or none") from error
        told = stream(self._runs, self._journal, root_of(run), after)
        return StreamingResponse(told, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def cancel(self, request: Request) -> Response:
        """Ends a run and all below it."""
        run, _ = await self._own(request)
        await self._runs.cancel(root_of(run))
        return _json(run_result(run, await self._runs.states(root_of(run))))

    async def approvals(self, request: Request) -> Response:
        """Every call in your runs that waits for a person."""
        del request
        rows = await self._journal.runs(limit=MOST, by=current_guest().name)
        found: list[Waiting] = []
        for row in rows:
            if row.status == "parked":
                asked = pending(await self._runs.states(row.run_id))
                found += [Waiting(run_id=row.run_id, **each.model_dump()) for each in asked]
        return _json(ApprovalList(approvals=found))

    async def decide(self, request: Request) -> Response:
        """Approves or denies a call that waits; its run goes on when nothing else waits."""
        run, _ = await self._own(request)
        said, root = Decision.model_validate_json(await request.body()), root_of(run)
        approved, by = said.decision == "approve", current_guest().name
        verdict = Verdict(approved=approved, note=said.note, arguments=said.arguments, by=by)
        call = request.path_params["call"].replace("~", "/")
        decided = await give_verdict(self._journal, root, verdict, call=call)
        left = [*pending(await self._runs.states(root))]
        if not left:
            self._runs.go_on(root, by).detached = True
        return _json(Decided(decided=decided, pending=left))

    async def _own(self, request: Request) -> tuple[str, Mapping[str, RunState]]:
        """The run of the path and the states of its tree. Raises `UnknownRun` for one of another caller, too."""
        run = request.path_params["run"].replace("~", "/")
        states = await self._runs.states(root_of(run))
        guest: Guest = current_guest()
        if run not in states or states[root_of(run)].run.by != guest.name:
            raise UnknownRun(f"there is no run {run!r}; GET /api/runs lists yours")
        return run, states


def _guarded(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Answers what a caller did wrong as a problem."""

    async def handler(request: Request) -> Response:
        try:
            return await work(request)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)
            return problem(
                400, "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in wrong)
            )
        except UnknownRun as error:
            return problem(404, str(error))
        except RunBusy as error:
            return problem(409, str(error))
        except Busy as error:
            return problem(429, str(error), {"Retry-After": "5"})
        except Stopping as error:
            return problem(503, str(error), {"Retry-After": "5"})
        except (InvalidArguments, ConfigurationError) as error:
            return problem(400, str(error))
        except OrchestratorError as error:
            return problem(503, str(error))

    return handler


def _number(request: Request, name: str, usual: int) -> int:
    text = request.query_params.get(name, str(usual))
    if not text.isdecimal() or not 0 < int(text) < 1_000_000:
        raise ConfigurationError(f"{name}: {text!r} is no number above 0")
    return int(text)


def _json(body: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(mask(body.model_dump_json()), status, dict(headers or {}), media_type="application/json")
