"""Tokens, money and calls of a whole tree of agents, counted before they are spent.

Every agent has a ledger inside its caller's. A model call reserves its worst case in each of them and settles what was
reported; children that run at once therefore never overshoot a limit together. When the room is too small only because
others hold reservations, a call waits for them to settle.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal

import anyio

from orchestrator.events import Limits, Share, StopReason
from orchestrator.messages import Cost, Prices, Usage

CENT = Decimal("0.000001")
"""US dollars: shares of a limit on cost are rounded down to this."""

LEAST_OUTPUT = 256
"""Tokens: an output limit is not shrunk below this to fit a budget; the call is refused instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What was, or may be, spent."""

    tokens: int = 0
    cost: Decimal = Decimal(0)
    calls: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, calls=self.calls + other.calls)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(tokens=self.tokens - other.tokens, cost=self.cost - other.cost, calls=self.calls - other.calls)


def amount_of(usage: Usage, cost: Cost) -> Amount:
    """What was used, as limits count it."""
    return Amount(tokens=usage.tokens, cost=cost.amount, calls=usage.model_calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A model call that asks for room. `output` is the most it may write."""

    input: int
    output: int
    prices: Prices | None

    def amount(self) -> Amount:
        cost = self.prices.worst(self.input, self.output) if self.prices is not None else Decimal(0)
        return Amount(tokens=self.input + self.output, cost=cost, calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Which limit has no room left."""

    limit: StopReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A reservation: exactly one `Ledger.settle` or `Ledger.charge` ends it.

    `output` may be smaller than what was asked for. `share` is what it means for an agent of another orchestrator.
    """

    output: int
    amount: Amount
    share: Share | None = None


class Ledger:
    """What one agent and all agents below it have spent and may still spend."""

    def __init__(
        self,
        limits: Limits,
        outer: "Ledger | None" = None,
        *,
        spent: Amount | None = None,
        seconds: float | None = None,
    ) -> None:
        """`seconds` is what is left of the time limit; time that a run was parked is not in it."""
        self.limits = limits
        self.outer = outer
        self.spent = spent or Amount()
        self.reserved = Amount()
        self.working = 0
        self.deadline = min(
            float("inf") if seconds is None else anyio.current_time() + seconds,
            float("inf") if outer is None else outer.deadline,
        )
        self._changed = anyio.Event()

    async def reserve(self, request: Request) -> Grant | Refusal:
        """Takes room for a call in this ledger and all around it, waiting while others may give some back."""
        while True:
            short = self._short(request.amount())
            if short is None:
                return self._take(request)
            if not self._may_fit(request.amount()):
                break
            await self._root()._changed.wait()
        shrunk = self._shrunk(request)
        return self._take(shrunk) if shrunk is not None else short

    def must_wait(self, request: Request) -> bool:
        """Whether `reserve` would wait now for others to give room back."""
        return self._short(request.amount()) is not None and self._may_fit(request.amount())

    def charge(self, grant: Grant) -> None:
        """Counts a reservation as spent: nobody knows what came of it."""
        for ledger in self._chain():
            ledger.reserved -= grant.amount
            ledger.spent += grant.amount
        self._wake()

    def extend(self, seconds: float) -> None:
        """Gives back time that was a person's, to this agent and to all around it."""
        for ledger in self._chain():
            ledger.deadline += seconds

    def settle(self, grant: Grant, usage: Usage | None, cost: Cost | None) -> None:
        """Puts what was really spent in the place of a reservation; None for a request that cost nothing."""
        real = Amount() if usage is None else amount_of(usage, cost or Cost())
        for ledger in self._chain():
            ledger.reserved -= grant.amount
            ledger.spent += real
        self._wake()

    async def share(self, calls: int, at_once: int) -> list[Grant] | Refusal:
        """Takes for each of `calls` to agents of other orchestrators what is left, divided by the calls open now.

        `at_once` are all calls of agents of that turn. Other agents at work in the tree count as well, each at its
        level. Where too little is left only because others hold reservations, it waits for them.
        """
        while True:
            tokens, cost = self._fair(at_once)
            little = (tokens is not None and tokens < LEAST_OUTPUT) or (cost is not None and cost <= 0)
            if not little or not self._held():
                break
            await self._root()._changed.wait()
        if (refusal := self.exhausted()) is not None:
            return refusal
        if tokens == 0:
            return Refusal(limit="max_tokens", detail=f"less than a token is left for each of {at_once} calls")
        share = Share(tokens=tokens, cost=cost)
        amount = Amount(tokens=tokens or 0, cost=cost or Decimal(0))
        for ledger in self._chain():
            for _ in range(calls):
                ledger.reserved += amount
        return [Grant(output=0, amount=amount, share=share) for _ in range(calls)]

    def set_aside(self, amount: Amount) -> None:
        """Counts as spent what may still be used while nobody knows when: nobody waits for it to come back."""
        for ledger in self._chain():
            ledger.spent += amount

    def again(self, grant: Grant) -> None:
        """A call goes on whose reservation had been set aside."""
        for ledger in self._chain():
            ledger.spent -= grant.amount
            ledger.reserved += grant.amount

    @contextmanager
    def at_work(self) -> Generator[None]:
        """The time in which its agent may spend."""
        if self.outer is not None:
            self.outer.working += 1
        try:
            yield
        finally:
            if self.outer is not None:
                self.outer.working -= 1

    def exhausted(self) -> Refusal | None:
        """The limit that not even the smallest call fits under."""
        return self._short(Amount(tokens=1, calls=1))

    def left(self) -> tuple[int | None, Decimal | None]:
        """Tokens and US dollars that may still be spent here; None where nothing limits them."""
        tokens = [each.limits.tokens - each.spent.tokens for each in self._chain() if each.limits.tokens is not None]
        cost = [
            Decimal(str(each.limits.cost)) - each.spent.cost for each in self._chain() if each.limits.cost is not None
        ]
        return min(tokens, default=None), min(cost, default=None)

    @property
    def remaining(self) -> float:
        """Seconds until the time of this agent, or of one around it, is up; negative afterwards."""
        return self.deadline - anyio.current_time()

    def _chain(self) -> Iterator["Ledger"]:
        ledger: Ledger | None = self
        while ledger is not None:
            yield ledger
            ledger = ledger.outer

    def _fair(self, calls: int) -> tuple[int | None, Decimal | None]:
        """One part in so many of what may be taken now, in this ledger and in all around it."""
        tokens: list[int] = []
        cost: list[Decimal] = []
        parts = calls
        for ledger in self._chain():
            parts *= max(1, ledger.working if ledger is not self else 1)
            taken = ledger.spent + ledger.reserved
            if ledger.limits.tokens is not None:
                tokens.append(max(0, ledger.limits.tokens - taken.tokens) // parts)
            if ledger.limits.cost is not None:
                left = max(Decimal(0), Decimal(str(ledger.limits.cost)) - taken.cost) / parts
                cost.append(left.quantize(CENT, ROUND_DOWN))
        return min(tokens, default=None), min(cost, default=None)

    def _held(self) -> bool:
        return any(ledger.reserved != Amount() for ledger in self._chain())

    def _root(self) -> "Ledger":
        *_, root = self._chain()
        return root

    def _wake(self) -> None:
        root = self._root()
        root._changed.set()
        root._changed = anyio.Event()

    def _take(self, request: Request) -> Grant:
        amount = request.amount()
        for ledger in self._chain():
            ledger.reserved += amount
        return Grant(output=request.output, amount=amount)

    def _may_fit(self, amount: Amount) -> bool:
        """Whether there would be room if every reservation came back in full; without any there is no use waiting."""
        return self._held() and self._short(amount, reserved=False) is None

    def _short(self, amount: Amount, *, reserved: bool = True) -> Refusal | None:
        for ledger in self._chain():
            total = ledger.spent + amount + (ledger.reserved if reserved else Amount())
            limits = ledger.limits
            if limits.model_calls is not None and total.calls > limits.model_calls:
                return Refusal(limit="max_steps", detail=f"{limits.model_calls} model calls in the whole tree")
            if limits.tokens is not None and total.tokens > limits.tokens:
                return Refusal(
                    limit="max_tokens",
                    detail=f"{ledger.spent.tokens} of {limits.tokens} tokens are spent; the next call may need "
                    f"{amount.tokens}",
                )
            if limits.cost is not None and total.cost > Decimal(str(limits.cost)):
                return Refusal(
                    limit="max_cost",
                    detail=f"${ledger.spent.cost:.4f} of ${limits.cost} are spent; the next call may cost "
                    f"${amount.cost:.4f}",
                )
        return None

    def _shrunk(self, request: Request) -> Request | None:
        """The same call with the largest output limit that fits, when that is not too little to be of use."""
        low, high = min(LEAST_OUTPUT, request.output), request.output
        if self._short(replace(request, output=low).amount()) is not None:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            if self._short(replace(request, output=middle).amount()) is None:
                low = middle
            else:
                high = middle - 1
        return replace(request, output=low)
