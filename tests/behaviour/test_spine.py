"""A run is a fold of its events: stopped after any of them, it goes on in a new process as if it had not stopped."""

import json
import signal
from functools import cache
from pathlib import Path

import anyio
import pytest

from orchestrator.events import JournalEvent
from orchestrator.testing import SqliteJournal
from tests.behaviour.spine import sit
from tests.behaviour.stage import Stage
from tests.support.processes import in_new_process
from tests.support.runs import card, ledger_lines

EVENTS = 38
"""How many events the whole run has; `test_the_run_itself` says so if it changes."""


def journal_of(folder: Path) -> dict[str, list[JournalEvent]]:
    async def read() -> dict[str, list[JournalEvent]]:
        journal = SqliteJournal(folder / "journal.sqlite")
        (row,) = await journal.runs()
        return await journal.tree(row.run_id)

    return anyio.run(read)


def requests_of(folder: Path) -> dict[tuple[str, int], set[str]]:
    found: dict[tuple[str, int], set[str]] = {}
    for line in (folder / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        found.setdefault((request["agent"], request["turn"]), set()).add(request["body"])
    return found


@cache
def reference(base: Path) -> dict[tuple[str, int], set[str]]:
    folder = base / "reference"
    folder.mkdir(exist_ok=True)
    assert in_new_process(sit, folder) == 0
    return requests_of(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spine")


def stopped_and_resumed(folder: Path, **where: int) -> dict[str, list[JournalEvent]]:
    assert in_new_process(sit, folder, None, where.get("after"), where.get("before")) == -signal.SIGKILL
    root = min(journal_of(folder), key=len)
    assert in_new_process(sit, folder, root) == 0
    return journal_of(folder)


def test_the_run_itself(base: Path) -> None:
    bodies = reference(base)
    tree = journal_of(base / "reference")
    assert sum(map(len, tree.values())) == EVENTS
    assert sorted(run.count("/") for run in tree) == [0, 1, 2]
    assert len(bodies) == 8
    assert [line["tool"] for line in ledger_lines(base / "reference" / "ledger")].count("pay") == 1


@pytest.mark.requirement("A1", "H1")
@pytest.mark.parametrize(
    ("place", "event"),
    [("after", event) for event in range(1, EVENTS)] + [("before", event) for event in range(2, EVENTS)],
)
def test_stopped_at_any_event(base: Path, tmp_path: Path, place: str, event: int) -> None:
    tree = stopped_and_resumed(tmp_path, **{place: event})

    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["answer"]) == ("finished", "boss is done")

    events = [item for run in tree.values() for item in run]
    doubts = [item for item in events if item.type == "tool.in_doubt"]
    effects = ledger_lines(tmp_path / "ledger")
    payments = [line for line in effects if line["tool"] == "pay"]
    assert len(payments) + len(doubts) >= 1
    assert len(payments) <= 1, "a call that writes is never repeated"
    assert len({line["key"] for line in effects if line["tool"] == "put"}) == 1, "a repeated call keeps its key"

    later = requests_of(tmp_path)
    for turn, bodies in reference(base).items():
        if not doubts or turn[0] != "boss" or turn[1] == 1:
            assert later[turn] == bodies, f"the request of {turn} is another one after the resume"


def test_the_result_of_a_run_is_there_when_its_agent_is_not_any_more(tmp_path: Path) -> None:
    run = Stage(tmp_path, {("boss", 1): "done"}, card("boss")).run()
    assert Stage(tmp_path, {}, card("other")).resume(run.run_id) == run
