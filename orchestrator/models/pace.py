"""How often a model may be asked, kept over all runs that ask it by waiting in turn.

A minute is any sixty seconds: what began in the last sixty counts. So a vendor's own count, however it is kept, is not
exceeded by what goes out here.
"""

from collections import deque
from dataclasses import dataclass
from types import TracebackType

import anyio

MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """None: no limit of that kind."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    parallel: int | None = None


class Turn:
    """Leave to ask the model once; a context manager around that request. `waited`: for how many seconds it was not."""

    def __init__(self, pace: "Pace", at: float, tokens: int, waited: float) -> None:
        self.at = at
        self.tokens = tokens
        self.waited = waited
        self.counted = True
        self._pace = pace

    def used(self, tokens: int) -> None:
        """Puts what was reported in the place of the estimate."""
        self._pace.correct(self, tokens)

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pace.leave()


class Pace:
    """Who comes first goes first; a run holds a turn while its request is under way and never while it waits itself."""

    def __init__(self, rates: Rates | None = None) -> None:
        self._rates = rates or Rates()
        self._line = anyio.Lock(fast_acquire=True)
        self._recent: deque[Turn] = deque()
        self._tokens = 0
        self._open = 0
        self._held = float("-inf")
        self._changed = anyio.Event()

    def must_wait(self, tokens: int) -> bool:
        """Whether `enter` would wait now."""
        return self._line.locked() or self._delay(tokens) > 0

    async def enter(self, tokens: int) -> Turn:
        """Waits for a turn to make a request of about so many tokens. One that is above the limit goes alone."""
        began, waits = anyio.current_time(), self.must_wait(tokens)
        async with self._line:
            while (delay := self._delay(tokens)) > 0:
                with anyio.move_on_after(delay):
                    await self._changed.wait()
            now = anyio.current_time()
            turn = Turn(self, now, tokens, now - began if waits else 0.0)
            self._open += 1
            self._tokens += tokens
            self._recent.append(turn)
        return turn

    def hold(self, seconds: float) -> None:
        """The vendor wants to be left alone for so long, by everybody."""
        self._held = max(self._held, anyio.current_time() + seconds)

    def correct(self, turn: Turn, tokens: int) -> None:
        if turn.counted:
            self._tokens += tokens - turn.tokens
            turn.tokens = tokens
            self._wake()

    def leave(self) -> None:
        self._open -= 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _delay(self, tokens: int) -> float:
        """Seconds until it is worth looking again; 0: now is the time."""
        now, rates = anyio.current_time(), self._rates
        while self._recent and self._recent[0].at + MINUTE <= now:
            past = self._recent.popleft()
            past.counted = False
            self._tokens -= past.tokens
        if now < self._held:
            return self._held - now
        if rates.parallel is not None and self._open >= rates.parallel:
            return float("inf")
        many = rates.requests_per_minute is not None and len(self._recent) >= rates.requests_per_minute
        much = rates.tokens_per_minute is not None and self._tokens + tokens > rates.tokens_per_minute
        return self._recent[0].at + MINUTE - now if self._recent and (many or much) else 0.0
