"""Whether runs can be begun now: calls are taken, and the journal can be written.

Models and servers of tools are no part of it: an agent does without one that is down, or says so.
"""

import time

import anyio

from orchestrator.errors import JournalError, RunBusy
from orchestrator.runtime.journal import Journal
from orchestrator.serving.runs import Runs

PROBE = "readyz"
"""A claim that is taken and given back."""

WITHIN, FRESH = 2.0, 1.0
"""Seconds that a write may take, and that its outcome holds: who asks more often causes no more writes."""


class Readiness:
    """Asked by anyone, known or not."""

    def __init__(self, runs: Runs, journal: Journal) -> None:
        self._runs = runs
        self._journal = journal
        self._turn = anyio.Lock()
        self._tried = float("-inf")
        self._trouble = ""

    async def trouble(self) -> str:
        """Why no run can be begun; nothing where one can."""
        if self._runs.stopping:
            return "the server is about to stop"
        async with self._turn:
            if time.monotonic() - self._tried > FRESH:
                self._trouble = await self._try()
                self._tried = time.monotonic()
        return self._trouble

    async def _try(self) -> str:
        try:
            with anyio.fail_after(WITHIN):
                await self._journal.release(await self._journal.claim(PROBE))
        except RunBusy:
            return ""  # another server of this journal tries at this moment, or an attempt that was late was written
        except TimeoutError:
            return f"the journal takes longer than {WITHIN:g} s for a write"
        except JournalError as error:
            return f"nothing can be written: {error}"
        return ""
