"""Signing in to a server by OAuth: a real authorization server, a browser that follows redirects, and later runs."""

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from orchestrator.config import ServerSettings
from orchestrator.config.oauth import OAuthSettings
from orchestrator.errors import OrchestratorError
from orchestrator.tools import login
from orchestrator.tools.servers import Server, Terms
from orchestrator.tools.toolset import Toolset
from orchestrator.tools.transports import http_server
from orchestrator.tools.vault import FOLDER, IN_KEYRING, Vault
from tests.support.oauth_server import MORE, SCOPE, browse, free_port, guarded
from tests.support.toolsets import call, with_toolset

pytestmark = pytest.mark.requirement("C2")


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """No test touches the keyring of whoever runs it: this one is broken, unless a test mends it."""
    import keyring
    from keyring.backends.fail import Keyring

    monkeypatch.setattr(keyring.core, "_keyring_backend", Keyring())
    return {}


def settings(url: str, transport: Any = "http", **more: Any) -> ServerSettings:
    return ServerSettings(name="sums", url=url, transport=transport, **more)


def sign_in(where: ServerSettings, store: Path, browser: Callable[[str], Any] = browse) -> tuple[tuple[int, bool], Any]:
    """Signs in; gives what came of it, and what the browser was shown at the end."""
    seen: list[Any] = []

    async def main() -> tuple[int, bool]:
        async with anyio.create_task_group() as group:

            async def look(address: str) -> None:
                seen.append(await browser(address))

            async def show(address: str) -> None:
                group.start_soon(look, address)

            with anyio.fail_after(30):
                return await login.sign_in(where, store, show)

    try:
        return anyio.run(main), seen and seen[0]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def server(where: ServerSettings, store: Path) -> Server:
    return http_server("sums", lambda: where, start_timeout=20, terms=Terms(), store=store)


def use(where: ServerSettings, store: Path) -> str:
    """What a later run gets from the server: 5, or the reason why not."""
    heard: list[str] = []

    async def test(toolset: Toolset) -> None:
        if not toolset.servers["sums"].up:
            heard.append(toolset.servers["sums"].problem)
            return
        heard.append((await call(toolset, "sums__add", {"a": 2, "b": 3})).text)

    with_toolset(test, server(where, store))
    return heard[0]


