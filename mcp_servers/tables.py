"""MCP server `tables`: describe a table file and query it with read-only SQL.

    python -P tables.py --root DIR [--root DIR2]

A file is read once: text formats (CSV, Excel) become rows of text with their line numbers, DuckDB types each column,
and the result is kept as a small read-only database file. Every query then runs in a fresh DuckDB instance that has
attached just the files it was given and was locked before the SQL of the caller is seen.

One self-contained file, usable by any MCP host. Needs `mcp`, `duckdb`, and `openpyxl` for Excel.
"""

import argparse
import codecs
import csv
import datetime as dt
import difflib
import io
import json
import os
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": ","}
EXCEL_SUFFIXES = {".xlsx", ".xlsm"}
JSON_SUFFIXES = {".json", ".jsonl", ".ndjson"}
SUFFIXES = [*TEXT_SUFFIXES, ".parquet", *JSON_SUFFIXES, *EXCEL_SUFFIXES]
CACHED_FILES = 16
SAMPLE = 20_000
MEMORY = "2GB"
READABLE_SHARE = 0.8  # of a column's values; below that the column stays text
EXACT_DIGITS = 15  # a JSON number (a double) keeps this many significant digits


# ---------------------------------------------------------------- results


class Unreadable(BaseModel):
    """Values that did not fit the type of their column; they are NULL in it."""

    count: int
    first: list[dict[str, Any]] = Field(description="Up to five: row (line of a CSV, row of a sheet) and value")


class Column(BaseModel):
    """One column as the server typed it."""

    name: str
    type: str = Field(description="DuckDB type, e.g. DATE, DECIMAL(18,2), BIGINT, VARCHAR")
    blanks: int
    lowest: Any = None
    highest: Any = None
    distinct: int
    common: list[str] | None = Field(default=None, description="The most frequent values of a text column")
    unreadable: Unreadable | None = None
    notes: list[str] = []


class Description(BaseModel):
    """What a file holds."""

    path: str
    format: str
    table: str = "data"
    rows: int
    columns: list[Column]
    first_rows: list[dict[str, Any]]
    notes: list[str]


class Page(BaseModel):
    """One page of a query's result. Numbers of more than 15 digits come as strings, so that none is rounded."""

    columns: list[dict[str, str]]
    rows: list[dict[str, Any]]
    total_rows: int
    offset: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


def plain(value: Any) -> Any:
    """A DuckDB value as JSON: exact decimals, ISO dates, hex for bytes."""
    if isinstance(value, Decimal):
        exact = value.is_finite() and len(value.normalize().as_tuple().digits) <= EXACT_DIGITS
        return (int(value) if value == value.to_integral() else float(value)) if exact else str(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**EXACT_DIGITS else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in cast("list[Any]", value)]
    return str(value)


def reply(model: BaseModel) -> CallToolResult:
    """Structured content, and the same as one compact line of text (the SDK's own text is indented JSON)."""
    data = model.model_dump(mode="json")
    text = json.dumps(_without_nothing(data), ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(text=text)], structured_content=data)


def _without_nothing(data: dict[str, Any]) -> dict[str, Any]:
    """Unused parts of a column cost tokens; cells of rows and next_offset stay as they are."""
    if "columns" in data and data["columns"] and "blanks" in data["columns"][0]:
        data = {**data, "columns": [{k: v for k, v in c.items() if v not in (None, [])} for c in data["columns"]]}
    return data


# ---------------------------------------------------------------- paths


def inside(path: str, roots: Sequence[Path]) -> Path:
    """The real file that `path` names, or a ToolError: it must exist inside one of `roots`, links resolved."""
    named = ", ".join(map(str, roots))
    try:
        real = (roots[0] / path).resolve()
        within = any(real.is_relative_to(root) for root in roots)
        found = within and real.is_file()
    except (OSError, ValueError) as error:
        raise ToolError(f"Bad path {path!r}: {error}. Give a path relative to {roots[0]}.") from None
    if not within:
        raise ToolError(f"{path!r} is outside the folders this server may read ({named}).")
    if found:
        return real
    if real.is_dir():
        raise ToolError(f"{path!r} is a folder. It holds: {', '.join(_names(real)) or 'no files'}.")
    folder = next((p for p in real.parents if p.is_dir()), roots[0])
    names = _names(folder)
    near = difflib.get_close_matches(real.name, names, n=5, cutoff=0.5) or names[:10]
    shown = next((folder.relative_to(r) for r in roots if folder.is_relative_to(r)), folder)
    raise ToolError(f"No file {path!r}. In folder '{shown}' of {roots[0]} there is: {', '.join(near) or 'nothing'}.")


def _names(folder: Path) -> list[str]:
    return sorted(p.name + "/" * p.is_dir() for p in folder.iterdir() if not p.name.startswith("."))


def ident(name: str) -> str:
    """`name` as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def lit(text: str) -> str:
    """`text` as a quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"


# ---------------------------------------------------------------- work that can be stopped


