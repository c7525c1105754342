"""The thread that writes the log: one line each, what a slow disk costs, who else hears a warning. Requirement F4."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.tracing import logs
from orchestrator.tracing.logs import Log, about

pytestmark = pytest.mark.requirement("F4")


def line(number: int, **more: Any) -> dict[str, Any]:
    return {"at": 0.0, "level": "info", "event": "test", "number": number, **more}


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_bytes().splitlines()]


def test_a_full_file_is_set_aside_and_no_line_is_lost(tmp_path: Path) -> None:
    for number in range(6):
        log = Log(tmp_path, limit=200)
        log.add(line(number))
        log.close()
    assert sorted(each["number"] for each in written(tmp_path)) == list(range(6))
    assert len(list(tmp_path.iterdir())) > 1
    assert all(file.stat().st_size <= 200 for file in tmp_path.iterdir())


def test_several_logs_write_into_one_file(tmp_path: Path) -> None:
    several = [Log(tmp_path) for _ in range(3)]
    for number in range(300):
        several[number % 3].add(line(number, text="x" * 200))
    for log in several:
        log.close()
    assert sorted(each["number"] for each in written(tmp_path)) == list(range(300))


def test_what_a_slow_disk_does_not_take_is_left_out_and_counted(tmp_path: Path, monkeypatch: Any) -> None:
    writing, on = threading.Event(), threading.Event()
    append = logs.LineFile.append

    def slow(file: logs.LineFile, data: bytes) -> None:
        writing.set()
        assert on.wait(60)
        append(file, data)

    monkeypatch.setattr(logs.LineFile, "append", slow)
    monkeypatch.setattr(logs, "_WAITING", 5)
    log = Log(tmp_path)
    log.add(line(0))
    assert writing.wait(60)
    for number in range(1, 9):
        log.add(line(number))
    on.set()
    log.close()
    found = written(tmp_path)
    assert [each["number"] for each in found if "number" in each] == [0, 1, 2, 3, 4, 5]
    assert [each["count"] for each in found if each["event"] == "log.lost"] == [3]


def test_a_long_value_is_a_summary_that_is_masked_before_it_is_cut(tmp_path: Path) -> None:
    log = Log(tmp_path)
    long = "word " * 58 + "write to alice@example.com"
    log.add(line(1, text=long, result=json.dumps({"data": "x" * 5_000, "credentials": {"user": "bob"}})))
    log.add(line(2, arguments={"data": ["y" * 300] * 40, "credentials": {"user": "bob"}}, text="half \ud800"))
    log.close()
    first, second = written(tmp_path)
    assert len(first["text"]) <= 300
    assert "alice" not in first["text"]
    for each in (first["result"], second["arguments"]):
        assert len(each) <= 300
        assert "bob" not in each
    assert second["text"] == "half ?"


def test_warnings_are_lines_with_their_run_and_traceback(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with about("run-1", "trace-1"):
        try:
            raise ValueError("mail alice@example.com")
        except ValueError:
            logging.getLogger("orchestrator.some.module").exception("it failed for %s", "bob@example.com")
    logging.getLogger("orchestrator.some.module").warning("nobody's")
    logging.getLogger("another.package").error("not ours")
    log.close()
    logging.getLogger("orchestrator").warning("too late")
    first, second = written(tmp_path)
    assert (first["level"], first["run_id"], first["trace_id"]) == ("error", "run-1", "trace-1")
    assert first["message"] == "it failed for [email]"
    assert first["traceback"].endswith("ValueError: mail [email]")
    assert (second["message"], "run_id" in second) == ("nobody's", False)


def test_who_has_set_up_no_logging_still_reads_warnings_once(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    several = [Log(tmp_path) for _ in range(2)]
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging.getLogger("orchestrator.tools").warning("look here")
    monkeypatch.undo()
    for log in several:
        log.close()
    assert capsys.readouterr().err == "look here\n"
