"""MCP server `logs`: search, count, group and compare log files.

    python -P logs.py --root DIR [--root DIR2]

Reads JSON lines, text with ISO times, logfmt, syslog, and the access logs of nginx and Apache; plain, gzip, bzip2 and
xz; rotated sets in order. Lines that begin no entry (stack traces) belong to the one before. Times are given in UTC.
Files are read in blocks and entries are dropped as soon as they are counted, so memory does not grow with the files.

Similar messages are grouped by a small template miner of its own: numbers, ids and addresses are masked, then messages
of one length that differ in few words become one, as Drain does. (The library drain3 was tried and left out: its last
release is of 2022 and pins jsonpickle 1.5.1 and cachetools 4.2.1 exactly.)

One self-contained file, usable by any MCP host. Needs `mcp` alone.
"""

import argparse
import bz2
import codecs
import difflib
import fnmatch
import functools
import gzip
import heapq
import itertools
import json
import lzma
import os
import re
import sys
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypeVar, cast
from zoneinfo import ZoneInfo

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

T = TypeVar("T")
Level = Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
Step = Literal["minute", "hour", "day"]

BLOCK = 1 << 18
LONGEST_LINE = 32_000  # bytes; the rest of a longer one is dropped
MOST_LINES = 100  # of one entry that are kept
MOST_FILES = 500
MOST_TEMPLATES = 5000
MOST_STEPS = 100_000
LONGEST_TEXT = 24_000  # characters of one answer
TAIL = 1 << 18  # bytes at a file's end in which its newest entry is looked for
ALIKE = 0.75  # share of words that two messages of one group have in common
DAY = 86400
SECONDS = {"minute": 60, "hour": 3600, "day": DAY}

# ---------------------------------------------------------------- results


class LogSet(BaseModel):
    """One log: a file, or a rotated set."""

    name: str
    files: list[str] = Field(description="Oldest first")
    format: str
    bytes: int
    entries: int
    first: str | None
    last: str | None
    levels: dict[str, int]
    zones: list[str] = Field(description="As written in the file; 'none' is taken as UTC unless zone is given")
    lines_of_stack_traces: int
    example: str


class About(BaseModel):
    """The logs of a path."""

    logs: list[LogSet]
    notes: list[str]


class Line(BaseModel):
    """One entry."""

    time: str | None
    level: str | None
    log: str
    place: str = Field(description="file:line")
    text: str
    more: list[str] = []


class Lines(BaseModel):
    """A page of entries."""

    entries: list[Line]
    total: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


class Bar(BaseModel):
    """What one stretch of time holds."""

    start: str
    total: int
    parts: dict[str, int] = {}


class Counts(BaseModel):
    """Entries over time."""

    by: str
    bars: list[Bar]
    total: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


class Group(BaseModel):
    """Messages that are alike."""

    template: str
    level: str | None
    count: int
    logs: dict[str, int]
    first: str | None
    last: str | None
    example: str


class Groups(BaseModel):
    """A page of groups, the largest first."""

    groups: list[Group]
    total_groups: int
    total: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


class Change(BaseModel):
    """How a group differs between two periods."""

    change: Literal["new", "grew", "steady", "shrank", "gone"]
    template: str
    level: str | None
    before: int
    after: int
    before_per_hour: float
    after_per_hour: float
    logs: dict[str, int]
    first_after: str | None = Field(description="When it first came in the later period")
    example: str


class Comparison(BaseModel):
    """What is new, grew, shrank or went between two periods."""

    before: str
    after: str
    before_hours: float
    after_hours: float
    changes: list[Change]
    steady: list[Change]
    notes: list[str]


def reply(model: BaseModel) -> CallToolResult:
    """Structured content, and the same as one compact line of text (the SDK's own text is indented JSON)."""
    data = model.model_dump(mode="json")
    text = json.dumps(_without_nothing(data), ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(text=text)], structured_content=data)


def _without_nothing(value: Any) -> Any:
    """Nulls and empty parts cost tokens and say nothing."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {k: _without_nothing(v) for k, v in items if v not in (None, [], {})}
    return [_without_nothing(v) for v in cast("list[Any]", value)] if isinstance(value, list) else value


def utc(moment: float | None) -> str | None:
    """A time as ISO, with milliseconds where it has some."""
    if moment is None:
        return None
    whole = datetime.fromtimestamp(round(moment, 3), UTC)
    return whole.isoformat(timespec="milliseconds" if whole.microsecond else "seconds").replace("+00:00", "Z")


def cut(text: str, longest: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


# ---------------------------------------------------------------- one line


@dataclass(slots=True)
class Entry:
    """One entry of a log: its first line, taken apart, and the lines that belong to it."""

    time: float | None
    level: int  # position in LEVELS, 0 for none
    text: str
    fields: dict[str, Any] | None = None
    zone: str = ""
    raw: str = ""
    log: str = ""
    file: str = ""
    line: int = 0
    more: Sequence[str] = ()
    left_out: int = 0

    def add(self, line: str) -> None:
        """A line that belongs to the entry."""
        if len(self.more) < MOST_LINES:
            self.more = [*self.more, line]
        else:
            self.left_out += 1

    def fits(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern fits a line of the entry as it is in the file."""
        return bool(pattern.search(self.raw) or any(pattern.search(line) for line in self.more))


