"""A process is killed at every point of a run, and another one goes on: what was done is not done again, what is
unknown is said once, and nothing that was acknowledged is lost. The points are K1 to K12; `POINTS` says what they are.
"""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.events import JournalEvent, Limits, dump
from orchestrator.messages import Usage
from orchestrator.runtime.result import run_result
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import fold
from orchestrator.runtime.words import IN_DOUBT
from orchestrator.testing import SqliteJournal
from tests.behaviour.crash import ALIVE, BUSY, FENCED, Death, Play, approve, sit
from tests.support.processes import SECONDS, end, give, in_new_process, start, take
from tests.support.runs import ledger_lines

KILLED = -signal.SIGKILL
YEAR_AHEAD = 365 * 86400.0

POINTS = {
    "K1 before the intent": Death(event="tool.intent", place="before"),
    "K2 after the intent": Death(event="tool.intent"),
    "K3 in the call, before its effect": Death(server=("KILL", "before", 1)),
    "K4 after the effect": Death(server=("KILL", "after", 1)),
    "K4 after the answer, which is not written": Death(event="tool.result", place="before"),
    "K5 after the result": Death(event="tool.result"),
    "K6 in the model call before": Death(model=1),
    "K6 in the model call after": Death(model=2),
    "K7 before the next model call": Death(event="model.intent", turn=2),
}
HAPPENED = {"K4 after the effect", "K4 after the answer, which is not written"}
UNKNOWN = {"K2 after the intent", "K3 in the call, before its effect", *HAPPENED}
"""Points at which nobody can know whether the call had its effect."""

CALLS = {
    "read": Play(folder=Path(), tool="look"),
    "idempotent": Play(folder=Path(), tool="put"),
    "write": Play(folder=Path(), tool="pay"),
    "write and approval": Play(folder=Path(), tool="pay", ask=True),
}


def tree_of(play: Play) -> dict[str, list[JournalEvent]]:
    async def read() -> dict[str, list[JournalEvent]]:
        journal = SqliteJournal(play.folder / "journal.sqlite")
        (row,) = await journal.runs()
        return await journal.tree(row.run_id)

    return anyio.run(read)


def root_of(play: Play) -> str:
    return min(tree_of(play), key=len)


def states_of(play: Play) -> dict[str, RunState]:
    return {run: fold(events) for run, events in tree_of(play).items()}


def events_of(play: Play, kind: str) -> list[Any]:
    return [event for events in tree_of(play).values() for event in events if event.type == kind]


def result_of(play: Play) -> dict[str, Any]:
    return json.loads((play.folder / "result.json").read_text())


def effects_of(play: Play) -> list[dict[str, Any]]:
    return [line for line in ledger_lines(play.folder / "ledger") if "tool" in line]


def requests_of(play: Play, agent: str = "worker") -> list[str]:
    lines = map(json.loads, (play.folder / "requests.jsonl").read_text().splitlines())
    return [line["body"] for line in lines if line["agent"] == agent]


def play_until(play: Play, death: Death) -> str:
    """Sittings and an approval up to the one that dies; gives the run's id."""
    run_id = None
    if play.ask and death.model != 1:
        assert in_new_process(sit, play) == 0
        run_id = root_of(play)
        assert result_of(play)["status"] == "parked"
        assert in_new_process(approve, play, run_id) == 0
    assert in_new_process(sit, play, run_id, death) == KILLED
    return root_of(play)


def go_on(play: Play, run_id: str) -> None:
    """Resumes in a new process, approving what waits, until the run has ended."""
    for _ in range(3):
        assert in_new_process(sit, play, run_id) == 0
        if result_of(play)["status"] != "parked":
            return
        assert in_new_process(approve, play, run_id) == 0
    raise AssertionError("the run parks for ever")


