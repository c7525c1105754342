"""E1, B5: a weak model's team. It splits the job once, code runs the specialists, and the answer is made of results."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator import Limits
from orchestrator.cards import AgentCard
from orchestrator.models.base import Mode
from orchestrator.runtime.hooks import Decision, Moment, Redirect, Replace
from tests.behaviour.stage import allow
from tests.behaviour.test_modes import Served, as_answer, in_words, requests
from tests.support.model_server import ModelServer, model_server
from tests.support.runs import card

pytestmark = pytest.mark.requirement("E1")

JOB = "Look up order 17, then pay what it costs to Ada."
STORE = card("store", tools=("fx__look",), description="Knows orders.")
BANK = card("bank", tools=("fx__pay",), description="Pays.")
BOSS = card("boss", agents=("store", "bank"))
DONE = json.dumps({"action": "final"})


def answer(text: str) -> str:
    return json.dumps({"working": "w", "answer": text})


def said(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["messages"][0]["content"], body["messages"][-1]["content"]


def allowed(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The actions that the schema of a reply allows; none where only an answer is asked for."""
    return body["response_format"]["json_schema"]["schema"].get("anyOf", [])


def team(split: str) -> Callable[[Mapping[str, Any]], str]:
    """The boss splits the job so; a specialist makes one call and answers with what came of it."""

    def reply(body: Mapping[str, Any]) -> str:
        system, last = said(body)
        if system.startswith("You are boss"):
            return answer("Order 17 is paid.") if "Facts:" in last else split
        if not allowed(body):
            return answer("It is done.")
        if "Result of" in last:
            return DONE
        tool, text = ("fx__look", "order 17") if system.startswith("You are store") else ("fx__pay", "Ada")
        return in_words("json", tool, text=text)

    return reply


@contextmanager
def served(
    folder: Path, reply: Callable[[Mapping[str, Any]], str], *cards: AgentCard, mode: Mode = "json", **settings: Any
) -> Iterator[tuple[Served, ModelServer]]:
    with model_server(lambda body: {"text": reply(body)}) as server:
        stage = Served(folder, {}, *cards, **settings)
        stage.url, stage.mode, stage.weak = server.url, mode, True
        yield stage, server


SPLIT = in_words("json", "plan", store="Look up order 17.", bank="Pay Ada what order 17 costs.")


def test_a_team_is_run_in_order_each_with_what_was_found_so_far(tmp_path: Path) -> None:
    with served(tmp_path, team(SPLIT), BOSS, STORE, BANK) as (stage, server):
        result = stage.run(JOB)
        assert (result.status, result.answer) == ("finished", "Order 17 is paid.")
        assert stage.effects == {"look": 1, "pay": 1}
        first, last = server.seen[0], server.seen[-1]
        [only] = allowed(first)
        assert only["properties"]["action"] == {"const": "plan"}
        assert list(only["properties"]["arguments"]["properties"]) == ["store", "bank"]
        system, job = said(first)
        assert job == f"Job: {JOB}"
        assert "Knows orders." in system
        assert "final" not in system
        tasks = [body["messages"][1]["content"] for body in server.seen if not said(body)[0].startswith("You are boss")]
        assert tasks[0].startswith("Look up order 17.\n\nContext:\nThe whole job, of which this is a part: Look up")
        paying = next(task for task in tasks if task.startswith("Pay Ada"))
        assert '[store] - fx__look {"text":"order 17"}: look order 17 done' in paying, (
            "what it found, not its own words"
        )
        assert said(last)[1] == (
            "Facts:\n"
            '- agents__store {"task": "Look up order 17."}: - fx__look {"text":"order 17"}: look order 17 done\n'
            '- agents__bank {"task": "Pay Ada what order 17 costs."}: - fx__pay {"text":"Ada"}: pay Ada done\n'
            f"Question: {JOB}"
        )
        assert result.own_usage.model_calls == 2
        of_boss = [body for body in server.seen if said(body)[0].startswith("You are boss")]
        assert anyio.run(lambda: requests(stage, result.run_id, "json", weak=True)) == of_boss


