"""Notes that outlive a run, in one SQLite file with a full-text index. Several processes may use it at once.

The index holds the words of a note as `tools/search.py` takes text apart: English without endings, Chinese by pairs of
characters and by each alone. So words of one or two characters are found, which SQLite's own trigrams cannot.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from orchestrator.config.folders import make_private
from orchestrator.masking import mask
from orchestrator.tools.search import telling, words

FILE = "notes.sqlite"
LONGEST = 2_000
"""Characters of a note. What is longer belongs into a file."""
MOST = 500
"""Notes of one user in one project."""

_RELEVANT = 0.25  # of the best score; less is noise
_PREFIX = 4  # letters from which on a word also finds longer ones
_BUSY_SECONDS = 30.0
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, project TEXT NOT NULL, text TEXT NOT NULL,
    run TEXT NOT NULL, agent TEXT NOT NULL, at REAL NOT NULL, key TEXT NOT NULL UNIQUE
);
CREATE INDEX IF NOT EXISTS notes_of ON notes (user, project);
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(words);
"""

_T = TypeVar("_T")


class NotesError(Exception):
    """The notes cannot be used, or what is asked of them cannot be done; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note and where it is from: `user` is whose run it was, `project` the folder that it worked in.

    `key` names the call that made it, over all runs: a call that is made again makes no second note. `at` is in seconds
    since the epoch.
    """

    id: int = 0
    user: str
    project: str
    text: str
    run: str
    agent: str
    at: float
    key: str


_COLUMNS = "id, user, project, text, run, agent, at, key"


class Notes:
    """The notes of one store, as they are seen from `project`; from None, those of all projects."""

    def __init__(self, store: Path, project: str | None) -> None:
        self._path = store / FILE
        self._project = project

    async def keep(self, note: Note) -> tuple[Note, bool]:
        """Keeps a note, without the secrets in it; the note as it is kept, and whether it is new.

        Raises:
            NotesError: there are too many already, or the file cannot be written.
        """

        def work(db: sqlite3.Connection) -> tuple[Note, bool]:
            known = _notes(db, "key = ? OR (user = ? AND project = ? AND text = ?)", note.key, *scope, text)
            if known:
                return known[0], known[0].key == note.key
            (count,) = db.execute("SELECT count(*) FROM notes WHERE user = ? AND project = ?", scope).fetchone()
            if count >= MOST:
                raise NotesError(f"{MOST} notes are kept here, which is the most; forget one that no longer counts")
            values = (*scope, text, note.run, note.agent, note.at, note.key)
            row = db.execute(f"INSERT INTO notes VALUES (NULL, {', '.join('?' * len(values))})", values)
            db.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (row.lastrowid, " ".join(_indexed(text))))
            return _notes(db, "id = ?", row.lastrowid)[0], True

        # What people are called and how they are reached may be the very thing to be noted; a secret never is.
        scope, text = (note.user, note.project), mask(note.text, personal=False)
        return await self._use(work)

    async def find(self, user: str, query: str, limit: int) -> Sequence[Note]:
        """Up to `limit` notes of a user that fit a query, best first; without a query the newest."""
        where, values = self._scope(user)

        def work(db: sqlite3.Connection) -> Sequence[Note]:
            if not query.strip():
                return _notes(db, f"{where} ORDER BY id DESC LIMIT ?", *values, limit)
            if not (match := " OR ".join(_wanted(query))):
                return ()
            rows = db.execute(
                f"SELECT id, rank FROM found JOIN notes ON id = found.rowid WHERE found MATCH ? AND {where} "
                "ORDER BY rank, id DESC LIMIT ?",
                (match, *values, limit),
            ).fetchall()
            fitting = [id for id, rank in rows if rank <= rows[0][1] * _RELEVANT]  # ranks are negative, best first
            return [_notes(db, "id = ?", id)[0] for id in fitting]

        return await self._use(work)

    async def forget(self, user: str, id: int) -> bool:
        """Deletes a note of a user; False: there is none of this id."""
        where, values = self._scope(user)

        def work(db: sqlite3.Connection) -> bool:
            gone = db.execute(f"DELETE FROM notes WHERE id = ? AND {where}", (id, *values)).rowcount > 0
            if gone:
                db.execute("DELETE FROM found WHERE rowid = ?", (id,))
            return gone

        return await self._use(work)

    def _scope(self, user: str) -> tuple[str, tuple[str, ...]]:
        return ("user = ?", (user,)) if self._project is None else ("user = ? AND project = ?", (user, self._project))

    async def _use(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Does something in one transaction, on a connection and in a thread of its own."""

        def transact() -> _T:
            try:
                with closing(_open(self._path)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    with db:
                        return work(db)
            except (OSError, sqlite3.Error) as error:
                raise NotesError(f"the notes in {self._path} cannot be used: {error}") from error

        return await anyio.to_thread.run_sync(transact)


def _notes(db: sqlite3.Connection, where: str, *values: Any) -> list[Note]:
    names = _COLUMNS.split(", ")
    rows = db.execute(f"SELECT {_COLUMNS} FROM notes WHERE {where}", values).fetchall()
    return [Note(**dict(zip(names, row, strict=True))) for row in rows]


def _indexed(text: str) -> Iterator[str]:
    """The words that a note is found by; a pair of characters also by each of them."""
    for word in words(text):
        yield word
        if _is_pair(word):
            yield from word


def _wanted(query: str) -> Iterator[str]:
    """The words of a query, as the index is asked for them."""
    for word in dict.fromkeys(telling(query)) or dict.fromkeys(words(query)):
        yield f'"{word}"' + ("*" if len(word) >= _PREFIX else "")


def _is_pair(word: str) -> bool:
    return len(word) == 2 and not re.match(r"[a-z0-9]", word)


def _open(path: Path) -> sqlite3.Connection:
    make_private(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found > _FORMAT:
            raise NotesError(f"{path} was written by a newer version of orchestrator (format {found}); use that one")
        if found < _FORMAT:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT")
    except BaseException:
        db.close()
        raise
    return db