def check(play: Play, run_id: str) -> None:
    """What holds after any crash at all."""
    result, tree = result_of(play), tree_of(play)
    assert (result["status"], result["stop_reason"]) == ("finished", "answered")
    nothing_is_lost(play, tree)
    assert json.loads(run_result(run_id, states_of(play)).model_dump_json()) == result
    usage = sum((event.usage for event in events_of(play, "model.result")), Usage())
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (
        usage.input_tokens,
        usage.output_tokens,
    )
    assert result["usage"]["model_calls"] == len(events_of(play, "model.result"))

    effects = [line for line in effects_of(play) if line["text"] != "beside"]
    doubts, repeats = events_of(play, "tool.in_doubt"), events_of(play, "tool.retried")
    if play.tool == "pay":
        assert len(effects) <= play.calls, "a call that writes is never repeated"
        assert len(effects) + len(doubts) >= play.calls
        assert not repeats
    else:
        assert not doubts
        assert len(effects) - play.calls <= len(repeats), "no call is repeated without a word"
    assert len({line["key"] for line in effects}) == len({line["text"] for line in effects}), "a call keeps its key"
    assert requests_of(play)[-1].count(IN_DOUBT[:60]) == len(doubts), "the model is told once"
    an_ended_run_stays_as_it_is(play, run_id)


def nothing_is_lost(play: Play, tree: dict[str, list[JournalEvent]]) -> None:
    for run, events in tree.items():
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), run
    written = {dump(event) for events in tree.values() for event in events}
    acknowledged = (play.folder / "acknowledged.jsonl").read_bytes().splitlines()
    assert written >= set(acknowledged), "an event that was acknowledged is lost"


def an_ended_run_stays_as_it_is(play: Play, run_id: str) -> None:
    def everything() -> tuple[Any, ...]:
        return result_of(play), tree_of(play), requests_of(play), ledger_lines(play.folder / "ledger")

    before = everything()
    (play.folder / "result.json").unlink()
    assert in_new_process(sit, play, run_id) == 0
    assert everything() == before


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("child", [False, True], ids=["at the top", "in a child"])
@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("point", POINTS)
def test_killed_around_one_call(tmp_path: Path, point: str, kind: str, child: bool) -> None:
    """K1 to K7; inside a child they are K10."""
    play = replace(CALLS[kind], folder=tmp_path, child=child)
    run_id = play_until(play, POINTS[point])
    go_on(play, run_id)
    check(play, run_id)

    unknown, happened = point in UNKNOWN, point in HAPPENED
    effects, doubts, repeats = effects_of(play), events_of(play, "tool.in_doubt"), events_of(play, "tool.retried")
    if play.tool == "pay":
        assert (len(effects), len(doubts)) == (0 if unknown and not happened else 1, int(unknown))
    else:
        assert (len(effects), len(repeats)) == (2 if happened else 1, int(unknown))
    asked = 1 + point.startswith(("K6 in the model call before", "K6 in the model call after", "K7"))
    lost = sum(len(state.lost) for state in states_of(play).values())
    assert lost == asked - 1, "a request whose reply was lost stays charged, and no other does"


PARKING = {
    "K8 asked": Death(event="approval.asked"),
    "K8 before it parks": Death(event="run.parked", place="before"),
    "K8 parked": Death(event="run.parked"),
    "K8 before boss parks": Death(event="run.parked", agent="boss", place="before"),
    "K8 boss parked": Death(event="run.parked", agent="boss"),
}


@pytest.mark.requirement("H1", "E4")
@pytest.mark.parametrize(
    ("point", "child"), [(point, child) for point in PARKING for child in (False, True) if child or "boss" not in point]
)
def test_killed_while_it_parks(tmp_path: Path, point: str, child: bool) -> None:
    play = replace(CALLS["write and approval"], folder=tmp_path, child=child)
    assert in_new_process(sit, play, None, PARKING[point]) == KILLED
    run_id = root_of(play)
    assert in_new_process(approve, play, run_id) == 0, "the dead process holds nothing"
    go_on(play, run_id)
    check(play, run_id)
    assert len(effects_of(play)) == 1
    assert not events_of(play, "tool.in_doubt")


