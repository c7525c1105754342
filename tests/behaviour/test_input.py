"""What a server asks of a person in the middle of a call waits as an approval does, in both eras of the protocol."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from orchestrator import ConfigurationError, RunOptions, RunResult
from orchestrator.events import ApprovalDecided, Limits
from orchestrator.runtime.result import RESTARTS, ApprovalRequest
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import SqliteJournal, call
from tests.behaviour.stage import Stage
from tests.support.runs import card

SUPPORT = Path(__file__).parents[1] / "support"
ERAS = {"new": "asking_server.py", "old": "holding_server.py"}
SEATS = {"seats": 2, "window": True}

both_eras = pytest.mark.parametrize("era", ERAS)


def stage_of(folder: Path, era: str, *turns: Any, depth: int = 0, **fx: Any) -> Stage:
    """The last of `depth` + 1 agents makes the calls of `turns`, over the server `fx`."""
    names = ["boss", "mid", "leaf"][: depth + 1]
    script: dict[Any, Any] = {name: f"{name} is done" for name in names}
    team = []
    for name, below in zip(names, [*names[1:], None], strict=True):
        if below is None:
            script |= {(name, number): turn for number, turn in enumerate(turns, 1)}
            team.append(card(name, tools=("fx__*",)))
        else:
            script[name, 1] = call(f"agents__{below}", {"task": "go"})
            team.append(card(name, tools=(), agents=(below,)))
    flags = ("-S", "-E") if era == "old" else ()  # which are most of what starting a plain one takes
    arguments = (*flags, str(SUPPORT / ERAS[era]), str(folder / "ledger"))
    return Stage(folder, script, *team, fx={"command": sys.executable, "args": arguments, **fx})


def ledger(folder: Path) -> list[Mapping[str, Any]]:
    file = folder / "ledger"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if "elicitation" not in line]


def booked(folder: Path) -> int:
    """How often a seat was booked for good."""
    done = [line for line in ledger(folder) if "booked" in line or line.get("answer", {}).get("action") == "accept"]
    return len(done)


def observed(result: RunResult) -> str:
    return result.steps[0].actions[0].observation


BOOK = call("fx__book", {"city": "Rome"})


@pytest.mark.requirement("C7", "E4")
@both_eras
@pytest.mark.parametrize("depth", [0, 2])
def test_a_question_waits_at_any_depth_and_the_call_goes_on(tmp_path: Path, era: str, depth: int) -> None:
    stage = stage_of(tmp_path, era, BOOK, depth=depth)
    parked = stage.run()
    assert (parked.status, parked.stop_reason) == ("parked", "approval")
    (request,) = parked.approvals
    path = "/".join(["t1.1"] * (depth + 1))
    assert (request.call, request.tool, request.arguments) == (path, "fx__book", {"city": "Rome"})
    assert request.input is not None
    assert (request.input["server"], "Rome" in request.input["message"]) == ("fx", True)
    assert list(request.input["schema"]["properties"]) == ["seats", "window"]
    assert request.reason.startswith("server fx asks: ")
    assert (RESTARTS in request.reason) == (era == "old"), "what is done twice is said before it is"
    assert [(event.call, event.input) for event in stage.seen.of("approval")] == [(path, request.input)]
    assert not booked(tmp_path)

    again = stage.resume(parked.run_id)
    assert [each.call for each in again.approvals] == [path], "without an answer it waits on"
    assert len(stage.seen.of("approval")) == 1, "and is not asked again"
    for wrong, problem in (({"seats": 12}, "9"), ({"seat": 1}, "no field seat"), (None, "seats is required")):
        with pytest.raises(ConfigurationError, match=problem):
            stage.decide(parked.run_id, arguments=wrong)
    assert stage.decide(parked.run_id, arguments=SEATS) == [path]
    with pytest.raises(ConfigurationError, match="no call"):
        stage.decide(parked.run_id, arguments=SEATS)
    result = stage.resume(parked.run_id)
    assert (result.status, result.answer) == ("finished", "boss is done")
    assert booked(tmp_path) == 1
    assert "Rome" in stage.last(["boss", "mid", "leaf"][depth])


@pytest.mark.requirement("C7")
@both_eras
@pytest.mark.parametrize("depth", [0, 1])
def test_someone_who_is_there_answers_in_place(tmp_path: Path, era: str, depth: int) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Verdict | None:
        asked.append(request)
        return Verdict(approved=True, arguments={"seats": "3"})

    stage = stage_of(tmp_path, era, BOOK, depth=depth)
    assert stage.run(approver=approver).status == "finished"
    (request,) = asked
    assert RESTARTS not in request.reason
    assert booked(tmp_path) == 1
    begun = [line for line in ledger(tmp_path) if "began" in line]
    assert len(begun) == (era == "old"), "the call was held and not made again"
    assert "3" in stage.last(["boss", "mid"][depth])


@pytest.mark.requirement("C7")
@both_eras
def test_a_no_reaches_server_and_model(tmp_path: Path, era: str) -> None:
    stage = stage_of(tmp_path, era, BOOK)
    parked = stage.run()
    stage.decide(parked.run_id, approved=False, note="no trips this year")
    result = stage.resume(parked.run_id)
    assert "no trips this year" in observed(result)
    assert not booked(tmp_path)
    begun = [line for line in ledger(tmp_path) if "began" in line]
    assert len(begun) == (era == "old"), "what would begin anew only to be refused is not made again"


@pytest.mark.requirement("C7")
@both_eras
def test_a_person_may_dismiss_a_question(tmp_path: Path, era: str) -> None:
    async def approver(_: ApprovalRequest) -> Verdict | None:
        return Verdict(approved=False, dismissed=True)

    result = stage_of(tmp_path, era, BOOK).run(approver=approver)
    assert "cancel" in observed(result)
    assert not booked(tmp_path)


@pytest.mark.requirement("C7")
@both_eras
def test_none_declines_at_once(tmp_path: Path, era: str) -> None:
    stage = stage_of(tmp_path, era, BOOK)
    result = stage.run(approve="none")
    assert result.status == "finished"
    assert "was declined" in observed(result) or '"decline"' in observed(result)
    assert not stage.seen.of("approval")
    assert not booked(tmp_path)


@pytest.mark.requirement("C7")
@both_eras
def test_all_invents_no_content(tmp_path: Path, era: str) -> None:
    parked = stage_of(tmp_path, era, BOOK).run(approve="all")
    assert [each.tool for each in parked.approvals] == ["fx__book"]
    assert not booked(tmp_path)


@pytest.mark.requirement("C7")
def test_all_says_yes_where_nothing_else_is_asked_for_and_a_server_cannot_ask_for_ever(tmp_path: Path) -> None:
    result = stage_of(tmp_path, "new", call("fx__again", {})).run(approve="all")
    assert result.steps[0].actions[0].is_error
    assert "10 times" in observed(result)
    assert len(ledger(tmp_path)) == 11


@pytest.mark.requirement("C7")
def test_several_things_are_asked_at_once(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, "new", call("fx__both", {}))
    parked = stage.run()
    assert "name" in parked.approvals[0].input["schema"]["properties"]  # pyright: ignore[reportOptionalSubscript]
    with pytest.raises(ConfigurationError, match="no field age"):
        stage.decide(parked.run_id, arguments={"age": 5})
    stage.decide(parked.run_id, arguments={"name": "Ada"})
    (left,) = stage.resume(parked.run_id).approvals
    assert "age" in left.input["schema"]["properties"]  # pyright: ignore[reportOptionalSubscript]
    stage.decide(parked.run_id, approved=False)
    result = stage.resume(parked.run_id)
    assert observed(result).endswith("was declined]\nname {'name': 'Ada'}, age None")
    assert ledger(tmp_path) == [{"both": ["accept", "decline"]}]


@pytest.mark.requirement("C7")
def test_one_thing_is_asked_after_the_other_and_a_new_process_of_the_server_is_told_all(tmp_path: Path) -> None:
    """Its state was sealed with a key that died with its process, as that of every server on the SDK's defaults."""
    stage = stage_of(tmp_path, "new", call("fx__steps", {}))
    parked = stage.run()
    for word in ("good", "day"):
        assert parked.status == "parked"
        stage.decide(parked.run_id, arguments={"word": word})
        parked = stage.resume(parked.run_id)
    assert observed(parked) == "good day"
    assert ledger(tmp_path) == [{"steps": ["good", "day"]}]


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    ("era", "host"), [("new", "evil.example"), ("old", "pay.example")], ids=["user info in the URL", "old"]
)
def test_a_page_is_told_with_its_host(tmp_path: Path, era: str, host: str) -> None:
    stage = stage_of(tmp_path, era, call("fx__page", {}))
    parked = stage.run()
    asked = parked.approvals[0].input
    assert asked is not None
    assert (asked["host"], host in asked["url"], "schema" in asked) == (host, True, False)
    with pytest.raises(ConfigurationError, match="takes no values"):
        stage.decide(parked.run_id, arguments={"a": 1})
    stage.decide(parked.run_id)
    assert observed(stage.resume(parked.run_id)) == "page: accept"


