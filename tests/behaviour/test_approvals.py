"""Whom a call waits for, how the verdict finds it, and that nothing else is held up or done twice."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import ConfigurationError, RunResult
from orchestrator.config import PolicySettings, RoleSettings
from orchestrator.events import ApprovalDecided
from orchestrator.runtime.result import ApprovalRequest
from orchestrator.runtime.tree import Verdict
from orchestrator.testing import SqliteJournal, call
from tests.behaviour.stage import Stage, allow
from tests.support.runs import card

PAY = {"text": "rent"}


def chain(depth: int) -> tuple[dict[Any, Any], list[Any]]:
    """Agents that call one another; the last one looks and pays at the same time."""
    names = ["boss", "mid", "leaf"][: depth + 1]
    script: dict[Any, Any] = {}
    team = []
    for name, below in zip(names, [*names[1:], None], strict=True):
        if below is None:
            script[name, 1] = [f"{name} pays.", call("fx__look", {"text": name}), call("fx__pay", PAY)]
            team.append(card(name, tools=("fx__*",)))
        else:
            script[name, 1] = [call(f"agents__{below}", {"task": "go"}), call("fx__look", {"text": name})]
            team.append(card(name, tools=("fx__*",), agents=(below,)))
        script[name, 2] = f"{name} is done"
    return script, team


def pending(result: RunResult) -> list[str]:
    return [request.call for request in result.approvals]


@pytest.mark.requirement("C7", "E4")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_call_at_any_depth_waits_and_goes_on(tmp_path: Path, depth: int) -> None:
    script, team = chain(depth)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    parked = stage.run()
    assert (parked.status, parked.stop_reason) == ("parked", "approval")
    (request,) = parked.approvals
    path = "/".join(["t1.1"] * depth + ["t1.2"])
    assert (request.call, request.agent, request.tool) == (path, team[-1].name, "fx__pay")
    assert (request.arguments, bool(request.reason)) == (PAY, True)
    asked = stage.seen.of("approval")
    assert [event.call for event in asked] == [path], "asked once"
    assert stage.effects == {"look": depth + 1}

    again = stage.resume(parked.run_id)
    assert (again.status, pending(again)) == ("parked", [path]), "without a verdict it waits on"
    assert stage.decide(parked.run_id) == [path]
    result = stage.resume(parked.run_id)
    assert (result.status, result.answer) == ("finished", "boss is done")
    assert stage.effects == {"look": depth + 1, "pay": 1}, "what had finished is not run again"
    assert not result.approvals


@pytest.mark.requirement("E4", "H1")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_prompts_after_a_resume_are_those_of_a_run_that_never_stopped(tmp_path: Path, depth: int) -> None:
    script, team = chain(depth)
    (tmp_path / "straight").mkdir()
    straight = Stage(tmp_path / "straight", script, *team, policy=allow("fx__look"))
    assert straight.run(approve="all").status == "finished"
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    parked = stage.run()
    stage.resume(parked.run_id)
    stage.decide(parked.run_id)
    stage.resume(parked.run_id)
    bodies = {(request.agent, request.turn): request.body for request in straight.requests}
    assert len(stage.requests) == len(straight.requests), "nothing is asked twice"
    assert {(request.agent, request.turn): request.body for request in stage.requests} == bodies


@pytest.mark.requirement("C7", "E4")
def test_nothing_is_held_open_while_a_run_is_parked(tmp_path: Path) -> None:
    import os

    script, team = chain(1)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text() if children.exists() else ""
    parked = stage.run()
    assert (children.read_text() if children.exists() else "") == before, "no server runs on"

    async def claim() -> None:
        journal = SqliteJournal(tmp_path / "journal.sqlite")
        await journal.release(await journal.claim(parked.run_id))
        await journal.aclose()

    anyio.run(claim)


@pytest.mark.requirement("C7")
def test_a_denial_reaches_the_model_with_its_note(tmp_path: Path) -> None:
    script, team = chain(1)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    parked = stage.run()
    stage.decide(parked.run_id, approved=False, note="ask me on Monday")
    result = stage.resume(parked.run_id)
    assert result.answer == "boss is done"
    shown = stage.last("mid")
    assert "Denied" in shown
    assert "ask me on Monday" in shown
    assert "Do not make this call again" in shown
    assert stage.effects == {"look": 2}


@pytest.mark.requirement("C7", "E4")
def test_the_first_verdict_stands(tmp_path: Path) -> None:
    script, team = chain(0)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    parked = stage.run()
    stage.decide(parked.run_id, approved=False, note="no")
    for second in ({"call": "t1.2"}, {}, {"every": True}):
        with pytest.raises(ConfigurationError, match="wait"):
            stage.decide(parked.run_id, **second)
    stage.resume(parked.run_id)
    assert stage.effects == {"look": 1}


@pytest.mark.requirement("C7", "E4")
@pytest.mark.parametrize("forged", ["other arguments", "a second verdict"])
def test_a_verdict_counts_for_the_very_call_that_was_asked(tmp_path: Path, forged: str) -> None:
    """Two terminals may race, or a stale one may answer; the journal then holds what must not count."""
    script, team = chain(0)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    parked = stage.run()

    async def forge(digest: str, approved: bool) -> None:
        journal = SqliteJournal(tmp_path / "journal.sqlite")
        claim = await journal.claim(parked.run_id)
        last = (await journal.read(parked.run_id))[-1]
        verdict = ApprovalDecided(
            **{**last.model_dump(include={"run", "agent", "turn", "at"}), "seq": last.seq + 1},
            call="t1.2",
            approved=approved,
            digest=digest,
        )
        await journal.append(claim, [verdict])
        await journal.release(claim)
        await journal.aclose()

    async def digest() -> str:
        journal = SqliteJournal(tmp_path / "journal.sqlite")
        events = await journal.read(parked.run_id)
        await journal.aclose()
        return next(event.digest for event in events if event.type == "approval.asked")

    if forged == "other arguments":
        anyio.run(forge, "0123456789abcdef", True)
        assert pending(stage.resume(parked.run_id)) == ["t1.2"]
    else:
        stage.decide(parked.run_id, approved=False)
        anyio.run(forge, anyio.run(digest), True)
        assert stage.resume(parked.run_id).status == "finished"
    assert stage.effects == {"look": 1}


@pytest.mark.requirement("C7")
def test_one_verdict_names_one_call(tmp_path: Path) -> None:
    turn = [call("fx__pay", {"text": "a"}), call("fx__pay", {"text": "b"})]
    stage = Stage(tmp_path, {("boss", 1): turn, "boss": "done"}, card("boss", tools=("fx__*",)), policy=allow())
    parked = stage.run()
    with pytest.raises(ConfigurationError, match=r"t1\.1.*t1\.2"):
        stage.decide(parked.run_id)
    with pytest.raises(ConfigurationError, match=r"t9\.9"):
        stage.decide(parked.run_id, "t9.9")
    assert stage.decide(parked.run_id, every=True) == ["t1.1", "t1.2"]
    stage.resume(parked.run_id)
    assert stage.effects == {"pay": 2}


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(("mode", "paid"), [("all", 1), ("none", 0)])
def test_nobody_is_asked(tmp_path: Path, mode: str, paid: int) -> None:
    script, team = chain(1)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    result = stage.run(approve=mode)
    assert (result.status, stage.effects["pay"]) == ("finished", paid)
    assert not stage.seen.of("approval")


def answering(*verdicts: Verdict | None) -> tuple[Any, list[ApprovalRequest]]:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Verdict | None:
        asked.append(request)
        return verdicts[len(asked) - 1]

    return approver, asked


@pytest.mark.requirement("C7", "E4")
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("verdict", "told", "paid"),
    [
        (Verdict(approved=True), "pay rent done", ["rent"]),
        (Verdict(approved=False, note="too dear"), "too dear", []),
        (Verdict(approved=True, arguments={"text": "half"}), "pay half done", ["half"]),
        (Verdict(approved=True, arguments={"txt": "half"}), "Invalid arguments", []),
    ],
    ids=["approve", "deny with a note", "edit", "edit wrongly"],
)
def test_someone_is_asked_in_place(tmp_path: Path, depth: int, verdict: Verdict, told: str, paid: list[str]) -> None:
    script, team = chain(depth)
    stage = Stage(tmp_path, script, *team, policy=allow("fx__look"))
    approver, asked = answering(verdict)
    result = stage.run(approver=approver)
    assert result.status == "finished"
    assert [(request.tool, request.arguments) for request in asked] == [("fx__pay", PAY)]
    assert told in stage.last(team[-1].name)
    lines = [json.loads(line) for line in stage.ledger.read_text().splitlines()]
    assert [line["text"] for line in lines if line["tool"] == "pay"] == paid


@pytest.mark.requirement("C7")
def test_when_the_one_who_is_asked_has_gone_the_run_parks(tmp_path: Path) -> None:
    turn = [call("fx__pay", {"text": "a"}), call("fx__pay", {"text": "b"})]
    stage = Stage(tmp_path, {("boss", 1): turn, "boss": "done"}, card("boss", tools=("fx__*",)), policy=allow())
    approver, _ = answering(Verdict(approved=True), None)
    parked = stage.run(approver=approver)
    assert (parked.status, pending(parked)) == ("parked", ["t1.2"])
    assert stage.effects == {"pay": 1}
    approver, asked = answering(Verdict(approved=True))
    assert stage.resume(parked.run_id, approver=approver).answer == "done"
    assert ([request.call for request in asked], stage.effects) == (["t1.2"], {"pay": 2})


@pytest.mark.requirement("C7")
def test_what_was_approved_may_have_been_forbidden_since(tmp_path: Path) -> None:
    script, team = chain(0)
    parked = Stage(tmp_path, script, *team, policy=allow("fx__look")).run()
    stage = Stage(tmp_path, script, *team, policy=PolicySettings(deny=("fx__pay",)))
    stage.decide(parked.run_id)
    assert stage.resume(parked.run_id).status == "finished"
    assert "the policy refuses it" in stage.last("boss")
    assert stage.effects == {"look": 1}


def decided(
    folder: Path, tool: str, *, mode: str = "ask", role: str | None = None, own: Mapping[str, Any], **more: Any
):
    """What becomes of one call: `allow`, `ask` or `deny`."""
    stage = Stage(
        folder,
        {("boss", 1): call(f"fx__{tool}", {"text": "x"}), "boss": "done"},
        card("boss", tools=("fx__*",), **own),
        **more,
    )
    result = stage.run(approve=mode, role=role)
    if result.status == "parked":
        return "ask"
    return "deny" if result.steps[0].actions[0].observation.startswith("Denied") else "allow"


def rules(**lists: Sequence[str]) -> PolicySettings:
    return PolicySettings(**{name: tuple(globs) for name, globs in lists.items()})


ROLES = {"reader": RoleSettings(tools=("fx__look",)), "payer": RoleSettings(tools=("fx__pay", "fx__look"))}
PAY_RULE = ("fx__p*",)
TABLE: Sequence[tuple[str, dict[str, Any], str, str]] = (
    # What holds beside the tool's own annotations, and what becomes of `pay` (which has none).
    ("1 a role without it, before everything", {"role": "reader", "policy": rules(allow=PAY_RULE)}, "pay", "deny"),
    ("1 a role with it decides nothing", {"role": "payer"}, "pay", "ask"),
    ("1 a card's role without it", {"own": {"role": "reader"}, "policy": rules(allow=PAY_RULE)}, "pay", "deny"),
    ("2 deny, before ask and allow", {"policy": rules(deny=PAY_RULE, ask=PAY_RULE, allow=PAY_RULE)}, "pay", "deny"),
    ("2 deny, before the card's ask", {"policy": rules(deny=PAY_RULE), "own": {"approve": PAY_RULE}}, "pay", "deny"),
    ("2 deny of a tool that only reads", {"policy": rules(deny=("*",))}, "look", "deny"),
    ("3 the card asks, before allow", {"policy": rules(allow=PAY_RULE), "own": {"approve": PAY_RULE}}, "pay", "ask"),
    ("3 the card asks for a tool that only reads", {"own": {"approve": ("fx__look",)}}, "look", "ask"),
    ("4 ask, before allow", {"policy": rules(ask=PAY_RULE, allow=PAY_RULE)}, "pay", "ask"),
    ("4 ask, before annotations", {"policy": rules(ask=("*",))}, "look", "ask"),
    ("5 allow", {"policy": rules(allow=PAY_RULE)}, "pay", "allow"),
    ("5 allow of another tool", {"policy": rules(allow=("fx__q*",))}, "pay", "ask"),
    ("5 the server's own list", {"fx": {"auto_approve": ("pay",)}}, "pay", "allow"),
    ("7 a tool that only reads", {}, "look", "allow"),
    ("8 harmless, by a bundled server's word", {"fx": {"bundled": True}}, "draw", "allow"),
    ("8 harmless, by any other's word", {}, "draw", "ask"),
    ("9 no annotation", {}, "pay", "ask"),
    ("9 idempotent, but it writes", {}, "put", "ask"),
    ("all: ask becomes allow", {"mode": "all"}, "pay", "allow"),
    ("all: deny stays", {"mode": "all", "policy": rules(deny=PAY_RULE)}, "pay", "deny"),
    ("none: ask becomes deny", {"mode": "none"}, "pay", "deny"),
    ("none: allow stays", {"mode": "none"}, "look", "allow"),
)


@pytest.mark.requirement("C6", "C7")
@pytest.mark.parametrize(("given", "tool", "verdict"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_order_of_decision(tmp_path: Path, given: dict[str, Any], tool: str, verdict: str) -> None:
    given = {"policy": rules(), "roles": ROLES, "own": {}, **given}
    assert decided(tmp_path, tool, **given) == verdict


@pytest.mark.requirement("C7", "E2")
@pytest.mark.parametrize(
    ("policy", "own", "verdict"),
    [
        (rules(), {}, "allow"),
        (rules(ask=("kid",)), {}, "ask"),
        (rules(), {"approve": ("kid",)}, "ask"),
        (rules(deny=("agents__kid",)), {}, "deny"),
    ],
    ids=["6 an agent", "4 ask", "3 the card asks", "2 deny"],
)
def test_the_call_of_an_agent(tmp_path: Path, policy: PolicySettings, own: dict[str, Any], verdict: str) -> None:
    script = {("boss", 1): call("agents__kid", {"task": "go"}), "boss": "done", "kid": "kid is done"}
    stage = Stage(tmp_path, script, card("boss", tools=(), agents=("kid",), **own), card("kid"), policy=policy)
    result = stage.run()
    if verdict == "ask":
        assert pending(result) == ["t1.1"]
        stage.decide(result.run_id)
        result = stage.resume(result.run_id)
    observation = result.steps[0].actions[0].observation
    assert observation.startswith("Denied") if verdict == "deny" else observation == "kid is done"


@pytest.mark.requirement("C6", "E2")
@pytest.mark.parametrize(
    ("run", "mid", "leaf", "paid"),
    [
        (None, None, None, 1),
        ("reader", None, None, 0),
        (None, "reader", None, 0),
        (None, "reader", "payer", 0),
        ("reader", None, "payer", 0),
        (None, "payer", "reader", 0),
        ("payer", None, "payer", 1),
    ],
)
def test_a_child_may_never_do_more_than_its_caller(
    tmp_path: Path, run: str | None, mid: str | None, leaf: str | None, paid: int
) -> None:
    script, team = chain(2)
    for place, role in ((1, mid), (2, leaf)):
        team[place] = team[place].model_copy(update={"role": role})
    stage = Stage(tmp_path, script, *team, policy=allow("*"), roles=ROLES)
    result = stage.run(role=run)
    assert (result.status, stage.effects["pay"]) == ("finished", paid)
    if not paid:
        assert "does not have this tool" in stage.last("leaf")
        assert "fx__pay" in json.dumps(stage.bodies("leaf")[0]["tools"]), "the check is not by hiding"


@pytest.mark.requirement("C6", "E4")
def test_the_role_of_a_run_outlives_it(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__look", {"text": "x"}), ("boss", 2): call("fx__pay", PAY), "boss": "done"}
    team = card("boss", tools=("fx__*",), approve=("fx__look",))
    stage = Stage(tmp_path, script, team, policy=allow("*"), roles=ROLES)
    parked = stage.run(role="reader")
    stage.decide(parked.run_id)
    assert stage.resume(parked.run_id, role="payer").answer == "done"
    assert stage.effects == {"look": 1}


@pytest.mark.requirement("C6")
def test_a_tool_that_the_agent_was_not_given_is_not_called(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__pay", PAY), "boss": "done"}
    stage = Stage(tmp_path, script, card("boss", tools=("fx__look",)), policy=allow("*"))
    result = stage.run(approve="all")
    assert "there is no tool named fx__pay" in result.steps[0].actions[0].observation
    assert not stage.effects


@pytest.mark.requirement("C6")
def test_a_role_that_is_not_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {}, card("boss", tools=("fx__*",)), roles=ROLES)
    with pytest.raises(ConfigurationError, match="reader"):
        stage.run(role="raeder")


@pytest.mark.requirement("A5", "E4")
def test_a_call_that_was_approved_finds_its_server_gone(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__pay", {"text": "rent"}), ("boss", 2): "I could not pay."}
    boss = card("boss", tools=("fx__*",))
    parked = Stage(tmp_path, script, boss, policy=PolicySettings()).run()
    gone = Stage(tmp_path, script, boss, policy=PolicySettings(), fx={"command": "/no/such/command"})
    gone.decide(parked.run_id)

    assert gone.resume(parked.run_id).status == "finished"
    assert "not available" in gone.last("boss"), "the model was shown this tool, so it is not told that there is none"


@pytest.mark.requirement("C7")
def test_arguments_that_the_tool_would_refuse_spend_no_verdict(tmp_path: Path) -> None:
    script = {("boss", 1): call("fx__pay", {"text": "rent"}), ("boss", 2): "done"}
    stage = Stage(tmp_path, script, card("boss", tools=("fx__*",)), policy=PolicySettings())
    parked = stage.run()
    with pytest.raises(ConfigurationError, match="text"):
        stage.decide(parked.run_id, arguments={"bad": 1})
    assert stage.decide(parked.run_id, arguments={"text": "less"}) == ["t1.1"]
    assert stage.resume(parked.run_id).answer == "done"