def kept(store: Path) -> Path:
    (file,) = (store / FOLDER).iterdir()
    return file


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_person_signs_in_once_and_later_runs_use_it(tmp_path: Path, transport: str) -> None:
    with guarded(transport=transport) as (url, authority):
        where = settings(url, transport)
        assert "run `orchestrator login sums`" in use(where, tmp_path)
        done, page = sign_in(where, tmp_path)
        assert done == (1, True)
        assert "You are signed in." in page.text
        assert authority.asked == [[SCOPE]]
        assert use(where, tmp_path) == "5"
        assert len(authority.asked) == 1, "nobody was asked again"
    assert stat.S_IMODE(kept(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(kept(tmp_path).parent.stat().st_mode) == 0o700


def test_a_sign_in_is_renewed_by_later_runs_at_the_server_that_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded() as (url, authority):
        sign_in(settings(url), tmp_path)
        later = time.time() + authority.lifetime + 60
        monkeypatch.setattr(time, "time", lambda: later)
        assert use(settings(url), tmp_path) == "5"
        assert use(settings(url), tmp_path) == "5"
        assert authority.renewals == 1, "what was renewed is kept"


def test_a_sign_in_that_counts_no_more_says_how_to_sign_in_again(tmp_path: Path) -> None:
    with guarded() as (url, authority):
        sign_in(settings(url), tmp_path)
        authority.revoke()
        told = use(settings(url), tmp_path)
        assert told.startswith(f"the sign-in to {url} is not accepted any more")
        assert told.endswith("`orchestrator login sums`.")
        assert len(authority.asked) == 1, "a run sends nobody to a browser"
        sign_in(settings(url), tmp_path)
        assert use(settings(url), tmp_path) == "5"


def test_a_call_that_needs_more_says_so_and_the_next_sign_in_asks_for_it(tmp_path: Path) -> None:
    with guarded(step_up=True) as (url, authority):
        sign_in(settings(url), tmp_path)
        told = use(settings(url), tmp_path)
        assert f"the sign-in to {url} lacks the scope `{MORE}`. Sign in again: `orchestrator login sums`." in told
        sign_in(settings(url), tmp_path)
        assert sorted(authority.asked[-1]) == [SCOPE, MORE]
        assert use(settings(url), tmp_path) == "5"


def test_scopes_that_are_configured_are_asked_for_too(tmp_path: Path) -> None:
    with guarded() as (url, authority):
        sign_in(settings(url, oauth=OAuthSettings(scopes=(MORE,))), tmp_path)
        assert sorted(authority.asked[0]) == [SCOPE, MORE]


def test_a_client_that_was_registered_by_hand(tmp_path: Path) -> None:
    port = free_port()
    with guarded(registration=False) as (url, authority):
        with pytest.raises(OrchestratorError, match=r'Register a client there by hand, and put `"oauth": {"clientId"'):
            sign_in(settings(url), tmp_path)
        authority.clients["mine"] = OAuthClientInformationFull(
            client_id="mine",
            client_secret="hush",
            redirect_uris=[AnyUrl(f"http://localhost:{port}/callback")],
            token_endpoint_auth_method="client_secret_basic",
            scope=f"{SCOPE} {MORE}",
        )
        where = settings(url, oauth=OAuthSettings(client_id="mine", client_secret="hush", callback_port=port))
        assert sign_in(where, tmp_path)[0] == (1, True)
        assert use(where, tmp_path) == "5"


def test_a_person_who_says_no(tmp_path: Path) -> None:
    pages: list[Any] = []

    async def look(address: str) -> None:
        pages.append(await browse(address))

    with guarded() as (url, authority):
        authority.refusing = True
        with pytest.raises(OrchestratorError, match="cannot sign in to `sums`: it was refused: Not <you>"):
            sign_in(settings(url), tmp_path, look)
    assert "You are not signed in: it was refused: Not &lt;you&gt;." in pages[0].text
    assert not (tmp_path / FOLDER).exists()


def test_only_the_answer_that_is_waited_for_counts(tmp_path: Path) -> None:
    """Another page of the same browser may know the port, but not the state."""

    async def meddle(address: str) -> list[int]:
        back = httpx2.URL(httpx2.URL(address).params["redirect_uri"])
        async with httpx2.AsyncClient() as other:
            strange = [
                await other.get(back.copy_merge_params({"code": "stolen", "state": "guessed"})),
                await other.get(back.copy_merge_params({"code": "stolen"})),
                await other.post(back.copy_merge_params({"state": httpx2.URL(address).params["state"]})),
                await other.get(back.copy_with(path="/elsewhere")),
            ]
        return [each.status_code for each in [*strange, await browse(address)]]

    with guarded() as (url, _):
        done, codes = sign_in(settings(url), tmp_path, meddle)
    assert codes == [400, 400, 404, 404, 200]
    assert done == (1, True)


def test_nobody_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(address: str) -> None:
        del address

    monkeypatch.setattr(login, "WAIT", 0.05)
    with guarded() as (url, _), pytest.raises(OrchestratorError, match=r"nobody came back .* within 0.05 s"):
        sign_in(settings(url), tmp_path, nothing)


def test_the_port_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as taken:
            port = taken.extra(anyio.abc.SocketAttribute.local_port)
            where = settings("http://127.0.0.1:9/mcp", oauth=OAuthSettings(callback_port=port))
            with pytest.raises(OrchestratorError, match=rf"port {port} .* `callbackPort`, is taken"):
                await login.sign_in(where, tmp_path, show)

    async def show(address: str) -> None:
        raise AssertionError(address)

    anyio.run(main)


def test_a_key_in_the_headers_goes_before_a_sign_in(tmp_path: Path) -> None:
    with guarded() as (url, _):
        sign_in(settings(url), tmp_path)
        assert "`Authorization`" in use(settings(url, headers={"Authorization": "Bearer other"}), tmp_path)


def test_a_sign_in_is_for_one_url(tmp_path: Path) -> None:
    with guarded() as (url, _), guarded() as (other, _):
        sign_in(settings(url), tmp_path)
        assert "HTTP 401" in use(settings(other), tmp_path)


def test_a_damaged_sign_in_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with guarded() as (url, _):
        sign_in(settings(url), tmp_path)
        kept(tmp_path).write_text("{")
        assert "login sums" in use(settings(url), tmp_path)
    assert "is damaged: sign in again" in caplog.text


@pytest.fixture
def keyring_that_works(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    import keyring
    from keyring.backend import KeyringBackend

    secrets: dict[tuple[str, str], str] = {}

    class Memory(KeyringBackend):
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            return secrets.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            secrets[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del secrets[service, username]

    monkeypatch.setattr(keyring.core, "_keyring_backend", Memory())
    return secrets


def test_the_systems_keyring_is_used_where_there_is_one(
    tmp_path: Path, keyring_that_works: dict[tuple[str, str], str]
) -> None:
    with guarded() as (url, _):
        sign_in(settings(url), tmp_path)
        ((service, name), text) = next(iter(keyring_that_works.items()))
        assert (service, name.split()[0]) == ("orchestrator-mcp", url)
        assert json.loads(text)["tokens"]["access_token"]
        assert kept(tmp_path).read_text() == IN_KEYRING
        assert use(settings(url), tmp_path) == "5"
        vault = Vault(tmp_path, url)
        assert vault.forget()
        assert not vault.forget()
        assert keyring_that_works == {}
        assert "login sums" in use(settings(url), tmp_path)
