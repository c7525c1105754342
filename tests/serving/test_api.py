"""Runs and approvals over plain HTTP."""

import json
import os
import signal
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from orchestrator.serving.openapi import OPERATIONS, openapi
from orchestrator.serving.web import routes
from tests.serving.site import caller, open_site, site, tables
from tests.support.command import call, end, orchestrator, read_pipe, start

pytestmark = pytest.mark.requirement("E3")

RUN = {"agent": "lone", "input": {"task": "the job"}}
WRITES = ({"calls": [call("fx__pay", text="a")]}, {"text": "written"})


@contextmanager
def asked(client: httpx2.Client) -> Generator[tuple[str, dict[str, Any]]]:
    """A run that waits for a person, and what it waits for."""
    run = client.post("/api/runs", json=RUN).json()["run_id"]
    client.get(f"/api/runs/{run}/events")  # until it waits
    (waiting,) = client.get("/api/approvals").json()["approvals"]
    yield run, waiting


def events(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Id, event and data of each."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


def test_a_run_is_begun_shown_and_listed(tmp_path: Path) -> None:
    with site(tmp_path, "") as address, caller(address) as anyone:
        begun = anyone.post("/api/runs", json=RUN)
        anyone.get(f"{begun.headers['location']}/events")
        run = anyone.get(begun.headers["location"]).json()

        assert (begun.status_code, run["status"], run["answer"]) == (202, "finished", "done")
        assert [each["run_id"] for each in anyone.get("/api/runs").json()["runs"]] == [run["run_id"]]


def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    with site(tmp_path, tables()) as address, caller(address, "ann") as ann, caller(address, "bob") as bob:
        first, again = (ann.post("/api/runs", json={**RUN, "key": "k"}).json()["run_id"] for _ in range(2))
        other = bob.post("/api/runs", json={**RUN, "key": "k"}).json()["run_id"]
        ann.get(f"/api/runs/{first}/events")
        changed = ann.post("/api/runs", json={"agent": "lone", "input": {"task": "another"}, "key": "k"})

        assert first == again != other
        assert (changed.status_code, "key" in changed.json()["detail"]) == (400, True)


def test_events_go_on_after_the_last_one_that_was_seen(tmp_path: Path) -> None:
    with site(tmp_path, "", *WRITES) as address, caller(address) as anyone, asked(anyone) as (run, waiting):
        before = events(anyone.get(f"/api/runs/{run}/events").text)
        last = before[-2][0]
        assert before[-1][1] == "end"
        anyone.post(f"/api/approvals/{run}/{waiting['call']}", json={"decision": "approve"})
        after = events(anyone.get(f"/api/runs/{run}/events", headers={"last-event-id": last}).text)
        whole = events(anyone.get(f"/api/runs/{run}/events").text)

        assert whole == [*before[:-1], *after]
        assert [kind for _, kind, _ in after if kind in ("tool_result", "final_answer")] == [
            "tool_result",
            "final_answer",
        ]
        assert anyone.get(f"/api/runs/{run}/events", headers={"last-event-id": "x"}).status_code == 400


def test_events_of_a_run_of_another_process_are_there(tmp_path: Path) -> None:
    with site(tmp_path, "") as address, caller(address) as anyone:
        flags = ("--agent", "lone", "--agents", "cards", "--model", f"scripted:{tmp_path / 'r.jsonl'}", "--json")
        run = orchestrator("run", "x", *flags, folder=tmp_path).json["run_id"]

        assert events(anyone.get(f"/api/runs/{run}/events").text)[-2][1] == "final_answer"


def test_what_waits_is_approved_once_and_the_run_goes_on(tmp_path: Path) -> None:
    with site(tmp_path, "", *WRITES) as address, caller(address) as anyone, asked(anyone) as (run, waiting):
        assert (waiting["run_id"], waiting["tool"], waiting["arguments"]) == (run, "fx__pay", {"text": "a"})
        path = f"/api/approvals/{run}/{waiting['call']}"
        wrong = anyone.post(path, json={"decision": "maybe"})
        edited = {"decision": "approve", "arguments": {"text": "b"}, "note": "rather b"}
        first = anyone.post(path, json=edited)
        anyone.get(f"/api/runs/{run}/events")
        again = anyone.post(path, json=edited)
        shown = anyone.get(f"/api/runs/{run}").json()

        assert (wrong.status_code, wrong.json()["detail"].partition(":")[0]) == (400, "decision")
        assert [each["call"] for each in first.json()["decided"]] == [waiting["call"]]
        assert again.status_code == 400
        assert (shown["status"], shown["steps"][0]["actions"][0]["arguments"]) == ("finished", {"text": "b"})
        assert (tmp_path / "ledger").read_text().count('"tool"') == 1


def test_each_call_that_waits_is_decided_by_itself(tmp_path: Path) -> None:
    """Also one of an agent below; nothing is sent before all is decided, and nobody else sees or decides it."""
    replies = (
        {"agent": "boss", "calls": [call("agents__lone", task="x"), call("fx__pay", text="b")]},
        {"agent": "lone", "calls": [call("fx__pay", text="a")]},
        {"agent": "lone", "text": "written"},
        {"agent": "boss", "text": "all written"},
    )
    cards = {"lone": 'tools: ["fx__*"]', "boss": 'tools: ["fx__*"]\nagents: [lone]'}
    with (
        site(tmp_path, tables(), *replies, **cards) as address,
        caller(address, "ann") as ann,
        caller(address, "bob") as bob,
    ):
        run = ann.post("/api/runs", json={"agent": "boss", "input": {"task": "x"}}).json()["run_id"]
        ann.get(f"/api/runs/{run}/events")
        calls = [each["call"] for each in ann.get("/api/approvals").json()["approvals"]]
        below, own = (f"/api/approvals/{run}/{each.replace('/', '~')}" for each in sorted(calls, key=len, reverse=True))
        assert bob.get("/api/approvals").json() == {"approvals": []}
        assert bob.post(own, json={"decision": "approve"}).status_code == 404
        first = ann.post(below, json={"decision": "approve"}).json()
        assert ([len(first[each]) for each in ("decided", "pending")], sorted(calls, key=len)) == (
            [1, 1],
            ["t1.2", "t1.1/t1.1"],
        )
        assert not (tmp_path / "ledger").exists()
        assert ann.post(own, json={"decision": "approve"}).json()["pending"] == []
        ann.get(f"/api/runs/{run}/events")

        assert ann.get(f"/api/runs/{run}").json()["answer"] == "all written"
        assert ann.get(f"/api/runs/{run}~t1.1").json()["answer"] == "written"
        assert (tmp_path / "ledger").read_text().count('"tool"') == 2


def test_limits_and_lists_are_as_asked_for(tmp_path: Path) -> None:
    with site(tmp_path, "") as address, caller(address) as anyone:
        run = anyone.post("/api/runs", json={**RUN, "limits": {"tokens": 1}}).json()["run_id"]
        anyone.get(f"/api/runs/{run}/events")
        anyone.post("/api/runs", json=RUN)

        assert anyone.get(f"/api/runs/{run}").json()["stop_reason"] == "max_tokens"
        assert len(anyone.get("/api/runs?limit=1").json()["runs"]) == 1
        for wrong in ("0", "-1", "many"):
            assert anyone.get(f"/api/runs?limit={wrong}").status_code == 400


def test_a_run_that_waits_is_cancelled(tmp_path: Path) -> None:
    with site(tmp_path, "", *WRITES) as address, caller(address) as anyone, asked(anyone) as (run, _):
        assert anyone.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
        assert anyone.get("/api/approvals").json() == {"approvals": []}


def test_a_run_outlives_the_server(tmp_path: Path) -> None:
    process, address = open_site(tmp_path, "", *WRITES)
    with caller(address) as anyone, asked(anyone) as (run, waiting):
        process.send_signal(signal.SIGKILL)
        end(process)
    with site(tmp_path, "", *WRITES) as address, caller(address) as anyone:
        anyone.post(f"/api/approvals/{run}/{waiting['call']}", json={"decision": "deny", "note": "no"})
        anyone.get(f"/api/runs/{run}/events")

        assert anyone.get(f"/api/runs/{run}").json()["status"] == "finished"
        assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"agent": "nobody", "input": {"task": "x"}}, "nobody"),
        ({"agent": "lone"}, "input"),
        ({"agent": "lone", "input": {}}, "task"),
        ({**RUN, "limits": {"tokens": "many"}}, "limits.tokens"),
        ({**RUN, "more": 1}, "more"),
    ],
)
def test_a_request_that_is_wrong_is_told_what_is(shared: str, body: dict[str, Any], says: str) -> None:
    answer = httpx2.post(f"{shared}/api/runs", json=body)

    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert says in answer.json()["detail"]


