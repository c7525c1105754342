"""The journal in one SQLite file: WAL, one writer thread with group commit, readers on connections of their own.

Everything that is waiting when the writer wakes goes into one transaction, so that many runs share one flush to disk.
A transaction that holds an intent or a verdict is written with `synchronous=FULL`; others survive a killed process.
"""

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.config.folders import make_private
from orchestrator.errors import Fenced, JournalError, RunBusy
from orchestrator.events import JournalEvent, RunStarted, dump, load
from orchestrator.runtime.journal.base import (
    Audit,
    Claim,
    RunRow,
    ended_at,
    leaves,
    numbered,
    status_of,
)
from orchestrator.runtime.journal.chain import ANCHOR, SCHEMA_OF_CHAIN, chain_all, check, write
from orchestrator.runtime.journal.owner import owner_is_dead, process_identity

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    run TEXT PRIMARY KEY, root TEXT NOT NULL, parent TEXT, agent TEXT NOT NULL, task TEXT NOT NULL,
    status TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_by_time ON runs (started_at);
CREATE INDEX IF NOT EXISTS runs_by_root ON runs (root);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, chain BLOB,
    UNIQUE (run, seq)
);
CREATE TABLE IF NOT EXISTS claims (
    root TEXT PRIMARY KEY, fence INTEGER NOT NULL, owner TEXT, lease_until REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
FORMAT = 2
"""What is written into the file as `user_version`, so that a release that cannot read it says so."""

LEASE_SECONDS = 30.0
BUSY_SECONDS = 30.0

REFUSED = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)
"""What is wrong with one write, and not with the file."""

Work = Callable[[sqlite3.Connection], Any]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Job:
    work: Work
    durable: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def settle(self, result: Any, error: BaseException | None) -> None:
        def tell() -> None:
            if self.future.cancelled():
                return
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(tell)


