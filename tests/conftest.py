"""What holds for every test: no network beyond this machine, no settings and no state of whoever runs the tests."""

import ipaddress
import itertools
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

OURS = ("ANTHROPIC_", "OPENAI_", "ORCHESTRATOR_", "OTEL_")
"""Variables that would change what a test does; each test starts without them."""

SLOW = {"behaviour", "cli", "conformance", "doctor", "house", "servers", "serving", "tracing"}
"""Folders whose tests start many processes."""

CONNECTS = ("socket.connect", "socket.sendto", "socket.sendmsg")
LOOKS_UP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")

reached: list[str] = []
"""Addresses beyond this machine that were asked for since the test began. A test of the guard itself clears it."""

_numbers = itertools.count()

# Subprocesses start several times faster from byte code.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# How long an example takes says nothing on a busy machine.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


class BeyondLoopback(OSError):
    """A test reached for the network. An OSError, as a refused connection is one; the test fails all the same."""


def is_local(host: object) -> bool:
    """Whether a host is this machine by its very spelling, with nobody asked."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not isinstance(host, str):
        return host is None
    name = host.partition("%")[0].rstrip(".").lower()
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Python's own audit events: they come from every socket, however and by whichever library it was made."""
    if not event.startswith("socket."):
        return
    if event in CONNECTS:
        sock, address = arguments[0], arguments[1]
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
            return
        host = address[0]
    elif event in LOOKS_UP:
        host = arguments[0]
    else:
        return
    if not is_local(host):
        reached.append(f"{host!r} ({event})")
        raise BeyondLoopback(f"no test may reach beyond loopback, and this one asked for {host!r} ({event})")


def pytest_configure() -> None:
    sys.addaudithook(_watch)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts processes comes first, so that at the end no worker waits long for another."""
    items.sort(key=lambda item: item.nodeid.split("/")[1] not in SLOW)


@pytest.fixture(autouse=True)
def _nothing_beyond_loopback() -> Iterator[None]:
    """Fails the test even when the code under test took the refusal for a server that is down."""
    reached.clear()
    yield
    assert not reached, f"no test may reach beyond loopback, and this one asked for {', '.join(reached)}"


@pytest.fixture(autouse=True)
def _a_home_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """State goes to a folder of this test alone, which need not exist, beside `tmp_path` and not in it."""
    for name in list(os.environ):
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(_numbers))
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(home))
