"""What ends the driving of a run, and what its journal says then."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from orchestrator import Options, Orchestrator, RunOptions, RunResult
from orchestrator.config import PolicySettings, Settings
from orchestrator.errors import Fenced, JournalError
from orchestrator.events import JournalEvent
from orchestrator.messages import Message, ToolMessage
from orchestrator.models.base import CallReady, ModelPart, ModelRequest
from orchestrator.models.chat import ChatCodec
from orchestrator.runtime.hooks import Moment
from orchestrator.runtime.journal import Claim
from orchestrator.runtime.result import ApprovalRequest
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import CrashPoint, MemoryJournal, NullTracer, ScriptedModel, SqliteJournal, call
from tests.support.runs import card, cards, effects, ledger_lines

pytestmark = pytest.mark.requirement("H1")

TEAM = cards(
    card("boss", tools=("fx__*",), agents=("one", "two")), card("one", tools=("fx__*",)), card("two", tools=("fx__*",))
)


class Troubled(CrashPoint):
    """A journal that fails once, in the place of the first event of a type and an agent; nothing is written then."""

    def __init__(self, journal: Any, event: str, agent: str = "boss") -> None:
        super().__init__(journal)
        self._event, self._agent = event, agent
        self.failed = False

    async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
        if not self.failed and any(each.type == self._event and each.agent == self._agent for each in events):
            self.failed = True
            raise JournalError("the disk is full")
        await self._journal.append(claim, events, durable=durable)


def on_stage(
    folder: Path,
    journal: Any,
    script: Any,
    policy: PolicySettings = PolicySettings(allow=("*",)),  # noqa: B008
) -> Orchestrator:
    model = script if hasattr(script, "stream") else ScriptedModel(lambda request: script[request.agent, request.turn])
    settings = Settings(servers={"fx": effects(folder / "ledger")}, policy=policy)
    options = Options(settings=settings, cards=TEAM, model=model, home=folder, journal=journal, tracer=NullTracer())
    return Orchestrator(options, agent="boss")


def perform(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            await test()

    anyio.run(main)


async def types(journal: Any, run: str) -> list[str]:
    return [event.type for event in await journal.read(run)]


def paid(folder: Path) -> int:
    return sum(line.get("tool") == "pay" for line in ledger_lines(folder / "ledger"))


PAY = {("boss", 1): call("fx__pay", {"text": "rent"}), ("boss", 2): "done"}


def test_nothing_is_done_whose_intent_cannot_be_written(tmp_path: Path) -> None:
    async def test() -> None:
        journal = Troubled(MemoryJournal(), "tool.intent")
        async with on_stage(tmp_path, journal, PAY) as orchestrator:
            with pytest.raises(JournalError, match="disk is full"):
                await orchestrator.run("go")
            assert paid(tmp_path) == 0
            (row,) = await journal.runs()
            result = await orchestrator.resume(row.run_id)
        assert result.status == "finished"
        assert paid(tmp_path) == 1
        assert "tool.in_doubt" not in await types(journal, row.run_id)

    perform(test)


def test_what_must_survive_a_loss_of_power_is_written_so(tmp_path: Path) -> None:
    firmly: set[str] = set()
    other: set[str] = set()

    class Noting(MemoryJournal):
        async def append(self, claim: Claim, events: Sequence[JournalEvent], *, durable: bool = True) -> None:
            (firmly if durable else other).update(event.type for event in events)
            await super().append(claim, events, durable=durable)

    async def approver(request: ApprovalRequest, /) -> Verdict:
        return Verdict(approved=True)

    async def test() -> None:
        policy = PolicySettings(ask=("fx__pay",), allow=("*",))
        script = {("boss", 1): call("agents__one", {"task": "pay"}), ("one", 1): PAY["boss", 1]}
        script |= {("boss", 2): "done", ("one", 2): "one is done"}
        async with on_stage(tmp_path, Noting(), script, policy) as orchestrator:
            result = await orchestrator.run("go", options=RunOptions(approver=approver))
        assert result.status == "finished"

    perform(test)
    firm = {"run.started", "model.intent", "tool.intent", "approval.asked", "approval.decided", "run.finished"}
    assert firm <= firmly
    assert not firm & other


def test_trouble_of_one_agent_does_not_end_the_others(tmp_path: Path) -> None:
    """Both specialists are in the middle of a call when the journal fails one of them; both go on later."""
    script = {
        ("boss", 1): [call("agents__one", {"task": "pay"}), call("agents__two", {"task": "wait"})],
        ("boss", 2): "done",
        ("one", 1): call("fx__pay", {"text": "rent"}),
        ("one", 2): "one is done",
        ("two", 1): call("fx__look", {"text": "a"}),
        ("two", 2): "two is done",
    }

    async def test() -> None:
        two_thinks = anyio.Event()

        class Model(ScriptedModel):
            async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
                if (request.agent, request.turn) == ("two", 2) and not journal.failed:
                    two_thinks.set()
                    await anyio.sleep_forever()
                if (request.agent, request.turn) == ("one", 1):
                    await two_thinks.wait()
                async for part in super().stream(request):
                    yield part

        journal = Troubled(MemoryJournal(), "tool.intent", "one")
        model = Model(lambda request: script[request.agent, request.turn])
        async with on_stage(tmp_path, journal, model) as orchestrator:
            with pytest.raises(JournalError, match="disk is full"):
                await orchestrator.run("go")
            (row,) = await journal.runs()
            result = await orchestrator.resume(row.run_id)
        (step,) = result.steps[:1]
        assert [action.observation for action in step.actions] == ["one is done", "two is done"]
        assert paid(tmp_path) == 1

    perform(test)


def test_an_error_of_a_hook_loses_nothing_that_happened(tmp_path: Path) -> None:
    async def forgetful(moment: Moment) -> None:
        if moment.kind == "thinking" and moment.step == 1:
            raise LookupError("what was I to do?")

    async def test() -> None:
        journal = MemoryJournal()
        async with on_stage(tmp_path, journal, PAY) as orchestrator:
            with pytest.raises(LookupError):
                await orchestrator.run("go", options=RunOptions(hooks=[forgetful]))
            (row,) = await journal.runs()
            assert (await types(journal, row.run_id))[-1] == "tool.result"
            result = await orchestrator.resume(row.run_id)
        assert (result.status, result.steps[0].actions[0].is_error) == ("finished", False)
        assert paid(tmp_path) == 1

    perform(test)


def test_an_error_of_ours_loses_nothing_that_happened(tmp_path: Path) -> None:
    class Broken(ChatCodec):
        def message(self, message: Message) -> bytes:
            if isinstance(message, ToolMessage) and not mended:
                raise LookupError("how is that written?")
            return super().message(message)

    mended: list[bool] = []

    async def test() -> None:
        journal = MemoryJournal()
        model = ScriptedModel(PAY["boss", 1], "done")
        model.codec = Broken("scripted")
        async with on_stage(tmp_path, journal, model) as orchestrator:
            with pytest.raises(LookupError):
                await orchestrator.run("go")
            (row,) = await journal.runs()
            assert (await types(journal, row.run_id))[-1] == "tool.result"
            mended.append(True)
            assert (await orchestrator.resume(row.run_id)).status == "finished"
        assert "tool.in_doubt" not in await types(journal, row.run_id)

    perform(test)
    assert paid(tmp_path) == 1


def test_what_happened_is_written_before_a_hook_thinks_it_over(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def test() -> None:
        journal = MemoryJournal()

        async def slow(moment: Moment) -> None:
            seen.append((moment.kind, (await types(journal, moment.run_id))[-1]))

        async with on_stage(tmp_path, journal, PAY) as orchestrator:
            await orchestrator.run("go", options=RunOptions(hooks=[slow]))

    perform(test)
    assert seen == [
        ("thinking", "run.started"),
        ("acting", "model.result"),
        ("thinking", "tool.result"),
        ("finishing", "model.result"),
    ]


@pytest.mark.requirement("A11")
@pytest.mark.parametrize("how", ["left", "parked"])
def test_a_tree_ends_together(tmp_path: Path, how: str) -> None:
    """Leaving the stream cancels every run of the tree, the top one last; parking parks every one of them."""
    script = {("boss", 1): call("agents__one", {"task": "wait"}), ("one", 1): call("fx__hang", {"text": "a"})}

    async def test() -> None:
        journal = MemoryJournal()
        async with on_stage(tmp_path, journal, script) as orchestrator:
            events = orchestrator.stream("go")
            async for event in events:
                if event.type == "tool_call" and event.agent == "one":
                    if how == "left":
                        break
                    orchestrator.park()
            await events.aclose()
        tree = await journal.tree((await journal.runs())[0].run_id)
        assert len(tree) == 2
        last = [events[-1] for events in tree.values()]
        assert {event.type for event in last} == {"run.cancelled" if how == "left" else "run.parked"}
        assert {row.status for row in await journal.runs(top=False)} == {"cancelled" if how == "left" else "parked"}

    perform(test)


def test_what_a_run_came_to_is_not_lost_with_its_claim(tmp_path: Path) -> None:
    class Forgetful(MemoryJournal):
        async def release(self, claim: Claim) -> None:
            raise JournalError("the disk is full")

    async def test() -> None:
        async with on_stage(tmp_path, Forgetful(), {("boss", 1): "done"}) as orchestrator:
            assert (await orchestrator.run("go")).answer == "done"

    perform(test)


class Beating(MemoryJournal):
    """Counts renewals, and rings at the third."""

    lease = 0.03

    def __init__(self, trouble: type[JournalError] | None = None) -> None:
        super().__init__()
        self.beats, self.enough, self.trouble = 0, anyio.Event(), trouble

    async def renew(self, claim: Claim) -> None:
        self.beats += 1
        if self.beats == 3:
            self.enough.set()
        if self.trouble is not None:
            raise self.trouble("taken over")
        await super().renew(claim)


async def long_run(folder: Path, journal: Beating) -> RunResult:
    """A run whose model answers when its claim has been renewed three times."""

    async def answer(request: ModelRequest) -> str:
        await journal.enough.wait()
        return "done"

    async with on_stage(folder, journal, ScriptedModel(answer)) as orchestrator:
        return await orchestrator.run("go")


@pytest.mark.parametrize("trouble", [None, JournalError])
def test_a_claim_is_kept_while_a_run_takes_long(tmp_path: Path, trouble: type[JournalError] | None) -> None:
    async def test() -> None:
        assert (await long_run(tmp_path, Beating(trouble))).answer == "done"

    perform(test)


def test_a_claim_is_renewed_three_times_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        journal = Beating()
        journal.lease = 30.0
        naps: list[float] = []

        async def nap(seconds: float) -> None:
            while not await journal.runs():
                await anyio.lowlevel.checkpoint()
            naps.append(seconds)
            if len(naps) > 3:
                await anyio.sleep_forever()

        monkeypatch.setattr(anyio, "sleep", nap)
        assert (await long_run(tmp_path, journal)).answer == "done"
        assert set(naps) == {10.0}

    perform(test)


def test_a_run_that_was_taken_over_is_dropped_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        journal = Beating(Fenced)
        with pytest.raises(Fenced, match="taken over"):
            await long_run(tmp_path, journal)
        assert journal.beats == 1

    perform(test)


def test_no_call_goes_out_when_the_claim_has_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stood still between an intent and its effect asks first whether the run is still its own."""
    monkeypatch.setattr("orchestrator.runtime.sittings.time", SimpleNamespace(time=lambda: 0.0))

    async def test() -> None:
        journal = Beating(Fenced)
        journal.lease = 3600.0
        async with on_stage(tmp_path, journal, PAY) as orchestrator:
            with pytest.raises(Fenced, match="taken over"):
                await orchestrator.run("go")
        assert journal.beats == 1

    perform(test)
    assert paid(tmp_path) == 0


