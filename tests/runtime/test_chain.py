"""The chain that binds a journal's events: any that was changed or removed shows, and where. F3."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from orchestrator.events import JournalEvent
from orchestrator.runtime.journal import Audit, Journal, MemoryJournal, SqliteJournal
from tests.runtime.journals import many, observed, started, taken

pytestmark = pytest.mark.requirement("F3")

EVENTS: list[JournalEvent] = [
    started("a"),
    started("b"),
    observed(2, "x", "a"),
    observed(2, "y", "b"),
    observed(3, run="a"),
]


async def _written(journal: Journal) -> Audit:
    claims = {run: await journal.claim(run) for run in "ab"}
    for event in EVENTS:
        await journal.append(claims[event.run], [event])
    audit = await journal.audit()
    await journal.aclose()
    return audit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.sqlite"
    anyio.run(_written, SqliteJournal(path))
    return path


def audit(path: Path, root: str | None = None) -> Audit:
    async def work() -> Audit:
        journal = SqliteJournal(path)
        try:
            return await journal.audit(root)
        finally:
            await journal.aclose()

    return anyio.run(work)


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


@pytest.mark.parametrize("make", [lambda path: MemoryJournal(), SqliteJournal], ids=["memory", "sqlite"])
def test_the_chain_of_an_untouched_journal_is_whole(tmp_path: Path, make: Callable[[Path], Journal]) -> None:
    found = anyio.run(_written, make(tmp_path / "journal.sqlite"))
    assert (list(found.events), found.count, found.broken) == (EVENTS, 5, "")
    assert found.head == anyio.run(_written, MemoryJournal()).head, (
        "the same events have the same head in every journal"
    )


def test_a_run_is_audited_with_those_below_it_and_no_other(path: Path) -> None:
    found = audit(path, "a")
    assert (list(found.events), found.count) == ([event for event in EVENTS if event.run == "a"], 5)


def test_there_is_nothing_to_audit_without_a_journal(tmp_path: Path) -> None:
    found = audit(tmp_path / "journal.sqlite")
    assert (found.count, found.broken) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE events SET body = replace(body, '\"y\"', '\"z\"') WHERE id = 4", "event 2 of run b"),
        ("UPDATE events SET body = x'00' WHERE id = 4", "event 2 of run b"),
        ("UPDATE events SET run = 'c' WHERE id = 4", "event 2 of run c"),
        ("UPDATE events SET chain = NULL WHERE id = 4", "event 2 of run b"),
        ("DELETE FROM events WHERE id = 1", "event 1 of run b"),
        ("DELETE FROM events WHERE id = 3", "event 2 of run b"),
        ("DELETE FROM events WHERE id = 5", "at its end: 5 events were written, and 4 are there"),
        ("DELETE FROM events WHERE run = 'b'", "event 2 of run a"),
        ("DELETE FROM events", "at its end: 5 events were written, and 0 are there"),
        ("UPDATE events SET id = 9 WHERE id = 2", "event 2 of run a"),
    ],
)
def test_what_was_changed_or_removed_shows_with_its_place(path: Path, statement: str, place: str) -> None:
    change(path, statement)
    assert place in audit(path).broken


def test_a_chain_that_was_made_anew_has_another_head(path: Path) -> None:
    noted = audit(path).head
    change(path, "DELETE FROM events WHERE id = 5", "DROP TABLE chain", "PRAGMA user_version = 0")
    anew = audit(path)
    assert anew.broken == ""
    assert anew.head != noted


def test_a_journal_of_yesterday_gets_its_chain_and_goes_on(path: Path) -> None:
    whole = audit(path)
    change(path, "ALTER TABLE events DROP COLUMN chain", "DROP TABLE chain", "PRAGMA user_version = 1")
    assert audit(path) == whole

    change(path, "ALTER TABLE events DROP COLUMN chain", "DROP TABLE chain", "PRAGMA user_version = 1")

    async def go_on() -> None:
        journal = SqliteJournal(path)
        await many(journal, "c", 3)
        await journal.aclose()

    anyio.run(go_on)
    found = audit(path)
    assert (found.count, found.broken) == (8, "")


def test_processes_write_one_chain(path: Path) -> None:
    async def work() -> None:
        async with anyio.create_task_group() as group:
            for runs in (["c", "d"], ["e", "f"]):
                group.start_soon(anyio.to_process.run_sync, taken, path, runs)

    anyio.run(work)
    found = audit(path)
    assert (found.count, found.broken) == (45, "")
