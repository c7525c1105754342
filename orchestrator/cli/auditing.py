"""`runs audit`: who did what, when and with what outcome; and whether the journal still says what was written."""

import json
import re
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatchcase

from orchestrator.cli.listing import open_journal, resolve_run
from orchestrator.cli.progress import printable, say
from orchestrator.cli.running import options
from orchestrator.errors import ConfigurationError
from orchestrator.runtime.audit import Record, records

BROKEN = 1
_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


async def audit(arguments: Namespace) -> int:
    """Prints records, oldest first; exit 1 when the chain of the journal is broken, and where."""
    since = _since(arguments.since, time.time())
    journal = open_journal(options(arguments))
    try:
        run = None if arguments.run is None else await resolve_run(journal, arguments.run)
        if run is not None and await journal.row(run) is None:
            raise ConfigurationError(f"--run: there is no run {run!r}; `orchestrator runs` lists them")
        found = await journal.audit(run)
    finally:
        await journal.aclose()
    chosen = _chosen(list(records(found.events)), arguments.tool, since)
    if arguments.json:
        rows = [{**asdict(record), "at": _iso(record.at)} for record in chosen]
        chain = {"whole": not found.broken, "broken": found.broken or None, "events": found.count, "head": found.head}
        print(json.dumps({"records": rows, "chain": chain}, ensure_ascii=False))
    else:
        for record in chosen:
            print(_line(record))
    if found.broken:
        say(f"error: the chain of the journal is broken {found.broken}")
        return BROKEN
    if not arguments.json:
        say(f"{len(chosen)} records; the chain is whole: {found.count} events, head {found.head}")
    return 0


def _chosen(found: Sequence[Record], tool: str | None, since: float) -> list[Record]:
    chosen = [record for record in found if record.at >= since]
    if tool is not None:
        chosen = [each for each in chosen if each.kind in ("tool", "approval") and fnmatchcase(each.what, tool)]
    return sorted(chosen, key=lambda record: record.at)


def _since(text: str | None, now: float) -> float:
    """Seconds since the epoch: of an ISO date or time, or of so long ago."""
    if text is None:
        return 0.0
    if ago := _AGO.fullmatch(text.strip()):
        return now - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise ConfigurationError(
            f"--since: {text!r} is no time; write a date (2026-11-30), a time (2026-11-30T08:00) or an age (2h, 3d)"
        ) from None


def _line(record: Record) -> str:
    role = f" ({record.role})" if record.role else ""
    place = f"{record.run}/{record.call}" if record.call else record.run
    facts = [
        f"{record.seconds:.1f} s" if record.seconds is not None else "",
        f"{record.tokens:,} tokens" if record.tokens is not None else "",
        f"${record.cost:.4f}" if record.cost is not None else "",
    ]
    said = f"{record.kind} {record.what}: {record.outcome}"
    line = "  ".join(
        [_iso(record.at), f"{record.by or 'unknown'}{role}", place, record.agent, said, *filter(None, facts)]
    )
    return printable(" ".join(f"{line}  {record.detail}".split(" "))).replace("\n", " ").rstrip()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")
