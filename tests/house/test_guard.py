"""The guard that keeps tests on this machine."""

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from tests.conftest import BeyondLoopback, is_local, reached


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "localhost", "a.localhost", None]
)
def test_this_machine(host: str | None) -> None:
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "10.0.0.1", "::2", "example.com", "localhost.example.com", b"example.com"]
)
def test_other_machines(host: str | bytes) -> None:
    assert not is_local(host)


def test_a_connection_is_refused_with_the_address_in_the_message() -> None:
    with socket.socket() as sock, pytest.raises(BeyondLoopback, match=r"192\.0\.2\.1"):
        sock.connect(("192.0.2.1", 80))
    assert reached == ["'192.0.2.1' (socket.connect)"]
    reached.clear()


def test_a_datagram_is_refused() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(BeyondLoopback):
        sock.sendto(b"", ("192.0.2.1", 53))
    reached.clear()


def test_names_are_not_looked_up() -> None:
    with pytest.raises(BeyondLoopback, match=r"models\.example\.com"):
        socket.getaddrinfo("models.example.com", 443)
    reached.clear()


def test_asyncio_is_watched_too_and_loopback_works() -> None:
    async def talk() -> bytes:
        with pytest.raises(BeyondLoopback):
            await asyncio.open_connection("models.example.com", 443)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            writer.write(b"hello")
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            reader, writer = await asyncio.open_connection(host, port)
            said = await reader.read()
            writer.close()
            return said

    assert asyncio.run(talk()) == b"hello"
    reached.clear()


def test_whoever_runs_the_tests_does_not_change_them() -> None:
    kept = [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "OTEL_", "ORCHESTRATOR_"))]
    assert kept == ["ORCHESTRATOR_HOME"]
    code = "import sys; print(sys.dont_write_bytecode)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