@dataclass(slots=True)
class Work:
    """One piece of blocking work in a thread; `stop` ends it from outside, wherever it is."""

    con: "DuckDBPyConnection | None" = None
    stopped: bool = False
    done: float = 0  # bytes of text read so far

    def stop(self) -> None:
        """Make the thread raise soon."""
        self.stopped = True
        if self.con is not None:
            self.con.interrupt()

    def check(self) -> None:
        """Raise when stopped."""
        if self.stopped:
            raise ToolError("Stopped.")

    @contextmanager
    def connect(self, database: str) -> "Generator[DuckDBPyConnection]":
        """A DuckDB connection that `stop` interrupts."""
        try:
            import duckdb  # noqa: PLC0415 - heavy and optional: the server starts and lists its tools without it
        except ImportError:
            raise ToolError('DuckDB is missing. Install it: pip install "orchestrator-mcp[servers]"') from None
        con = duckdb.connect(database, config={"memory_limit": MEMORY})
        self.con = con
        try:
            self.check()
            yield con
        except duckdb.InterruptException:
            raise ToolError("Stopped.") from None
        finally:
            self.con = None
            con.close()


async def in_thread(work: Work, call: Callable[[], T], *, seconds: float, tell: Callable[[], Any]) -> T:
    """Run `call` in a thread; on a cancel or after `seconds` interrupt it. `tell` is awaited twice a second."""

    async def telling() -> None:
        while True:
            await anyio.sleep(0.5)
            await tell()

    results: list[T] = []
    try:
        with anyio.fail_after(seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(telling)
                results.append(await anyio.to_thread.run_sync(call, abandon_on_cancel=True))
                group.cancel_scope.cancel()
        return results[0]
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    except TimeoutError:
        raise ToolError(f"Stopped after {seconds:g} s. Select fewer rows, aggregate, or filter first.") from None
    finally:
        work.stop()


# ---------------------------------------------------------------- text formats to rows


@dataclass(kw_only=True)
class Text:
    """Rows of text on their way to DuckDB; the notes are complete when the rows are used up."""

    format: str
    header: list[str]
    rows: Iterator[tuple[int, Sequence[str]]]  # line in the file, cells
    ragged: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def encoding_of(path: Path, work: Work) -> str:
    """UTF-8 (with or without BOM), UTF-16 by its BOM, GB18030, or Windows-1252 as the last resort."""
    with path.open("rb") as file:
        head = file.read(1 << 20)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    # Latin letters decode as GB18030 too ("Zürich" gives a Chinese character), but Chinese has pairs of high bytes.
    runs: list[bytes] = re.findall(rb"[\x80-\xff]+", head)
    chinese = sum(len(run) % 2 == 0 for run in runs) > 0.8 * len(runs)
    for name in ["utf-8", "gb18030"] if chinese else ["utf-8"]:
        decoder = codecs.getincrementaldecoder(name)()
        with path.open("rb") as file, suppress(UnicodeDecodeError):
            while chunk := file.read(1 << 20):
                work.check()
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
            return name
    return "cp1252"


def delimiter_of(sample: str, usual: str) -> str:
    """The delimiter that gives most of the first lines the width of the header."""

    def score(delimiter: str) -> tuple[int, int, bool]:
        rows = [row for row in csv.reader(sample.splitlines(keepends=True)[:50], delimiter=delimiter) if row]
        width = len(rows[0]) if rows else 0
        return sum(len(r) == width for r in rows) if width > 1 else 0, width, delimiter == usual

    return max([usual, *",;\t|"], key=score)


def csv_text(path: Path, work: Work) -> Text:
    """The rows of a delimited text file, with what was odd about them."""
    encoding = encoding_of(path, work)
    csv.field_size_limit(1 << 20)
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        sample = file.read(1 << 16)
    delimiter = delimiter_of(sample, TEXT_SUFFIXES[path.suffix.lower()])
    name = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}[delimiter]
    label = {"utf-8-sig": "UTF-8 with BOM", "cp1252": "Windows-1252 (a guess)"}.get(encoding, encoding.upper())

    def lines() -> Iterator[tuple[int, list[str]]]:
        with path.open("rb") as binary, io.TextIOWrapper(binary, encoding, errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            line = 1
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = reader.line_num + 1
                    if line % 4096 == 0:
                        work.check()
                        work.done = binary.tell()
            except csv.Error as error:
                text.notes.append(f"Reading stopped at line {line}: {error} (a quote that is not closed?).")

    rows = lines()
    text = Text(format=f"{path.suffix[1:].upper()}, {name}, {label}", header=[], rows=iter(()))
    return rectangular(text, rows)


def excel_text(path: Path, sheet: str | None, work: Work) -> Text:
    """The rows of one sheet, each cell as the text a person sees in it."""
    try:
        import openpyxl  # noqa: PLC0415 - optional, and only for Excel files
        from openpyxl.utils.exceptions import InvalidFileException  # noqa: PLC0415
    except ImportError:
        raise ToolError('Excel needs openpyxl. Install it: pip install "orchestrator-mcp[servers]"') from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, InvalidFileException) as error:
        raise ToolError(f"{path.name} is no Excel workbook ({error}). Save it as .xlsx or CSV.") from None
    names = book.sheetnames
    if sheet is not None and sheet not in names:
        raise ToolError(f"No sheet {sheet!r} in {path.name}. Sheets: {', '.join(names)}.")
    chosen = sheet or names[0]

    def rows() -> Iterator[tuple[int, list[str]]]:
        for number, row in enumerate(cast("Any", book[chosen]).iter_rows(values_only=True), start=1):
            work.check()
            cells = [_cell(value) for value in row]
            if any(cells):
                yield number, cells

    text = Text(format=f"Excel, sheet {chosen!r}", header=[], rows=iter(()))
    if len(names) > 1:
        text.notes.append(f"Sheets: {', '.join(names)}; this is {chosen!r} (argument `sheet`).")
    return rectangular(text, rows())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(sep=" ")
    # Excel itself keeps and shows 15 digits; the rest is binary noise (0.30000000000000004).
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def rectangular(text: Text, rows: Iterator[tuple[int, list[str]]]) -> Text:
    """Take the header off `rows` and make every row as wide as it; what does not fit is noted."""
    first = next(rows, None)
    if first is None:
        raise ToolError("The file is empty: no header, no rows.")
    line, head = first
    while len(head) > 1 and not head[-1].strip() and text.format.startswith("Excel"):
        head = head[:-1]
    headless = all(re.fullmatch(r"[-\d.,/ :$€]+", cell.strip() or "-") for cell in head) and any(map(str.strip, head))
    text.header = unique(["" for _ in head] if headless else head)
    if headless:
        text.notes.append("No header line: columns are named column_1, column_2, …")
    elif text.header != [cell.strip() for cell in head]:
        text.notes.append(f"Empty or repeated column names were completed: {', '.join(text.header)}.")
    width = len(head)

    def even() -> Iterator[tuple[int, Sequence[str]]]:
        if headless:
            yield line, head
        for number, row in rows:
            if len(row) < width or any(map(str.strip, row[width:])):
                text.ragged.append(f"line {number} has {len(row)}")
            yield number, [*row[:width], *[""] * (width - len(row))]

    text.rows = even()
    return text


