"""Whether a server says that it is ready when it is, and only then (E3)."""

import resource
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.serving.served import bell, rung
from tests.serving.site import caller, open_site
from tests.support.command import call, end

pytestmark = pytest.mark.requirement("E3")


def answer(address: str, status: int) -> str:
    """The detail of the answer that has this status; it may be told a moment later."""
    for _ in range(20_000):
        told = httpx2.get(f"{address}/readyz", timeout=60)
        if told.status_code == status:
            return told.text
    raise AssertionError(f"still {told.status_code}: {told.text}")


def test_a_server_that_cannot_write_is_not_ready_until_it_can(tmp_path: Path) -> None:
    process, address = open_site(tmp_path, "")
    assert answer(address, 200) == '{"status":"ready"}'
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    full = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))  # as on a full disk
    assert "nothing can be written: the journal" in answer(address, 503)
    assert httpx2.get(f"{address}/healthz").status_code == 200
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, full)
    answer(address, 200)
    with closing(sqlite3.connect(tmp_path / "home" / "journal.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "takes longer than 2 s" in answer(address, 503)
    answer(address, 200)
    process.send_signal(signal.SIGTERM)
    assert end(process).code == 0


def test_a_server_that_stops_is_not_ready_and_takes_no_runs(tmp_path: Path) -> None:
    """Whoever looks sees it for as long as runs are given to end; then it ends well."""
    pipe = bell(tmp_path)
    process, address = open_site(tmp_path, "[serve]\ngrace = 600\n", {"calls": [call("fx__hang", text="a")]})
    with caller(address) as anyone:
        run = anyone.post("/api/runs", json={"agent": "lone", "input": {"task": "x"}}).json()["run_id"]
        anyio.run(rung, pipe)
        process.send_signal(signal.SIGTERM)
        assert "about to stop" in answer(address, 503)
        refused = anyone.post("/api/runs", json={"agent": "lone", "input": {"task": "y"}})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert anyone.get("/healthz").status_code == 200
        assert anyone.post(f"/api/runs/{run}/cancel").json()["status"] == "cancelled"
    assert end(process).code == 0