LEVELS = ("", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_WORDS = {
    "TRACE": "trace verbose finest finer t",
    "DEBUG": "debug dbg fine d",
    "INFO": "info information notice log i",
    "WARN": "warn warning w",
    "ERROR": "error err severe failure e",
    "FATAL": "fatal critical crit emergency emerg alert panic f",
}
LEVEL_OF = {word: LEVELS.index(level) for level, words in _WORDS.items() for word in words.split()}
CAPITAL = {word.upper(): level for word, level in LEVEL_OF.items() if len(word) > 2}
_LONG = "|".join(sorted((word for word in LEVEL_OF if len(word) > 2), key=len, reverse=True))
# A word in small letters is a level only where its place says so: "an error occurred" is a message.
LEVEL = re.compile(
    rf"(?<![\w.\-/])(?:(?P<a>{_LONG.upper()})|[\[<](?P<b>(?i:\w+:)?(?i:{_LONG}))[\]>]|\blevel=\"?(?P<c>(?i:{_LONG}))"
    rf"|\A(?P<d>(?i:{_LONG})(?=:|\s*\|)|(?:{_LONG})(?=\s)))"
    r"(?![\w\-/])[\]>\":|]*"
)
STAMP = r"(\d{4}[-/]\d\d[-/]\d\d)[T _](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?:\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)(?![\w:]))?"
ISO = re.compile(rf"[\[(\"']?{STAMP}[\])\"']?[\s:|\-]*")
LOGFMT = re.compile(rf"(?:^|.*?\s)(?:time|ts|timestamp|t)=\"?{STAMP}")
LOGFMT_MESSAGE = re.compile(r"\b(?:msg|message)=(?:\"((?:[^\"\\]|\\.)*)\"|(\S+))")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SYSLOG = re.compile(rf"(?:<(\d+)>)?({'|'.join(MONTHS)})\s+(\d\d?) (\d\d:\d\d:\d\d) (\S+) (.*)", re.DOTALL)
SYSLOG_5424 = re.compile(rf"<(\d+)>1 {STAMP} (\S+ \S+ \S+ \S+ )(?:-|\[.*?\])\s*", re.DOTALL)
ACCESS = re.compile(
    r"(\S+) \S+ .*?\[(\d\d)/(\w{3})/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d{4})\] (\"(?:[^\"\\]|\\.)*\" (\d{3}) .*)", re.DOTALL
)
APACHE_ERROR = re.compile(
    rf"\[\w{{3}} ({'|'.join(MONTHS)}) (\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))? (\d{{4}})\] (.*)", re.DOTALL
)
PRIORITY = (6, 6, 6, 5, 4, 3, 3, 2)  # of syslog, to LEVELS

JSON_KEYS = {
    "time": ("time", "timestamp", "ts", "@timestamp", "datetime", "date", "t", "eventTime", "asctime"),
    "level": ("level", "severity", "lvl", "levelname", "log.level", "loglevel", "log_level", "severity_text"),
    "text": ("message", "msg", "event", "text", "body", "log"),
}
PINO = {10: 1, 20: 2, 30: 3, 40: 4, 50: 5, 60: 6}


@functools.lru_cache(maxsize=65536)
def minute_of(day: str, clock: str, zone: str, default: tzinfo) -> float:
    """Seconds since 1970 of a date and a minute; cached, as most lines share theirs with their neighbours."""
    year, month, date, hour, minute = int(day[:4]), int(day[5:7]), int(day[8:10]), int(clock[:2]), int(clock[3:])
    moment = datetime(year, month, date, hour, minute, tzinfo=UTC if zone else default).timestamp()
    if zone[:1] in ("+", "-"):
        shift = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        moment -= shift if zone[0] == "+" else -shift
    return moment


def seconds_of(day: str, clock: str, zone: str, default: tzinfo) -> float:
    """Seconds since 1970 of a day (2026-03-10), a time (09:30:00) and the zone written with it (none, Z, +02:00)."""
    return minute_of(day, clock[:5], zone, default) + int(clock[6:8])


def stamped(found: re.Match[str], first: int, default: tzinfo) -> tuple[float, str]:
    """Time and zone of the four groups of STAMP."""
    day, clock, fraction, zone = found.group(first, first + 1, first + 2, first + 3)
    moment = seconds_of(day, clock, zone or "", default)
    return (moment + float("0." + fraction) if fraction else moment), zone or "none"


def leveled(text: str) -> tuple[int, str]:
    """The level in the beginning of a text, and the text without it."""
    word, _, rest = text.partition(" ")
    if (word := word.rstrip(":")) in CAPITAL:  # the usual place, without a search
        return CAPITAL[word], rest.strip(" -:|\t")
    found = LEVEL.search(text, 0, 80)
    if not found:
        return 0, text.strip()
    word = (found["a"] or found["b"] or found["c"] or found["d"]).rpartition(":")[2].lower()
    around = (text[: found.start()].strip(" -:|\t"), text[found.end() :].strip(" -:|\t"))
    return LEVEL_OF[word], " ".join(part for part in around if part)


def json_entry(line: str, default: tzinfo, year: int) -> Entry | None:
    """A line of JSON with a time or a message in it."""
    del year
    if line[:1] != "{":
        return None
    try:
        data: Any = json.loads(line)
    except ValueError:
        return None
    fields = cast("dict[str, Any]", data)
    got = {kind: next((key for key in keys if key in fields), None) for kind, keys in JSON_KEYS.items()}
    if got["time"] is None and got["text"] is None:
        return None
    moment, zone = json_time(fields.pop(got["time"]) if got["time"] else None, default)
    level: Any = fields.pop(got["level"]) if got["level"] else 0
    number = PINO.get(level, 0) if isinstance(level, int) else LEVEL_OF.get(str(level).lower(), 0)
    text = str(fields.pop(got["text"])) if got["text"] else ""
    stack = next((fields.pop(key) for key in ("stack", "exc_info", "stack_trace", "traceback") if key in fields), None)
    more = str(stack).splitlines()[:MOST_LINES] if stack else []
    return Entry(moment, number, text, fields, zone, more=more)


def json_time(value: Any, default: tzinfo) -> tuple[float | None, str]:
    """A time as text, or as seconds, milliseconds, microseconds or nanoseconds since 1970."""
    if isinstance(value, bool) or value is None:
        return None, ""
    if isinstance(value, int | float):
        for scale in (1, 1e3, 1e6, 1e9):
            if value / scale < 1e10:
                return value / scale, "Z"
    found = re.match(STAMP, str(value))
    return stamped(found, 1, default) if found else (None, "")


def text_entry(line: str, default: tzinfo, year: int) -> Entry | None:
    """A line that begins with an ISO time."""
    del year
    if not (found := ISO.match(line)):
        return None
    moment, zone = stamped(found, 1, default)
    level, text = leveled(line[found.end() :])
    return Entry(moment, level, text, None, zone)


def logfmt_entry(line: str, default: tzinfo, year: int) -> Entry | None:
    """key=value pairs with a time among them."""
    del year
    if "=" not in line or not (found := LOGFMT.match(line)):
        return None
    moment, zone = stamped(found, 1, default)
    level, _ = leveled(line)
    if not level and (word := re.search(r"\b(?:level|lvl)=\"?(\w+)", line)):
        level = LEVEL_OF.get(word[1].lower(), 0)
    said = LOGFMT_MESSAGE.search(line)
    return Entry(moment, level, (said[1] or said[2]) if said else line, None, zone)


def syslog_entry(line: str, default: tzinfo, year: int) -> Entry | None:
    """Both forms of syslog. The older has no year: `year` is that of its newest possible entry."""
    if found := SYSLOG_5424.match(line):
        moment, zone = stamped(found, 2, default)
        return Entry(moment, PRIORITY[int(found[1]) % 8], found[6] + line[found.end() :], None, zone)
    if not (found := SYSLOG.match(line)):
        return None
    day = f"{year}-{MONTHS.index(found[2]) + 1:02}-{int(found[3]):02}"
    level, text = leveled(found[6])
    if found[1]:
        level = PRIORITY[int(found[1]) % 8]
    return Entry(seconds_of(day, found[4], "", default), level, text, {"host": found[5]}, "none")


def access_entry(line: str, default: tzinfo, year: int) -> Entry | None:
    """A request in an access log (5xx counts as ERROR, 4xx as WARN), or a line of Apache's error log."""
    del year
    if found := ACCESS.match(line):
        day = f"{found[4]}-{MONTHS.index(found[3]) + 1:02}-{found[2]}" if found[3] in MONTHS else "0"
        level = {"5": 5, "4": 4}.get(found[8][0], 3)
        zone = found[6]
        return Entry(seconds_of(day, found[5], zone, default), level, found[7], {"client": found[1]}, zone)
    if found := APACHE_ERROR.match(line):
        day = f"{found[5]}-{MONTHS.index(found[1]) + 1:02}-{found[2]}"
        level, text = leveled(found[6])
        return Entry(seconds_of(day, found[3], "", default), level, text, None, "none")
    return None


Parser = Callable[[str, tzinfo, int], Entry | None]
PARSERS: dict[str, Parser] = {
    "JSON lines": json_entry,
    "text with ISO times": text_entry,
    "access log": access_entry,
    "syslog": syslog_entry,
    "logfmt": logfmt_entry,
}


# ---------------------------------------------------------------- files

OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
TURNED = re.compile(
    r"[-._]?(?:(?P<date>\d{4}-?\d\d-?\d\d(?:[-_T]?\d\d(?:[-:]?\d\d){0,2})?)|\.(?P<number>\d{1,4}))(?=\.|$)"
)
IN_LOGS = re.compile(
    r"\.(?:log|jsonl|ndjson|json|out|err|txt)(?:\W|$)|^(?:syslog|messages|auth|kern|daemon)\b|[._-]log\b", re.I
)


@dataclass(slots=True, kw_only=True)
class Scan:
    """One pass over some logs: which files, what was odd, and how far it is."""

    sets: dict[str, list[Path]]
    root: Path
    zone: tzinfo
    seconds: float
    done: int = 0
    stopped: bool = False
    late: bool = False
    odd: Counter[str] = field(default_factory=Counter[str])
    started: float = field(default_factory=time.monotonic)
    newest: float | None = None  # where times are relative: the moment just after the newest entry

    @property
    def size(self) -> int:
        """Bytes of all files as they lie on disk."""
        return sum(path.stat().st_size for paths in self.sets.values() for path in paths)

    def shown(self, path: Path) -> str:
        """A path as the caller may name it."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def notes(self) -> list[str]:
        """What the reader of a result must know."""
        told = [f"{count} {what}" for what, count in self.odd.items()]
        if self.late:
            share = f"{self.done >> 20} of {self.size >> 20} MB"
            told.append(f"stopped after {self.seconds:g} s, with {share} read: the result is PARTIAL; name fewer files")
        if self.newest is not None:
            told.append(f"relative times count from the newest entry, {utc(self.newest - 0.001)}")
        return told


def rotated(name: str) -> tuple[str, tuple[int, str | int]]:
    """The log that a file belongs to, and its place in it: dated ones, then numbers downwards, then the bare name."""
    plain = name.removesuffix(Path(name).suffix) if Path(name).suffix in OPENERS else name
    found = TURNED.search(plain)
    if not found:
        return plain, (2, 0)
    log = plain[: found.start()] + plain[found.end() :] or plain
    if found["date"]:
        return log, (0, re.sub(r"\D", "", found["date"]))
    return log, (1, -int(found["number"]))


def log_sets(path: str, roots: Sequence[Path]) -> dict[str, list[Path]]:
    """The logs that a file, folder or pattern names: by name, the files of each from the oldest on."""
    parts = path.rstrip("/").rpartition("/")
    wild = any(sign in parts[2] for sign in "*?[")
    base = inside(parts[0] or "/" * path.startswith("/") or "." if wild else path, roots)
    if base.is_dir():
        names = sorted(os.listdir(base))
        chosen = [n for n in names if (fnmatch.fnmatchcase(n, parts[2]) if wild else IN_LOGS.search(n))]
        files = [base / name for name in chosen if (base / name).is_file() and not name.startswith(".")]
    else:
        log, (place, _) = rotated(base.name)
        beside = [base.with_name(name) for name in sorted(os.listdir(base.parent)) if rotated(name)[0] == log]
        files = [other for other in beside if other.is_file()] if place == 2 else [base]
    files = [file for file in files if any(file.resolve().is_relative_to(root) for root in roots)]
    if not files:
        held = ", ".join(sorted(os.listdir(base if base.is_dir() else base.parent))[:20]) or "nothing"
        raise ToolError(f"No log files at {path!r}. There is: {held}. Name a file, or a pattern such as logs/*.txt.")
    if len(files) > MOST_FILES:
        raise ToolError(f"{len(files)} files; at most {MOST_FILES} are read at once. Give a narrower pattern.")
    found: dict[str, list[Path]] = {}
    for file in sorted(files, key=lambda file: rotated(file.name)[1]):
        found.setdefault(rotated(file.name)[0], []).append(file)
    return dict(sorted(found.items()))


def inside(path: str, roots: Sequence[Path]) -> Path:
    """The real file or folder that `path` names, or a ToolError: it must be inside one of `roots`, links resolved."""
    try:
        real = (roots[0] / path).resolve()
        within = any(real.is_relative_to(root) for root in roots)
        there = within and real.exists()
    except (OSError, ValueError) as error:
        raise ToolError(f"Bad path {path!r}: {error}. Give a path relative to {roots[0]}.") from None
    if not within:
        raise ToolError(f"{path!r} is outside the folders this server may read ({', '.join(map(str, roots))}).")
    if there:
        return real
    folder = next((p for p in real.parents if p.is_dir()), roots[0])
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    near = difflib.get_close_matches(real.name, names, n=5, cutoff=0.5) or names[:10]
    raise ToolError(f"No file {path!r}. Near it there is: {', '.join(near) or 'nothing'}.")


def lines_of(path: Path, scan: Scan) -> Iterator[str]:
    """The lines of a file, unpacked where needed, in bounded memory. A damaged file ends where the damage is."""
    before = scan.done
    with path.open("rb") as raw:
        opener = OPENERS.get(path.suffix)
        source = opener(raw) if opener else raw
        held, decoder, first = b"", None, True
        try:
            while block := source.read1(BLOCK):  # unlike read, gives what came before a damage
                if scan.stopped:
                    raise ToolError("Stopped.")
                scan.done = before + raw.tell()
                if first:
                    first = False
                    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                        decoder = codecs.getincrementaldecoder("utf-16")("replace")
                    elif b"\0" in block[:8192]:
                        scan.odd["binary files were left out"] += 1
                        return
                    block = block.removeprefix(codecs.BOM_UTF8)
                if decoder:
                    block = decoder.decode(block).encode()
                start, *rest = block.split(b"\n")
                held = (held + start)[:LONGEST_LINE]
                if rest:
                    yield held.decode("utf-8", "replace")
                    for line in rest[:-1]:
                        yield line[:LONGEST_LINE].decode("utf-8", "replace")
                    held = rest[-1]
                if time.monotonic() - scan.started > scan.seconds:
                    scan.late = True
                    return
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            scan.odd[f"damaged file: {scan.shown(path)} is read up to the damage ({cut(str(error), 80)})"] += 1
        if held:
            yield held.decode("utf-8", "replace")
    scan.done = before + path.stat().st_size


def set_entries(log: str, paths: Sequence[Path], scan: Scan) -> Iterator[Entry]:
    """The entries of one log, from its oldest file to its newest."""
    open_: Entry | None = None
    for path in paths:
        shown, lines, parse = scan.shown(path), lines_of(path, scan), LineReader(scan, path)
        head = list(itertools.islice(lines, 100))
        read = parse if any(map(parse, head)) else without_time
        for number, line in enumerate(itertools.chain(head, lines), start=1):
            line = line.rstrip("\r")
            entry = read(line)
            if entry is None:
                if open_ is not None:
                    open_.add(line)
                elif line:
                    scan.odd["lines before the first entry were left out"] += 1
                continue
            if open_ is not None:
                yield open_
            entry.raw, entry.log, entry.file, entry.line = line, log, shown, number
            open_ = entry
        if scan.late:
            break
    if open_ is not None:
        yield open_


class LineReader:
    """Takes the lines of one file apart; the form that fitted last is tried first."""

    def __init__(self, scan: Scan, path: Path) -> None:
        self.zone = scan.zone
        self.modified = path.stat().st_mtime
        self.year = datetime.fromtimestamp(self.modified, UTC).year
        self.parsers = list(PARSERS.values())

    def __call__(self, line: str) -> Entry | None:
        """The entry that a line begins; None for a line that belongs to the entry before."""
        if not line or line[0] in " \t":
            return None
        for place, parser in enumerate(self.parsers):
            try:
                entry = parser(line, self.zone, self.year)
                if entry and entry.time and parser is syslog_entry and entry.time > self.modified + DAY:
                    entry = parser(line, self.zone, self.year - 1)  # a December that is read in January
            except (ValueError, AttributeError):  # a month 13; a line of JSON that is no object
                continue
            if entry is not None:
                if place:
                    self.parsers.insert(0, self.parsers.pop(place))
                return entry
        return None


def without_time(line: str) -> Entry | None:
    """An entry of a file in which nothing has a time: each line is one."""
    level, text = leveled(line)
    return Entry(None, level, text) if text else None


def form_of(entry: Entry) -> str:
    """The name of an entry's form."""
    for name, parser in PARSERS.items():
        if parser(entry.raw, UTC, 2000) is not None:
            return name
    return "text without times"


def merged(scan: Scan) -> Iterator[Entry]:
    """The entries of all logs by time; one without a time stays behind the one before it."""
    if len(scan.sets) == 1:
        for log, paths in scan.sets.items():
            yield from set_entries(log, paths, scan)
        return

    def timed(log: str, paths: Sequence[Path]) -> Iterator[tuple[float, Entry]]:
        last = 0.0
        for entry in set_entries(log, paths, scan):
            last = max(last, entry.time or 0.0)
            yield last, entry

    logs = [timed(log, paths) for log, paths in scan.sets.items()]
    for _, entry in heapq.merge(*logs, key=lambda pair: pair[0]):
        yield entry


def newest_entry(scan: Scan) -> float:
    """The time of the newest entry, from the ends of the newest files."""
    times: list[float] = []
    for log, paths in scan.sets.items():
        tail = paths[-1].suffix not in OPENERS and paths[-1].stat().st_size > TAIL
        if tail:
            parse = LineReader(scan, paths[-1])
            with paths[-1].open("rb") as file:
                file.seek(-TAIL, os.SEEK_END)
                found = [parse(line.decode("utf-8", "replace")) for line in file.read().split(b"\n")[1:]]
            times += [entry.time for entry in found if entry and entry.time]
        else:
            times += [entry.time for entry in set_entries(log, paths[-1:], scan) if entry.time]
    scan.done = 0
    if not times:
        raise ToolError("No entry has a time, so there is no yesterday or today in it. Leave the times out.")
    return max(times)


# ---------------------------------------------------------------- times that are asked for

UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY, "w": 7 * DAY}
MOMENT = re.compile(rf"{STAMP}\Z")
EXAMPLES = "2026-03-10, 2026-03-10T09:30Z, today, yesterday, now, '2h ago', 'last 6h', or two with / between"