def unique(header: Sequence[str]) -> list[str]:
    """Column names without gaps or repeats; SQL does not tell upper from lower case."""
    names: list[str] = []
    for position, cell in enumerate(header, start=1):
        base = name = cell.strip() or f"column_{position}"
        again = 2
        while name.lower() in (n.lower() for n in names):
            name, again = f"{base}_{again}", again + 1
        names.append(name)
    return names


# ---------------------------------------------------------------- typing columns

CURRENCY = r"(?:US\$|[$€£¥￥₹元]|USD|EUR|GBP|CNY|RMB)"
EXPONENT = r"(?:[eE][-+]?\d+)?"
GROUPED = r"\d{1,3}(?:[ '’]\d{3})+"
POINT = rf"^(?:(?:\d+|\d{{1,3}}(?:,\d{{2,3}})*,\d{{3}}|{GROUPED})(?:\.\d*)?|\.\d+){EXPONENT}$"  # 1,234.50
COMMA = rf"^(?:\d+|\d{{1,3}}(?:\.\d{{3}})+|{GROUPED})(?:,\d+)?$"  # 1.234,50
STAMP = r"^(.*?)(?:[T ]\s*(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*([AaPp][Mm])?\s*(Z|[+-]\d{2}:?\d{2})?)?$"
YEAR_FIRST = r"^(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?$"
NUMERIC = r"^(\d{1,2})[-/.](\d{1,2})[-/.]"
TRUE, FALSE = ("true", "yes", "y", "t", "是", "对"), ("false", "no", "n", "f", "否", "错")
NOTHING = ("", "na", "n/a", "null", "none", "nan", "-", "–", "—", "--", "#n/a", "无")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Two ways to read a text: SELECT lists, each over the one before, that end in `a` and `b` (NULL: does not fit)."""

    kind: str
    steps: tuple[str, ...]
    names: tuple[str, str]

    def of(self, source: str) -> str:
        """`source`, a relation with the text as `s`, with `a` and `b` added."""
        for step in self.steps:
            source = f"(SELECT *, {step} FROM {source})"
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The decision for one column: its type, what to tell, and the table with its values (None: the text itself)."""

    type: str
    notes: tuple[str, ...] = ()
    table: str | None = None


def number_reading() -> Reading:
    """Amounts as plain numeric text: `a` has a decimal point, `b` a decimal comma."""
    bare = rf"regexp_replace(s, '^([-+−(]?)\s*{CURRENCY}\s*', '\1')"
    bare = rf"regexp_replace({bare}, '\s*(?:{CURRENCY}|%)\s*([-)]?)$', '\1')"
    size = r"CASE WHEN regexp_matches(bare, '^\(.*\)$') THEN trim(bare, '() ') "
    size += r"ELSE regexp_replace(bare, '^[-+−]\s*|-$', '') END"
    sign = r"CASE WHEN regexp_matches(bare, '^[-−]|^\(|-$') THEN '-' ELSE '' END"
    point, comma = (f"CASE WHEN regexp_matches(size, {lit(form)}) THEN sign || " for form in (POINT, COMMA))
    point += "regexp_replace(size, '[, ''’]', '', 'g') END"
    comma += "replace(regexp_replace(size, '[. ''’]', '', 'g'), ',', '.') END"
    return Reading(
        kind="number",
        steps=(f"{bare} AS bare", f"{size} AS size, {sign} AS sign", f"{point} AS a, {comma} AS b"),
        names=("a decimal point (1,234.50)", "a decimal comma (1.234,50)"),
    )


