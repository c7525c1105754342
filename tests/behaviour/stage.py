"""A team on a stage: scripted agents, tools that count their calls, and everything that the model was asked.

look = call("fx__look", {"text": "a"})
stage = Stage(tmp_path, {("boss", 1): look, ("boss", 2): "done"}, card("boss", tools=("fx__*",)))
result = stage.run("the job")
"""

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from orchestrator import Options, Orchestrator, RunOptions, RunResult
from orchestrator.cards import AgentCard
from orchestrator.config import PolicySettings, ServerSettings, Settings
from orchestrator.events import Limits
from orchestrator.messages import Prices
from orchestrator.models.base import ModelRequest
from orchestrator.runtime.approvals import give_verdict
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import NullTracer, ScriptedModel, SqliteJournal, Watcher
from tests.support.runs import cards, effects, ledger_lines

SECONDS = 60
"""How long anything here may take on a busy machine before a test is called hanging."""


def allow(*globs: str) -> PolicySettings:
    return PolicySettings(allow=globs)


class Bell:
    """Tells when calls hang in the effects server; the server rings it itself."""

    def __init__(self, ledger: Path) -> None:
        path = f"{ledger}.bell"
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def rung(self, times: int = 1) -> None:
        """Waits until so many calls hang."""
        while times > 0:
            await anyio.wait_readable(self._pipe)
            times -= os.read(self._pipe, 4096).count(b"\n")
        anyio.notify_closing(self._pipe)
        os.close(self._pipe)


class Stage:
    """`script` is by agent and turn, by agent alone (any turn), or a function of the request. State lies in `folder`.

    The effects server is `fx` unless there are `servers`, which are objects of this process by name, or servers that
    are `configured`. Every tool is allowed unless `policy` says otherwise. `traced` runs send their spans to where the
    environment says.
    """

    def __init__(
        self,
        folder: Path,
        script: Mapping[Any, Any] | Callable[[ModelRequest], Any],
        *team: AgentCard,
        servers: Mapping[str, Any] | None = None,
        fx: Mapping[str, Any] | None = None,
        configured: Mapping[str, ServerSettings] | None = None,
        prices: Prices | None = None,
        traced: bool = False,
        vision: bool = False,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.requests: list[ModelRequest] = []
        self.seen = Watcher()
        self._script = script
        self._team = team
        self._servers = servers or {}
        self._prices = prices
        self._tracer = None if traced else NullTracer()
        self._vision = vision
        if configured is None:
            configured = {} if servers else {"fx": effects(self.ledger, **(fx or {}))}
        self._settings = Settings(**{"servers": configured, "policy": allow("*"), **settings})

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def effects(self) -> Counter[str]:
        """How often each tool of the effects server was reached, and how often it was told to stop."""
        return Counter("cancelled" if "cancelled" in line else line["tool"] for line in ledger_lines(self.ledger))

    def bodies(self, agent: str) -> list[dict[str, Any]]:
        """The requests of an agent as they went over the wire."""
        return [json.loads(request.body) for request in self.requests if request.agent == agent]

    def last(self, agent: str) -> str:
        """The newest message that an agent's model was shown."""
        return self.bodies(agent)[-1]["messages"][-1]["content"]

    def open(self) -> Orchestrator:
        """A new orchestrator over the same folder, as a new process would have it."""
        options = Options(
            settings=self._settings,
            cards=cards(*self._team),
            servers=self._servers,
            model=ScriptedModel(self._answer, prices=self._prices, vision=self._vision),
            home=self.folder,
            tracer=self._tracer,
        )
        return Orchestrator(options, agent=self._team[0].name)

    def run(self, task: str = "the job", limits: Limits | None = None, **options: Any) -> RunResult:
        async def work(orchestrator: Orchestrator) -> RunResult:
            return await orchestrator.run(task, limits=limits, options=RunOptions(**options), on_event=self.seen)

        return self.within(work)

    def resume(self, run_id: str, **options: Any) -> RunResult:
        async def work(orchestrator: Orchestrator) -> RunResult:
            return await orchestrator.resume(run_id, options=RunOptions(**options), on_event=self.seen)

        return self.within(work)

    def within(self, work: Callable[[Orchestrator], Awaitable[Any]]) -> Any:
        """Does something with an open orchestrator."""

        async def main() -> Any:
            with anyio.fail_after(SECONDS):
                async with self.open() as orchestrator:
                    return await work(orchestrator)

        return anyio.run(main)

    def decide(self, run_id: str, call: str | None = None, *, approved: bool = True, every: bool = False, **more: Any):
        """What `orchestrator approve` does: a verdict on a run that nobody drives."""

        async def main() -> list[str]:
            journal = SqliteJournal(self.folder / "journal.sqlite")
            try:
                verdict = Verdict(approved=approved, **more)
                return [found.call for found in await give_verdict(journal, run_id, verdict, call=call, every=every)]
            finally:
                await journal.aclose()

        return anyio.run(main)

    def _answer(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        if callable(self._script):
            return self._script(request)
        key = (request.agent, request.turn)
        answer = self._script[key] if key in self._script else self._script[request.agent]
        return answer(request) if callable(answer) else answer
