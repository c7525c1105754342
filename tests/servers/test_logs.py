"""The `logs` server: which entries it sees in files of many forms, and what it says of them."""

import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stdio import REPO, Refused, Server, serving

LOGS = REPO / "examples" / "logs"
PATH = "examples/logs"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that may read this repository and every `tmp_path`."""
    with serving("logs", "--root", REPO, "--root", tmp_path_factory.getbasetemp()) as server:
        yield server


def errors() -> list[tuple[datetime, str]]:
    """Time and kind of every error of the example, without the server's code."""
    found: list[tuple[datetime, str]] = []
    names = ("checkout.log.2.gz", "checkout.log.1", "checkout.log")
    data = [(LOGS / name).read_bytes() for name in names]
    text = b"".join([gzip.decompress(data[0]), *data[1:]]).decode()
    for block in re.split(r"\n(?=2026-)", text):
        if " ERROR " in block.splitlines()[0]:
            moment = datetime.strptime(block[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            found.append((moment, "pool" if "PoolTimeout:" in block else "mail"))
    for line in (LOGS / "payments.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["level"] == "error":
            kind = "declined" if "declined" in entry["message"] else "checkout"
            found.append((datetime.fromisoformat(entry["time"]).astimezone(UTC), kind))
    return found


def test_the_example_is_what_its_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, REPO / "examples" / "make_logs.py", tmp_path / "logs"], check=True)
    again = {path.name: path.read_bytes() for path in (tmp_path / "logs").iterdir()}
    assert sorted(again) == sorted(path.name for path in LOGS.iterdir())
    for name, data in again.items():
        kept = (LOGS / name).read_bytes()
        # How tightly gzip packs is the business of the zlib that Python was built with.
        assert gzip.decompress(data) == gzip.decompress(kept) if name.endswith(".gz") else data == kept
    subprocess.run([sys.executable, REPO / "examples" / "make_tickets.py", tmp_path / "t.csv"], check=True)
    tickets = (REPO / "examples" / "tickets.csv").read_bytes()
    assert (tmp_path / "t.csv").read_bytes() == tickets
    assert re.search("[\u4e00-\u9fff]", tickets.decode())
    assert sum(path.stat().st_size for path in LOGS.iterdir()) < 600_000


def test_the_example_is_described(logs: Server) -> None:
    shop, paid = logs("describe_logs", path=PATH)["logs"]
    assert shop["files"] == [f"{PATH}/{name}" for name in ("checkout.log.2.gz", "checkout.log.1", "checkout.log")]
    assert (shop["format"], shop["zones"]) == ("text with ISO times", ["none"])
    assert (paid["format"], paid["zones"]) == ("JSON lines", ["+02:00"])
    assert shop["first"] == "2026-03-09T00:00:03.112Z"
    assert shop["levels"]["ERROR"] + paid["levels"]["ERROR"] == len(errors())
    assert logs("describe_logs", path=f"{PATH}/checkout.log")["logs"][0]["entries"] == shop["entries"]
    assert logs("describe_logs", path=f"{PATH}/checkout.log.1")["logs"][0]["entries"] < shop["entries"]
    assert [log["name"] for log in logs("describe_logs", path=f"{PATH}/pay*")["logs"]] == ["payments.jsonl"]


def test_what_grew_is_told_from_what_did_not(logs: Server) -> None:
    by_day = Counter((moment.day, kind) for moment, kind in errors())
    result = logs("compare_periods", path=PATH)
    assert {c["template"]: c["change"] for c in result["changes"]} == {
        "[orders] order <n> failed [checkout.db.PoolTimeout]": "new",
        "checkout did not answer within <n> ms": "grew",
    }
    kinds = {"pool": "PoolTimeout", "checkout": "did not answer", "declined": "declined", "mail": "bounced"}
    for kind, words in kinds.items():
        (change,) = [c for c in result["changes"] + result["steady"] if words in c["template"]]
        assert (change["before"], change["after"]) == (by_day[10, kind], by_day[11, kind])
    first = min(moment for moment, kind in errors() if kind == "pool")
    assert result["changes"][0]["first_after"] == first.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert result["after_hours"] < 18
    assert result["before_hours"] == 24
    with pytest.raises(Refused, match=r"nothing of the period `before`. They reach from 2026-03-09"):
        logs("compare_periods", path=PATH, before="2025-01-01", after="today")
    with pytest.raises(Refused, match="is a moment"):
        logs("compare_periods", path=PATH, before="2h ago")


def test_counts_over_time(logs: Server) -> None:
    result = logs("count_logs", path=PATH, by="hour", level="ERROR", split="log", since="2026-03-11T09:00Z")
    mine = Counter(m.strftime("%Y-%m-%dT%H:00:00Z") for m, _ in errors() if m.isoformat() >= "2026-03-11T09")
    assert {bar["start"]: bar["total"] for bar in result["bars"]} == mine
    days = logs("count_logs", path=PATH, by="day", level="ERROR", split="none")["bars"]
    assert [(d["start"], d["total"]) for d in days] == [
        (f"2026-03-{day:02}", sum(m.day == day for m, _ in errors())) for day in (9, 10, 11)
    ]
    page = logs("count_logs", path=PATH, by="minute", limit=100)
    assert (len(page["bars"]), page["next_offset"]) == (100, 100)


def test_times_that_are_asked_for(logs: Server) -> None:
    def total(**more: str) -> int:
        return logs("search_logs", path=PATH, level="ERROR", limit=1, **more)["total"]

    all_ = [moment for moment, _ in errors()]
    end = max(moment for moment in all_)
    newest = datetime(2026, 3, 11, 17, 59, 39, 960000, tzinfo=UTC)
    assert total(since="yesterday", until="yesterday") == sum(m.day == 10 for m in all_)
    assert total(since="2026-03-10", until="2026-03-10") == total(since="yesterday", until="yesterday")
    assert total(since="2026-03-10T12:00+02:00", until="2026-03-10T12:00Z") == sum(
        (m.day, m.hour) in ((10, 10), (10, 11)) for m in all_
    )
    assert (
        total(since="last 6h") == total(since="6 hours ago") == sum((newest - m).total_seconds() < 21600 for m in all_)
    )
    assert end <= newest
    for bad in ("this morning", "2026-13-01", "2026-02-30", "2026-03-10T25:00"):
        with pytest.raises(Refused, match=r"is no (time|date)"):
            total(since=bad)


def test_search_gives_entries_by_time_with_their_traces(logs: Server) -> None:
    found = logs("search_logs", path=PATH, pattern="deploy|configuration", since="yesterday")["entries"]
    assert [(e["time"], e["place"]) for e in found] == [
        ("2026-03-11T07:15:40Z", f"{PATH}/payments.jsonl:869"),
        ("2026-03-11T09:42:07.311Z", f"{PATH}/checkout.log:131"),
        ("2026-03-11T09:42:09.311Z", f"{PATH}/checkout.log:132"),
    ]
    (last,) = logs("search_logs", path=PATH, pattern="PoolTimeout", newest_first=True, limit=1)["entries"]
    line = int(last["place"].rpartition(":")[2])
    written = (LOGS / "checkout.log").read_text().splitlines()
    assert last["more"] == written[line : line + 6]
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = logs("search_logs", path=PATH, level="ERROR", limit=200, offset=offset)
        seen += [e["time"] for e in page["entries"]]
        offset = page["next_offset"]
    assert len(seen) == page["total"] == len(errors())
    moments = [datetime.fromisoformat(time.replace("Z", "+00:00")) for time in seen]
    assert moments == sorted(m for m, _ in errors())


FORMS = {
    "2026-03-10T09:30:00.250Z ERROR boom 1": ("2026-03-10T09:30:00.250Z", "ERROR", "boom 1"),
    "2026-03-10 09:30:00,250 - app.db - WARNING - boom": ("2026-03-10T09:30:00.250Z", "WARN", "app.db boom"),
    "[2026-03-10 09:30:00 +0200] [error] boom": ("2026-03-10T07:30:00Z", "ERROR", "boom"),
    "2026/03/10 09:30:00 [crit] 12#12: boom": ("2026-03-10T09:30:00Z", "FATAL", "12#12: boom"),
    "2026-03-10T09:30:00-05:00 info: an error occurred": ("2026-03-10T14:30:00Z", "INFO", "an error occurred"),
    "2026-03-10T09:30:00Z an error occurred": ("2026-03-10T09:30:00Z", None, "an error occurred"),
    'time="2026-03-10T09:30:00Z" level=warning msg="boom" n=1': ("2026-03-10T09:30:00Z", "WARN", "boom"),
    "level=error ts=2026-03-10T09:30:00.5Z msg=boom": ("2026-03-10T09:30:00.500Z", "ERROR", "boom"),
    "<11>1 2026-03-10T09:30:00Z web app 12 ID47 - boom": ("2026-03-10T09:30:00Z", "ERROR", "web app 12 ID47 boom"),
    '10.0.0.1 - bob [10/Mar/2026:09:30:00 +0100] "GET /x HTTP/1.1" 502 12 "-" "curl"': (
        "2026-03-10T08:30:00Z", "ERROR", '"GET /x HTTP/1.1" 502 12 "-" "curl" {"client":"10.0.0.1"}',
    ),
    "[Tue Mar 10 09:30:00.123456 2026] [core:error] [pid 7] boom": ("2026-03-10T09:30:00Z", "ERROR", "[pid 7] boom"),
    '{"ts": 1773135000.25, "lvl": "warn", "msg": "boom", "n": 1}': ("2026-03-10T09:30:00.250Z", "WARN", 'boom {"n":1}'),
    '{"time": 1773135000250, "level": 50, "msg": "boom"}': ("2026-03-10T09:30:00.250Z", "ERROR", "boom"),
    '{"@timestamp": "2026-03-10T09:30:00Z", "severity": "CRITICAL", "message": "boom"}': (
        "2026-03-10T09:30:00Z", "FATAL", "boom",
    ),
    "ERROR boom without a time": (None, "ERROR", "boom without a time"),
}  # fmt: skip


def test_the_forms_of_entries(tmp_path: Path, logs: Server) -> None:
    got: dict[str, Any] = {}
    for line in FORMS:
        (tmp_path / "a.log").write_text(line + "\n")
        (entry,) = logs("search_logs", path=str(tmp_path / "a.log"))["entries"]
        got[line] = (entry["time"], entry["level"], entry["text"])
    assert got == FORMS


def test_syslog_has_no_year_and_takes_the_files(tmp_path: Path, logs: Server) -> None:
    (tmp_path / "syslog").write_text("Dec 31 23:59:58 web sshd[7]: bye\nJan  1 00:00:02 web sshd[7]: ERROR hello\n")
    new_year = datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "syslog", (new_year, new_year))
    found = logs("search_logs", path=str(tmp_path / "syslog"))["entries"]
    assert [(e["time"], e["level"]) for e in found] == [
        ("2025-12-31T23:59:58Z", None),
        ("2026-01-01T00:00:02Z", "ERROR"),
    ]


