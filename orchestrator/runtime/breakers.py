"""When a run is going nowhere. Counted per agent run, on arguments as they are sent; the table is in docs/limits.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from orchestrator.events import StopReason

SAME_FAILURE = 2
"""The same tool with the same arguments may fail once; the second time ends the run."""

FAILING_TURNS = 3
"""Turns in a row in which every call failed."""

UNPARSEABLE_TURNS = 3
MOST_PIECES = 4
"""An answer that is cut off is gone on with, so that it comes in pieces; one that has still no end is stopped."""

SAME_RESULT = 3
CYCLE_LENGTH = 4
CYCLE_REPEATS = 3
"""A cycle goes through two to four turns that are not all alike: one call whose result changes is watching."""

Observed = tuple[str, Mapping[str, Any] | None, str, str, str | None]
"""Tool, arguments as sent (None: never became valid), arguments as written, observation, kind of error or None."""

NO_FAILURE = frozenset({"denied", "in_doubt", "withheld"})
"""Kinds of error that neither count as a failure nor, as a success would, start the counting anew."""


def _key(tool: str, arguments: Mapping[str, Any] | None, written: str) -> str:
    sent = written if arguments is None else json.dumps(arguments, sort_keys=True, ensure_ascii=False)
    return f"{tool} {sent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakers:
    """Counters that are part of a run's state; every method returns the next one."""

    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    results: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    recent: tuple[bytes, ...] = ()
    failing_turns: int = 0
    unparseable_turns: int = 0
    tripped: tuple[StopReason, str] | None = None

    def parsed(self) -> "Breakers":
        return self if not self.unparseable_turns else replace(self, unparseable_turns=0)

    def unparseable(self) -> "Breakers":
        turns = self.unparseable_turns + 1
        tripped = ("unparseable_output", f"{turns} replies in a row could not be read")
        return replace(self, unparseable_turns=turns, tripped=tripped if turns >= UNPARSEABLE_TURNS else None)

    def cut_off(self, pieces: int) -> "Breakers":
        """So many pieces of an answer have come, and it is not whole."""
        tripped = ("unparseable_output", f"the answer was still cut off after {pieces} pieces")
        return replace(self.parsed(), tripped=tripped if pieces >= MOST_PIECES else None)

    def observed(self, calls: Sequence[Observed]) -> "Breakers":
        """A turn's answers. Calls within one turn count once a tool and arguments."""
        failures, results = dict(self.failures), dict(self.results)
        outcomes: dict[str, set[str]] = {}
        signatures: dict[bytes, str] = {}
        for tool, arguments, written, observation, error in calls:
            key = _key(tool, arguments, written)
            outcome = "good" if error is None else "neither" if error in NO_FAILURE else "failed"
            outcomes.setdefault(key, set()).add(outcome)
            signatures[_signature(key, observation)] = tool
        failed = [key for key, found in outcomes.items() if "failed" in found and "good" not in found]
        for key in failed:
            failures[key] = failures.get(key, 0) + 1
        good = [key for key, found in outcomes.items() if "good" in found]
        for key in good:
            failures.pop(key, None)
        for signature in signatures:
            results[signature] = results.get(signature, 0) + 1
        state = replace(
            self,
            failures=failures,
            results=results,
            recent=(*self.recent, _signature(*sorted(outcomes)))[-CYCLE_LENGTH * CYCLE_REPEATS :],
            failing_turns=0 if good else self.failing_turns + bool(failed),
        )
        return replace(state, tripped=state._verdict(failed, signatures))

    def _verdict(self, failed: Sequence[str], signatures: Mapping[bytes, str]) -> tuple[StopReason, str] | None:
        for key in failed:
            if self.failures[key] >= SAME_FAILURE:
                return "repeated_failure", f"{key[:300]} failed {self.failures[key]} times"
        if self.failing_turns >= FAILING_TURNS:
            return "consecutive_failures", f"every call of {self.failing_turns} turns in a row failed"
        for signature, tool in signatures.items():
            if self.results[signature] >= SAME_RESULT:
                return "no_progress", f"{tool} gave the same result to the same arguments in {SAME_RESULT} turns"
        for length in range(2, CYCLE_LENGTH + 1):
            tail = self.recent[-length * CYCLE_REPEATS :]
            if tail == tail[:length] * CYCLE_REPEATS and len(set(tail)) > 1:
                return "no_progress", f"the same calls of {length} turns were made {CYCLE_REPEATS} times over"
        return None


def _signature(*parts: str) -> bytes:
    """Eight bytes that are the same in every process, unlike `hash`."""
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).digest()
