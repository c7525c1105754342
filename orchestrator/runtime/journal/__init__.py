"""The journal: the one truth about every run, append-only and fenced. Two kinds: SQLite, and memory."""

from orchestrator.runtime.journal.base import Audit, Claim, Journal, RunRow, root_of
from orchestrator.runtime.journal.memory import MemoryJournal
from orchestrator.runtime.journal.sqlite import SqliteJournal

__all__ = ["Audit", "Claim", "Journal", "MemoryJournal", "RunRow", "SqliteJournal", "root_of"]