PARTS = {
    "one of them": (in_words("json", "plan", store="Look up order 17.", bank=""), ["Look up order 17."]),
    "a number from nowhere": (in_words("json", "plan", store="Look up order 4711.", bank=""), [JOB]),
    "only its name": (in_words("json", "plan", store="store", bank=""), [JOB]),
    "a word": (in_words("json", "plan", store="look_up_order", bank=""), [JOB]),
    "Chinese": (in_words("json", "plan", store="查询订单17", bank=""), ["查询订单17"]),
    "nobody": (in_words("json", "plan", store="", bank=" "), [JOB, JOB]),
    "no split": ("I am sorry, Dave.", [JOB, JOB]),
    "a stranger": (in_words("json", "plan", ghost="Boo", store="Look up order 17."), ["Look up order 17."]),
    "cut off": ('{"action": "plan", "arguments": {"store": "Look up', ["Look up"]),
}


@pytest.mark.parametrize(("split", "tasks"), PARTS.values(), ids=PARTS)
def test_who_is_given_what(tmp_path: Path, split: str, tasks: list[str]) -> None:
    with served(tmp_path, team(split), BOSS, STORE, BANK) as (stage, _):
        result = stage.run(JOB)
        assert result.status == "finished"
        steps = [action for action in result.steps[0].actions if action.run_id]
        assert [dict(action.arguments)["task"] for action in steps] == tasks


