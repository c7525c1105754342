"""A run with plans, as functions that a new process can start.

boss: figures > chart and text at once > file > mail; `file` fails, so what is left is planned again: other > end
worker, for `chart`: look > ask, which is a helper's
judge: sends the boss's first answer back, and accepts the second
"""

import json
from pathlib import Path
from typing import Any

import anyio

from orchestrator import Options
from orchestrator.models.base import ModelRequest
from orchestrator.testing import CrashPoint, NullTracer, ScriptedModel, SqliteJournal, call
from tests.behaviour.spine import drive
from tests.support.runs import card, cards, settings


def agent(id: str, *needs: str, name: str = "worker", task: str = "", **more: Any) -> dict[str, Any]:
    return {"id": id, "agent": name, "task": task or f"do {id}", "needs": list(needs), **more}


def tool(id: str, *needs: str, name: str = "fx__look", text: str = "", **more: Any) -> dict[str, Any]:
    return {"id": id, "tool": name, "arguments": {"text": text or id}, "needs": list(needs), **more}


def plan(*steps: dict[str, Any]) -> Any:
    return call("plan", {"steps": list(steps)})


FIRST = plan(
    tool("figures"),
    agent("chart", "figures"),
    tool("text", "figures", name="fx__put"),
    tool("file", "chart", "text", name="fx__fail"),
    tool("mail", "file", name="fx__pay"),
)
AGAIN = plan(tool("other", "chart", name="fx__pay"), tool("end", "other"))
TEAM = cards(
    card("boss", tools=("fx__*",), agents=("worker",), review="judge"),
    card("worker", tools=("fx__*",), agents=("helper",)),
    card("helper", tools=("fx__*",)),
    card("judge"),
)


def script(request: ModelRequest) -> Any:
    match request.agent, request.turn:
        case "boss", 1:
            return FIRST
        case "boss", 2:
            return AGAIN
        case "worker", 1:
            return plan(tool("look"), agent("ask", "look", name="helper"))
        case "boss", 4:
            return "boss is really done"
        case "judge", _:
            return json.dumps({"accept": "really" in request.messages[1].text, "reasons": "is it?"})
        case _:
            return f"{request.agent} is done"


async def _sit(folder: Path, run_id: str | None, after: int | None) -> None:
    def play(request: ModelRequest) -> Any:
        with (folder / "requests.jsonl").open("a") as file:
            file.write(json.dumps({"agent": request.agent, "turn": request.turn, "body": request.body.decode()}) + "\n")
        return script(request)

    journal = SqliteJournal(folder / "journal.sqlite")
    options = Options(
        settings=settings(folder / "ledger"),
        cards=TEAM,
        model=ScriptedModel(play),
        home=folder,
        journal=journal if after is None else CrashPoint(journal, after=after),
        tracer=NullTracer(),
    )
    await drive(options, folder, run_id)
    await journal.aclose()


def sit(folder: Path, run_id: str | None = None, after: int | None = None) -> None:
    """One sitting, to be run in a process of its own; with `after` it dies after so many events."""
    anyio.run(_sit, folder, run_id, after)