def zone_of(name: str | None) -> tzinfo:
    """A zone by its name or offset."""
    if not name or name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        shift = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(shift if found[1] == "+" else -shift)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ToolError(f"No zone {name!r}. Give an offset (+08:00) or a name (Asia/Shanghai).") from None


def span(text: str, scan: Scan) -> tuple[float, float]:
    """The start and end (which is outside) of a day, moment, or period."""
    said = text.strip()
    if "/" in said and not re.fullmatch(r"\d{4}/\d\d/\d\d.*", said):
        start, _, end = said.partition("/")
        begin, finish = span(start, scan)[0], span(end, scan)[1]
        if begin >= finish:
            raise ToolError(f"The period {text!r} ends before it begins. Examples: {EXAMPLES}.")
        return begin, finish
    if found := re.fullmatch(r"(\d{4})[-/](\d\d)[-/](\d\d)", said):
        return day_span(text, tuple(map(int, found.groups())), scan.zone)
    stamp = re.sub(r"(?<=[T ])(\d\d:\d\d)(?!:)", r"\1:00", said)
    if found := MOMENT.match(stamp):
        try:
            moment = stamped(found, 1, scan.zone)[0]
        except ValueError as error:
            raise ToolError(f"{text!r} is no time: {error}. Examples: {EXAMPLES}.") from None
        return moment, moment
    return relative(said.lower(), scan)