@pytest.mark.requirement("A10")
def test_only_what_reads_starts_before_its_intent_is_written(tmp_path: Path) -> None:
    """An effect of a call that nobody has on record could be neither repeated with its key nor told."""
    written: list[str] = []

    async def test() -> None:
        class Eager(ScriptedModel):
            async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
                if request.turn == 1:
                    yield CallReady(position=1, name="fx__put", arguments='{"text": "a"}')
                    yield CallReady(position=2, name="fx__pay", arguments='{"text": "a"}')
                    yield CallReady(position=3, name="fx__look", arguments='{"text": "a"}')
                    while not ledger_lines(tmp_path / "ledger"):
                        await anyio.lowlevel.checkpoint()
                    written.extend(line["tool"] for line in ledger_lines(tmp_path / "ledger"))
                async for part in super().stream(request):
                    yield part

        model = Eager([call(f"fx__{tool}", {"text": "a"}) for tool in ("put", "pay", "look")], "done")
        async with on_stage(tmp_path, SqliteJournal(tmp_path / "journal.sqlite"), model) as orchestrator:
            assert (await orchestrator.run("go")).status == "finished"

    perform(test)
    assert written == ["look"]
    assert sorted(line["tool"] for line in ledger_lines(tmp_path / "ledger")) == ["look", "pay", "put"]


def test_an_interrupt_before_a_run_has_begun_parks_nothing(tmp_path: Path) -> None:
    told: list[bool] = []

    class Early(MemoryJournal):
        async def keep(self, bodies: Any) -> None:
            told.append(orchestrators[0].park())
            await super().keep(bodies)

    orchestrators: list[Any] = []

    async def test() -> None:
        async with on_stage(tmp_path, Early(), {("boss", 1): "done"}) as orchestrator:
            orchestrators.append(orchestrator)
            assert (await orchestrator.run("go")).answer == "done"
        assert told == [False], "so that whoever interrupts knows that there is nothing to resume"

    perform(test)