def date_reading(name: str) -> Reading:
    """Dates and times as TIMESTAMP: `a` reads 3/4/2025 month first, `b` day first; other forms are the same in both."""

    def form(pattern: str, order: str) -> str:
        replaced = f"regexp_replace(part[1], '{pattern}', '{order}')"
        return f"CASE WHEN regexp_matches(part[1], '{pattern}') THEN TRY_CAST({replaced} AS DATE) END"

    def numeric(order: str) -> str:
        # A two-digit year below 69 is of this century, as in POSIX.
        late, early = (NUMERIC + years for years in (r"(69|[7-9]\d)$", r"([0-5]\d|6[0-8])$"))
        forms = (
            form(NUMERIC + r"(\d{4})$", rf"\3-{order}"),
            form(late, rf"19\3-{order}"),
            form(early, rf"20\3-{order}"),
        )
        return f"COALESCE(fixed, {', '.join(forms)})::TIMESTAMP"

    words = r"trim(regexp_replace(regexp_replace(part[1], '(\d)(st|nd|rd|th)\b', '\1'), '[-, .]+', ' ', 'g'))"
    formats = "['%d %b %Y', '%d %B %Y', '%b %d %Y', '%B %d %Y', '%d %b %y']"
    named = f"CASE WHEN regexp_matches(part[1], '[A-Za-z]{{3}}') THEN TRY_STRPTIME({words}, {formats})::DATE END"
    fixed = [form(YEAR_FIRST, r"\1-\2-\3"), named]
    if re.search(r"date|day|日", name, re.IGNORECASE):  # 20250309 is a date only where the header says so
        fixed += [form(r"^((?:19|20)\d\d)(\d\d)(\d\d)$", r"\1-\2-\3")]
    times = "['%H:%M', '%H:%M:%S', '%H:%M:%S.%f', '%I:%M%p', '%I:%M:%S%p']"
    clock = f"TRY_STRPTIME(part[2] || part[3], {times}) - TIMESTAMP '1900-01-01'"
    clock = f"CASE WHEN part[2] = '' THEN INTERVAL 0 SECOND ELSE {clock} END"
    minutes = "TRY_CAST(substr(part[4], 2, 2) AS INTEGER) * 60 + TRY_CAST(right(part[4], 2) AS INTEGER)"
    zone = "CASE WHEN part[4] IN ('', 'Z') THEN 0 WHEN part[4] LIKE '-%' THEN -1 ELSE 1 END"
    zone = f"to_minutes(COALESCE({zone} * ({minutes}), 0))"
    parts = ", ".join(f"regexp_extract(s, '{STAMP}', {n})" for n in (1, 2, 3, 4))
    month_first, day_first = numeric(r"\1-\2"), numeric(r"\2-\1")
    return Reading(
        kind="date",
        steps=(
            f"[{parts}] AS part",
            f"COALESCE({', '.join(fixed)}) AS fixed, {clock} - {zone} AS shift",
            f"{month_first} + shift AS a, {day_first} + shift AS b",
        ),
        names=("the month first (3/9 is March 9)", "the day first (3/9 is September 3)"),
    )


def cleaned(column: str) -> str:
    """A text column trimmed of every kind of space; NULL where it says nothing."""
    s = f"trim(translate({ident(column)}, chr(160) || chr(8239) || chr(12288), '   '), ' ' || chr(9) || chr(10))"
    return f"CASE WHEN lower({s}) NOT IN {NOTHING} THEN {s} END"