def day_span(text: str, day: tuple[int, ...], zone: tzinfo) -> tuple[float, float]:
    """A whole day of the zone."""
    try:
        start = datetime(day[0], day[1], day[2], tzinfo=zone)
    except ValueError as error:
        raise ToolError(f"{text!r} is no date: {error}.") from None
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


def relative(said: str, scan: Scan) -> tuple[float, float]:
    """Words, which count from the newest entry: what is fixed in a file must not depend on the day it is read."""
    if scan.newest is None:
        scan.newest = newest_entry(scan) + 0.001
    now = scan.newest
    if said in ("now", "newest", "latest"):
        return now, now
    if said in ("today", "yesterday"):
        last = datetime.fromtimestamp(now, scan.zone) - timedelta(days=said == "yesterday")
        start, end = day_span(said, (last.year, last.month, last.day), scan.zone)
        return start, min(end, now)
    found = re.fullmatch(r"(last |-)?\s*(\d+(?:\.\d+)?)\s*([smhdw])\w*( ago)?", said)
    if not found:
        raise ToolError(f"{said!r} is no time that is read here. Examples: {EXAMPLES}.")
    start = now - float(found[2]) * UNITS[found[3]]
    return start, start if found[4] else now


# ---------------------------------------------------------------- choosing entries

