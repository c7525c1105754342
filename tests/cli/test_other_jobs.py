"""Jobs 2 and 3 from end to end: recorded models; servers, files, approval and journal are real."""

import csv
import gzip
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ROOT, Ended, orchestrator

pytestmark = pytest.mark.xdist_group("other jobs")

EXAMPLES = ROOT / "examples"
WHY = "Which errors grew since yesterday in examples/logs, what is the likely cause"
REPORT = "From examples/tickets.csv write the weekly report as Markdown with a chart"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a job in a folder of its own."""

    folder: Path
    ended: Ended

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "events.jsonl").read_text("utf-8").splitlines()]

    def results(self, tool: str) -> list[Any]:
        """What the real server answered to each call of a tool, in the order of their ends."""
        return [json.loads(e["observation"]) for e in self.events if e["type"] == "tool_result" and e["tool"] == tool]


def play(base: Path, task: str, recording: str) -> Job:
    shutil.copytree(EXAMPLES, base / "examples")
    model = f"scripted:{EXAMPLES / 'recordings' / recording}"
    ended = orchestrator("run", task, "--model", model, "--events", "events.jsonl", folder=base)
    return Job(folder=base, ended=ended)


# ---------------------------------------------------------------- job 2: logs


@pytest.fixture(scope="module")
def why(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return play(tmp_path_factory.mktemp("logs"), WHY, "logs.jsonl")


def shop_entries() -> list[tuple[datetime, str]]:
    """The entries of checkout with their traces, by the standard library alone."""
    logs = EXAMPLES / "logs"
    packed = gzip.decompress((logs / "checkout.log.2.gz").read_bytes())
    text = (packed + (logs / "checkout.log.1").read_bytes() + (logs / "checkout.log").read_bytes()).decode()
    blocks = re.split(r"\n(?=2026-)", text)
    return [(datetime.strptime(b[:23], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC), b) for b in blocks]


def paid_entries() -> list[tuple[datetime, str]]:
    lines = (EXAMPLES / "logs" / "payments.jsonl").read_text().splitlines()
    return [(datetime.fromisoformat(json.loads(line)["time"]).astimezone(UTC), line) for line in lines]


def by_day(entries: list[tuple[datetime, str]], words: str) -> tuple[int, int]:
    """How many entries hold the words yesterday and today, which is the day of the newest entry."""
    today = max(moment for moment, _ in shop_entries() + paid_entries()).date()
    days = Counter(moment.date() for moment, text in entries if words in text)
    return days[today - timedelta(days=1)], days[today]


def test_the_answer_has_the_right_cause_counts_and_times(why: Job) -> None:
    assert why.ended.code == 0, why.ended.err
    answer = why.ended.out
    (pool,) = [line for line in answer.splitlines() if "PoolTimeout" in line and line.startswith("|")]
    (asked,) = [line for line in answer.splitlines() if "did not answer" in line and line.startswith("|")]
    timeouts = [moment for moment, text in shop_entries() if "PoolTimeout:" in text]
    for line, counts in (
        (pool, by_day(shop_entries(), "PoolTimeout:")),
        (asked, by_day(paid_entries(), "did not answer")),
    ):
        assert f"| {counts[0]} | {counts[1]} |" in line
    assert f"{min(timeouts):%Y-%m-%d %H:%M:%S}" in pool
    hours = Counter(moment.hour for moment in timeouts)
    assert f"from {hours[9]} in the hour of 09:00 to {hours[17]} in the hour of 17:00" in answer
    for entries, words in ((paid_entries(), "declined"), (shop_entries(), "bounced")):
        assert "({}, {})".format(*by_day(entries, words)) in answer

    # The cause: the last change before the first timeout, by the log itself.
    changes = [(m, text) for m, text in shop_entries() if "[deploy]" in text and m < min(timeouts)]
    (deploy, said), (_, changed) = changes
    assert f"{deploy:%Y-%m-%d %H:%M:%S}" in answer
    assert re.search(r"checkout [\d.]+", said)[0] in answer
    assert re.search(r"CHG-\d+", said)[0] in answer
    setting, old, new = re.search(r"(db\.\w+) (\d+) -> (\d+)", changed).groups()
    assert f"{setting} from {old} to {new}" in answer
    assert (min(timeouts) - deploy).total_seconds() < 8 * 60
    lines = (EXAMPLES / "logs" / "checkout.log").read_text().splitlines()
    assert "deploying" in lines[131 - 1]
    assert f"{min(timeouts):%H:%M:%S}" in lines[139 - 1]


def test_what_the_log_tools_found_is_what_the_recording_says(why: Job) -> None:
    (compared,) = why.results("logs__compare_periods")
    assert [(c["change"], c["before"], c["after"]) for c in compared["changes"]] == [
        ("new", *by_day(shop_entries(), "PoolTimeout:")),
        ("grew", *by_day(paid_entries(), "did not answer")),
    ]
    (counted,) = why.results("logs__count_logs")
    report = next(e["answer"] for e in why.events if e["type"] == "final_answer" and e["agent"] == "log-analyst")
    for log in ("checkout.log", "payments.jsonl"):
        rising = [bar.get("parts", {}).get(log) for bar in counted["bars"]]
        assert ", ".join(str(n) for n in rising[-8:]) in report
    places = {e["place"] for found in why.results("logs__search_logs") for e in found["entries"]}
    for place in re.findall(r"\(((?:examples/logs/)?checkout\.log:\d+)\)", report):
        assert any(each.endswith(place) for each in places), place


# ---------------------------------------------------------------- job 3: tickets


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run, and look at what is parked, before anything is approved."""
    return play(tmp_path_factory.mktemp("tickets"), REPORT, "tickets.jsonl")