def test_what_is_not_there_is_a_problem_too(shared: str) -> None:
    for method, path, status in (("GET", "/api/runs/gone", 404), ("GET", "/api/gone", 404), ("PUT", "/api/runs", 405)):
        answer = httpx2.request(method, f"{shared}{path}")

        assert (answer.status_code, answer.json()["status"]) == (status, status)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with site(tmp_path_factory.mktemp("api"), "") as address:
        yield address


def _served(routes: Iterable[Any]) -> set[tuple[str, str]]:
    """Method and path of every route, for comparing."""
    plain = (route for route in routes if isinstance(route, Route))
    return {(method, route.path) for route in plain for method in route.methods or () if method != "HEAD"}


def test_the_description_has_every_route_and_no_other(shared: str) -> None:
    told = httpx2.get(f"{shared}/openapi.json").json()

    class Parts:
        runs = journal = None

    assert {(method, path) for method, path, *_ in OPERATIONS} == _served(routes(Parts()))  # type: ignore[arg-type]
    assert told == json.loads(json.dumps(openapi()))
    references = set(_references(told))
    assert references <= {f"#/components/schemas/{name}" for name in told["components"]["schemas"]}
    assert "#/components/schemas/RunResult" in references


def _references(value: Any) -> Generator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def test_a_run_that_another_process_drives_is_left_to_it(tmp_path: Path) -> None:
    replies = ({"calls": [call("fx__pay", text="a")]}, {"calls": [call("fx__hang", text="b")]})
    bell = tmp_path / "ledger.bell"
    os.mkfifo(bell)
    with site(tmp_path, "", *replies) as address, caller(address) as anyone, asked(anyone) as (run, waiting):
        orchestrator("approve", run, folder=tmp_path)
        resumed = start("resume", run, folder=tmp_path)
        read_pipe(bell)
        refused = anyone.post(f"/api/runs/{run}/cancel")
        decided = anyone.post(f"/api/approvals/{run}/{waiting['call']}", json={"decision": "deny"})
        resumed.kill()
        end(resumed)
    for answer in (refused, decided):
        assert (answer.status_code, answer.json()["title"]) == (409, "Not now")
        assert "is being driven by another process" in answer.json()["detail"]
