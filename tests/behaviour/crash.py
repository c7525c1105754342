"""The run of the crash matrix, as functions that a new process can start: one agent that makes one call.

worker: calls `tool`, then answers          boss: asks worker, then answers
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio

from orchestrator import Options, Orchestrator
from orchestrator.config import PolicySettings, ServerSettings, Settings
from orchestrator.config.settings import ToolSettings
from orchestrator.errors import Fenced, ModelError, RunBusy
from orchestrator.events import JournalEvent, Limits, dump
from orchestrator.models.base import ModelRequest
from orchestrator.runtime.approvals import give_verdict
from orchestrator.runtime.journal import Claim
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import CrashPoint, NullTracer, ScriptedModel, SqliteJournal, call, kill_this_process
from tests.support.processes import give, take
from tests.support.runs import card, cards

BUSY, FENCED = 75, 76
SERVER = Path(__file__).parents[1] / "support" / "deadly_server.py"
TEAM = cards(card("boss", tools=("fx__*",), agents=("worker",)), card("worker", tools=("fx__*",)))


@dataclass(frozen=True, kw_only=True)
class Play:
    """What happens in all sittings of one run. `beside` is a call that boss makes while the worker is at work."""

    folder: Path
    tool: Literal["look", "put", "pay"] = "look"
    calls: int = 1
    ask: bool = False
    child: bool = False
    beside: str | None = None
    limits: Limits | None = None
    lease: float = 30.0

    def script(self, request: ModelRequest) -> Any:
        if request.agent == "boss" and request.turn == 1:
            more = [call(f"fx__{self.beside}", {"text": "beside"})] if self.beside else []
            return [*more, call("agents__worker", {"task": "do it"})]
        if request.agent == "worker" and request.turn == 1:
            return ["Now.", *(call(f"fx__{self.tool}", {"text": f"rent {n}"}) for n in range(1, self.calls + 1))]
        return f"{request.agent} is done"


@dataclass(frozen=True, kw_only=True)
class Death:
    """Where one sitting ends. Events and requests are the worker's unless `agent` says otherwise.

    `event` is a type of the journal's: the process dies `before` or `after` the `nth` of them, or the one of a `turn`,
    is written. `model` is the turn in whose request it dies. `server`: signal, before or after, and the number of the
    call. `waits`: it tells the test that it is in a request, and goes on when it is told to. `refuses`: that turn's
    request fails once, retryably.
    """

    agent: str = "worker"
    event: str = ""
    place: Literal["before", "after"] = "after"
    nth: int = 1
    turn: int = 0
    model: int = 0
    server: tuple[str, str, int] | None = None
    waits: bool = False
    refuses: int = 0

    def strikes(self, event: JournalEvent) -> bool:
        there = event.agent == self.agent and self.turn in (0, event.turn)
        return there and event.type == self.event


ALIVE = Death()


class Witness(CrashPoint):
    """A journal that keeps a list of what it acknowledged, and dies at one event."""

    def __init__(self, journal: SqliteJournal, folder: Path, death: Death) -> None:
        super().__init__(journal)
        self._folder, self._death, self._left = folder, death, death.nth

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        for place, event in enumerate(events):
            self._left -= self._death.strikes(event)
            if self._death.strikes(event) and self._left == 0:
                if written := events[: place + (self._death.place == "after")]:
                    await self._acknowledged(claim, written, durable)
                kill_this_process()
        await self._acknowledged(claim, events, durable)

    async def _acknowledged(self, claim: Claim, events: Sequence[JournalEvent], durable: bool) -> None:
        await self._journal.append(claim, events, durable=durable)
        with (self._folder / "acknowledged.jsonl").open("ab") as file:
            file.write(b"".join(dump(event) + b"\n" for event in events))


def sit(play: Play, run_id: str | None = None, death: Death = ALIVE, ahead: float = 0.0) -> None:
    """One sitting. Its clock, where leases are concerned, is `ahead` by so many seconds."""
    try:
        result = anyio.run(_sit, play, run_id, death, ahead)
    except (RunBusy, Fenced) as error:
        (play.folder / f"error-{os.getpid()}").write_text(str(error))
        sys.exit(BUSY if isinstance(error, RunBusy) else FENCED)
    (play.folder / "result.json").write_text(result)


async def _sit(play: Play, run_id: str | None, death: Death, ahead: float) -> str:
    journal = _journal(play, ahead)
    options = Options(
        settings=_settings(play, death),
        cards=TEAM,
        model=ScriptedModel(lambda request: _answer(play, request, death)),
        home=play.folder,
        journal=Witness(journal, play.folder, death),
        tracer=NullTracer(),
    )
    async with Orchestrator(options, agent="boss" if play.child else "worker") as orchestrator:
        if run_id is None:
            result = await orchestrator.run("the job", limits=play.limits)
        else:
            result = await orchestrator.resume(run_id)
    await journal.aclose()
    return result.model_dump_json()


async def _answer(play: Play, request: ModelRequest, death: Death) -> Any:
    line = {"agent": request.agent, "turn": request.turn, "body": request.body.decode()}
    with (play.folder / "requests.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    if request.agent == death.agent and request.turn == death.model:
        kill_this_process()
    if death.waits:
        await anyio.to_thread.run_sync(give, play.folder / "driving")
        await anyio.to_thread.run_sync(take, play.folder / "go on")
    refused = play.folder / "refused"
    if request.turn == death.refuses and not refused.exists():
        refused.touch()
        raise ModelError("overloaded", "too much to do", retry_after=0.0)
    return play.script(request)


def approve(play: Play, run_id: str, death: Death = ALIVE) -> None:
    """Says yes to every call that waits."""
    anyio.run(_approve, play, run_id, death)


async def _approve(play: Play, run_id: str, death: Death) -> None:
    journal = _journal(play)
    witness = Witness(journal, play.folder, death)
    await give_verdict(witness, run_id, Verdict(approved=True), every=True)
    await journal.aclose()


def _journal(play: Play, ahead: float = 0.0) -> SqliteJournal:
    return SqliteJournal(play.folder / "journal.sqlite", lease=play.lease, now=lambda: time.time() + ahead)


def _settings(play: Play, death: Death) -> Settings:
    deadly = [str(part) for part in (os.getpid(), *death.server)] if death.server else ["0", "KILL", "never", "0"]
    command = ("-S", str(SERVER), str(play.folder / "ledger"), *deadly)
    return Settings(
        servers={"fx": ServerSettings(name="fx", command=sys.executable, args=command)},
        policy=PolicySettings(ask=("fx__pay",), allow=("fx__*",)) if play.ask else PolicySettings(allow=("fx__*",)),
        tools=ToolSettings(parallel=1 if play.calls > 1 else 4),
    )