def test_files_packed_rotated_damaged_and_odd(tmp_path: Path, logs: Server) -> None:
    def line(minute: int, text: str) -> bytes:
        return f"2026-03-10T09:{minute:02}:00Z INFO {text}\n".encode()

    (tmp_path / "a.log.3.xz").write_bytes(lzma.compress(line(1, "one")))
    (tmp_path / "a.log.2.bz2").write_bytes(bz2.compress(line(2, "two")))
    (tmp_path / "a.log.10.gz").write_bytes(gzip.compress(line(0, "zero") + b"  trace"))
    (tmp_path / "a.log.1").write_bytes(line(3, "three"))
    (tmp_path / "a.log").write_bytes(b"  goes on in the next file\n" + line(4, "四".encode().decode()))
    whole = logs("search_logs", path=str(tmp_path / "a.log"))
    assert [e["text"] for e in whole["entries"]] == ["zero", "one", "two", "three", "四"]
    assert whole["entries"][0]["more"] == ["  trace"]
    assert whole["entries"][3]["more"] == ["  goes on in the next file"]

    (tmp_path / "d-2026-03-09.log").write_bytes(line(1, "first"))
    (tmp_path / "d-2026-03-10.log").write_bytes(line(2, "second"))
    (tmp_path / "d.log").write_bytes(line(3, "third"))
    names = [log["files"] for log in logs("describe_logs", path=str(tmp_path / "d*"))["logs"]]
    assert [[Path(name).name for name in each] for each in names] == [["d-2026-03-09.log", "d-2026-03-10.log", "d.log"]]

    packed = gzip.compress(b"".join(line(n % 60, os.urandom(40).hex()) for n in range(3000)))
    (tmp_path / "cut.log.1.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "bin.log").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / "wide.log").write_bytes(line(1, "wide").decode().encode("utf-16"))
    (tmp_path / "long.log").write_bytes(line(1, "x" * 3_000_000) + line(2, "after"))
    damaged = logs("search_logs", path=str(tmp_path / "cut.log.1.gz"))
    assert 0 < damaged["total"] < 3000
    assert "damaged" in damaged["notes"][0]
    assert "binary" in logs("search_logs", path=str(tmp_path / "bin.log"))["notes"][0]
    assert logs("search_logs", path=str(tmp_path / "wide.log"))["entries"][0]["text"] == "wide"
    long = logs("search_logs", path=str(tmp_path / "long.log"))["entries"]
    assert [len(e["text"]) for e in long] == [600, 5]


def test_mixed_zones_become_one_order(tmp_path: Path, logs: Server) -> None:
    (tmp_path / "a.log").write_text("2026-03-10 17:00:00 INFO shanghai\n2026-03-10 17:30:00 INFO later\n")
    (tmp_path / "b.log").write_text("2026-03-10T09:10:00Z INFO utc\n2026-03-10T05:20:00-04:00 INFO new york\n")
    found = logs("search_logs", path=str(tmp_path / "*.log"), zone="Asia/Shanghai")["entries"]
    assert [e["text"] for e in found] == ["shanghai", "utc", "new york", "later"]
    (day,) = logs("count_logs", path=str(tmp_path / "*.log"), zone="+08:00", by="day")["bars"]
    assert (day["start"], day["total"]) == ("2026-03-10", 4)
    with pytest.raises(Refused, match="No zone"):
        logs("search_logs", path=str(tmp_path / "a.log"), zone="Mars/Olympus")


def test_similar_messages_are_one_group(tmp_path: Path, logs: Server) -> None:
    java = "java.lang.RuntimeException: x\n\tat a.B.c(B.java:1)\nCaused by: java.sql.SQLException: no\n\t... 3 more\n"
    lines = [
        f"2026-03-10T09:00:{n:02}Z ERROR user {name} could not open {n}f0e1a2b from 10.0.0.{n}:80 in {n}.5 ms"
        for n, name in enumerate(["ana", "li", "sam", "joe"])
    ]
    lines += [f"2026-03-10T09:01:{n:02}Z ERROR card declined" for n in range(3)]
    lines += ["2026-03-10T09:02:00Z ERROR card expired", f"2026-03-10T09:03:00Z ERROR worker died\n{java}".rstrip()]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    result = logs("group_messages", path=str(tmp_path / "a.log"))
    assert [(g["count"], g["template"]) for g in result["groups"]] == [
        (4, "user <*> could not open <hex> from <ip> in <n> ms"),
        (3, "card declined"),
        (1, "card expired"),
        (1, "worker died [java.sql.SQLException]"),
    ]
    assert result["total"] == 9
    page = logs("group_messages", path=str(tmp_path / "a.log"), limit=2, offset=2)
    assert ([g["count"] for g in page["groups"]], page["next_offset"]) == ([1, 1], None)


def test_paths_stay_inside_the_roots_and_mistakes_are_explained(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "secret.log").write_text("2026-03-10T09:00:00Z INFO secret\n")
    (tmp_path / "box" / "link.log").symlink_to(tmp_path / "secret.log")
    (tmp_path / "box" / "app.log").write_text("2026-03-10T09:00:00Z INFO hello\n")
    with serving("logs", "--root", tmp_path / "box") as logs:
        for path in ("../secret.log", str(tmp_path / "secret.log"), "link.log", "..", "../*.log", "/", "\0"):
            with pytest.raises(Refused, match=r"outside|Bad path"):
                logs("search_logs", path=path)
        assert [log["name"] for log in logs("describe_logs", path=".")["logs"]] == ["app.log"]
        for more, words in (
            ({"path": "ap.log"}, r"Near it there is: app\.log"),
            ({"path": "*.txt"}, r"There is: app\.log"),
            ({"path": ".", "pattern": "a("}, "no regular expression"),
            ({"path": ".", "pattern": "(a+)+$"}, "take forever"),
        ):
            with pytest.raises(Refused, match=words):
                logs("search_logs", **more)


def test_a_large_log_is_counted_in_bounded_memory_with_progress(tmp_path: Path) -> None:
    minutes = [f"2026-03-{day:02}T{hour:02}:{m:02}" for day in range(1, 5) for hour in range(24) for m in range(60)]
    with gzip.open(tmp_path / "big.log.gz", "wt", compresslevel=1) as file:
        for minute in minutes:
            file.writelines(f"{minute}:{s:02}Z INFO request {s} {'x' * 380}\n" for s in range(0, 60, 2))
    told: list[float] = []

    async def tell(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    with serving("logs", "--root", tmp_path) as logs:
        given = {"path": "big.log.gz", "by": "day"}
        call = lambda: logs.client.call_tool("count_logs", given, progress_callback=tell)  # noqa: E731
        result = logs.portal.call(call).structured_content
        assert [bar["total"] for bar in result["bars"]] == [24 * 60 * 30] * 4
        (peak,) = [memory for pid in os.listdir("/proc") if pid.isdigit() and (memory := _peak(pid, tmp_path))]
    assert told
    assert told == sorted(told)
    assert peak < 200_000, "kB; the entries alone are 70 MB of text"


def _peak(pid: str, root: Path) -> int:
    try:
        if f"--root\0{root}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except OSError:
        pass
    return 0


def test_a_call_that_takes_too_long_says_that_it_is_partial(tmp_path: Path) -> None:
    with serving("logs", "--root", REPO, "--timeout", "0") as logs:
        assert "PARTIAL" in logs("describe_logs", path=PATH)["notes"][0]


def test_tools_say_what_they_are(logs: Server) -> None:
    tools = logs.tools()
    assert set(tools) == {"describe_logs", "search_logs", "count_logs", "group_messages", "compare_periods"}
    for tool in tools.values():
        assert tool.annotations.read_only_hint
        assert tool.output_schema is not None
        assert "Not for" in tool.description