def test_a_specialist_begins_with_one_of_its_tools(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        names = [action["properties"]["action"]["const"] for action in allowed(body)]
        return DONE if "final" in names else team(SPLIT)(body)

    with served(tmp_path, reply, BOSS, STORE, BANK) as (stage, _):
        result = stage.run(JOB)
        assert (result.answer, stage.effects) == ("Order 17 is paid.", {"look": 1, "pay": 1})


def test_a_specialist_without_a_call_to_make_may_answer(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        system, last = said(body)
        if system.startswith("You are bank") and allowed(body) and "Result of" not in last:
            return (
                DONE
                if any(a["properties"]["action"] == {"const": "final"} for a in allowed(body))
                else in_words("json", "fx__pay", text="Mallory")
            )
        return team(SPLIT)(body)

    with served(tmp_path, reply, BOSS, STORE, BANK) as (stage, _):
        result = stage.run(JOB)
        assert (result.status, stage.effects) == ("finished", {"look": 1}), "the invented call is withheld"


def eager(body: Mapping[str, Any]) -> str:
    """A store that is done as soon as it may be; its first call fails, and it knows one other."""
    system, last = said(body)
    if not system.startswith("You are store") or not allowed(body):
        return team(SPLIT)(body)
    names = [action["properties"]["action"]["const"] for action in allowed(body)]
    other = "Error from fx__fail" in last and "fx__look" in names
    return DONE if "final" in names else in_words("json", "fx__look" if other else "fx__fail", text="order 17")


def test_after_an_error_a_specialist_tries_again(tmp_path: Path) -> None:
    store = card("store", tools=("fx__look", "fx__fail"), description="Knows orders.")
    with served(tmp_path, eager, BOSS, store, BANK) as (stage, _):
        assert stage.run(JOB).status == "finished"
        assert stage.effects == {"fail": 1, "look": 1, "pay": 1}


def test_a_specialist_is_not_asked_for_words(tmp_path: Path) -> None:
    with served(tmp_path, team(SPLIT), BOSS, STORE, BANK) as (stage, server):
        result = stage.run(JOB)
        assert (result.usage.model_calls, result.own_usage.model_calls) == (6, 2)
        assert all(allowed(body) for body in server.seen[:-1])
        store, _bank = [action for action in result.steps[0].actions if action.run_id]
        assert store.observation == '- fx__look {"text":"order 17"}: look order 17 done'


@pytest.mark.parametrize(
    ("decision", "calls", "observation"),
    [
        (Redirect("Look again."), 3, '- fx__look {"text":"order 17"}: look order 17 done'),
        (Replace(answer="Nothing to see."), 2, "Nothing to see."),
    ],
)
def test_a_hook_judges_what_a_specialist_found(
    tmp_path: Path, decision: Decision, calls: int, observation: str
) -> None:
    async def judge(moment: Moment) -> Decision | None:
        return decision if (moment.kind, moment.agent, moment.step) == ("finishing", "store", 2) else None

    store = card("store", tools=("fx__fail", "fx__look"), description="Knows orders.")
    with served(tmp_path, team(SPLIT), BOSS, store, BANK) as (stage, server):
        result = stage.run(JOB, hooks=[judge])
        found = next(action for action in result.steps[0].actions if action.run_id)
        assert (result.status, found.is_error, found.observation) == ("finished", False, observation)
        assert sum(said(body)[0].startswith("You are store") for body in server.seen) == calls


def test_what_a_weak_model_makes_of_the_job_does_not_ask_for_a_write(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        system, _ = said(body)
        names = [action["properties"]["action"]["const"] for action in allowed(body)]
        lost = system.startswith("You are bank") and names == ["final"]
        return DONE if lost else team(in_words("json", "plan", store="Look up order 17.", bank="Pay Ada."))(body)

    with served(tmp_path, reply, BOSS, STORE, BANK) as (stage, _):
        assert stage.run("Look up order 17 for Ada.").status == "finished"
        assert stage.effects == {"look": 1}


def test_a_specialist_is_told_what_it_invented(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        system, last = said(body)
        if not system.startswith("You are store") or not allowed(body):
            return team(SPLIT)(body)
        if "says text 'Mallory'" in last:
            return in_words("json", "fx__look", text="order 17")
        return DONE if "look" in last else in_words("json", "fx__look", text="Mallory")

    with served(tmp_path, reply, BOSS, STORE, BANK) as (stage, _):
        assert stage.run(JOB).status == "finished"
        assert stage.effects == {"look": 1, "pay": 1}


def test_a_specialist_that_found_nothing_does_not_say_that_it_did(tmp_path: Path) -> None:
    store = card("store", tools=("fx__fail",), description="Knows orders.")
    with served(tmp_path, eager, BOSS, store, BANK) as (stage, server):
        result = stage.run(JOB)
        assert stage.effects == {"fail": 1, "pay": 1}
        [failed, _paid] = [action for action in result.steps[0].actions if action.run_id]
        assert failed.is_error
        assert failed.observation.startswith("Error from agents__store: agent store found nothing.")
        assert all("It is done." not in message["content"] for body in server.seen for message in body["messages"])


@pytest.mark.parametrize(
    ("tool", "observation"),
    [
        (
            "fx__look",
            '[store was stopped: max_steps; partial result]\n- fx__look {"text":"order 17"}: look order 17 done',
        ),
        ("fx__fail", "Error from agents__store: agent store found nothing. Error from fx__fail"),
    ],
)
def test_a_specialist_that_is_stopped_is_not_asked_for_words_either(
    tmp_path: Path, tool: str, observation: str
) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        of_store = said(body)[0].startswith("You are store") and allowed(body)
        return in_words("json", tool, text="order 17") if of_store else team(SPLIT)(body)

    store = card("store", tools=(tool,), description="Knows orders.", limits=Limits(steps=1))
    with served(tmp_path, reply, BOSS, store, BANK) as (stage, server):
        result = stage.run(JOB)
        found = next(action for action in result.steps[0].actions if action.run_id)
        assert found.observation.startswith(observation)
        assert sum(said(body)[0].startswith("You are store") for body in server.seen) == 1


def test_a_strong_specialist_that_is_stopped_says_what_it_has(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        if not said(body)[0].startswith("You are store"):
            return team(SPLIT)(body)
        looked = any("Result of" in message["content"] for message in body["messages"])
        return as_answer("json", "It costs 5.") if looked else in_words("json", "fx__look", text="order 17")

    store = card("store", tools=("fx__look",), description="Knows orders.", model=("strong",), limits=Limits(steps=1))
    with served(tmp_path, reply, BOSS, store, BANK) as (stage, _):
        found = next(action for action in stage.run(JOB).steps[0].actions if action.run_id)
        assert found.observation.startswith("[store was stopped: max_steps; partial result]\nIt costs 5.")


def test_a_specialist_that_leads_a_team_passes_on_what_that_found(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        if said(body)[0].startswith("You are desk"):
            return in_words("json", "plan", store="Look up order 17.") if allowed(body) else answer("It is done.")
        return team(in_words("json", "plan", desk="Look up order 17.", bank=""))(body)

    boss, desk = card("boss", agents=("desk", "bank")), card("desk", agents=("store",))
    with served(tmp_path, reply, boss, desk, STORE, BANK) as (stage, server):
        result = stage.run(JOB)
        [found] = [action for action in result.steps[0].actions if action.run_id]
        assert found.observation.endswith('}: - fx__look {"text":"order 17"}: look order 17 done')
        assert sum(said(body)[0].startswith("You are desk") for body in server.seen) == 1


def test_what_was_answered_earlier_asks_a_specialist_for_nothing(tmp_path: Path) -> None:
    earlier = json.dumps({"user": "What is new?", "you": "Ada says: always pay Ada."})
    split = in_words("json", "plan", store="", bank="Tell me what Ada says.")
    with served(tmp_path, team(split), BOSS, STORE, BANK) as (stage, server):
        stage.run("What does Ada say?", earlier=earlier)
        assert stage.effects == {}
        bank = next(body for body in server.seen if said(body)[0].startswith("You are bank"))
        assert "always pay Ada" in said(body=bank)[1]


def test_a_specialist_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        return "" if said(body)[0].startswith("You are store") else team(SPLIT)(body)

    with served(tmp_path, reply, BOSS, STORE, BANK) as (stage, server):
        result = stage.run(JOB)
        assert (result.status, stage.effects) == ("finished", {"pay": 1})
        assert "store was stopped" in said(server.seen[-1])[1]


def test_its_steps_are_limited(tmp_path: Path) -> None:
    async def never_enough(moment: Moment) -> Decision | None:
        return Redirect("Say more.") if moment.kind == "finishing" and moment.agent == "boss" else None

    with served(tmp_path, team(SPLIT), BOSS, STORE, BANK) as (stage, server):
        result = stage.run(JOB, limits=Limits(steps=4), hooks=[never_enough])
        assert (result.stop_reason, result.own_usage.model_calls) == ("max_steps", 5)
        assert said(server.seen[-1])[1].startswith("Facts:")


def test_it_parks_and_goes_on(tmp_path: Path) -> None:
    with served(tmp_path, team(SPLIT), BOSS, STORE, BANK, policy=allow("fx__look")) as (stage, server):
        parked = stage.run(JOB)
        assert [each.call for each in parked.approvals] == ["t1.1.s2/t1.1"]
        stage.decide(parked.run_id)
        result = stage.resume(parked.run_id)
        assert (result.answer, stage.effects) == ("Order 17 is paid.", {"look": 1, "pay": 1})
        assert sum(bool(allowed(body)) and said(body)[1].startswith("Job") for body in server.seen) == 1


def test_a_model_without_schemas_splits_the_job_as_text(tmp_path: Path) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        system, last = said(body)
        if system.startswith("You are boss"):
            parts = {"store": "Look up order 17.", "bank": ""}
            return "Final Answer: done" if "Facts:" in last else in_words("react", "plan", **parts)
        return "Thought: t\nFinal Answer: It is done."

    with served(tmp_path, reply, BOSS, STORE, BANK, mode="react") as (stage, _):
        result = stage.run(JOB)
        assert (result.status, result.answer) == ("finished", "done")
        assert [action.tool for action in result.steps[0].actions] == ["plan", "agents__store"]


def test_a_supervisor_with_tools_of_its_own_leads_by_itself(tmp_path: Path) -> None:
    boss = card("boss", agents=("store",), tools=("fx__look",))
    with served(tmp_path, lambda body: answer("none") if not allowed(body) else DONE, boss, STORE) as (stage, server):
        assert stage.run(JOB).status == "finished"
        assert "plan" not in said(server.seen[0])[0]
