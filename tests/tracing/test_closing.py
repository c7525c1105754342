"""What is left of a trace is sent while the servers end, not after them. Requirement F2."""

import http.server
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import ServerSettings
from orchestrator.testing import call
from tests.behaviour.stage import Stage
from tests.support.runs import EFFECTS, card

SLOW_TO_END = """
import runpy, sys
ended, sent, sys.argv = sys.argv[1], sys.argv[2], sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
open(sent).read()
open(ended, "w").close()
"""
"""An effects server that ends once spans have been sent."""


@pytest.mark.requirement("F2")
def test_a_server_that_ends_slowly_does_not_hold_up_the_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, ended = tmp_path / "sent", tmp_path / "ended"
    os.mkfifo(sent)

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with sent.open("w"):  # the server waits for this
                pass
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_address[1]}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")  # nothing is sent before the end
        arguments = ("-S", "-c", SLOW_TO_END, str(ended), str(sent), str(EFFECTS), str(tmp_path / "ledger"))
        server = ServerSettings(name="fx", command=sys.executable, args=arguments)
        script = {("a", 1): call("fx__look", {"text": "a"}), ("a", 2): "done"}
        stage = Stage(tmp_path, script, card("a", tools=("fx__*",)), traced=True, configured={"fx": server})
        assert stage.run().status == "finished"
        collector.shutdown()
    assert ended.exists()
