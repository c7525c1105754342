"""Who may come in over HTTP, and how much they may send."""

import json
import select
import socket
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from orchestrator.config import IssuerSettings, ServeSettings, TokenSettings, TrafficSettings
from orchestrator.errors import ConfigurationError
from orchestrator.serving.door import Door
from orchestrator.serving.tokens import Tokens, new_token
from orchestrator.serving.traffic import Traffic
from tests.serving.site import TOKENS, caller, site, tables
from tests.support.command import orchestrator

pytestmark = pytest.mark.requirement("E3")

TRAFFIC = "[serve.traffic]\nbody = 20000\nbody_within = 0.5\n"
RUN = {"agent": "lone", "input": {"task": "x"}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    more = {"bob": {"agents": '["oth*"]'}, "sam": {"limits": "{ tokens = 1 }"}}
    with site(tmp_path_factory.mktemp("door"), tables(**more) + TRAFFIC) as served:
        yield served


@pytest.mark.parametrize("path", ["/mcp", "/api/runs", "/openapi.json", "/nowhere"])
def test_nobody_comes_in_without_a_token_that_is_known(address: str, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer no"}, {"authorization": f"Basic {TOKENS['ann']}"}):
        answer = httpx2.get(f"{address}{path}", headers=headers)

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["status"] == 401


def test_whether_it_is_well_is_told_to_anyone(address: str) -> None:
    assert [httpx2.get(f"{address}{path}").status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_name_or_a_page_of_others_is_refused(address: str) -> None:
    with caller(address, "ann") as ann:
        assert ann.get("/api/runs", headers={"host": "evil.example:80"}).status_code == 421
        assert ann.get("/api/runs", headers={"host": "evil.example@localhost"}).status_code == 421
        assert ann.get("/api/runs", headers={"origin": "http://evil.example"}).status_code == 403
        for own in ("localhost:6274", "127.0.0.1:6274", "[::1]:6274"):
            assert ann.get("/api/runs", headers={"origin": f"http://{own}"}).status_code == 200


def test_names_and_pages_that_are_configured_are_let_in(tmp_path: Path) -> None:
    traffic = '[serve.traffic]\nhosts = ["agents.example"]\norigins = ["https://console.example"]\n'
    with site(tmp_path, tables() + traffic) as address, caller(address, "ann", host="agents.example") as ann:
        assert ann.get("/api/runs", headers={"origin": "https://console.example"}).status_code == 200
        assert ann.get("/api/runs", headers={"origin": "http://console.example"}).status_code == 403
        # the scheme is written in any case
        assert ann.get("/api/runs", headers={"authorization": f"bearer {TOKENS['bob']}"}).status_code == 200


def test_a_body_that_is_too_large_is_not_taken_in(address: str) -> None:
    with caller(address, "ann") as ann:
        assert ann.post("/api/runs", content=b"x" * 20_000).status_code == 400  # it is read, and is no JSON
        assert ann.post("/api/runs", content=b"x" * 20_001).status_code == 413
        assert ann.post("/api/runs", content=iter([b"x" * 15_000] * 2)).status_code == 413
        assert ann.get("/api/runs").status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(address: str) -> None:
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as slow:
        token = TOKENS["ann"]
        slow.sendall(f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n".encode())
        slow.sendall(b"Content-Length: 100\r\n\r\n{")

        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_request_whose_sender_left_begins_nothing(address: str) -> None:
    """What had come of it could be read, but was not all."""
    body = json.dumps(RUN)
    parts = urlsplit(address)
    with caller(address, "sam") as sam, socket.create_connection((parts.hostname, parts.port), timeout=60) as gone:
        before = sam.get("/api/runs").json()
        head = f"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS['sam']}\r\n"
        gone.sendall(f"{head}Content-Length: {len(body) + 1}\r\n\r\n{body}".encode())
        gone.shutdown(socket.SHUT_WR)

        assert gone.recv(1000) == b""
        assert sam.get("/api/runs").json() == before


def test_a_reader_that_does_not_read_holds_no_place(tmp_path: Path) -> None:
    """More than its socket takes is waiting for it; after `read_within` the only place is free for the next request."""
    toml = tables() + "[serve.traffic]\nat_once = 1\nread_within = 0.2\n"
    with site(tmp_path, toml, {"text": "x" * 8_000_000}) as address, caller(address, "ann") as ann:
        run = ann.post("/api/runs", json=RUN).json()["run_id"]
        whole = ann.get(f"/api/runs/{run}/events")  # one that reads gets it all
        assert whole.text.endswith("event: end\ndata: {}\n\n")
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.settimeout(60)
            stuck.connect((urlsplit(address).hostname, urlsplit(address).port))
            head = f"GET /api/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n"
            stuck.sendall(f"{head}Authorization: Bearer {TOKENS['ann']}\r\n\r\n".encode())
            assert stuck.recv(100).startswith(b"HTTP/1.1 200 ")
            ended = select.poll()
            ended.register(stuck, select.POLLHUP)
            assert ended.poll(60_000)  # it was reset; what had been written is still unread
        answers = (ann.get("/api/runs").status_code for _ in range(1000))  # its place is left a moment later
        assert 200 in answers


def test_a_caller_has_the_agents_and_runs_of_its_own_token_only(address: str) -> None:
    with caller(address, "ann") as ann, caller(address, "bob") as bob:
        run = ann.post("/api/runs", json=RUN).json()["run_id"]
        refused = bob.post("/api/runs", json=RUN)

        assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")
        assert bob.post("/api/runs", json={**RUN, "agent": "other"}).status_code == 202
        assert run not in [each["run_id"] for each in bob.get("/api/runs").json()["runs"]]
        for path in (f"/api/runs/{run}", f"/api/runs/{run}/events"):
            assert bob.get(path).status_code == 404
        assert bob.post(f"/api/runs/{run}/cancel").status_code == 404
        assert ann.get(f"/api/runs/{run}").json()["run_id"] == run


@pytest.mark.requirement("C6")
def test_the_limits_of_a_token_hold_whatever_its_holder_asks_for(address: str) -> None:
    with caller(address, "sam") as sam:
        run = sam.post("/api/runs", json={**RUN, "limits": {"tokens": 100_000}}).json()["run_id"]
        assert sam.get(f"/api/runs/{run}/events").text.endswith("event: end\ndata: {}\n\n")
        assert sam.get(f"/api/runs/{run}").json()["stop_reason"] == "max_tokens"


def test_too_many_requests_of_one_caller_are_refused_and_others_are_not(tmp_path: Path) -> None:
    toml = tables() + "[serve.traffic]\nper_minute = 5\n"
    with site(tmp_path, toml) as address, caller(address, "ann") as ann, caller(address, "bob") as bob:
        answers = [ann.get("/api/runs") for _ in range(7)]

        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert (answers[-1].status_code, int(answers[-1].headers["retry-after"]) > 0) == (429, True)
        assert bob.get("/api/runs").status_code == 200


def test_strangers_use_up_a_share_of_their_own(tmp_path: Path) -> None:
    toml = tables() + "[serve.traffic]\nper_minute = 5\n"
    with site(tmp_path, toml) as address, caller(address, "ann") as ann, caller(address) as stranger:
        answers = [stranger.get("/api/runs").status_code for _ in range(7)]

        assert (answers[:5], answers[-1]) == ([401] * 5, 429)
        assert ann.get("/api/runs").status_code == 200


def test_a_caller_who_was_away_has_a_full_share_and_no_more() -> None:
    now = 0.0
    traffic = Traffic(TrafficSettings(per_minute=2, at_once=5), lambda: now)
    assert traffic.enter("ann") == 0
    now = 3600.0

    assert [traffic.enter("ann") for _ in range(3)] == [0, 0, 31]


def test_who_was_away_longest_is_forgotten_first_unless_a_request_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.serving.traffic.CALLERS", 2)
    traffic = Traffic(TrafficSettings(per_minute=1, at_once=5), lambda: 0.0)
    for caller_, ends in (("ann", False), ("bob", True), ("eve", True), ("sam", True)):
        assert traffic.enter(caller_) == 0
        if ends:
            traffic.leave(caller_)

    assert [traffic.enter(name) > 0 for name in ("sam", "ann", "bob")] == [True, True, False]
    traffic.leave("ann")


def test_requests_come_back_with_time() -> None:
    now = 0.0
    traffic = Traffic(TrafficSettings(per_minute=60, at_once=2), lambda: now)

    assert [traffic.enter("ann") for _ in range(3)] == [0, 0, 1]  # two at once
    traffic.leave("ann")
    assert traffic.enter("ann") == 0
    few = Traffic(TrafficSettings(per_minute=1, at_once=5), lambda: now)
    assert [few.enter("bob"), few.enter("bob"), few.enter("eve")] == [0, 61, 0]
    now = 60.0
    assert few.enter("bob") == 0


@pytest.mark.parametrize("flags", [("--host", "0.0.0.0")])
def test_other_machines_are_let_in_with_tokens_only(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "cards").mkdir()
    ended = orchestrator("serve", "--port", "0", "--model", "scripted:/dev/null", *flags, folder=tmp_path)

    assert ended.code == 2
    assert "--new-token" in ended.err


def test_a_new_token_is_shown_once_and_configured_by_its_hash(tmp_path: Path) -> None:
    ended = orchestrator("serve", "--new-token", "ann", folder=tmp_path)
    token = ended.out.strip()

    assert ended.code == 0
    assert token not in ended.err
    digest = ended.err.partition('sha256 = "')[2].partition('"')[0]
    guest = Tokens({"ann": TokenSettings(sha256=digest, role="r")}).holder(token)
    assert guest is not None
    assert (guest.name, guest.role) == ("ann", "r")
    assert Tokens({"ann": TokenSettings(sha256=digest)}).holder(f"{token}x") is None


def test_a_token_may_stand_in_the_environment() -> None:
    settings = {"ci": TokenSettings(env="CI_TOKEN")}
    guest = Tokens(settings, {"CI_TOKEN": "a token of a person"}).holder("a token of a person")

    assert guest is not None
    assert guest.name == "ci"
    for missing in ({}, {"CI_TOKEN": "short"}):
        with pytest.raises(ConfigurationError, match="CI_TOKEN"):
            Tokens(settings, missing)
    _, digest = new_token()
    with pytest.raises(ConfigurationError, match="same token"):
        Tokens({"a": TokenSettings(sha256=digest), "b": TokenSettings(sha256=digest)})


def test_an_issuer_counts_as_somebody_who_is_asked_for() -> None:
    issuer = IssuerSettings(issuer="https://login.example", resource="https://agents.example/mcp")

    async def nothing(*_: object) -> None: ...

    Door(nothing, ServeSettings(host="0.0.0.0", oauth=issuer), nothing)  # not refused