def type_column(con: "DuckDBPyConnection", name: str, table: str) -> Typed:
    """Type one text column of the table `raw`; its values go to `table`, a row for a row."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE texts AS SELECT __row, {cleaned(name)} AS s FROM raw")
    if switches(con):
        value = f"CASE WHEN s IS NOT NULL THEN lower(s) IN {TRUE} END"
        con.execute(f"CREATE TEMP TABLE {table} AS SELECT __row, s, {value} AS v FROM texts")
        return Typed(type="BOOLEAN", table=table)
    some = f"(SELECT s FROM texts WHERE s IS NOT NULL) USING SAMPLE reservoir({SAMPLE} ROWS) REPEATABLE (7)"
    con.execute(f"CREATE OR REPLACE TEMP TABLE sample AS FROM {some}")
    best, reading = 0.5, None
    for candidate in (date_reading(name), number_reading()):
        fits = "count(*) FILTER (a IS NOT NULL OR b IS NOT NULL) / greatest(count(*), 1)"
        (share,) = _one(con, f"SELECT {fits} FROM {candidate.of('sample')}")
        if share > best:
            best, reading = share, candidate
    if reading is None:
        return Typed(type="VARCHAR")
    con.execute(f"CREATE OR REPLACE TEMP TABLE tried AS SELECT __row, s, a, b FROM {reading.of('texts')}")
    counts = "count(s), count(a) FILTER (b IS NULL), count(b) FILTER (a IS NULL), count(*) FILTER (a <> b)"
    total, only_a, only_b, differ = _one(con, f"SELECT {counts} FROM tried")
    value, notes = choose(reading, only_a, only_b, differ)
    con.execute(f"CREATE OR REPLACE TEMP TABLE tried AS SELECT __row, s, {value} AS v FROM tried")
    (read,) = _one(con, "SELECT count(v) FROM tried")
    if read < READABLE_SHARE * total:
        why = notes or (f"only {read} of {total} values can be read as a {reading.kind}",)
        return Typed(type="VARCHAR", notes=("kept as text: " + "; ".join(why),))
    kind, more = (number_type if reading.kind == "number" else date_type)(con)
    if kind == "VARCHAR":
        return Typed(type=kind, notes=more)
    con.execute(f"CREATE TEMP TABLE {table} AS SELECT __row, s, TRY_CAST(v AS {kind}) AS v FROM tried")
    return Typed(type=kind, notes=notes + more, table=table)


def _one(con: "DuckDBPyConnection", sql: str) -> Any:
    return con.execute(sql).fetchone()


def switches(con: "DuckDBPyConnection") -> bool:
    """Whether a column holds nothing but yes and no, in any of their spellings."""
    words = {w for (w,) in con.execute("SELECT DISTINCT lower(s) FROM texts WHERE s IS NOT NULL LIMIT 13").fetchall()}
    both = words & {*TRUE} and words & {*FALSE}
    return words <= {*TRUE, *FALSE} and bool(both or words & {"true", "false"})


def choose(reading: Reading, only_a: int, only_b: int, differ: int) -> tuple[str, tuple[str, ...]]:
    """Which of the two ways a column is written in, by the values that fit only one; SQL over a and b, and notes."""
    either = "CASE WHEN a IS NULL THEN b WHEN b IS NULL OR a = b THEN a END"
    if only_a and only_b:
        notes = (f"mixed forms: {only_a} values with {reading.names[0]}, {only_b} with {reading.names[1]}",)
        return either, (*notes, f"{differ} values that could be either are not read") if differ else notes
    if only_b:
        return "COALESCE(b, a)", (f"read with {reading.names[1]}, as {only_b} values show",) if differ else ()
    if only_a or not differ:
        return "a", (f"read with {reading.names[0]}, as {only_a} values show",) if differ else ()
    if reading.kind == "date":
        note = f"{differ} values such as 3/9/2025 may be day first or month first and nothing tells which"
        return either, (note, "to read them in SQL: strptime(column, '%m/%d/%Y') or '%d/%m/%Y'")
    return "a", (f"{differ} values with one separator: 1,234 is read as thousands, 1.234 as a decimal",)


def number_type(con: "DuckDBPyConnection") -> tuple[str, tuple[str, ...]]:
    """BIGINT, DECIMAL wide enough for every value, or DOUBLE for measurements; codes such as 007 stay text."""
    codes, whole, fraction, floats, percent, signs = _one(
        con,
        r"SELECT count(*) FILTER (regexp_matches(s, '^0\d+$')), max(len(regexp_extract(v, '^-?(\d*)', 1))), "
        r"max(len(regexp_extract(v, '\.(\d*)', 1))), count(*) FILTER (v ILIKE '%e%'), "
        f"count(*) FILTER (contains(s, '%')), list(DISTINCT regexp_extract(s, '{CURRENCY}')) "
        "FROM tried WHERE v IS NOT NULL",
    )
    if codes:
        return "VARCHAR", (f"kept as text: {codes} values have leading zeros (codes)",)
    notes: tuple[str, ...] = ()
    if len(found := sorted(sign for sign in cast("list[str]", signs) if sign)) > 1:
        notes += (f"several currencies ({', '.join(found)}): amounts are NOT converted",)
    if percent:
        notes += (f"{percent} values have a percent sign: 12% is read as 12",)
    if floats or fraction > 8 or whole + fraction > 38:
        return "DOUBLE", notes
    if fraction == 0 and whole <= 18:
        return "BIGINT", notes
    # Two decimals at least, as of money. 18 digits is DuckDB's 64-bit decimal; its sums widen to 38 by themselves.
    scale = max(fraction, 2)
    return f"DECIMAL({min(38, max(18, whole + scale))},{scale})", notes


def date_type(con: "DuckDBPyConnection") -> tuple[str, tuple[str, ...]]:
    """DATE, or TIMESTAMP where a value has a time of day."""
    timed, zoned = _one(
        con,
        r"SELECT count(*) FILTER (regexp_matches(s, '\d:\d\d')), "
        r"count(*) FILTER (regexp_matches(s, '\d:\d\d.*(Z|[-+]\d\d:?\d\d)$')) FROM tried WHERE v IS NOT NULL",
    )
    notes = (f"{zoned} times with an offset are given in UTC",) if zoned else ()
    return "TIMESTAMP" if timed else "DATE", notes


# ---------------------------------------------------------------- files to tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A file as the table `data` of a DuckDB database file, and what describe_table tells about it."""

    database: Path
    about: Description


def load(path: Path, shown: str, sheet: str | None, database: Path, work: Work) -> Loaded:
    """Read the file into `database`."""
    if path.suffix.lower() not in SUFFIXES:
        raise ToolError(f"{path.name}: this kind of file is not read here. It reads {', '.join(SUFFIXES)}.")
    if sheet is not None and path.suffix.lower() not in EXCEL_SUFFIXES:
        raise ToolError(f"`sheet` is for Excel files; {path.name} has none. Leave it out.")
    with work.connect(str(database)) as con:
        import duckdb  # noqa: PLC0415 - see Work.connect

        con.execute("SET python_enable_replacements=false")
        try:
            kind, notes = fill(con, path, sheet, work)
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            raise ToolError(f"{path.name} cannot be read: {_first_lines(error)}") from None
        columns = shape(con, work)
        (rows,) = _one(con, "SELECT count(*) FROM data")
        if rows == 0:
            notes.append("No rows: the file has a header only.")
        first = [_record(con, row) for row in con.execute("FROM data LIMIT 10").fetchall()]
        about = Description(path=shown, format=kind, rows=rows, columns=columns, first_rows=first, notes=notes)
    return Loaded(database=database, about=about)