NESTED = re.compile(r"\((?:[^()\\]|\\.)*(?:[+*|]|\{\d*,\d*\})(?:[^()\\]|\\.)*\)(?:[*+]|\{\d*,\d*\})(?!\+)")


def finder(pattern: str | None) -> re.Pattern[str] | None:
    """A regular expression, or a ToolError that says what is wrong with it."""
    if not pattern:
        return None
    if NESTED.search(pattern):
        raise ToolError(
            f"{pattern!r} repeats a group that repeats or chooses, which can take forever on some lines. Leave the "
            "outer repeat out, or make it possessive: (…)++"
        )
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ToolError(f"{pattern!r} is no regular expression: {error}. Escape ( [ . * with \\.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which entries count. Without a level every entry does, those that name none included."""

    level: int
    since: float | None
    until: float | None
    pattern: re.Pattern[str] | None

    def of(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries that fit."""
        for entry in entries:
            if entry.level < self.level:
                continue
            if (self.since is not None or self.until is not None) and not self.within(entry.time):
                continue
            if self.pattern is None or entry.fits(self.pattern):
                yield entry

    def within(self, moment: float | None) -> bool:
        """Whether a time is within the period; none is not."""
        if moment is None:
            return False
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)


def line_of(entry: Entry) -> Line:
    """An entry for the caller, short."""
    text = cut(entry.text, 600)
    if entry.fields:
        text += " " + cut(json.dumps(entry.fields, ensure_ascii=False, separators=(",", ":")), 600)
    lines = [cut(line, 200) for line in entry.more if line.strip()]
    if len(lines) > 14:  # what went wrong is in the first and the last lines of a trace
        lines = [*lines[:4], f"… {len(lines) - 12} lines left out …", *lines[-8:]]
    return Line(
        time=utc(entry.time),
        level=LEVELS[entry.level] or None,
        log=entry.log,
        place=f"{entry.file}:{entry.line}",
        text=text,
        more=lines,
    )


# ---------------------------------------------------------------- groups

MASK = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)"
    r"|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)"
    r"|(?P<hex>\b0x[0-9a-fA-F]+\b|(?<![A-Za-z0-9])(?=[0-9a-fA-F]*\d)(?=[0-9]*[a-fA-F])[0-9a-fA-F]{6,}(?![A-Za-z0-9]))"
    r"|(?P<n>\d+(?:[.,]\d+)*)"
)
RAISED = re.compile(
    r"^(?:Caused by: |[\w.]*panic: )?((?:[A-Za-z_$][\w$]*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Fault|Failure))\b"
)


def masked(text: str) -> str:
    """A message with what changes from one to the next left out."""
    return MASK.sub(lambda found: f"<{found.lastgroup}>", cut(text, 500))


def raised(lines: Sequence[str]) -> str:
    """The last exception that a stack trace names: Python's is at its end, Java's root cause too."""
    return next((found[1] for line in reversed(lines) if (found := RAISED.match(line))), "")


@dataclass(slots=True)
class Template:
    """A group in the making."""

    words: list[str]
    example: Entry
    counts: list[int]  # a period each
    logs: Counter[str] = field(default_factory=Counter[str])
    firsts: list[float | None] = field(default_factory=list[float | None])
    last: float | None = None

    def add(self, entry: Entry, period: int) -> None:
        """Count an entry."""
        self.counts[period] += 1
        self.logs[entry.log] += 1
        if entry.time is not None:
            first = self.firsts[period]
            self.firsts[period] = entry.time if first is None else min(first, entry.time)
            self.last = entry.time if self.last is None else max(self.last, entry.time)

    @property
    def text(self) -> str:
        """The template for people."""
        return " ".join(self.words)

    def shown(self) -> str:
        """One of its messages, with its last line where it is a trace."""
        lines = [line for line in self.example.more if line.strip()]
        return cut(self.example.text, 300) + (f" … {cut(lines[-1].strip(), 300)}" if lines else "")


class Miner:
    """Groups messages as they come. Two join when they have level, length, first word and most words in common."""

    def __init__(self, periods: int = 1) -> None:
        self.periods = periods
        self.templates: list[Template] = []
        self.alike: dict[tuple[int, int, str], list[Template]] = {}
        self.known: dict[tuple[int, str], Template] = {}
        self.left_out = 0

    def add(self, entry: Entry, period: int = 0) -> None:
        """Count one entry in its group."""
        text = masked(entry.text)
        if entry.more and (name := raised(entry.more)) and name not in text:
            text += f" [{name}]"
        key = (entry.level, text)
        template = self.known.get(key)
        if template is None:
            template = self._find(entry, text.split() or ["(empty)"])
            if template is None:
                self.left_out += 1
                return
            if len(self.known) > 50_000:
                self.known.clear()
            self.known[key] = template
        template.add(entry, period)

    def _find(self, entry: Entry, words: list[str]) -> Template | None:
        near = self.alike.setdefault((entry.level, len(words), words[0]), [])
        best, same = None, 0
        for template in near:
            score = sum(a == b for a, b in zip(template.words, words, strict=True))
            if score > same:
                best, same = template, score
        if best is not None and same >= ALIKE * len(words):
            best.words = [a if a == b else "<*>" for a, b in zip(best.words, words, strict=True)]
            return best
        if len(self.templates) >= MOST_TEMPLATES:
            return None
        template = Template(words, entry, [0] * self.periods, firsts=[None] * self.periods)
        near.append(template)
        self.templates.append(template)
        return template

    def notes(self) -> list[str]:
        """What did not find a place."""
        return [f"{self.left_out} messages fell into no group: there are too many kinds"] if self.left_out else []


def change_of(template: Template, hours: tuple[float, float]) -> Change:
    """How a group differs between the two periods; a change must be more than chance (three standard deviations)."""
    before, after = template.counts
    expected = before * hours[1] / hours[0]  # of the later period, had nothing changed
    far = abs(after - expected) > 3 * (expected + after + 1) ** 0.5 / 2**0.5
    kind: Literal["new", "grew", "steady", "shrank", "gone"] = "steady"
    if before == 0:
        kind = "new"
    elif after == 0:
        kind = "gone" if expected >= 3 else "steady"
    elif far and after >= 1.5 * expected:
        kind = "grew"
    elif far and expected >= 1.5 * after:
        kind = "shrank"
    return Change(
        change=kind,
        template=template.text,
        level=LEVELS[template.example.level] or None,
        before=before,
        after=after,
        before_per_hour=round(before / hours[0], 2),
        after_per_hour=round(after / hours[1], 2),
        logs=dict(template.logs.most_common(10)),
        first_after=utc(template.firsts[1]),
        example=template.shown(),
    )


def fitting(items: Sequence[BaseModel]) -> int:
    """How many of the items one answer holds, one at least."""
    length = 0
    for count, item in enumerate(items):
        length += len(item.model_dump_json(exclude_none=True))
        if count and length > LONGEST_TEXT:
            return count
    return len(items)


# ---------------------------------------------------------------- the work of each tool


def describe(scan: Scan) -> About:
    """Each log as a whole."""
    found: list[LogSet] = []
    for log, paths in scan.sets.items():
        levels, zones = Counter[str](), Counter[str]()
        entries, traces, first, last = 0, 0, None, None
        example: Entry | None = None
        for entry in set_entries(log, paths, scan):
            example = example or entry
            entries += 1
            traces += len(entry.more) + entry.left_out
            levels[LEVELS[entry.level] or "none"] += 1
            zones[entry.zone] += 1
            if entry.time is not None:
                first = entry.time if first is None else min(first, entry.time)
                last = entry.time if last is None else max(last, entry.time)
        found.append(
            LogSet(
                name=log,
                files=[scan.shown(path) for path in paths],
                format=form_of(example) if example else "empty",
                bytes=sum(path.stat().st_size for path in paths),
                entries=entries,
                first=utc(first),
                last=utc(last),
                levels=dict(sorted(levels.items(), key=lambda pair: -pair[1])),
                zones=[zone for zone, _ in zones.most_common(5) if zone],
                lines_of_stack_traces=traces,
                example=cut(example.raw, 300) if example else "",
            )
        )
    kept = fitting(found)
    more = [f"{len(found) - kept} more logs; name one, or a pattern"] if kept < len(found) else []
    return About(logs=found[:kept], notes=scan.notes() + more)


def search(scan: Scan, choice: Choice, newest_first: bool, limit: int, offset: int) -> Lines:
    """A page of the entries that fit."""
    total = 0
    kept: deque[Entry] = deque(maxlen=offset + limit if newest_first else None)
    for entry in choice.of(merged(scan)):
        if newest_first or offset <= total < offset + limit:
            kept.append(entry)
        total += 1
    page = list(kept)
    if newest_first:
        page = page[::-1][offset:]
    lines = [line_of(entry) for entry in page]
    lines = lines[: fitting(lines)]
    end = offset + len(lines)
    return Lines(entries=lines, total=total, next_offset=end if lines and end < total else None, notes=scan.notes())


def count(scan: Scan, choice: Choice, by: Step, split: str, limit: int, offset: int) -> Counts:
    """How many entries fit in each minute, hour or day."""
    step = SECONDS[by]
    bars: dict[int, Counter[str]] = {}
    total, timeless = 0, 0
    shift = 0.0
    for log, paths in scan.sets.items():
        for entry in choice.of(set_entries(log, paths, scan)):
            total += 1
            if entry.time is None:
                timeless += 1
                continue
            if by == "day" and scan.zone is not UTC:
                away = datetime.fromtimestamp(entry.time, scan.zone).utcoffset()
                shift = away.total_seconds() if away else 0.0
            bar = bars.setdefault(int((entry.time + shift) // step), Counter())
            bar[(LEVELS[entry.level] or "none") if split == "level" else entry.log] += 1
            if len(bars) > MOST_STEPS:
                raise ToolError(f"More than {MOST_STEPS} stretches of a {by}. Count by day, or give since and until.")
    places = list(range(min(bars), max(bars) + 1)) if bars else []
    if len(places) > MOST_STEPS:
        places = sorted(bars)
    page = places[offset : offset + limit]
    rows = [
        Bar(
            start=str(utc(place * step))[:10] if by == "day" else str(utc(place * step)),
            total=sum(bars.get(place, Counter[str]()).values()),
            parts=dict(bars.get(place, Counter[str]())) if split != "none" else {},
        )
        for place in page
    ]
    rows = rows[: fitting(rows)]
    end = offset + len(rows)
    notes = scan.notes() + ([f"{timeless} entries have no time"] if timeless else [])
    return Counts(by=by, bars=rows, total=total, next_offset=end if end < len(places) else None, notes=notes)


def group(scan: Scan, choice: Choice, limit: int, offset: int) -> Groups:
    """The entries that fit, by what they say."""
    miner = Miner()
    total = 0
    for log, paths in scan.sets.items():
        for entry in choice.of(set_entries(log, paths, scan)):
            total += 1
            miner.add(entry)
    ranked = sorted(miner.templates, key=lambda template: (-template.counts[0], template.text))
    groups = [
        Group(
            template=template.text,
            level=LEVELS[template.example.level] or None,
            count=template.counts[0],
            logs=dict(template.logs.most_common(10)),
            first=utc(template.firsts[0]),
            last=utc(template.last),
            example=template.shown(),
        )
        for template in ranked[offset : offset + limit]
    ]
    groups = groups[: fitting(groups)]
    end = offset + len(groups)
    more = end if end < len(ranked) else None
    notes = scan.notes() + miner.notes()
    return Groups(groups=groups, total_groups=len(ranked), total=total, next_offset=more, notes=notes)


def compare(
    scan: Scan, choice: Choice, periods: tuple[tuple[float, float], tuple[float, float]], limit: int
) -> Comparison:
    """What is new, grew, shrank or went from the first period to the second, per hour."""
    miner = Miner(periods=2)
    ends = [float("inf"), float("-inf")]  # of what the logs hold
    before, after = (Choice(level=0, since=start, until=end, pattern=None) for start, end in periods)

    def watched(entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.time is not None:
                ends[0], ends[1] = min(ends[0], entry.time), max(ends[1], entry.time)
            yield entry

    for log, paths in scan.sets.items():
        for entry in choice.of(watched(set_entries(log, paths, scan))):
            if after.within(entry.time):
                miner.add(entry, 1)
            elif before.within(entry.time):
                miner.add(entry, 0)
    # A period counts as far as the logs reach into it: half a day is compared as half a day.
    held = [(max(start, ends[0]), min(end, ends[1] + 0.001)) for start, end in periods]
    for (start, end), name in zip(held, ("before", "after"), strict=True):
        if end <= start:
            reach = f"{utc(ends[0])} to {utc(ends[1])}" if ends[0] <= ends[1] else "no times at all"
            raise ToolError(f"The logs hold nothing of the period `{name}`. They reach from {reach}.")
    hours = ((held[0][1] - held[0][0]) / 3600, (held[1][1] - held[1][0]) / 3600)
    changes = [change_of(template, hours) for template in miner.templates]
    order = {"new": 0, "grew": 0, "gone": 1, "shrank": 1}
    changed = [change for change in changes if change.change in order]
    changed.sort(key=lambda c: (order[c.change], -abs(c.after_per_hour - c.before_per_hour), c.template))
    steady = sorted((c for c in changes if c.change == "steady"), key=lambda c: (-c.after, c.template))
    kept = changed[:limit]
    kept = kept[: fitting(kept)]
    notes = scan.notes() + miner.notes()
    if len(kept) < len(changed):
        notes.append(f"{len(changed) - len(kept)} more groups changed; raise limit, or narrow level or pattern")
    if len(steady) > 5:
        notes.append(f"{len(steady) - 5} more groups are steady")
    names = [f"{utc(start)}/{utc(end)}" for start, end in periods]
    return Comparison(
        before=names[0],
        after=names[1],
        before_hours=round(hours[0], 2),
        after_hours=round(hours[1], 2),
        changes=kept,
        steady=steady[:5],
        notes=notes,
    )


# ---------------------------------------------------------------- the server

READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

PathOf = Annotated[
    str,
    Field(description="A file (with what it was rotated to), a folder, or a pattern: logs/app.log, logs, logs/*.jsonl"),
]
Least = Annotated[Level | None, Field(description="This level and above; left out: all, entries without a level too")]
Since = Annotated[str | None, Field(description=f"From then on: {EXAMPLES.rpartition(',')[0]}")]
Until = Annotated[str | None, Field(description="Up to then; a day is included whole. Same forms as since")]
Pattern = Annotated[str | None, Field(description="Regular expression over the lines as written; (?i) ignores case")]
Zone = Annotated[
    str | None, Field(description="Zone of times written without one, +08:00 or Asia/Shanghai; default UTC")
]
Offset = Annotated[int, Field(description="To skip: next_offset of the page before", ge=0, le=100_000)]
Limit = Annotated[int, Field(description="Most of one page", ge=1, le=500)]
ABOUT_TIMES = "Times are UTC; today, yesterday and 'last 6h' count from the newest entry, not from the clock."


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs of some roots."""

    roots: Sequence[Path]
    seconds: float = 300

    async def run(self, path: str, zone: str | None, ctx: Context, call: Callable[[Scan], T]) -> T:
        """`call` in a thread, with a fresh scan and progress twice a second; a cancel stops it."""
        results: list[T] = []
        scan: Scan | None = None

        def work() -> T:
            nonlocal scan
            sets = log_sets(path, self.roots)
            scan = Scan(sets=sets, root=self.roots[0], zone=zone_of(zone), seconds=self.seconds)
            return call(scan)

        async def telling() -> None:
            while True:
                await anyio.sleep(0.5)
                if scan is not None:
                    await ctx.report_progress(scan.done, scan.size, f"{scan.done >> 20} MB read")

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(telling)
                results.append(await anyio.to_thread.run_sync(work, abandon_on_cancel=True))
                tasks.cancel_scope.cancel()
            return results[0]
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        finally:
            if scan is not None:
                scan.stopped = True


def choice_of(scan: Scan, level: Level | None, since: str | None, until: str | None, pattern: str | None) -> Choice:
    """The choice that a caller described."""
    found = finder(pattern)
    return Choice(
        level=LEVELS.index(level) if level else 0,
        since=span(since, scan)[0] if since else None,
        until=span(until, scan)[1] if until else None,
        pattern=found,
    )


def build(logs: Logs) -> MCPServer:
    """The MCP server over `logs`."""
    server = MCPServer(
        "logs",
        title="Logs",
        instructions="describe_logs first, compare_periods for what grew, then count_logs and search_logs for why.",
        log_level="ERROR",
    )

    @server.tool(
        title="Describe logs",
        description="Which logs a path holds: files of each in order, format, entries, first and last time, counts by "
        "level. Use it first, to learn what period there is. Reads JSON lines, text with ISO times, logfmt, syslog, "
        f"access logs, gzip. {ABOUT_TIMES} Not for what the entries say: use group_messages or search_logs.",
        annotations=READ_ONLY,
    )
    async def describe_logs(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf, ctx: Context, zone: Zone = None
    ) -> Annotated[CallToolResult, About]:
        return reply(await logs.run(path, zone, ctx, describe))

    @server.tool(
        title="Search logs",
        description="Entries by level, time and pattern, of several logs by time, with their stack traces. Use it for "
        f"what happened around a moment, e.g. deploys before an error began. {ABOUT_TIMES} Results come in pages. Not "
        "for counting: use count_logs or group_messages.",
        annotations=READ_ONLY,
    )
    async def search_logs(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        ctx: Context,
        pattern: Pattern = None,
        level: Least = None,
        since: Since = None,
        until: Until = None,
        newest_first: bool = False,
        limit: Limit = 50,
        offset: Offset = 0,
        zone: Zone = None,
    ) -> Annotated[CallToolResult, Lines]:
        def call(scan: Scan) -> Lines:
            return search(scan, choice_of(scan, level, since, until, pattern), newest_first, limit, offset)

        return reply(await logs.run(path, zone, ctx, call))

    @server.tool(
        title="Count log entries over time",
        description="How many entries fit in each minute, hour or day, split by level or by log. Use it to see when "
        f"something began or peaked. {ABOUT_TIMES} Stretches without entries are given as 0. Not for which messages "
        "they are: use group_messages.",
        annotations=READ_ONLY,
    )
    async def count_logs(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        ctx: Context,
        by: Step = "hour",
        split: Annotated[Literal["level", "log", "none"], Field(description="What each count is split by")] = "level",
        pattern: Pattern = None,
        level: Least = None,
        since: Since = None,
        until: Until = None,
        limit: Limit = 200,
        offset: Offset = 0,
        zone: Zone = None,
    ) -> Annotated[CallToolResult, Counts]:
        def call(scan: Scan) -> Counts:
            return count(scan, choice_of(scan, level, since, until, pattern), by, split, limit, offset)

        return reply(await logs.run(path, zone, ctx, call))

    @server.tool(
        title="Group similar messages",
        description="Messages that are alike as one group each, with count, first and last time and an example; "
        f"numbers, ids and addresses are masked. Use it for which errors there are and how many. {ABOUT_TIMES} Not "
        "for how two periods differ: use compare_periods.",
        annotations=READ_ONLY,
    )
    async def group_messages(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        ctx: Context,
        pattern: Pattern = None,
        level: Least = None,
        since: Since = None,
        until: Until = None,
        limit: Limit = 20,
        offset: Offset = 0,
        zone: Zone = None,
    ) -> Annotated[CallToolResult, Groups]:
        def call(scan: Scan) -> Groups:
            return group(scan, choice_of(scan, level, since, until, pattern), limit, offset)

        return reply(await logs.run(path, zone, ctx, call))

    @server.tool(
        title="Compare two periods",
        description="Which groups of messages are new, grew, shrank or went from one period to another, as counts and "
        f"per hour. Use it for 'what changed since …'. {ABOUT_TIMES} A period is a day, or two times with / between: "
        "2026-03-10T00:00/2026-03-10T12:00. A growth that chance explains counts as steady. Not for one period: use "
        "group_messages.",
        annotations=READ_ONLY,
    )
    async def compare_periods(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        ctx: Context,
        before: Annotated[str, Field(description="The earlier period")] = "yesterday",
        after: Annotated[str, Field(description="The later period")] = "today",
        level: Least = "ERROR",
        pattern: Pattern = None,
        limit: Limit = 20,
        zone: Zone = None,
    ) -> Annotated[CallToolResult, Comparison]:
        def call(scan: Scan) -> Comparison:
            periods = (span(before, scan), span(after, scan))
            for said, (start, end) in zip((before, after), periods, strict=True):
                if start == end:
                    raise ToolError(f"{said!r} is a moment. A period is a day, 'last 6h', or two times with / between.")
            return compare(scan, choice_of(scan, level, None, None, pattern), periods, limit)

        return reply(await logs.run(path, zone, ctx, call))

    return server


@contextmanager
def traced(service: str) -> Generator[None]:
    """Export the SDK's spans by OTLP while inside, where the environment names a collector."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        yield
        return
    import threading  # noqa: PLC0415 - all of this only for those who trace

    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    class Calls(BatchSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            if not span.name.startswith("notifications/"):
                super().on_end(span)

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)})
    provider, exporter = TracerProvider(resource=resource, shutdown_on_exit=False), OTLPSpanExporter()
    provider.add_span_processor(Calls(exporter, schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # force_flush keeps no deadline with a dead collector; a thread and the exporter's end do.
        flush = threading.Thread(target=provider.force_flush, daemon=True)
        flush.start()
        flush.join(2)
        exporter.shutdown()
        provider.shutdown()


def folders(given: Sequence[str], parser: argparse.ArgumentParser) -> list[Path]:
    """The folders as real paths; ends with exit code 2 when one is none."""
    for path in given:
        if not Path(path).is_dir():
            parser.error(f"not a folder: {path}")
    return [Path(path).resolve() for path in given]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve over stdio until the client hangs up."""
    parser = argparse.ArgumentParser(prog="logs", description="MCP server: search, count, group and compare log files.")
    parser.add_argument("--root", action="append", metavar="DIR", help="folder to read (default: the current one)")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="for one call (default 300)")
    arguments = parser.parse_args(argv)
    roots = folders(arguments.root or ["."], parser)
    with traced("logs"):
        build(Logs(roots=roots, seconds=arguments.timeout)).run("stdio")


if __name__ == "__main__":
    sys.exit(main())