class SqliteJournal:
    """One file, created with its folder on first use, readable by its owner only."""

    def __init__(
        self,
        path: Path,
        *,
        lease: float = LEASE_SECONDS,
        now: Callable[[], float] = time.time,
        read_only: bool = False,
    ) -> None:
        """`lease` is in seconds, `now` the clock that it is measured by, which must be the same for all processes.

        `read_only` leaves the file and its folder as they are: for a journal of another machine. What its WAL file
        holds is read where that lies beside it, and is missing where it was not copied.
        """
        self.path = path
        self._read_only = read_only
        self.lease = lease
        self._now = now
        self.owner = process_identity(os.getpid())
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._kept: set[str] = set()

    async def claim(self, root: str) -> Claim:
        def work(db: sqlite3.Connection) -> Claim:
            row = db.execute("SELECT fence, owner, lease_until FROM claims WHERE root = ?", (root,)).fetchone()
            fence, owner, until = row or (0, None, 0.0)
            if owner and until > self._now() and not owner_is_dead(owner):
                raise RunBusy(f"run {root} is being driven by another process ({owner}); wait for it or stop it first")
            db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)",
                (root, fence + 1, self.owner, self._now() + self.lease),
            )
            return Claim(root=root, fence=fence + 1)

        return await self._write(work, durable=False)

    async def renew(self, claim: Claim) -> None:
        def work(db: sqlite3.Connection) -> None:
            _check(db, claim)
            db.execute("UPDATE claims SET lease_until = ? WHERE root = ?", (self._now() + self.lease, claim.root))

        await self._write(work, durable=False)

    async def release(self, claim: Claim) -> None:
        def work(db: sqlite3.Connection) -> None:
            _check(db, claim)
            db.execute(_GIVE_BACK, (claim.root,))

        await self._write(work, durable=False)

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        lines = [(event.run, event.seq, dump(event)) for event in events]

        def work(db: sqlite3.Connection) -> None:
            _check(db, claim)
            numbered(events, lambda run: db.execute(_LAST, (run,)).fetchone()[0])
            write(db, lines)
            for event in events:
                _index(db, claim.root, event)
            if leaves(claim, events):
                db.execute(_GIVE_BACK, (claim.root,))

        await self._write(work, durable=durable)

    async def read(self, run: str) -> list[JournalEvent]:
        rows = await self._read("SELECT body FROM events WHERE run = ? ORDER BY seq", (run,))
        return [load(body) for (body,) in rows]

    async def tree(self, root: str) -> dict[str, list[JournalEvent]]:
        rows = await self._read(
            "SELECT events.run, events.body FROM events JOIN runs USING (run) WHERE runs.root = ? ORDER BY events.id",
            (root,),
        )
        found: dict[str, list[JournalEvent]] = {}
        for run, body in rows:
            found.setdefault(run, []).append(load(body))
        return found

    async def since(self, root: str, place: int = 0) -> list[tuple[int, JournalEvent]]:
        rows = await self._read(
            "SELECT events.id, events.body FROM events JOIN runs USING (run) WHERE runs.root = ? AND events.id > ? "
            "ORDER BY events.id",
            (root, place),
        )
        return [(at, load(body)) for at, body in rows]

    async def keep(self, bodies: Mapping[str, bytes]) -> None:
        new = {digest: body for digest, body in bodies.items() if digest not in self._kept}
        if not new:
            return

        def work(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR IGNORE INTO bodies VALUES (?, ?)", list(new.items()))

        await self._write(work, durable=False)
        self._kept.update(new)

    async def body(self, digest: str) -> bytes:
        rows = await self._read("SELECT body FROM bodies WHERE digest = ?", (digest,))
        if not rows:
            raise JournalError(f"{self.path} has no body {digest}")
        return rows[0][0]

    async def runs(self, *, top: bool = True, limit: int = 100, by: str | None = None) -> list[RunRow]:
        where = ("parent IS NULL" if top else "TRUE") + ("" if by is None else f" AND {_BY} = ?")
        values = (limit,) if by is None else (by, limit)
        rows = await self._read(f"{_ROW} WHERE {where} ORDER BY started_at DESC, run DESC LIMIT ?", values)
        return [_row(row) for row in rows]

    async def row(self, run: str) -> RunRow | None:
        rows = await self._read(f"{_ROW} WHERE run = ?", (run,))
        return _row(rows[0]) if rows else None

    async def audit(self, root: str | None = None) -> Audit:
        if self.path.exists():
            await self._write(lambda db: None, durable=False)  # a file of an earlier release gets its chain
        audited = await self._look(lambda db: check(db, root))
        return audited or Audit(events=(), count=0, head=ANCHOR.hex(), broken="")

    async def aclose(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            self._jobs.put(None)
            await asyncio.to_thread(writer.join)

    async def _write(self, work: Work, *, durable: bool) -> Any:
        assert not self._read_only, "this journal is only read"
        if self._writer is None:
            self._writer = threading.Thread(target=self._drain, name="journal", daemon=True)
            self._writer.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(_Job(work, durable, loop, future))
        return await future

    async def _read(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        return await self._look(lambda db: db.execute(sql, tuple(values)).fetchall()) or []

    async def _look(self, question: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """What a reader finds, in a thread of its own; None where there is no journal yet."""

        def work() -> _T | None:
            try:
                if not self.path.exists():
                    return None
                with closing(_open(self.path, read_only=self._read_only)) as db:
                    if _format(db) > 0:
                        return question(db)
                    if self._read_only:
                        raise JournalError(f"{self.path} is no journal of orchestrator")
                    return None
            except (OSError, sqlite3.Error) as error:
                raise JournalError(f"the journal {self.path} cannot be read: {error}") from error

        return await asyncio.to_thread(work)

    def _drain(self) -> None:
        """The writer thread: everything that waits goes into one transaction."""
        try:
            db = _create(self.path)
        except (OSError, sqlite3.Error) as error:
            self._refuse(JournalError(f"the journal {self.path} cannot be opened: {error}"))
            return
        except JournalError as error:
            self._refuse(error)
            return
        try:
            while (job := self._jobs.get()) is not None:
                jobs, more = [job], True
                while more and not self._jobs.empty():
                    following = self._jobs.get()
                    more = following is not None
                    if following is None:
                        self._jobs.put(None)
                    else:
                        jobs.append(following)
                self._commit(db, jobs)
        finally:
            db.close()

    def _commit(self, db: sqlite3.Connection, jobs: Sequence[_Job]) -> None:
        outcomes: list[tuple[_Job, Any, BaseException | None]] = []
        try:
            db.execute(f"PRAGMA synchronous = {'FULL' if any(job.durable for job in jobs) else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            for job in jobs:
                outcomes.append(_attempt(db, job, alone=len(jobs) == 1))
            if db.in_transaction:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            failure = JournalError(f"the journal {self.path} cannot be written: {error}")
            outcomes = [(job, None, failure) for job in jobs]
        for job, result, error in outcomes:
            job.settle(result, error)

    def _refuse(self, error: JournalError) -> None:
        while (job := self._jobs.get()) is not None:
            job.settle(None, error)


def _attempt(db: sqlite3.Connection, job: _Job, *, alone: bool) -> tuple[_Job, Any, BaseException | None]:
    """Does one job's writes; one that is refused leaves nothing behind and does not spoil the others' transaction."""
    if not alone:
        db.execute("SAVEPOINT job")
    try:
        outcome = job, job.work(db), None
    except Exception as error:  # it is raised where the job was asked for, unless it is trouble of the whole file
        if isinstance(error, sqlite3.Error) and not isinstance(error, REFUSED):
            raise
        db.execute("ROLLBACK" if alone else "ROLLBACK TO job")
        refused = JournalError(f"the journal refuses what is to be written: {error}")
        outcome = job, None, refused if isinstance(error, sqlite3.Error) else error
    if not alone:
        db.execute("RELEASE job")
    return outcome


def _check(db: sqlite3.Connection, claim: Claim) -> None:
    row = db.execute("SELECT fence FROM claims WHERE root = ?", (claim.root,)).fetchone()
    if row is None or row[0] != claim.fence:
        raise Fenced(f"run {claim.root} was taken over by another process")


def _index(db: sqlite3.Connection, root: str, event: JournalEvent) -> None:
    if isinstance(event, RunStarted):
        values = (event.run, root, event.parent, event.agent, event.task, "running", event.at, None)
        db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    elif (status := status_of(event)) is not None:
        db.execute("UPDATE runs SET status = ?, ended_at = ? WHERE run = ?", (status, ended_at(event), event.run))


_GIVE_BACK = "UPDATE claims SET owner = NULL, lease_until = 0 WHERE root = ?"
_LAST = "SELECT coalesce(max(seq), 0) FROM events WHERE run = ?"
_BY = "(SELECT coalesce(json_extract(CAST(body AS TEXT), '$.by'), '') FROM events WHERE run = runs.run AND seq = 1)"
_ROW = f"SELECT run, parent, agent, task, status, started_at, ended_at, {_BY} FROM runs"


def _row(row: tuple[Any, ...]) -> RunRow:
    names = ("run_id", "parent", "agent", "task", "status", "started_at", "ended_at", "by")
    return RunRow(**dict(zip(names, row, strict=True)))


def _open(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    name: str | Path = path
    if read_only:
        # Without a WAL there is nothing to recover, and SQLite need not make files beside one that others may own.
        wal = path.with_name(f"{path.name}-wal")
        lone = not (wal.exists() and wal.stat().st_size)
        name = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if lone else ''}"
    return sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=read_only)


def _format(db: sqlite3.Connection) -> int:
    """The file's format; 0 for one that has no tables yet."""
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > FORMAT:
        raise JournalError(
            f"this journal was written by a newer version of orchestrator (format {found}); use that one"
        )
    return found


def _create(path: Path) -> sqlite3.Connection:
    make_private(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = _open(path)
    try:
        if _format(db) < FORMAT:
            db.execute("PRAGMA journal_mode = WAL")
            _upgrade(db)
    except BaseException:
        db.close()
        raise
    return db


def _upgrade(db: sqlite3.Connection) -> None:
    """Makes the tables, or brings those of an earlier release up to date. Another process may have been quicker."""
    db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {SCHEMA_OF_CHAIN}")
    if _format(db) == 1:
        db.execute("ALTER TABLE events ADD COLUMN chain BLOB")
    if db.execute("SELECT count(*) FROM chain").fetchone() == (0,):
        chain_all(db)
    db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")