@pytest.mark.requirement("C7")
def test_a_page_must_be_visited_before_the_call(tmp_path: Path) -> None:
    """Error -32042 of 2025-11-25. The server is a new process after the park and refuses once more."""
    stage = stage_of(tmp_path, "old", call("fx__first", {}))

    async def approver(_: ApprovalRequest) -> Verdict | None:
        return Verdict(approved=True)

    parked = stage.run()
    assert parked.approvals[0].input["host"] == "login.example"  # pyright: ignore[reportOptionalSubscript]
    assert observed(stage.resume(parked.run_id, approver=approver)) == "now it works"


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    ("era", "tool", "told"),
    [
        ("new", "model", "sampling/createMessage; only questions to a person"),
        ("old", "odd", "a schema that cannot be used"),
    ],
)
def test_what_no_person_can_answer(tmp_path: Path, era: str, tool: str, told: str) -> None:
    result = stage_of(tmp_path, era, call(f"fx__{tool}", {})).run()
    assert result.status == "finished"
    assert told in observed(result)


def test_a_server_that_is_not_ready_is_called_again(tmp_path: Path) -> None:
    assert observed(stage_of(tmp_path, "new", call("fx__later", {})).run()) == "ready"


@pytest.mark.requirement("C7", "E4")
def test_an_answer_counts_for_the_very_question(tmp_path: Path) -> None:
    """A stale terminal answers the first of two questions twice."""
    stage = stage_of(tmp_path, "new", call("fx__both", {}))
    parked = stage.run()

    async def forge() -> None:
        journal = SqliteJournal(tmp_path / "journal.sqlite")
        claim = await journal.claim(parked.run_id)
        events = await journal.read(parked.run_id)
        asked = next(event for event in events if event.type == "input.asked")
        verdict = ApprovalDecided(
            **{**events[-1].model_dump(include={"run", "agent", "turn", "at"}), "seq": events[-1].seq + 1},
            call="t1.1",
            approved=True,
            digest=asked.questions[0].digest,
            arguments={"name": "Eve"},
        )
        await journal.append(claim, [verdict])
        await journal.release(claim)
        await journal.aclose()

    stage.decide(parked.run_id, arguments={"name": "Ada"})
    anyio.run(forge)
    stage.decide(parked.run_id, arguments={"age": 36})
    assert observed(stage.resume(parked.run_id)) == "name {'name': 'Ada'}, age {'age': 36}"


