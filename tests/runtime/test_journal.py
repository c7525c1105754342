"""What every journal promises. A new kind joins by a line in `KINDS`; what only a file can do is at the end."""

import asyncio
import os
import signal
import sqlite3
import stat
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.errors import Fenced, JournalError, RunBusy, UnknownEvent
from orchestrator.events import (
    JournalEvent,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunParked,
    RunResumed,
    dump,
)
from orchestrator.runtime.journal import Claim, Journal, MemoryJournal, SqliteJournal
from orchestrator.runtime.journal.owner import owner_is_dead, process_identity
from tests.runtime.journals import fill, locked_out, many, observed, started, taken
from tests.support.processes import end, in_new_process, start

pytestmark = pytest.mark.requirement("H1")

KINDS: dict[str, Callable[[Path], Journal]] = {
    "memory": lambda folder: MemoryJournal(),
    "sqlite": lambda folder: SqliteJournal(folder / "home" / "journal.sqlite"),
}
Test = Callable[[Journal], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture(params=KINDS)
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a test on an empty journal of each kind."""

    def run(test: Test) -> None:
        async def main() -> None:
            with anyio.fail_after(60):
                journal = KINDS[request.param](tmp_path)
                await test(journal)
                await journal.aclose()

        anyio.run(main)

    return run


ENDINGS: dict[str, Callable[..., JournalEvent]] = {
    "finished": lambda **at: RunFinished(status="finished", stop_reason="answered", answer="", **at),
    "stopped": lambda **at: RunFinished(status="stopped", stop_reason="max_steps", answer="", **at),
    "failed": lambda **at: RunFailed(error="", **at),
    "cancelled": lambda **at: RunCancelled(reason="", **at),
}


def at(seq: int, run: str = "r", time: float = 5.0) -> dict[str, Any]:
    return {"seq": seq, "at": time, "run": run, "agent": "a"}


# --- the claim -----------------------------------------------------------------------------------------------------


def test_a_claim_is_one_process_alone(on: Run) -> None:
    async def test(journal: Journal) -> None:
        claim = await journal.claim("r")
        with pytest.raises(RunBusy, match="r is being driven"):
            await journal.claim("r")
        await journal.claim("other")
        await journal.release(claim)
        assert (await journal.claim("r")).fence > claim.fence

    on(test)


def test_an_older_fence_writes_nothing(on: Run) -> None:
    async def test(journal: Journal) -> None:
        old = await many(journal, "r", 2)
        await journal.release(old)
        new = await journal.claim("r")
        for refused in (journal.append(old, [observed(3)]), journal.renew(old), journal.release(old)):
            with pytest.raises(Fenced, match="r "):
                await refused
        assert len(await journal.read("r")) == 2
        await journal.renew(new)
        await journal.append(new, [observed(3)])
        assert len(await journal.read("r")) == 3

    on(test)


def test_a_fence_that_was_never_given_out_writes_nothing(on: Run) -> None:
    async def test(journal: Journal) -> None:
        await many(journal, "r", 2)
        for claim in (Claim(root="r", fence=7), Claim(root="unclaimed", fence=1)):
            with pytest.raises(Fenced):
                await journal.append(claim, [observed(3)])

    on(test)


@pytest.mark.parametrize("ending", [*ENDINGS, "parked"])
def test_the_end_of_the_top_run_gives_the_claim_back(on: Run, ending: str) -> None:
    """In the same step: whoever dies right after it holds nothing. A run below ends without that."""

    async def test(journal: Journal) -> None:
        def last(**where: Any) -> JournalEvent:
            return RunParked(reason="approval", **where) if ending == "parked" else ENDINGS[ending](**where)

        claim = await many(journal, "r", 2)
        await journal.append(claim, [started("r/t1.1", parent="r"), last(**at(2, "r/t1.1"))])
        with pytest.raises(RunBusy):
            await journal.claim("r")
        await journal.append(claim, [last(**at(3))])
        assert (await journal.claim("r")).fence == claim.fence + 1
        with pytest.raises(Fenced):
            await journal.release(claim)

    on(test)


# --- appending -----------------------------------------------------------------------------------------------------


def test_events_are_read_as_they_were_written(on: Run) -> None:
    async def test(journal: Journal) -> None:
        text = "数字 \u2028 \x00 \N{PILE OF POO} \r\n" + "ü" * 2_500_000
        events = [started(task=text[:30]), observed(2, text)]
        claim = await journal.claim("r")
        await journal.append(claim, events)
        assert await journal.read("r") == events
        row = await journal.row("r")
        assert row is not None
        assert row.task == text[:30]
        assert await journal.read("unknown") == []

    on(test)


@pytest.mark.parametrize(
    "batch",
    [
        [observed(3), observed(3)],
        [observed(3), observed(5)],
        [observed(2)],
        [observed(4)],
        [started("r/t1.1", parent="r"), observed(1, run="r/t1.1")],
        [started("r/t1.1", parent="r"), observed(2)],
    ],
    ids=["twice", "gap", "there already", "ahead", "twice in a child", "first good"],
)
def test_an_append_is_written_whole_or_not_at_all(on: Run, batch: list[JournalEvent]) -> None:
    async def test(journal: Journal) -> None:
        claim = await many(journal, "r", 2)
        with pytest.raises(JournalError, match="does not follow"):
            await journal.append(claim, batch)
        assert list(await journal.tree("r")) == ["r"]
        assert [event.seq for event in await journal.read("r")] == [1, 2]
        assert [row.run_id for row in await journal.runs(top=False)] == ["r"]
        await journal.append(claim, [observed(3)])

    on(test)


def test_a_tree_is_the_run_and_all_below_it(on: Run) -> None:
    async def test(journal: Journal) -> None:
        claim, other = await many(journal, "r", 2), await many(journal, "r2", 2)
        child, grandchild = "r/t1.1", "r/t1.1/t2.1"
        await journal.append(claim, [started(child, parent="r"), observed(3), observed(2, run=child)])
        await journal.append(claim, [started(grandchild, parent=child), observed(4), observed(2, run=grandchild)])
        await journal.append(other, [observed(3, run="r2")])
        tree = await journal.tree("r")
        assert {run: [event.seq for event in events] for run, events in tree.items()} == {
            "r": [1, 2, 3, 4],
            child: [1, 2],
            grandchild: [1, 2],
        }
        assert list(tree) == ["r", child, grandchild], "callers before those that they call"
        assert await journal.tree("unknown") == {}

    on(test)


def test_half_a_surrogate_pair_is_refused_with_a_word(on: Run) -> None:
    async def test(journal: Journal) -> None:
        claim = await many(journal, "r", 2)
        if isinstance(journal, MemoryJournal):
            return  # nothing is written down
        with pytest.raises(JournalError, match=r"tool\.result"):
            await journal.append(claim, [observed(3, "a\ud800")])
        await journal.append(claim, [observed(3)])

    on(test)


# --- bodies and rows -----------------------------------------------------------------------------------------------


def test_bodies_are_kept_once(on: Run) -> None:
    async def test(journal: Journal) -> None:
        big = os.urandom(5_000_000)
        await journal.keep({"a": b"one", "b": big})
        await journal.keep({"a": b"another", "c": b""})
        assert [await journal.body(digest) for digest in "abc"] == [b"one", big, b""]
        with pytest.raises(JournalError, match="no body d"):
            await journal.body("d")

    on(test)


def test_runs_are_listed_newest_first(on: Run) -> None:
    async def test(journal: Journal) -> None:
        for run, time in (("b", 2.0), ("a", 1.0), ("d", 3.0), ("c", 3.0)):
            claim = await journal.claim(run)
            await journal.append(claim, [started(run, at=time, task=f"task {run}")])
            await journal.append(claim, [started(f"{run}/t1.1", at=time + 0.5, parent=run)])
        assert [row.run_id for row in await journal.runs()] == ["d", "c", "b", "a"]
        assert [row.run_id for row in await journal.runs(limit=2)] == ["d", "c"]
        assert [row.run_id for row in await journal.runs(top=False, limit=3)] == ["d/t1.1", "c/t1.1", "d"]
        row = await journal.row("b/t1.1")
        assert row is not None
        assert (row.parent, row.agent, row.started_at) == ("b", "a", 2.5)
        assert await journal.row("unknown") is None

    on(test)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_run_has_ended_when_it_has(on: Run, ending: str) -> None:
    async def test(journal: Journal) -> None:
        seen = list[tuple[str, float | None]]()
        claim = await journal.claim("r")
        for event in (
            started(at=1.0),
            RunParked(reason="interrupted", **at(2, time=2.0)),
            RunResumed(fence=2, **at(3, time=3.0)),
            observed(4, at=4.0),
            ENDINGS[ending](**at(5, time=5.0)),
        ):
            await journal.append(claim, [event])
            row = await journal.row("r")
            assert row is not None
            seen.append((row.status, row.ended_at))
        assert seen == [("running", None), ("parked", None), ("running", None), ("running", None), (ending, 5.0)]

    on(test)


# --- many at once --------------------------------------------------------------------------------------------------


def test_fifty_write_at_once_and_one_of_them_is_refused(on: Run) -> None:
    async def test(journal: Journal) -> None:
        claims = [await many(journal, f"r{n}", 1) for n in range(50)]
        await journal.release(claims[7])
        await journal.claim("r7")
        refused: dict[str, str] = {}

        async def write(claim: Claim, *seqs: int) -> None:
            try:
                for seq in seqs:
                    await journal.append(claim, [observed(seq, run=claim.root)], durable=seq % 2 == 0)
            except JournalError as error:
                refused[claim.root] = type(error).__name__

        async with anyio.create_task_group() as group:
            for claim in claims:
                group.start_soon(write, claim, *((9,) if claim.root == "r9" else range(2, 12)))
        assert refused == {"r7": "Fenced", "r9": "JournalError"}
        for claim in claims:
            expected = 1 if claim.root in refused else 11
            assert len(await journal.read(claim.root)) == expected

    on(test)


def test_an_append_that_is_cancelled_is_written_all_the_same(on: Run) -> None:
    async def test(journal: Journal) -> None:
        claim = await many(journal, "r", 1)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await journal.append(claim, [observed(2)])
        await journal.append(claim, [observed(3)])
        assert [event.seq for event in await journal.read("r")] == [1, 2, 3]

    on(test)


# --- what a file must do -------------------------------------------------------------------------------------------


def sqlite(test: Callable[[SqliteJournal], Awaitable[None]], path: Path, **more: Any) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            journal = SqliteJournal(path, **more)
            await test(journal)
            await journal.aclose()

    anyio.run(main)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "home" / "journal.sqlite"

    async def test(journal: SqliteJournal) -> None:
        assert await journal.runs() == []
        assert not path.parent.exists(), "who only reads makes nothing"
        await many(journal, "r", 2)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    before = os.umask(0)
    try:
        sqlite(test, path)
    finally:
        os.umask(before)


def test_only_what_must_survive_a_loss_of_power_is_flushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*arguments: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*arguments, **more)
        db.set_trace_callback(said.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)

    async def test(journal: SqliteJournal) -> None:
        claim = await many(journal, "r", 1)
        for seq, durable, level in ((2, True, "FULL"), (3, False, "NORMAL"), (4, True, "FULL")):
            said.clear()
            await journal.append(claim, [observed(seq)], durable=durable)
            assert said[:2] == [f"PRAGMA synchronous = {level}", "BEGIN IMMEDIATE"]
            assert said[-1] == "COMMIT"

    sqlite(test, path)


@pytest.mark.parametrize("others", [0, 20])
def test_a_write_that_fails_half_way_leaves_nothing(path: Path, others: int) -> None:
    async def test(journal: SqliteJournal) -> None:
        claim = await many(journal, "r", 2)
        claims = [await many(journal, f"r{n}", 1) for n in range(others)]
        nowhen = started("r/t1.1", parent="r", at=float("nan"))
        async with anyio.create_task_group() as group:
            for other in claims:
                group.start_soon(journal.append, other, [observed(2, run=other.root)])
            with pytest.raises(JournalError, match="refuses"):
                await journal.append(claim, [observed(3), nowhen])
        assert [event.seq for event in await journal.read("r")] == [1, 2]
        assert await journal.read("r/t1.1") == []
        for other in claims:
            assert len(await journal.read(other.root)) == 2
        await journal.append(claim, [observed(3)])

    sqlite(test, path)


def test_closing_writes_what_waits(path: Path) -> None:
    async def main() -> None:
        journal = SqliteJournal(path)
        claim = await many(journal, "r", 1)
        async with anyio.create_task_group() as group:
            for seq in range(2, 40):
                group.start_soon(journal.append, claim, [observed(seq)])
            await anyio.lowlevel.checkpoint()
            await journal.aclose()
            assert "journal" not in [thread.name for thread in threading.enumerate()]
        await journal.aclose()
        assert len(await SqliteJournal(path).read("r")) == 39

    anyio.run(main)


def test_a_loop_that_ended_in_an_append_does_not_stop_the_next(path: Path) -> None:
    journal = SqliteJournal(path)

    async def leave() -> None:
        claim = await many(journal, "r", 1)
        lock = sqlite3.connect(path)
        lock.execute("BEGIN IMMEDIATE")  # so that the append is still under way when the loop closes
        waiting = asyncio.ensure_future(journal.append(claim, [observed(2)]))
        await asyncio.sleep(0)
        waiting.cancel()
        locks.append(lock)

    locks: list[sqlite3.Connection] = []
    asyncio.run(leave())
    locks[0].rollback()
    locks[0].close()

    async def again() -> None:
        with anyio.fail_after(60):
            claim = await journal.claim("other")
            await journal.append(claim, [started("other")])
            assert [event.seq for event in await journal.read("r")] == [1, 2]
            await journal.aclose()

    asyncio.run(again())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type":"tool.teleported","v":1,"seq":2,"at":2,"run":"r","agent":"a"}', "tool.teleported"),
        (dump(observed(2)).replace(b'"v":1', b'"v":2'), '"v":2'),
        (dump(observed(2)).replace(b"{", b'{"colour":"red",', 1), "colour"),
        (b'{"type":"tool.res', "tool.res"),
    ],
    ids=["type", "version", "field", "torn"],
)
def test_an_event_of_another_version_stops_the_reading(path: Path, line: bytes, words: str) -> None:
    async def test(journal: SqliteJournal) -> None:
        await many(journal, "r", 1)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("INSERT INTO events (run, seq, body) VALUES ('r', 2, ?)", (line,))
        for read in (journal.read("r"), journal.tree("r")):
            with pytest.raises(UnknownEvent, match="Use the version that wrote it") as caught:
                await read
            assert words in str(caught.value)
        assert len(await journal.runs()) == 1

    sqlite(test, path)


def test_a_file_of_a_newer_format_is_left_alone(path: Path) -> None:
    async def make(journal: SqliteJournal) -> None:
        await many(journal, "r", 2)

    async def test(journal: SqliteJournal) -> None:
        with pytest.raises(JournalError, match="newer version"):
            await journal.read("r")
        with pytest.raises(JournalError, match="newer version"):
            await journal.claim("r")

    sqlite(make, path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 99")
    sqlite(test, path)


def test_a_file_that_another_process_is_just_making_is_empty(path: Path) -> None:
    path.touch()

    async def test(journal: SqliteJournal) -> None:
        assert await journal.runs() == []
        assert await journal.tree("r") == {}

    sqlite(test, path)


@pytest.mark.parametrize("damage", ["no database", "torn pages"])
def test_a_broken_file_is_told(path: Path, damage: str) -> None:
    async def make(journal: SqliteJournal) -> None:
        claim = await many(journal, "r", 1)
        await journal.append(claim, [observed(2, "x" * 100_000)])

    async def test(journal: SqliteJournal) -> None:
        with pytest.raises(JournalError, match=r"journal\.sqlite cannot be"):
            await journal.tree("r")
        with pytest.raises(JournalError, match=r"journal\.sqlite cannot be"):
            await journal.claim("r")

    sqlite(make, path)
    whole = path.read_bytes()
    path.write_bytes(
        b"not a database" * 1000 if damage == "no database" else whole[:4096] + os.urandom(len(whole) - 4096)
    )
    sqlite(test, path)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()

    async def test(journal: SqliteJournal) -> None:
        for attempt in (journal.claim("r"), journal.keep({"a": b"b"})):
            with pytest.raises(JournalError, match=r"cannot be opened"):
                await attempt

    sqlite(test, tmp_path / "file" / "journal.sqlite")
    sqlite(test, tmp_path / "folder")


def test_a_folder_that_is_not_ours_is_told(path: Path) -> None:
    assert in_new_process(locked_out, path) == 0
    assert (path.parent / "told").read_text().splitlines() == ["cannot be read", "cannot be opened"]
    assert not path.exists()


@pytest.mark.parametrize("kilobytes", [300, 900, 2000])
def test_a_full_disk_loses_nothing_that_was_acknowledged(path: Path, kilobytes: int) -> None:
    assert in_new_process(fill, path, kilobytes * 1024) == 0
    told = (path.parent / "told").read_text()
    assert "journal.sqlite cannot be written" in told

    async def test(journal: SqliteJournal) -> None:
        acknowledged = int((path.parent / "acknowledged").read_text())
        events = await journal.read("r")
        assert [event.seq for event in events] == list(range(1, acknowledged + 1))
        assert acknowledged > 5
        assert events[-1] == observed(acknowledged, "after")

    sqlite(test, path)


def test_a_torn_tail_is_dropped_and_the_rest_is_there(path: Path) -> None:
    """As after a loss of power: the last pages of the write-ahead log are missing or rubbish."""

    async def main() -> None:
        journal = SqliteJournal(path)
        claim = await many(journal, "r", 20)
        whole, log = path.read_bytes(), path.with_name(path.name + "-wal").read_bytes()  # noqa: ASYNC240
        for number, torn in enumerate((log[:-1000], log[:-1000] + os.urandom(1000), log + os.urandom(5000))):
            copy = path.with_name(f"copy{number}.sqlite")
            copy.write_bytes(whole)
            copy.with_name(copy.name + "-wal").write_bytes(torn)
            other = SqliteJournal(copy)
            events = await other.read("r")
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) >= 19
            assert (await other.claim("r2")).fence == 1
            await other.aclose()
        await journal.release(claim)
        await journal.aclose()

    anyio.run(main)


# --- several processes ---------------------------------------------------------------------------------------------


def test_processes_that_start_at_once_share_a_new_file(path: Path) -> None:
    runs = [[f"p{number}-{n}" for n in range(5)] for number in range(4)]
    processes = [start(taken, path, names) for names in runs]
    assert [end(process) for process in processes] == [0] * 4

    async def test(journal: SqliteJournal) -> None:
        for run in (name for names in runs for name in names):
            assert [event.seq for event in await journal.read(run)] == list(range(1, 11))

    sqlite(test, path)


def test_a_claim_of_a_live_process_is_safe_until_its_lease_ends(path: Path) -> None:
    async def main() -> None:
        clock = [1000.0]
        one, two = (SqliteJournal(path, lease=30, now=lambda: clock[0]) for _ in range(2))
        old = await one.claim("r")
        clock[0] += 29
        with pytest.raises(RunBusy):
            await two.claim("r")
        await one.renew(old)
        clock[0] += 29
        with pytest.raises(RunBusy):
            await two.claim("r")
        clock[0] += 2
        new = await two.claim("r")
        assert new.fence == old.fence + 1
        with pytest.raises(Fenced):
            await one.renew(old)
        await one.aclose()
        await two.aclose()

    anyio.run(main)


def test_who_is_dead_for_certain() -> None:
    process = start(taken, Path(os.devnull), [])
    assert process.pid is not None
    identity = process_identity(process.pid)
    end(process)
    assert owner_is_dead(identity)
    mine = process_identity(os.getpid())
    assert not owner_is_dead(mine)
    assert owner_is_dead(mine[:-1] + "x"), "another process has its pid now"
    assert not owner_is_dead("elsewhere" + identity), "of another host, nobody here can know"
    if "pid:[" in identity:
        assert not owner_is_dead(identity.replace("pid:[", "pid:[9")), "nor of another container of the same name"


def test_who_was_killed_is_dead_before_its_parent_takes_note() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    identity = process_identity(child)
    assert not owner_is_dead(identity)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert owner_is_dead(identity)
    os.waitpid(child, 0)
