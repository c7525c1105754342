"""Tokens of an authorization server: only those made by it, for this server, and still good."""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.serving.site import site
from tests.support.command import call
from tests.support.oauth_server import free_port
from tests.support.runs import ledger_lines

pytestmark = pytest.mark.requirement("E3")

RESOURCE = "https://agents.example/mcp"


class Authority(ThreadingHTTPServer):
    """An issuer of tokens. `keys` are those that it publishes; `name` is what it calls itself. While it is `held`, it
    gives no keys; `asked` says that somebody wants them.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.keys = {"k1": ec.generate_private_key(ec.SECP256R1())}
        self.issuer = self.name = f"http://127.0.0.1:{self.server_port}"
        self.fetched = 0
        self.asked, self.free = Event(), Event()
        self.free.set()

    def token(self, kid: str = "k1", key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        usual = {"iss": self.issuer, "aud": RESOURCE, "sub": "ann", "exp": time.time() + 600, "scope": "agents more"}
        key = self.keys[kid] if key is None and algorithm == "ES256" else key
        return jwt.encode({**usual, **claims}, key, algorithm=algorithm, headers={"kid": kid})


class Handler(BaseHTTPRequestHandler):
    server: Authority

    def do_GET(self) -> None:
        there = self.server
        body: dict[str, Any] = {"issuer": there.name, "jwks_uri": f"{there.issuer}/keys"}
        if self.path == "/keys":
            there.asked.set()
            assert there.free.wait(60)
            there.fetched += 1
            public = {kid: ECAlgorithm.to_jwk(key.public_key(), as_dict=True) for kid, key in there.keys.items()}
            body = {"keys": [{**key, "kid": kid, "alg": "ES256"} for kid, key in public.items()]}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def issuing(port: int = 0) -> Generator[Authority]:
    with Authority(port) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def table(issuer: Authority, more: str = "") -> str:
    return f'[serve.oauth]\nissuer = "{issuer}"\nresource = "{RESOURCE}"\nscopes = ["agents"]\n{more}\n'


@pytest.fixture(scope="module")
def issuer() -> Generator[Authority]:
    with issuing() as server:
        yield server


@pytest.fixture(scope="module")
def address(issuer: Authority, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with site(tmp_path_factory.mktemp("oauth"), table(issuer.issuer)) as served:
        yield served


def status(address: str, token: str) -> httpx2.Response:
    return httpx2.get(f"{address}/api/runs", headers={"authorization": f"Bearer {token}"})


def test_a_token_of_the_issuer_for_this_server_comes_in(address: str, issuer: Authority) -> None:
    assert status(address, issuer.token()).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "https://other.example"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"key": "0" * 32, "algorithm": "HS256"},
        {"algorithm": "none"},
    ],
    ids=["other resource", "other issuer", "too old", "other key", "shared secret", "unsigned"],
)
def test_any_other_does_not(address: str, issuer: Authority, wrong: dict[str, Any]) -> None:
    answer = status(address, issuer.token(**wrong))

    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_scope_that_is_missing_is_named(address: str, issuer: Authority) -> None:
    answer = status(address, issuer.token(scope="more"))

    assert answer.status_code == 403
    assert 'scope="agents"' in answer.headers["www-authenticate"]


def test_where_a_token_is_to_be_had_is_told_to_anyone(address: str, issuer: Authority) -> None:
    challenge = httpx2.get(f"{address}/mcp").headers["www-authenticate"]
    path = "/.well-known/oauth-protected-resource/mcp"
    told = httpx2.get(f"{address}{path}").json()

    assert f'resource_metadata="https://agents.example{path}"' in challenge
    assert (told["resource"], told["authorization_servers"]) == (RESOURCE, [f"{issuer.issuer}/"])


ROLES = """roles = { "agents:write" = "writer", "agents:read" = "reader" }
[policy]
allow = ["fx__*"]
[roles.writer]
tools = ["fx__*"]
[roles.reader]
tools = ["fx__look"]"""


@pytest.mark.requirement("C6")
def test_a_scope_gives_the_role_of_a_run_and_of_what_is_below_it(tmp_path: Path) -> None:
    """The first one of the table counts. Without any of them there would be no bound, so nobody comes in."""
    pays = {"calls": [call("fx__pay", text="a")]}, {"text": "done"}
    boss = {"agent": "boss", "calls": [call("agents__lone", task="pay")]}, {"agent": "boss", "text": "done"}
    cards = {"boss": "tools: []\nagents: [lone]", "lone": "tools: [fx__*]"}
    with issuing() as issuer, site(tmp_path, table(issuer.issuer, ROLES), *pays, *boss, **cards) as address:

        def pay(scope: str) -> httpx2.Response:
            headers = {"authorization": f"Bearer {issuer.token(scope=scope)}"}
            begin = {"agent": "boss", "input": {"task": "x"}}
            with httpx2.Client(base_url=address, headers=headers, timeout=60) as http:
                begun = http.post("/api/runs", json=begin)
                if begun.status_code == 202:
                    http.get(f"/api/runs/{begun.json()['run_id']}/events")  # until it has ended
                return begun

        refused = pay("agents")
        assert (refused.status_code, 'scope="agents:read"' in refused.headers["www-authenticate"]) == (403, True)
        for scope, paid in (("agents agents:read", 0), ("agents agents:read agents:write", 1)):
            assert pay(scope).status_code == 202
            assert len(ledger_lines(tmp_path / "ledger")) == paid


def test_a_new_key_is_fetched_once_and_names_of_no_key_do_no_harm(tmp_path: Path) -> None:
    with issuing() as issuer, site(tmp_path, table(issuer.issuer)) as address, ThreadPoolExecutor() as pool:
        assert status(address, issuer.token()).status_code == 200
        issuer.keys["k2"] = ec.generate_private_key(ec.SECP256R1())
        issuer.asked.clear()
        issuer.free.clear()
        rotated = pool.submit(status, address, issuer.token("k2"))
        assert issuer.asked.wait(60)
        try:
            assert status(address, issuer.token()).status_code == 200  # who has a known key does not wait for that
        finally:
            issuer.free.set()
        assert (rotated.result().status_code, issuer.fetched) == (200, 2)
        for number in range(20):
            assert status(address, issuer.token(f"x{number}", key=issuer.keys["k1"])).status_code == 401
        assert issuer.fetched == 2


@pytest.mark.parametrize("trouble", ["it is not there", "it is another"])
def test_an_issuer_in_trouble_is_no_fault_of_the_token(tmp_path: Path, trouble: str) -> None:
    """Not 401: who reads that would throw a good token away."""
    port = free_port()
    with site(tmp_path, table(f"http://127.0.0.1:{port}")) as address:
        if trouble == "it is not there":
            with Authority() as other:
                token = other.token(iss=f"http://127.0.0.1:{port}")
            refused = status(address, token)
        with issuing(port) as issuer:
            if trouble == "it is another":
                issuer.name = "https://evil.example"
                refused = status(address, issuer.token())
            assert (refused.status_code, "www-authenticate" in refused.headers) == (503, False)
            assert status(address, "no.token.atall").status_code == 401
            issuer.name = issuer.issuer
            answer = refused
            while answer.status_code == 503:
                time.sleep(int(answer.headers["retry-after"]))  # as any client that was told so
                answer = status(address, issuer.token())
            assert answer.status_code == 200


def test_a_header_that_nests_without_end_is_no_token(address: str) -> None:
    assert status(address, f"{urlsafe_b64encode(b'[' * 20_000).decode()}.e30.c2ln").status_code == 401