def _record(con: "DuckDBPyConnection", row: Sequence[Any]) -> dict[str, Any]:
    return {str(d[0]): plain(v) for d, v in zip(con.description or [], row, strict=True)}


def _first_lines(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())[:600]


def fill(con: "DuckDBPyConnection", path: Path, sheet: str | None, work: Work) -> tuple[str, list[str]]:
    """Make the table `raw` with a row number `__row` and the columns of the file; returns format and notes."""
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES or suffix in EXCEL_SUFFIXES:
        text = csv_text(path, work) if suffix in TEXT_SUFFIXES else excel_text(path, sheet, work)
        fill_text(con, text, work)
        if text.ragged:
            first = "; ".join(text.ragged[:5])
            text.notes.append(
                f"{len(text.ragged)} rows do not have {len(text.header)} cells ({first}): missing cells are NULL, "
                "extra cells are left out. Check them before trusting totals."
            )
        return text.format, text.notes
    with tempfile.TemporaryDirectory() as folder:
        # Through a link of a fixed name: DuckDB would take * ? [ in the real one for a pattern.
        link = Path(folder, "file" + suffix)
        link.symlink_to(path)
        if suffix == ".parquet":
            source = f"read_parquet({lit(str(link))}, hive_partitioning=false)"
        else:
            source = f"read_json_auto({lit(str(link))}, sample_size=-1, hive_partitioning=false)"
            # Its numbers with a fraction come as their text, so that they become DECIMAL and not DOUBLE.
            found = con.execute(f"DESCRIBE FROM {source}").fetchall()
            kinds = {str(n): t if re.search(r"INT|BOOL|\[|\(|JSON", t) else "VARCHAR" for n, t, *_ in found}
            columns = ", ".join(f"{lit(n)}: {lit(t)}" for n, t in kinds.items())
            source = f"read_json({lit(str(link))}, columns={{{columns}}})"
        con.execute(f"CREATE TABLE raw AS SELECT row_number() OVER () AS __row, * FROM {source}")
    return suffix[1:].upper(), []


