"""The chain that binds the events of a journal, over all its runs: what was changed or removed shows.

Each event is hashed with the hash of the one before it. The newest hash and the number of events stand in a table of
their own, so that a missing end shows as well. It takes some 10 µs a transaction and 1 µs an event.
"""

import sqlite3
from collections.abc import Sequence
from hashlib import sha256

from orchestrator.errors import JournalError
from orchestrator.events import JournalEvent, load
from orchestrator.runtime.journal.base import Audit, within

SCHEMA_OF_CHAIN = "CREATE TABLE IF NOT EXISTS chain (head BLOB NOT NULL, events INTEGER NOT NULL);"
ANCHOR = bytes(32)
"""What the first event is chained to."""


def link(before: bytes, run: str, seq: int, body: bytes) -> bytes:
    """What binds an event to the one before it."""
    return sha256(b"".join((before, f"{run}\n{seq}\n".encode(), body))).digest()


def write(db: sqlite3.Connection, lines: Sequence[tuple[str, int, bytes]]) -> None:
    """Appends events (run, number, body) within the transaction that is open."""
    head = db.execute("SELECT head FROM chain").fetchone()[0]
    chained = [(run, seq, body, head := link(head, run, seq, body)) for run, seq, body in lines]
    db.executemany("INSERT INTO events (run, seq, body, chain) VALUES (?, ?, ?, ?)", chained)
    db.execute("UPDATE chain SET head = ?, events = events + ?", (head, len(chained)))


def chain_all(db: sqlite3.Connection) -> None:
    """Binds the events of a release that had no chain."""
    head, rows = ANCHOR, db.execute("SELECT run, seq, body, id FROM events ORDER BY id").fetchall()
    chained = [(head := link(head, run, seq, body), number) for run, seq, body, number in rows]
    db.executemany("UPDATE events SET chain = ? WHERE id = ?", chained)
    db.execute("INSERT INTO chain VALUES (?, ?)", (head, len(chained)))


def check(db: sqlite3.Connection, root: str | None) -> Audit:
    """Reads everything once, in one transaction; the events of what was changed are left out where they are none."""
    db.execute("BEGIN")
    before, count, broken = ANCHOR, 0, ""
    events: list[JournalEvent] = []
    for run, seq, found, chain in db.execute("SELECT run, seq, body, chain FROM events ORDER BY id"):
        count += 1
        body = found if isinstance(found, bytes) else str(found).encode()  # another hand may have left another type
        if not broken and link(before, run, seq, body) != chain:
            broken = f"at event {seq} of run {run}: it was changed, or what came before it was changed or removed"
        before = chain or ANCHOR
        if within(run, root):
            try:
                events.append(load(body))
            except JournalError:
                if not broken:
                    raise
    head, written = db.execute("SELECT head, events FROM chain").fetchone()
    if not broken and (before, count) != (head, written):
        broken = f"at its end: {written} events were written, and {count} are there"
    return Audit(events=events, count=count, head=head.hex(), broken=broken)
