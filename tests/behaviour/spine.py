"""The run of the spine test, as functions that a new process can start: a supervisor with two nested agents.

boss: pays, and asks outer at the same time > outer: looks, then asks inner > inner: puts, looks
boss: looks twice at once, then answers
"""

import json
from pathlib import Path

import anyio

from orchestrator import Options, Orchestrator
from orchestrator.models.base import ModelRequest
from orchestrator.testing import CrashPoint, NullTracer, ScriptedModel, SqliteJournal, call
from tests.support.runs import card, cards, settings

SCRIPT = {
    ("boss", 1): ["Pay, and ask.", call("fx__pay", {"text": "rent"}), call("agents__outer", {"task": "find out"})],
    ("boss", 2): [call("fx__look", {"text": "a"}), call("fx__look", {"text": "b"})],
    ("boss", 3): "boss is done",
    ("outer", 1): call("fx__look", {"text": "outer"}),
    ("outer", 2): call("agents__inner", {"task": "put it", "context": "数字 42"}),
    ("outer", 3): "outer is done",
    ("inner", 1): ["Both.", call("fx__put", {"text": "inner"}), call("fx__look", {"text": "inner"})],
    ("inner", 2): "inner is done",
}
TEAM = cards(
    card("boss", tools=("fx__*",), agents=("outer",)),
    card("outer", tools=("fx__*",), agents=("inner",)),
    card("inner", tools=("fx__*",)),
)


def _play(folder: Path, request: ModelRequest) -> object:
    with (folder / "requests.jsonl").open("a") as file:
        file.write(json.dumps({"agent": request.agent, "turn": request.turn, "body": request.body.decode()}) + "\n")
    return SCRIPT[request.agent, request.turn]


async def drive(options: Options, folder: Path, run_id: str | None) -> None:
    """Begins the boss's run, or goes on with it, and keeps the result in `result.json`."""
    async with Orchestrator(options, agent="boss") as orchestrator:
        result = await (orchestrator.run("the job") if run_id is None else orchestrator.resume(run_id))
    (folder / "result.json").write_text(result.model_dump_json())


async def _sit(folder: Path, run_id: str | None, after: int | None, before: int | None) -> None:
    journal = SqliteJournal(folder / "journal.sqlite")
    wrapped = journal if after is None and before is None else CrashPoint(journal, after=after, before=before)
    options = Options(
        settings=settings(folder / "ledger"),
        cards=TEAM,
        model=ScriptedModel(lambda request: _play(folder, request)),
        home=folder,
        journal=wrapped,
        tracer=NullTracer(),
    )
    await drive(options, folder, run_id)
    await journal.aclose()


def sit(folder: Path, run_id: str | None = None, after: int | None = None, before: int | None = None) -> None:
    """One sitting, to be run in a process of its own; with `after` or `before` it dies there."""
    anyio.run(_sit, folder, run_id, after, before)
