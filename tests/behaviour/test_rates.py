"""A provider's limits over all runs: a real server on loopback, and the configuration that users write."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Limits, Options, Orchestrator, RunResult
from orchestrator.config import Settings, load_settings
from orchestrator.errors import ConfigurationError
from orchestrator.runtime.journal import RunRow
from orchestrator.testing import NullTracer, SqliteJournal
from tests.support.model_server import ModelServer, Reply, model_server, turn_of
from tests.support.runs import card, cards


def opened(folder: Path, server: ModelServer, *team: Any, **table: Any) -> Orchestrator:
    settings = Settings(models={"mine": {"base_url": server.url, "model": "loop", **table}})
    options = Options(settings=settings, cards=cards(*team), model="mine", home=folder, tracer=NullTracer())
    return Orchestrator(options, agent=team[0].name)


def ran(
    folder: Path, server: ModelServer, *team: Any, times: int = 1, limits: Limits | None = None, **table: Any
) -> list[RunResult]:
    """The results of so many runs at once."""
    results: list[RunResult] = []

    async def main() -> None:
        async with opened(folder, server, *team, **table) as orchestrator, anyio.create_task_group() as group:

            async def one(task: str) -> None:
                results.append(await orchestrator.run(task, limits=limits))

            group.cancel_scope.deadline = anyio.current_time() + 60
            for number in range(times):
                group.start_soon(one, f"job {number}")

    anyio.run(main)
    return results


class Crowd:
    """A model that counts who is there at once; it answers when `full` are there."""

    def __init__(self, full: int) -> None:
        self._full = threading.Barrier(full)
        self._lock = threading.Lock()
        self.inside = self.most = 0

    def __call__(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._full.wait(30)
        with self._lock:
            self.inside -= 1
        return {"text": "done"}


@pytest.mark.requirement("B11")
def test_no_more_requests_are_under_way_than_the_table_says(tmp_path: Path) -> None:
    crowd = Crowd(2)
    with model_server(crowd) as server:
        results = ran(tmp_path, server, card("boss"), times=6, parallel=2)
    assert [result.status for result in results] == ["finished"] * 6
    assert crowd.most == 2


@pytest.mark.requirement("B11")
def test_a_delegating_agent_holds_no_place_that_its_specialist_needs(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if turn_of(body) == 1 and "boss" in body["messages"][0]["content"]:
            return {"calls": [{"name": f"agents__{name}", "arguments": {"task": "go"}} for name in ("kid", "kit")]}
        return {"text": "done"}

    team = (card("boss", agents=("kid", "kit"), instructions="boss"), card("kid"), card("kit"))
    with model_server(answer) as server:
        [result] = ran(tmp_path, server, *team, parallel=1)
    assert (result.status, result.usage.model_calls) == ("finished", 4)


@pytest.mark.requirement("B11", "B3")
def test_retry_after_holds_back_every_run_of_that_model(tmp_path: Path) -> None:
    """The first request is refused; the second, of another run, comes while the refusal holds."""
    seen: list[float] = []
    lock = threading.Lock()

    def answer(body: dict[str, Any]) -> Reply:
        with lock:
            seen.append(time.monotonic())
            first = len(seen) == 1
        return {"status": 429, "error": "slow", "headers": {"retry-after-ms": "700"}} if first else {"text": "done"}

    with model_server(answer) as server:
        results = ran(tmp_path, server, card("boss"), times=3, parallel=1)
    assert [result.status for result in results] == ["finished"] * 3
    assert len(seen) == 4
    assert all(at - seen[0] >= 0.69 for at in seen[1:])


@pytest.mark.requirement("B11", "A1")
def test_waiting_counts_to_the_time_of_the_run(tmp_path: Path) -> None:
    with model_server(lambda _: {"text": ""}) as server:  # an empty reply asks for another turn
        [result] = ran(tmp_path, server, card("boss"), requests_per_minute=1, limits=Limits(seconds=0.6))
    assert (result.status, result.stop_reason) == ("stopped", "timeout")
    assert len(server.seen) == 1
    assert result.usage.model_calls == 1


@pytest.mark.requirement("B11")
def test_a_run_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    def on_event(scope: anyio.CancelScope) -> Callable[[Any], None]:
        return lambda event: scope.cancel() if event.type == "usage" else None

    with model_server(lambda body: {"text": "" if turn_of(body) == 1 else "done"}) as server:

        async def main() -> None:
            async with opened(tmp_path, server, card("boss"), requests_per_minute=1) as orchestrator:
                with anyio.CancelScope() as scope:
                    await orchestrator.run("the job", on_event=on_event(scope))
                assert scope.cancelled_caught

        anyio.run(main)
    assert len(server.seen) == 1
    [row] = anyio.run(rows, tmp_path)
    assert row.status == "cancelled"


async def rows(folder: Path) -> list[RunRow]:
    journal = SqliteJournal(folder / "journal.sqlite")
    try:
        return await journal.runs()
    finally:
        await journal.aclose()


@pytest.mark.parametrize("key", ["requests_per_minute", "tokens_per_minute", "parallel"])
def test_a_limit_of_nothing_is_a_mistake(tmp_path: Path, key: str) -> None:
    file = tmp_path / "orchestrator.toml"
    file.write_text(f"[models.mine]\n{key} = 0\n")
    with pytest.raises(ConfigurationError, match=rf"orchestrator\.toml:2: `models\.mine\.{key}` must be greater"):
        load_settings(file, [], tmp_path, {})