@pytest.mark.requirement("H1", "E4")
@pytest.mark.parametrize("child", [False, True], ids=["at the top", "in a child"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_while_the_approval_is_posted(tmp_path: Path, nth: int, child: bool) -> None:
    """K9: three verdicts at once, of which `nth` are written."""
    play = replace(CALLS["write and approval"], folder=tmp_path, child=child, calls=3)
    assert in_new_process(sit, play) == 0
    run_id = root_of(play)
    assert in_new_process(approve, play, run_id, Death(event="approval.decided", nth=nth)) == KILLED
    assert len(events_of(play, "approval.decided")) == nth
    go_on(play, run_id)
    check(play, run_id)
    assert Counter(line["text"] for line in effects_of(play)) == {"rent 1": 1, "rent 2": 1, "rent 3": 1}
    assert len(events_of(play, "approval.decided")) == 3


@pytest.mark.requirement("H1", "E2")
@pytest.mark.parametrize("beside", ["look", "put", "pay"])
@pytest.mark.parametrize("kind", ["read", "idempotent", "write"])
def test_killed_in_the_parent_while_the_child_runs(tmp_path: Path, kind: str, beside: str) -> None:
    """K11: both have a call under way, whose effects have happened and whose answers have not come."""
    play = replace(CALLS[kind], folder=tmp_path, child=True, beside=beside)
    run_id = play_until(play, Death(server=("KILL", "after", 2)))
    assert len(effects_of(play)) == 2, "both calls are under way"
    go_on(play, run_id)
    nothing_is_lost(play, tree_of(play))
    an_ended_run_stays_as_it_is(play, run_id)
    times = Counter(line["text"] for line in effects_of(play))
    assert times == {"beside": 1 if beside == "pay" else 2, "rent 1": 1 if kind == "write" else 2}
    assert len({line["key"] for line in effects_of(play)}) == 2
    doubts = {event.agent for event in events_of(play, "tool.in_doubt")}
    assert doubts == {agent for agent, tool in (("boss", beside), ("worker", play.tool)) if tool == "pay"}
    assert len(events_of(play, "tool.retried")) == 2 - len(doubts)
    assert len(events_of(play, "run.started")) == 2, "the child is found again"


TAKEOVERS = {
    "K12 claimed": Death(event="run.resumed", place="before"),
    "K12 resumed": Death(event="run.resumed"),
    "K12 settling": Death(event="tool.retried"),
    "K12 settled": Death(event="tool.in_doubt"),
    "K12 before it settles": Death(event="tool.in_doubt", place="before"),
    "K12 repeating": Death(event="tool.intent"),
}


@pytest.mark.requirement("H1")
@pytest.mark.parametrize(
    ("kind", "point", "child"),
    [
        (kind, point, child)
        for kind in ("read", "idempotent", "write")
        for point in TAKEOVERS
        for child in (False, True)
        if ("settl" in point and "settling" not in point) <= (kind == "write")
        and ("settling" in point or "repeating" in point) <= (kind != "write")
    ],
)
def test_killed_while_it_takes_over(tmp_path: Path, kind: str, point: str, child: bool) -> None:
    play = replace(CALLS[kind], folder=tmp_path, child=child)
    run_id = play_until(play, Death(server=("KILL", "after", 1)))
    assert in_new_process(sit, play, run_id, TAKEOVERS[point]) == KILLED
    go_on(play, run_id)
    check(play, run_id)
    assert len(effects_of(play)) == (1 if kind == "write" else 2)
    assert len(events_of(play, "tool.in_doubt")) == (kind == "write")


@contextmanager
def stopped_process(play: Play, death: Death) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has been stopped at its death, and still holds its claim."""
    code = (
        "import pickle, sys; from tests.behaviour.crash import sit; "
        "play, death = pickle.load(sys.stdin.buffer); sit(play, None, death)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(pickle.dumps((play, death)))
            process.stdin.close()
            stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped is not None
            assert stopped.si_code == os.CLD_STOPPED, "it ended instead"
            yield process
        finally:
            process.kill()


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("child", [False, True], ids=["at the top", "in a child"])
def test_a_zombie_is_fenced_out(tmp_path: Path, child: bool) -> None:
    play = Play(folder=tmp_path, tool="pay", child=child)
    with stopped_process(play, Death(server=("STOP", "after", 1))) as zombie:
        run_id = root_of(play)
        assert in_new_process(sit, play, run_id) == BUSY, "it is alive, and so is its lease"
        assert in_new_process(sit, play, run_id, ALIVE, YEAR_AHEAD) == 0
        result, tree, asked = result_of(play), tree_of(play), requests_of(play)
        assert result["status"] == "finished"
        assert len(events_of(play, "tool.in_doubt")) == 1

        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(SECONDS) == FENCED
    assert "taken over by another process" in (tmp_path / f"error-{zombie.pid}").read_text()
    assert (tree_of(play), requests_of(play)) == (tree, asked), "it wrote nothing and asked nothing more"
    assert len(effects_of(play)) == 1
    check(play, run_id)


@pytest.mark.requirement("H1")
def test_a_zombie_sends_nothing_that_waited_for_its_turn(tmp_path: Path) -> None:
    """Two calls whose intents are written, one after the other: the second must not go out when it wakes up."""
    play = Play(folder=tmp_path, tool="pay", calls=2, lease=0.05)
    with stopped_process(play, Death(server=("STOP", "after", 1))) as zombie:
        run_id = root_of(play)
        assert in_new_process(sit, play, run_id) == 0, "its lease is over"
        assert len(events_of(play, "tool.in_doubt")) == 2
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(SECONDS) == FENCED
    assert len(effects_of(play)) == 1
    check(play, run_id)


@pytest.mark.requirement("H1")
def test_two_processes_resume_the_same_run(tmp_path: Path) -> None:
    play = Play(folder=tmp_path, tool="pay")
    run_id = play_until(play, Death(event="tool.intent", place="before"))
    for fifo in ("driving", "go on"):
        os.mkfifo(tmp_path / fifo)

    both = [start(sit, play, run_id, replace(ALIVE, waits=True)) for _ in range(2)]
    try:
        take(tmp_path / "driving")
        connection.wait([process.sentinel for process in both], timeout=SECONDS)
        assert [process.exitcode for process in both if not process.is_alive()] == [BUSY]
        give(tmp_path / "go on")
        assert sorted(map(end, both)) == [0, BUSY]
    finally:
        for process in both:
            process.kill()
    check(play, run_id)
    assert len(effects_of(play)) == 1


@pytest.mark.requirement("H1", "A3")
@pytest.mark.parametrize("child", [False, True], ids=["at the top", "in a child"])
def test_a_limit_holds_over_kills(tmp_path: Path, child: bool) -> None:
    """What three lost replies may have cost is not given back, so there is nothing left for a fourth."""
    limit = 11_500
    play = Play(folder=tmp_path, child=child, limits=Limits(tokens=limit))
    run_id = play_until(play, Death(model=1))
    for kill in (2, 3):
        assert in_new_process(sit, play, run_id, Death(model=1)) == KILLED
        assert len(requests_of(play)) == kill
    assert in_new_process(sit, play, run_id) == 0

    result, states = result_of(play), states_of(play)
    assert (result["status"], result["stop_reason"]) == ("stopped", "max_tokens")
    assert len(requests_of(play)) == 3, "the fourth request is not sent"
    lost = [reservation.tokens for state in states.values() for reservation in state.lost]
    own = sum(state.own.tokens for state in states.values())
    assert len(lost) == 3
    assert limit - 256 < sum(lost) + own <= limit
    spent = sum((event.usage for event in events_of(play, "model.result")), Usage())
    assert result["usage"]["input_tokens"] + result["usage"]["output_tokens"] == spent.tokens == own
    nothing_is_lost(play, tree_of(play))
    an_ended_run_stays_as_it_is(play, run_id)


@pytest.mark.requirement("H1", "B3")
def test_kills_do_not_use_up_the_attempts_of_a_turn(tmp_path: Path) -> None:
    play = Play(folder=tmp_path)
    run_id = play_until(play, Death(model=1))
    for _ in range(3):
        assert in_new_process(sit, play, run_id, Death(model=1)) == KILLED
    assert in_new_process(sit, play, run_id, replace(ALIVE, refuses=1)) == 0
    check(play, run_id)
    assert [event.attempt for event in events_of(play, "model.failed")] == [5]