@pytest.mark.requirement("C7")
def test_an_answer_that_does_not_fit_waits_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def approver(_: ApprovalRequest) -> Verdict | None:
        return Verdict(approved=True, arguments={"seats": 99})

    parked = stage_of(tmp_path, "new", BOOK).run(approver=approver)
    assert parked.status == "parked"
    assert "does not fit" in caplog.text


@pytest.mark.requirement("C7")
def test_a_person_takes_none_of_the_call_s_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that jumps: the person takes an hour, while the call and the run have a minute each."""

    async def approver(_: ApprovalRequest) -> Verdict | None:
        loop = asyncio.get_running_loop()
        begun = loop.time
        monkeypatch.setattr(loop, "time", lambda: begun() + 3600)
        for _turn in range(5):  # in which what was due would end the call
            await anyio.lowlevel.checkpoint()
        return Verdict(approved=True, arguments=SEATS)

    async def main() -> RunResult:
        async with stage.open() as orchestrator:
            options = RunOptions(approver=approver)
            return await orchestrator.run("the job", limits=Limits(seconds=60), options=options)

    stage = stage_of(tmp_path, "old", BOOK, call_timeout=60)
    assert anyio.run(main).status == "finished"
    assert booked(tmp_path) == 1


@pytest.mark.requirement("C7")
def test_which_of_two_calls_asks_cannot_be_told_so_they_are_made_one_by_one(tmp_path: Path) -> None:
    """Over a pipe of the older era a question names no call: guessing could put it to the person of another run."""
    twice = [call("fx__pair", {"city": "Rome"}), call("fx__pair", {"city": "Oslo"})]
    stage = stage_of(tmp_path, "old", twice, twice)
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> Verdict | None:
        asked.append(request.call)
        city = request.arguments["city"]
        assert city in request.reason, "the question is put for the call that asked it"
        return Verdict(approved=True, arguments=SEATS)

    result = stage.run(approver=approver)
    first, second = ([action.observation for action in step.actions] for step in result.steps[:2])
    assert any("not clear which call asks" in text for text in first)
    assert all('"accept"' in text for text in second)
    assert sorted(asked[-2:]) == ["t2.1", "t2.2"]
    assert booked(tmp_path) == len(asked)


@pytest.mark.requirement("C7")
def test_a_call_that_started_early_asks_once_it_is_in_the_journal(tmp_path: Path) -> None:
    """A read may start while the reply still comes in."""
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> Verdict | None:
        asked.append(request.call)
        return Verdict(approved=True, arguments=SEATS)

    result = stage_of(tmp_path, "old", ["Let me see.", call("fx__peek", {"city": "Rome"})]).run(approver=approver)
    assert "accept" in observed(result)
    assert asked == ["t1.1"]


@pytest.mark.requirement("C2")
def test_a_tool_that_is_only_a_task_is_left_out_with_a_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stage = stage_of(tmp_path, "old", call("fx__maybe", {}))
    assert observed(stage.run()) == "maybe", "one that may be a task is called plainly"
    names = [tool["function"]["name"] for tool in stage.bodies("boss")[0]["tools"]]
    assert ("fx__task" in names, "fx__maybe" in names) == (False, True)
    assert "fx__task is left out: its server runs it only as a task" in caplog.text