def fill_text(con: "DuckDBPyConnection", text: Text, work: Work) -> None:
    """Rows of text, however odd their file was, as one regular CSV that DuckDB reads in parallel."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv", delete=False) as file:
        try:
            writer = csv.writer(file, lineterminator="\n")
            # A text cannot hold NUL in DuckDB's CSV reader's quoting rules reliably; it says nothing in a table.
            writer.writerows((number, *(c.replace("\0", "") for c in cells)) for number, cells in text.rows)
            file.close()
            columns = ", ".join(f"{lit(name)}: 'VARCHAR'" for name in text.header)
            con.execute(
                f"CREATE TABLE raw AS FROM read_csv({lit(file.name)}, auto_detect=false, header=false, delim=',', "
                f"quote='\"', escape='\"', new_line='\\n', columns={{'__row': 'BIGINT', {columns}}})"
            )
        finally:
            os.unlink(file.name)
    work.check()


def shape(con: "DuckDBPyConnection", work: Work) -> list[Column]:
    """Make the typed table `data` from `raw`; columns with values that could not be read keep their text beside."""
    found = [(str(n), str(t)) for n, t, *_ in con.execute("DESCRIBE SELECT * EXCLUDE (__row) FROM raw").fetchall()]
    source, values, columns = "raw", list[str](), list[Column]()
    for position, (name, kind) in enumerate(found):
        work.check()
        typed = type_column(con, name, f"__typed{position}") if kind == "VARCHAR" else Typed(type=kind)
        column = Column(name=name, type=typed.type, blanks=0, distinct=0, notes=list(typed.notes))
        if kind in ("DOUBLE", "FLOAT"):
            column.notes.append("binary floating point: for money use CAST(column AS DECIMAL(18,2))")
        if typed.table:
            source += f" POSITIONAL JOIN {typed.table}"
            column.unreadable = unreadable(con, typed.table)
        values.append(f"{typed.table}.v AS {ident(name)}" if typed.table else f"raw.{ident(name)}")
        if column.unreadable:
            beside = unique([*(n for n, _ in found), f"{name}_text"])[-1]
            values.append(f"raw.{ident(name)} AS {ident(beside)}")
            column.notes.append(f"column {beside} holds the original text")
        columns.append(column)
    con.execute(f"CREATE TABLE data AS SELECT {', '.join(values)} FROM {source}")
    con.execute("DROP TABLE raw")
    for column in columns:
        profile(con, column)
    return columns


def unreadable(con: "DuckDBPyConnection", table: str) -> Unreadable | None:
    """The values that the type of their column left out."""
    bad = f"FROM {table} WHERE s IS NOT NULL AND v IS NULL"
    (count,) = _one(con, f"SELECT count(*) {bad}")
    first = con.execute(f"SELECT __row, s {bad} ORDER BY __row LIMIT 5").fetchall() if count else []
    return Unreadable(count=count, first=[{"row": r, "value": s} for r, s in first]) if count else None


def profile(con: "DuckDBPyConnection", column: Column) -> None:
    """Blanks, extremes, and for texts the common values and the spellings that look like one value."""
    c = ident(column.name)
    blank = f"trim({c}) = ''" if column.type == "VARCHAR" else "false"
    nested = re.search(r"[\[(]", column.type) and not column.type.startswith("DECIMAL")
    ends = "NULL, NULL" if nested else f"min({c}), max({c})"
    blanks, distinct, low, high = _one(
        con, f"SELECT count(*) FILTER ({c} IS NULL OR {blank}), count(DISTINCT {c}), {ends} FROM data"
    )
    column.blanks = blanks - (column.unreadable.count if column.unreadable else 0)
    column.distinct = distinct
    if column.type != "VARCHAR":
        column.lowest, column.highest = plain(low), plain(high)
        return
    top = con.execute(
        f"SELECT {c} FROM data WHERE NOT ({blank}) GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 5"
    ).fetchall()
    column.common = [v if len(v) <= 80 else v[:79] + "…" for (v,) in top]
    if distinct <= 1000:
        alike = con.execute(
            f"SELECT list(v ORDER BY v) FROM (SELECT DISTINCT {c} AS v FROM data WHERE {c} IS NOT NULL) "
            "GROUP BY lower(trim(v)) HAVING count(*) > 1 ORDER BY 1 LIMIT 3"
        ).fetchall()
        column.notes += [f"differ only in case or spaces: {', '.join(map(repr, group))}" for (group,) in alike]


# ---------------------------------------------------------------- queries


LOCKS = (
    "SET python_enable_replacements=false",
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET allow_community_extensions=false",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


def query(work: Work, files: dict[str, Loaded], sql: str, limit: int, offset: int) -> Page:
    """One page of `sql` over `files` (by table name), in a DuckDB that can reach nothing else."""
    with tempfile.TemporaryDirectory() as spill, work.connect(":memory:") as con:
        import duckdb  # noqa: PLC0415 - see Work.connect

        databases = list({file.database: None for file in files.values()})
        for number, database in enumerate(databases):
            con.execute(f"ATTACH {lit(str(database))} AS __file{number} (READ_ONLY)")
        for name, file in files.items():
            con.execute(f"CREATE VIEW {ident(name)} AS FROM __file{databases.index(file.database)}.main.data")
        con.execute(f"SET temp_directory={lit(spill)}")
        for lock in LOCKS:
            con.execute(lock)
        try:
            con.execute("CREATE TEMP TABLE __result AS " + one_select(con, sql))
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            raise ToolError(explain(_first_lines(error), files)) from None
        work.check()
        (total,) = _one(con, "SELECT count(*) FROM __result")
        rows = con.execute(f"FROM __result ORDER BY rowid LIMIT {limit} OFFSET {offset}").fetchall()
        columns = [{"name": str(d[0]), "type": str(d[1])} for d in con.description or []]
        records = [_record(con, row) for row in rows]
    end = offset + len(records)
    notes = [note for name, file in files.items() if name == file.about.table for note in caveats(name, file.about)]
    more = end if end < total else None
    return Page(columns=columns, rows=records, total_rows=total, offset=offset, next_offset=more, notes=notes)


def one_select(con: "DuckDBPyConnection", sql: str) -> str:
    """`sql` as a subquery; a ToolError unless it is exactly one query (the parser of DuckDB decides)."""
    body = sql.strip().rstrip("; \n\t")
    wrapped = f"FROM (\n{body}\n)"
    kinds = [statement.type.name for statement in con.extract_statements(body)]
    # PIVOT is a MULTI statement of the parser. What cannot stand in a subquery is no query.
    if len(kinds) != 1 or kinds[0] not in ("SELECT", "MULTI") or len(con.extract_statements(wrapped)) != 1:
        got = "nothing" if not kinds else f"{len(kinds)} statements" if len(kinds) > 1 else kinds[0]
        raise ToolError(f"Only one SELECT (or WITH … SELECT) statement is allowed, got {got}. The table is `data`.")
    return wrapped


def explain(message: str, files: dict[str, Loaded]) -> str:
    """DuckDB's message with what the caller needs to write it right."""
    if message.startswith("Permission Error"):
        message = f"SQL here cannot read or write files or the network ({message})."
    tables = {file.database: (name, file) for name, file in reversed(files.items())}
    columns = [f"{n}: {', '.join(f'{c.name} {c.type}' for c in f.about.columns)}" for n, f in tables.values()]
    return f"{message}\nTables and columns: {'; '.join(columns)}. SQL is DuckDB's; a month is strftime(date, '%Y-%m')."


def caveats(table: str, about: Description) -> list[str]:
    """What a reader of a total must know about the table it came from."""
    bad = [(c.name, c.unreadable.count) for c in about.columns if c.unreadable]
    notes = [f"{table}.{name}: {count} values could not be read and are NULL" for name, count in bad]
    texts = [f"{table}.{c.name} is {n}" for c in about.columns for n in c.notes if n.startswith("kept as text")]
    return [*notes, *texts, *(n for n in about.notes if "rows do not have" in n or n.startswith("Reading stopped"))]


# ---------------------------------------------------------------- the server


