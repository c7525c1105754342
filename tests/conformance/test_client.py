"""The conformance suite of the protocol, its client half, driven through our toolset: both requirement sets."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from orchestrator.tools.servers import describe
from tests.conformance.client import go_through
from tests.support import foreign

pytestmark = [pytest.mark.xdist_group("conformance"), pytest.mark.requirement("C2")]

HERE = Path(__file__).parent
EXPECTED: dict[str, Any] = json.loads((HERE / "expected_failures.json").read_text("utf-8"))
LEAST = {"2025-11-25": 18, "2026-07-28": 31}
"""How many scenarios count."""

LINE = re.compile(r"^\s*([✓✗]) (\S+): \d+ passed", re.MULTILINE)
SECONDS = 120


async def serve(path: Path, requirements: str, out: Path) -> str:
    """Runs the suite, which starts a relay for each scenario, and goes through what the relays bring."""
    relay = f"{sys.executable} -S -E {HERE / 'relay.py'} {path}"
    command = [*foreign.conformance(), "client", "--command", relay, "--requirements", requirements, "-o", str(out)]
    busy = anyio.Semaphore(6)

    async def handle(stream: SocketStream) -> None:
        async with stream, busy:
            asked = json.loads(await stream.receive())
            with tempfile.TemporaryDirectory() as store:
                try:
                    problem = await go_through(asked["url"], asked["context"], Path(store))
                except Exception as error:  # noqa: BLE001 - told to the suite, which judges
                    problem = describe(error)
            if problem:
                await stream.send(problem.encode())

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process(command, check=False, stderr=subprocess.STDOUT)
        group.cancel_scope.cancel()
    return done.stdout.decode()


@pytest.mark.parametrize("requirements", EXPECTED["client"])
def test_what_a_client_must_do(requirements: str, tmp_path: Path) -> None:
    """Each failure that counts is one that is expected, with its reason; those of extensions do not count."""
    try:
        foreign.conformance()
    except foreign.Missing as error:
        pytest.skip(f"the conformance suite is missing: {error}")
    with tempfile.TemporaryDirectory() as short:  # a socket's path has a limit
        said = anyio.run(serve, Path(short) / "s", requirements, tmp_path)
    summary = said.partition("=== SUITE SUMMARY ===")[2]
    results = {name: mark for mark, name in LINE.findall(summary)}
    uncounted = set(re.findall(r"^\s*✗ (\S+) \(", summary, re.MULTILINE))
    failed = {name for name, mark in results.items() if mark == "✗"} - uncounted
    assert len(results) >= LEAST[requirements], said
    assert failed == set(EXPECTED["client"][requirements]), said