@dataclass(frozen=True, kw_only=True)
class Approved:
    shown: Ended
    approved: Ended
    resumed: Ended
    written_before: bool


@pytest.fixture(scope="module")
def approved(report: Job) -> Approved:
    before = (report.folder / "out" / "weekly-report.md").exists()
    shown = orchestrator("runs", "show", "last", "--json", folder=report.folder)
    yes = orchestrator("approve", "last", folder=report.folder)
    resumed = orchestrator("resume", "last", folder=report.folder)
    return Approved(shown=shown, approved=yes, resumed=resumed, written_before=before)


@pytest.mark.requirement("C7", "E4")
def test_the_report_waits_for_a_person_and_says_how_to_go_on(report: Job, approved: Approved) -> None:
    assert report.ended.code == 4, report.ended.err
    assert not approved.written_before
    assert (report.folder / "out" / "tickets-by-week.png").exists(), "a chart is a new file and is not asked for"
    (waits,) = approved.shown.json["approvals"]
    assert (waits["agent"], waits["tool"], waits["call"]) == ("writer", "files__write", "t3.1/t1.1")
    assert waits["arguments"]["path"] == "out/weekly-report.md"
    run = approved.shown.json["run_id"]
    assert f"orchestrator approve {run}" in report.ended.err
    assert f"orchestrator resume {run}" in report.ended.err


@pytest.mark.requirement("C7", "E4")
def test_after_approval_the_report_exists_with_its_chart(report: Job, approved: Approved) -> None:
    assert approved.approved.code == 0, approved.approved.err
    assert approved.resumed.code == 0, approved.resumed.err
    assert "out/weekly-report.md" in approved.resumed.out
    text = (report.folder / "out" / "weekly-report.md").read_text("utf-8")
    assert text.startswith("# ")
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    data = (report.folder / "out" / picture).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert sorted(path.name for path in (report.folder / "out").iterdir()) == [picture, "weekly-report.md"]
    again = orchestrator("runs", "show", "last", "--json", folder=report.folder).json
    assert again["status"] == "finished"
    tools = [action["tool"] for step in again["steps"] for action in step["actions"]]
    assert tools == ["agents__analyst", "agents__chart-maker", "agents__writer"], "nothing was run twice"


def test_the_numbers_of_the_report_are_right(report: Job, approved: Approved) -> None:
    assert approved.resumed.code == 0, approved.resumed.err
    with (EXAMPLES / "tickets.csv").open(encoding="utf-8", newline="") as file:
        tickets = list(csv.DictReader(file))
    made = [date.fromisoformat(ticket["created"]) for ticket in tickets]
    monday = max(made) - timedelta(days=max(made).weekday())

    def week(start: date) -> list[dict[str, str]]:
        return [t for t, day in zip(tickets, made, strict=True) if start <= day < start + timedelta(days=7)]

    before, now = week(monday - timedelta(days=7)), week(monday)
    rows = {"Tickets": lambda t: True, "Not closed": lambda t: t["status"] != "closed"}
    rows["High or urgent"] = lambda t: t["priority"] in ("high", "urgent")
    rows |= {c: lambda t, c=c: t["category"] == c for c in ("payment", "delivery", "account", "product")}
    text = (report.folder / "out" / "weekly-report.md").read_text("utf-8")
    for name, fits in rows.items():
        assert f"| {name} | {sum(map(fits, before))} | {sum(map(fits, now))} |" in text
    subjects = Counter(t["subject"] for t in now if t["category"] == "payment")
    assert len(subjects) == 4
    for subject, count in subjects.items():
        assert f"| {subject} | {count} |" in text
    other = [sum(t["category"] != "payment" for t in each) for each in (before, now)]
    assert f"together fell from {other[0]} to {other[1]}" in text
    assert str(monday) in text
    assert str(monday + timedelta(days=6)) in text


def test_every_number_of_the_report_came_from_a_tool(report: Job) -> None:
    weekly, categories, *_ = sorted(report.results("tables__query_table"), key=lambda page: -len(page["columns"]))
    assert weekly["rows"][-1] == {"week": "2026-03-09", "tickets": 89, "not_closed": 43, "high_or_urgent": 21}
    assert {row["category"]: row["tickets"] for row in categories["rows"] if row["week"] == "2026-03-09"} == {
        "payment": 40, "delivery": 27, "account": 13, "product": 9,
    }  # fmt: skip