@dataclass(slots=True, kw_only=True)
class Tables:
    """The files of some roots as tables; a file is read again when its time or size changes."""

    roots: Sequence[Path]
    cache: Path
    seconds: float = 30
    loaded: dict[tuple[Any, ...], Loaded] = field(default_factory=dict[tuple[Any, ...], Loaded])
    # One load at a time: two calls for one file must not read it twice, and a load uses all cores anyway.
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    count: int = 0

    async def table(self, path: str, sheet: str | None, ctx: Context | None) -> Loaded:
        """The loaded file."""
        real = inside(path, self.roots)
        state = real.stat()
        key = (real, sheet, state.st_mtime_ns, state.st_size)
        async with self.lock:
            if key in self.loaded:
                return self.loaded[key]
            self.count += 1
            work, database = Work(), self.cache / f"{self.count}.duckdb"
            root = next(root for root in self.roots if real.is_relative_to(root))
            shown = str(real.relative_to(root)) if root == self.roots[0] else str(real)

            async def tell() -> None:
                if ctx is not None:
                    message = f"reading {real.name}"
                    await ctx.report_progress(min(work.done, state.st_size), state.st_size, message)

            call = lambda: load(real, shown, sheet, database, work)  # noqa: E731 - a thread's call, named for its line
            file = await in_thread(work, call, seconds=self.seconds * 10, tell=tell)
            while len(self.loaded) >= CACHED_FILES:
                self.loaded.pop(next(iter(self.loaded))).database.unlink(missing_ok=True)
            self.loaded[key] = file
            return file

    async def query(
        self,
        sql: str,
        path: str,
        sheet: str | None = None,
        others: dict[str, str] | None = None,
        *,
        limit: int = 100,
        offset: int = 0,
        ctx: Context | None = None,
    ) -> Page:
        """One page of `sql` over the file `path` as `data` and the `others` by their names."""
        main = await self.table(path, sheet, ctx)
        stem = Path(path).stem
        # Models also write the file's own name; as a view it is found before DuckDB tries to open a file.
        names = dict.fromkeys(["data", stem, re.sub(r"\W", "_", stem), Path(path).name, path], main)
        for name, other in (others or {}).items():
            names[name] = await self.table(other, None, ctx)
        folded = {name.lower(): (name, file) for name, file in names.items()}
        work = Work()
        started = time.monotonic()

        async def tell() -> None:
            if ctx is not None:
                await ctx.report_progress(time.monotonic() - started, None, "querying")

        call = lambda: query(work, dict(folded.values()), sql, limit, offset)  # noqa: E731 - as above
        return await in_thread(work, call, seconds=self.seconds, tell=tell)


READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
PATH = "File, relative to the root folder, e.g. examples/sales.csv"
FILES = "CSV, TSV, Parquet, JSON, JSON lines or Excel (.xlsx)"


def build(tables: Tables) -> MCPServer:
    """The MCP server over `tables`."""
    server = MCPServer(
        "tables",
        title="Tables",
        instructions=f"Reads {FILES} files. Call describe_table first, then query_table with SQL over table `data`.",
        log_level="ERROR",
    )

    @server.tool(
        title="Describe a table file",
        description=f"Columns, types, row count, first 10 rows and odd values of a {FILES} file. Use it first, to "
        "learn the column names and types before query_table. Amounts such as '1,000' and mixed dates are typed "
        "already; what could not be read is listed. Not for totals or filters (use query_table), nor for plain text.",
        annotations=READ_ONLY,
    )
    async def describe_table(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: Annotated[str, Field(description=PATH)],
        ctx: Context,
        sheet: Annotated[str | None, Field(description="Excel only: the sheet's name; the first if left out")] = None,
    ) -> Annotated[CallToolResult, Description]:
        return reply((await tables.table(path, sheet, ctx)).about)

    @server.tool(
        title="Query a table file with SQL",
        description=f"Run one read-only SQL SELECT (DuckDB) on a {FILES} file; the file is the table `data`. "
        "Use it for totals, filters, groups and joins. Amounts are DECIMAL and dates DATE already, so no parsing: "
        "SELECT strftime(date, '%Y-%m') AS month, SUM(amount) AS total FROM data GROUP BY month ORDER BY month. "
        "Results come in pages (next_offset). Not for changing files, and SQL opens no other file.",
        annotations=READ_ONLY,
    )
    async def query_table(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: Annotated[str, Field(description=PATH)],
        sql: Annotated[str, Field(description="One SELECT over the table `data`")],
        ctx: Context,
        limit: Annotated[int, Field(description="Rows a page", ge=1, le=1000)] = 100,
        offset: Annotated[int, Field(description="Rows to skip: next_offset of the page before", ge=0)] = 0,
        sheet: Annotated[str | None, Field(description="Excel only: the sheet's name; the first if left out")] = None,
        others: Annotated[
            dict[str, str] | None, Field(description="More files to join, table name to path: {'shops': 'shops.csv'}")
        ] = None,
    ) -> Annotated[CallToolResult, Page]:
        return reply(await tables.query(sql, path, sheet, others, limit=limit, offset=offset, ctx=ctx))

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
    parser = argparse.ArgumentParser(prog="tables", description="MCP server: table files and read-only SQL over them.")
    parser.add_argument("--root", action="append", metavar="DIR", help="folder to read (default: the current one)")
    parser.add_argument("--timeout", type=float, default=30, metavar="SECONDS", help="for one query (default 30)")
    arguments = parser.parse_args(argv)
    roots = folders(arguments.root or ["."], parser)
    with tempfile.TemporaryDirectory(prefix="tables-") as cache, traced("tables"):
        build(Tables(roots=roots, cache=Path(cache), seconds=arguments.timeout)).run("stdio")


if __name__ == "__main__":
    sys.exit(main())
