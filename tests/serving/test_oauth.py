"""Tokens of an authorization server: only those made by it, for this server, and still good."""

import json
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.serving.site import site

pytestmark = pytest.mark.requirement("E3")

KEY, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RESOURCE = "https://agents.example/mcp"


@pytest.fixture(scope="module")
def issuer() -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = {**ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k1", "alg": "ES256"}
            base = f"http://{self.headers['host']}"
            body: dict[str, Any] = (
                {"keys": [key]} if self.path == "/keys" else {"issuer": base, "jwks_uri": f"{base}/keys"}
            )
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def address(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    toml = f'[serve.oauth]\nissuer = "{issuer}"\nresource = "{RESOURCE}"\nscopes = ["agents"]\n'
    with site(tmp_path_factory.mktemp("oauth"), toml) as served:
        yield served


def signed(issuer: str, key: Any = KEY, algorithm: str = "ES256", **claims: Any) -> str:
    usual = {"iss": issuer, "aud": RESOURCE, "sub": "ann", "exp": time.time() + 600, "scope": "agents more"}
    return jwt.encode({**usual, **claims}, key, algorithm=algorithm, headers={"kid": "k1"})


def status(address: str, token: str) -> httpx2.Response:
    return httpx2.get(f"{address}/api/runs", headers={"authorization": f"Bearer {token}"})


def test_a_token_of_the_issuer_for_this_server_comes_in(address: str, issuer: str) -> None:
    assert status(address, signed(issuer)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "https://other.example"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"key": OTHER},
        {"key": "0" * 32, "algorithm": "HS256"},
        {"key": None, "algorithm": "none"},
    ],
    ids=["other resource", "other issuer", "too old", "other key", "shared secret", "unsigned"],
)
def test_any_other_does_not(address: str, issuer: str, wrong: dict[str, Any]) -> None:
    answer = status(address, signed(issuer, **wrong))

    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_scope_that_is_missing_is_named(address: str, issuer: str) -> None:
    answer = status(address, signed(issuer, scope="more"))

    assert answer.status_code == 403
    assert 'scope="agents"' in answer.headers["www-authenticate"]


def test_where_a_token_is_to_be_had_is_told_to_anyone(address: str, issuer: str) -> None:
    challenge = httpx2.get(f"{address}/mcp").headers["www-authenticate"]
    path = "/.well-known/oauth-protected-resource/mcp"
    told = httpx2.get(f"{address}{path}").json()

    assert f'resource_metadata="https://agents.example{path}"' in challenge
    assert (told["resource"], told["authorization_servers"]) == (RESOURCE, [f"{issuer}/"])
