"""How often a model may be asked: seconds here pass as soon as everybody waits."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from orchestrator.models.pace import Pace, Rates, Turn
from tests.support.clock import in_no_time


class Runs:
    """Requests at a pace: `began` are (name, second) in the order in which they went out."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.began: list[tuple[str, float]] = []
        self.open = self.most = 0

    async def ask(self, name: str, tokens: int = 10, *, takes: float = 0.0, used: int | None = None) -> Turn:
        with await self.pace.enter(tokens) as turn:
            self.began.append((name, anyio.current_time()))
            self.open += 1
            self.most = max(self.most, self.open)
            await anyio.sleep(takes)
            self.open -= 1
            if used is not None:
                turn.used(used)
        return turn


def driven(work: Callable[[Runs], Awaitable[Any]], **rates: int) -> Runs:
    async def main() -> Runs:
        runs = Runs(Pace(Rates(**rates)))
        await work(runs)
        return runs

    return in_no_time(main)


async def all_at_once(runs: Runs, names: str, **more: Any) -> None:
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(lambda name=name: runs.ask(name, **more))
            await anyio.wait_all_tasks_blocked()


@pytest.mark.requirement("B11")
def test_in_any_minute_there_are_no_more_requests_than_allowed() -> None:
    async def work(runs: Runs) -> None:
        await runs.ask("a")
        await anyio.sleep(50)
        await all_at_once(runs, "bcde")

    assert driven(work, requests_per_minute=2).began == [("a", 0), ("b", 50), ("c", 60), ("d", 110), ("e", 120)]


@pytest.mark.requirement("B11")
def test_tokens_are_set_aside_as_estimated_and_corrected_by_what_was_reported() -> None:
    async def work(runs: Runs) -> None:
        await runs.ask("a", 900, takes=1, used=200)
        await runs.ask("b", 700)
        await runs.ask("c", 200)

    assert driven(work, tokens_per_minute=1000).began == [("a", 0), ("b", 1), ("c", 60)]


@pytest.mark.requirement("B11")
def test_a_report_lets_those_go_who_wait_for_tokens() -> None:
    async def work(runs: Runs) -> None:
        await all_at_once(runs, "ab", tokens=600, takes=5, used=100)

    assert driven(work, tokens_per_minute=1000).began == [("a", 0), ("b", 5)]


@pytest.mark.requirement("B11")
def test_a_request_above_the_limit_goes_alone_and_does_not_hang() -> None:
    async def work(runs: Runs) -> None:
        await runs.ask("a", 10)
        await runs.ask("b", 5000)
        await runs.ask("c", 10)

    assert driven(work, tokens_per_minute=1000).began == [("a", 0), ("b", 60), ("c", 120)]


@pytest.mark.requirement("B11")
def test_who_comes_first_goes_first_though_a_smaller_one_would_fit() -> None:
    async def work(runs: Runs) -> None:
        await runs.ask("a", 600)
        async with anyio.create_task_group() as group:
            group.start_soon(runs.ask, "b", 600)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(runs.ask, "c", 10)

    assert driven(work, tokens_per_minute=1000).began == [("a", 0), ("b", 60), ("c", 60)]


@pytest.mark.requirement("B11")
def test_requests_at_once_are_bounded() -> None:
    async def work(runs: Runs) -> None:
        await all_at_once(runs, "abcde", takes=3)

    runs = driven(work, parallel=2)
    assert runs.most == 2
    assert [name for name, _ in runs.began] == list("abcde")
    assert runs.began[-1] == ("e", 6)


@pytest.mark.requirement("B11")
def test_what_a_vendor_asks_of_one_holds_for_all() -> None:
    async def work(runs: Runs) -> None:
        runs.pace.hold(30)
        runs.pace.hold(5)
        await all_at_once(runs, "ab")

    assert driven(work).began == [("a", 30), ("b", 30)]


@pytest.mark.requirement("B11")
def test_one_that_is_cancelled_while_it_waits_leaves_the_line() -> None:
    async def work(runs: Runs) -> None:
        await runs.ask("a")
        with anyio.move_on_after(1) as given_up:
            await runs.ask("b")
        assert given_up.cancelled_caught
        turn = await runs.ask("c")
        assert turn.waited == 59

    assert driven(work, requests_per_minute=1).began == [("a", 0), ("c", 60)]


@pytest.mark.requirement("B11")
def test_a_request_that_fails_gives_its_place_back() -> None:
    async def work(runs: Runs) -> None:
        with pytest.raises(ZeroDivisionError), await runs.pace.enter(1):
            raise ZeroDivisionError
        assert (await runs.ask("b")).waited == 0

    assert driven(work, parallel=1).began == [("b", 0)]
