"""Servers at a URL that refuse: each says in one line who, why and what to do, and nothing that is secret."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import ServerSettings
from orchestrator.tools.servers import Server, Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import http_server
from tests.support.toolsets import call, sums, web, with_toolset

pytestmark = pytest.mark.requirement("C2")

FILE = Path("/home/me/.mcp.json")


def answering(status: int, body: bytes | str = b"", **headers: str) -> Any:
    """An application that gives every request the same answer."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": status, "headers": lines})
            content = body.encode() if isinstance(body, str) else body
            await send({"type": "http.response.body", "body": content})

    return app


def server(url: str, transport: Any = "http", headers: Mapping[str, str] = {}) -> Server:
    settings = ServerSettings(name="web", transport=transport, url=url, headers=headers, file=FILE, line=3)
    return http_server("web", lambda: settings, start_timeout=20, terms=Terms())


def problem_of(each: Server) -> str:
    problems: list[str] = []

    async def test(toolset: Toolset) -> None:
        assert not toolset.servers["web"].up
        problems.append(toolset.servers["web"].problem)

    with_toolset(test, each)
    return problems[0]


TITLE = "<html><head><title>Corporate   sign-in</title></head><body>…</body></html>"
KEY = '"headers": {"Authorization": "Bearer ${TOKEN}"}'
RPC = '{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"who?"}}'
NO_KEY = (
    f": it needs a key or a sign-in. Put {KEY} into its entry in /home/me/.mcp.json:3, or run `orchestrator login web`."
)
CHECK = "Is it the right URL, and is there a proxy or a sign-in page before it?"
LACKS = ": what was given lacks the scope `files:write`. Sign in with more: `orchestrator login web`."
CASES: Mapping[str, tuple[Any, str]] = {
    "no key": (answering(401), f"HTTP 401 from URL{NO_KEY}"),
    "no key, a page": (
        answering(401, TITLE, content_type="text/html"),
        f'HTTP 401 from URL ("Corporate sign-in"){NO_KEY}',
    ),
    "no key, as JSON-RPC": (
        answering(401, RPC, content_type="application/json"),
        f'HTTP 401 from URL ("who?"){NO_KEY}',
    ),
    "a scope": (answering(403, www_authenticate='Bearer scope="files:write"'), f"HTTP 403 from URL{LACKS}"),
    "forbidden": (
        answering(403, '{"message":"not you"}'),
        'HTTP 403 from URL ("not you"): what was given is not enough.',
    ),
    "a wrong path": (answering(404), "HTTP 404 from URL: there is nothing at this path. Most servers are at `/mcp`"),
    "an older server": (
        answering(405),
        'HTTP 405 from URL: it takes no messages here. An older server needs `"type": "sse"`',
    ),
    "trouble": (
        answering(503, "later", content_type="text/plain"),
        'HTTP 503 from URL ("later"): the server has trouble',
    ),
    "a proxy's page": (
        answering(200, TITLE, content_type="text/html"),
        f'URL answers with a web page ("Corporate sign-in") and not with MCP. {CHECK}',
    ),
    "elsewhere": (
        answering(302, location="https://sso.example/in?t=hush"),
        f"HTTP 302 from URL: it sends on to https://sso.example/in, which is not followed. {CHECK}",
    ),
}


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("case", CASES)
def test_what_a_refusal_says(case: str, transport: str) -> None:
    app, words = CASES[case]
    with web(app) as url:
        problem = problem_of(server(f"{url.replace('//', '//me:hush@')}/mcp?key=hush", transport))
        assert problem.startswith(words.replace("URL", f"{url}/mcp", 1))
    assert "hush" not in problem
    assert "\n" not in problem


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_key_that_is_not_accepted(transport: str) -> None:
    app = answering(401, www_authenticate='Bearer error="invalid_token", error_description="The token expired"')
    with web(app) as url:
        problem = problem_of(server(f"{url}/mcp", transport, {"authorization": "Bearer hush"}))
        wanted = f'{url}/mcp ("The token expired"): the `Authorization` in /home/me/.mcp.json:3 is not accepted.'
        assert wanted in problem
    assert "hush" not in problem


def test_nobody_there() -> None:
    problem = problem_of(server("http://me:hush@127.0.0.1:9/mcp?key=hush"))
    assert problem.startswith("cannot connect to http://127.0.0.1:9/mcp: ")
    assert "hush" not in problem


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    with web(answering(200), ssl_keyfile=str(key), ssl_certfile=str(certificate)) as url:
        problem = problem_of(server(f"{url.replace('http:', 'https:')}/mcp"))
    assert "is not trusted: self-signed certificate" in problem or "is not trusted: self signed certificate" in problem
    assert "SSL_CERT_FILE" in problem


def test_tls_where_there_is_none() -> None:
    with web(answering(200)) as url:
        assert problem_of(server(f"{url.replace('http:', 'https:')}/mcp")).endswith("Is it `http://`?")


class Guard:
    """Lets nobody through without the key, once it is shut; `forgetful` for one message, as after a restart."""

    def __init__(self, transport: str, key: str = "Bearer hush", *, shut: bool = True) -> None:
        self.app = sums().streamable_http_app() if transport == "http" else sums().sse_app()
        self.path = "mcp" if transport == "http" else "sse"
        self.key, self.shut, self.forgetful = key, shut, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        inner = self.app
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            if self.shut and given != self.key:
                inner = answering(401)
            elif self.forgetful and scope["method"] == "POST":
                self.forgetful, inner = False, answering(404, "Could not find session")
        await inner(scope, receive, send)


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_key_opens_the_server_and_a_session_begun_anew_has_it_too(transport: str) -> None:
    guard = Guard(transport)

    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "web__add", {"a": 1, "b": 1})).text == "2"
        guard.forgetful = True
        lost = await call(toolset, "web__add", {"a": 1, "b": 2})
        assert lost.error, "it was told, and not waited out"
        assert lost.error != "timeout"
        assert (await call(toolset, "web__add", {"a": 1, "b": 3})).text == "4"

    with web(guard) as url:
        with_toolset(test, server(f"{url}/{guard.path}", transport, {"Authorization": "Bearer hush"}))


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_key_that_ends_during_a_run(transport: str) -> None:
    guard = Guard(transport, "never", shut=False)

    async def test(toolset: Toolset) -> None:
        assert (await call(toolset, "web__add", {"a": 1, "b": 1})).text == "2"
        guard.shut = True
        replies = [await call(toolset, "web__add", {"a": 1, "b": 2}) for _ in range(2)]
        assert all(reply.error for reply in replies)
        assert "HTTP 401" in replies[-1].text
        assert "login web" in replies[-1].text

    with web(guard) as url:
        with_toolset(test, server(f"{url}/{guard.path}", transport))


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for 127.0.0.1 that nobody has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / "key.pem", folder / "cert.pem"
