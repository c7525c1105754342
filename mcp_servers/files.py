"""MCP server `files`: list, read, search, write, edit, move and delete files within the folders given at start.

    python -P files.py --root DIR [--root DIR2]

No path leaves the roots. A path is made plain as text (`..` included) and then opened one part after another, each
relative to the open folder before it and never through a symbolic link; so what is checked is what is used, whatever
happens to the tree meanwhile. A link is refused even where it points inside. Writing makes a temporary file beside the
target and renames it, so a reader sees the old text or the new one, whole.

One self-contained file, usable by any MCP host on POSIX. Needs `mcp`.
"""

import argparse
import bisect
import codecs
import difflib
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar, cast

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

T = TypeVar("T")

FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not make it wait
BLOCK = 1 << 20
LONGEST_LINE = 4000  # characters that are shown or searched of one line
LONGEST_TEXT = 24_000  # characters of one answer
LARGEST_EDIT = 16 << 20  # bytes; an edit holds the whole file
MOST_ENTRIES = 100_000  # of one walk through a tree


# ---------------------------------------------------------------- results


class Entry(BaseModel):
    """One name of a folder."""

    path: str
    kind: str = Field(description="file, folder, link or other")
    bytes: int | None = None
    modified: str = Field(description="UTC")


class Listing(BaseModel):
    """A page of entries, sorted by path."""

    path: str
    entries: list[Entry]
    total: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


class Excerpt(BaseModel):
    """Some lines of a file."""

    path: str
    encoding: str
    bytes: int
    first_line: int
    last_line: int
    total_lines: int
    next_line: int | None = Field(description="Give this as start_line for what follows; null at the end")
    text: str
    notes: list[str]


class Match(BaseModel):
    """A line that fits, with the lines around it."""

    path: str
    line: int
    text: str
    before: list[str] = []
    after: list[str] = []


class Found(BaseModel):
    """A page of matches, by path and line."""

    matches: list[Match]
    files_searched: int
    next_offset: int | None = Field(description="Give this as offset for the next page; null at the end")
    notes: list[str]


class Changed(BaseModel):
    """What a change left behind."""

    path: str
    did: str
    bytes: int | None = None
    line: int | None = Field(default=None, description="Where the first change is")
    notes: list[str] = []


def reply(model: BaseModel, text: str) -> CallToolResult:
    """Structured content, and the same as text that is shorter and easier to read than JSON."""
    return CallToolResult(content=[TextContent(text=text)], structured_content=model.model_dump(mode="json"))


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The notes below a text."""
    return "\n".join([text, *(f"[{note}]" for note in notes)])


# ---------------------------------------------------------------- work that can be stopped


@dataclass(slots=True)
class Work:
    """One piece of blocking work in a thread; `stopped` ends it at its next block."""

    seconds: float
    stopped: bool = False
    done: int = 0  # bytes read so far
    started: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise when stopped."""
        if self.stopped:
            raise ToolError("Stopped.")

    def late(self) -> bool:
        """Whether the time is over, after which a search gives what it has."""
        return time.monotonic() - self.started > self.seconds


async def in_thread(work: Work, call: Callable[[], T], ctx: Context) -> T:
    """Run `call` in a thread, with progress twice a second; a cancel stops it."""

    async def telling() -> None:
        while True:
            await anyio.sleep(0.5)
            await ctx.report_progress(work.done, None, f"{work.done >> 20} MB read")

    results: list[T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(telling)
            results.append(await anyio.to_thread.run_sync(call, abandon_on_cancel=True))
            group.cancel_scope.cancel()
        return results[0]
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    finally:
        work.stopped = True


# ---------------------------------------------------------------- paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path as names below a root. Nothing on disk has been looked at."""

    root: Path
    names: tuple[str, ...]
    shown: str

    @property
    def name(self) -> str:
        """The last name; a ToolError for the root itself."""
        if not self.names:
            raise ToolError(f"{self.shown!r} is the root folder itself, which stays as it is.")
        return self.names[-1]


def place(path: str, roots: Mapping[str, Path]) -> Place:
    """`path` below one of the roots (by their spellings), or a ToolError."""
    first = next(iter(roots))
    whole = os.path.normpath(os.path.join(first, path))
    for spelled, root in roots.items():
        if "\0" not in path and (whole == spelled or whole.startswith(spelled.rstrip(os.sep) + os.sep)):
            below = os.path.relpath(whole, spelled)
            names = () if below == os.curdir else tuple(below.split(os.sep))
            shown = below if spelled == first else whole
            return Place(root=root, names=names, shown=shown)
    named = ", ".join(dict.fromkeys(map(str, roots.values())))
    raise ToolError(f"{path!r} is outside the folders of this server ({named}). Give a path relative to {first}.")


@contextmanager
def folder(at: Place, names: Sequence[str], *, make: bool = False) -> Generator[int]:
    """The open folder of `names` below the root of `at`: part by part, never through a link."""
    handle = os.open(at.root, FOLDER)
    try:
        for name in names:
            with explained(at, handle, name):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=handle)
                inner = os.open(name, FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


@contextmanager
def explained(at: Place, handle: int, name: str) -> Generator[None]:
    """OSErrors about `name` in the folder `handle` as ToolErrors that say what is there instead."""
    try:
        yield
    except OSError as error:
        raise ToolError(_reason(at, handle, name, error)) from None


def _reason(at: Place, handle: int, name: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        names = sorted(n for n in os.listdir(handle) if not n.startswith("."))
        near = difflib.get_close_matches(name, names, n=5, cutoff=0.5) or names[:10]
        return f"No {name!r} on the way to {at.shown!r}. There is: {', '.join(near) or 'nothing'}."
    with suppress(OSError):
        mode = os.lstat(name, dir_fd=handle).st_mode
        if stat.S_ISLNK(mode):
            target = os.readlink(name, dir_fd=handle)
            return f"{name!r} in {at.shown!r} is a symbolic link (to {target}); links are not followed. Give the file."
        if error.errno == errno.ENOTDIR:
            return f"{name!r} in {at.shown!r} is no folder."
        if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST) and stat.S_ISDIR(mode):
            return f"{at.shown!r} is a folder that is not empty, or is there already."
    return f"{at.shown!r}: {error.strerror}."


@contextmanager
def regular(at: Place, handle: int, name: str) -> Generator[BinaryIO]:
    """The open file `name` of the folder `handle`; a ToolError unless it is a regular file."""
    with explained(at, handle, name):
        file = os.open(name, FILE, dir_fd=handle)
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise ToolError(f"{at.shown!r} is a folder; `list` shows what is in it.")
        if not stat.S_ISREG(mode):
            raise ToolError(f"{at.shown!r} is no regular file (a pipe, socket or device).")
        with open(file, "rb", buffering=0, closefd=False) as opened:
            yield cast("BinaryIO", opened)
    finally:
        os.close(file)


def kind_of(mode: int) -> str:
    """The word for a file's mode."""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over a path with `/`; one without `/` fits names at any depth."""
    pattern = pattern.removeprefix("./")
    body = "" if "/" in pattern else "(?:.*/)?"
    for token in re.findall(r"\*\*/|\*\*|\[!?\]?[^\]]*\]|\{[^{}]*\}|.", pattern, re.DOTALL):
        if token == "**/":
            body += "(?:.*/)?"
        elif token in ("**", "*", "?"):
            body += {"**": ".*", "*": "[^/]*", "?": "[^/]"}[token]
        elif token[0] == "[" and len(token) > 2:
            body += "[" + token[1:-1].replace("\\", r"\\").replace("!", "^", token[1] == "!") + "]"
        elif token[0] == "{" and len(token) > 1:
            body += "(?:" + "|".join(glob_regex("/" + part).pattern[1:] for part in token[1:-1].split(",")) + ")"
        else:
            body += re.escape(token)
    try:
        return re.compile(body, re.DOTALL)
    except re.error:
        raise ToolError(f"{pattern!r} is no glob. Examples: *.log, src/**/*.py, {{a,b}}.csv") from None


def walk(handle: int, *, hidden: bool, work: Work) -> Iterator[tuple[str, str, int]]:
    """Path below the folder, name, and open folder of everything in a tree, in order; links are not followed."""
    for top, folders, files, inner in os.fwalk(".", dir_fd=handle, follow_symlinks=False):
        work.check()
        if not hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
        folders.sort()
        # fwalk lists links to folders among the folders, and does not enter them.
        for name in sorted([*folders, *(name for name in files if hidden or not name.startswith("."))]):
            yield os.path.normpath(os.path.join(top, name)), name, inner


# ---------------------------------------------------------------- text


def encoding_of(head: bytes) -> str | None:
    """The encoding by a file's first block: by its BOM, UTF-8, GB18030, else Windows-1252. None: it is binary."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if head.startswith(mark):
            return name
    if b"\0" in head:
        return None
    with suppress(UnicodeDecodeError):
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < BLOCK)
        return "utf-8"
    # Latin letters decode as GB18030 too ("Zürich" gives a Chinese character), but Chinese has pairs of high bytes.
    runs: list[bytes] = re.findall(rb"[\x80-\xff]+", head)
    if sum(len(run) % 2 == 0 for run in runs) > 0.8 * len(runs):
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder("gb18030")().decode(head)
            return "gb18030"
    return "cp1252"


def label(encoding: str, head: bytes) -> str:
    """An encoding's name for people."""
    if encoding == "cp1252":
        return "Windows-1252 (a guess)"
    return encoding.upper() + " with BOM" * head.startswith((codecs.BOM_UTF8, b"\xff\xfe", b"\xfe\xff"))


def blocks(file: BinaryIO, encoding: str, work: Work, skip: int = 0) -> Iterator[bytes]:
    """A file in blocks, without the first `skip`; UTF-16 and UTF-32 as UTF-8, so that a line end is always one byte."""
    file.seek(skip * BLOCK)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding.startswith(("utf-16", "utf-32")) else None
    while block := file.read(BLOCK):
        work.check()
        work.done += len(block)
        yield decoder.decode(block).encode("utf-8", "replace") if decoder else block


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of blocks without their ends. Of a very long one only the beginning is kept."""
    held = b""
    for part in parts:
        first, *others = part.split(b"\n")
        held = (held + first)[: LONGEST_LINE * 4]
        if others:
            yield held
            yield from others[:-1]
            held = others[-1]
    if held:
        yield held


def from_line(parts: Iterable[bytes], first: int) -> Iterator[bytes]:
    """The blocks from the start of line `first` (1 is the first) on."""
    skip = first - 1
    for part in parts:
        if skip and (ends := part.count(b"\n")) < skip:
            skip -= ends
            continue
        at = 0
        for _ in range(skip):
            at = part.index(b"\n", at) + 1
        skip = 0
        yield part[at:]


def shown_line(line: bytes, encoding: str) -> str:
    """A line as text, cut when it is very long."""
    codec = "utf-8" if encoding.startswith("utf") else encoding
    text = line[: LONGEST_LINE * 4].decode(codec, "replace").removeprefix("\ufeff").removesuffix("\r")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + " … (line cut)"


NESTED = re.compile(r"\((?:[^()\\]|\\.)*(?:[+*|]|\{\d*,\d*\})(?:[^()\\]|\\.)*\)(?:[*+]|\{\d*,\d*\})(?!\+)")


def finder(pattern: str, *, literal: bool, ignore_case: bool) -> re.Pattern[str]:
    """What is searched for; a ToolError that shows a right pattern when it is none."""
    if not pattern:
        raise ToolError("The pattern is empty. Give a text, or a regular expression with regex=true.")
    if not literal and NESTED.search(pattern):
        raise ToolError(
            f"{pattern!r} repeats a group that repeats or chooses, which can take forever on some lines. Leave the "
            "outer repeat out, or make it possessive: (…)++"
        )
    try:
        return re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise ToolError(
            f"{pattern!r} is no regular expression: {error}. Escape ( [ . * with \\, or search for the text as it is "
            "with regex=false."
        ) from None


# ---------------------------------------------------------------- the work of each tool


def list_entries(at: Place, pattern: str | None, hidden: bool, work: Work) -> tuple[list[Entry], list[str]]:
    """All entries of a folder (the whole tree where there is a pattern), sorted."""
    found: list[Entry] = []
    fits = glob_regex(pattern) if pattern else None
    seen = 0
    with folder(at, at.names) as handle:
        for path, name, inner in walk(handle, hidden=hidden, work=work):
            if fits is None and os.sep in path:
                break
            seen += 1
            if seen > MOST_ENTRIES:
                return found, [f"Stopped after {MOST_ENTRIES} entries; give a folder further down as path."]
            if fits is None or fits.fullmatch(path):
                with suppress(FileNotFoundError):
                    found.append(_entry(at, path, os.lstat(name, dir_fd=inner)))
    return sorted(found, key=lambda entry: entry.path), []


def _entry(at: Place, path: str, state: os.stat_result) -> Entry:
    kind = kind_of(state.st_mode)
    return Entry(
        path=os.path.normpath(os.path.join(at.shown, path)) + "/" * (kind == "folder"),
        kind=kind,
        bytes=state.st_size if kind == "file" else None,
        modified=datetime.fromtimestamp(int(state.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def read_lines(at: Place, start: int, limit: int, work: Work) -> Excerpt:
    """The lines `start` and on; from the end where `start` is negative."""
    with folder(at, at.names[:-1]) as handle, regular(at, handle, at.name) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(BLOCK)
        encoding = encoding_of(head)
        if encoding is None:
            raise ToolError(f"{at.shown!r} is binary ({size} bytes, begins with {head[:8].hex(' ')}); not shown.")
        total, last = 0, b"\n"
        ends: list[int] = []  # line ends before each block
        for part in blocks(file, encoding, work):
            ends.append(total)
            total, last = total + part.count(b"\n"), part[-1:]
        total += last != b"\n"
        first = max(1, total + 1 + start) if start < 0 else max(1, start)
        if first > max(total, 1):
            raise ToolError(
                f"{at.shown!r} has {total} lines, so none at {start}. A negative start counts from the end."
            )
        text: list[str] = []
        length, returns = 0, False
        skip = 0 if encoding.startswith(("utf-16", "utf-32")) else max(0, bisect.bisect_left(ends, first - 1) - 1)
        rest = from_line(blocks(file, encoding, work, skip), first - (ends[skip] if ends else 0))
        for line in lines(rest):
            shown = shown_line(line, encoding)
            if len(text) == limit or (text and length + len(shown) > LONGEST_TEXT):
                break
            returns = returns or line.endswith(b"\r")
            text.append(shown)
            length += len(shown) + 1
    end = first + len(text) - 1
    notes = ["lines end with CR LF"] if returns else []
    return Excerpt(
        path=at.shown,
        encoding=label(encoding, head),
        bytes=size,
        first_line=first,
        last_line=end,
        total_lines=total,
        next_line=end + 1 if end < total else None,
        text="\n".join(text),
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to look for, and which of what is found to give."""

    pattern: re.Pattern[str]
    context: int
    limit: int
    offset: int


def search_file(file: BinaryIO, path: str, search: Search, found: list[Match], work: Work) -> bool:
    """Add the matches of one file until there is one more than asked for; whether it was text."""
    encoding = encoding_of(file.read(BLOCK))
    if encoding is None:
        return False
    before: list[str] = []
    open_: list[Match] = []  # matches that still lack lines after them
    for number, line in enumerate(lines(blocks(file, encoding, work)), start=1):
        text = shown_line(line, encoding)
        for match in open_:
            match.after.append(text)
        open_ = [match for match in open_ if len(match.after) < search.context]
        enough = len(found) > search.offset + search.limit
        if not enough and search.pattern.search(text):
            match = Match(path=path, line=number, text=text, before=before[:])
            found.append(match)
            open_ += [match] * (search.context > 0)
        elif enough and not open_:
            break
        if search.context:
            before = [*before, text][-search.context :]
        if number % 10_000 == 0 and work.late():
            break
    return True


def search_tree(at: Place, glob: str | None, hidden: bool, search: Search, work: Work) -> Found:
    """Search a file, or all text files of a tree."""
    found: list[Match] = []
    notes: list[str] = []
    counts = {True: 0, False: 0}
    fits = glob_regex(glob) if glob else None
    wanted = search.offset + search.limit

    def one(path: str, name: str, inner: int) -> None:
        inside = Place(root=at.root, names=at.names, shown=path)
        with regular(inside, inner, name) as file:
            counts[search_file(file, path, search, found, work)] += 1

    if is_file(at):
        with folder(at, at.names[:-1]) as handle:
            one(at.shown, at.name, handle)
    else:
        with folder(at, at.names) as handle:
            for path, name, inner in walk(handle, hidden=hidden, work=work):
                if fits is None or fits.fullmatch(path):
                    # Folders, links, pipes and files without permission are passed over.
                    with suppress(ToolError, OSError):
                        work.check()
                        one(os.path.normpath(os.path.join(at.shown, path)), name, inner)
                work.check()
                if len(found) > wanted or work.late():
                    break
    if work.late():
        notes.append(f"stopped after {work.seconds:g} s with part of the files; give a path, glob or narrower pattern")
    if counts[False]:
        notes.append(f"{counts[False]} binary files were left out")
    page = found[search.offset : wanted]
    more = wanted if len(found) > wanted else None
    page, more = shortened(page, search.offset, more)
    return Found(matches=page, files_searched=counts[True], next_offset=more, notes=notes)


def is_file(at: Place) -> bool:
    """Whether something other than a folder is there."""
    if not at.names:
        return False
    with folder(at, at.names[:-1]) as handle, explained(at, handle, at.name):
        return not stat.S_ISDIR(os.lstat(at.name, dir_fd=handle).st_mode)


def shortened(page: list[Match], offset: int, more: int | None) -> tuple[list[Match], int | None]:
    """As many matches as one answer holds."""
    length = 0
    for count, match in enumerate(page):
        length += sum(map(len, [*match.before, match.text, *match.after]))
        if count and length > LONGEST_TEXT:
            return page[:count], offset + count
    return page, more


def write_file(at: Place, data: bytes, *, overwrite: bool) -> Changed:
    """Put a file in place of the old one, or a new one, with the folders on the way."""
    with folder(at, at.names[:-1], make=True) as handle:
        old = None
        with suppress(FileNotFoundError):
            old = os.lstat(at.name, dir_fd=handle)
        if old and not stat.S_ISREG(old.st_mode):
            raise ToolError(f"{at.shown!r} is a {kind_of(old.st_mode)}; give the path of a file.")
        if old and not overwrite:
            raise ToolError(
                f"{at.shown!r} is there already ({old.st_size} bytes). Allow overwrite or choose a new name."
            )
        put(at, handle, data, old, new=not overwrite)
    did = f"replaced a file of {old.st_size} bytes" if old else "made a new file"
    return Changed(path=at.shown, did=did, bytes=len(data))


def put(at: Place, handle: int, data: bytes, old: os.stat_result | None, *, new: bool = False) -> None:
    """Write a temporary file in the folder and rename it to the name of `at`, with the mode of `old`."""
    temporary = f".{at.name[:100]}.{secrets.token_hex(6)}.tmp"
    with explained(at, handle, at.name):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=handle)
        try:
            with open(file, "wb") as opened:
                opened.write(data)
                opened.flush()
                if old:
                    os.fchmod(file, stat.S_IMODE(old.st_mode))
                os.fsync(file)
            if new:
                os.link(temporary, at.name, src_dir_fd=handle, dst_dir_fd=handle)  # fails when the name is taken
                os.unlink(temporary, dir_fd=handle)
            else:
                os.rename(temporary, at.name, src_dir_fd=handle, dst_dir_fd=handle)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=handle)
            raise


def edit_file(at: Place, old: str, new: str, *, every: bool) -> Changed:
    """Put `new` where the file has exactly `old`; the rest of it stays, byte for byte."""
    if not old:
        raise ToolError("old_text is empty. Give the exact text to replace; to make a new file use `write`.")
    if old == new:
        raise ToolError("old_text and new_text are the same, so nothing would change.")
    with folder(at, at.names[:-1]) as handle:
        with regular(at, handle, at.name) as file:
            state = os.fstat(file.fileno())
            if state.st_size > LARGEST_EDIT:
                raise ToolError(f"{at.shown!r} has {state.st_size} bytes; edits end at {LARGEST_EDIT}.")
            data = file.read(LARGEST_EDIT)
        encoding = encoding_of(data[:BLOCK])
        try:
            text = data.decode(encoding or "utf-8")
            if encoding is None or text.encode(encoding) != data:
                raise ValueError
        except ValueError:
            raise ToolError(f"{at.shown!r} is binary or of mixed encodings, so it cannot be edited as text.") from None
        notes: list[str] = []
        if old not in text and "\r\n" in text and "\r" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
            notes = ["the file's lines end with CR LF, and so do the new ones"]
        count = text.count(old)
        if count == 0:
            raise ToolError(f"old_text is not in {at.shown!r}. {nearest(text, old)}")
        if count > 1 and not every:
            where = [text.count("\n", 0, found.start()) + 1 for found in re.finditer(re.escape(old), text)][:10]
            raise ToolError(
                f"old_text is {count} times in {at.shown!r} (lines {', '.join(map(str, where))}). "
                "Add the lines around it until it fits once, or set all=true."
            )
        try:
            changed = text.replace(old, new).encode(encoding)
        except UnicodeEncodeError as error:
            raise ToolError(f"new_text has {error.object[error.start]!r}, which {encoding} cannot hold.") from None
        again = os.lstat(at.name, dir_fd=handle)
        if (again.st_ino, again.st_mtime_ns, again.st_size) != (state.st_ino, state.st_mtime_ns, state.st_size):
            raise ToolError(f"{at.shown!r} changed while it was edited. Read it again, then edit.")
        put(at, handle, changed, state)
    line = text.count("\n", 0, text.index(old)) + 1
    did = f"replaced {count} {'place' if count == 1 else 'places'}"
    return Changed(path=at.shown, did=did, bytes=len(changed), line=line, notes=notes)


def nearest(text: str, old: str) -> str:
    """Which line looks most like the first line of what was not found."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    rows = text[: 1 << 20].splitlines()[:5000]
    squeezed = [row.strip() for row in rows]
    close = difflib.get_close_matches(wanted, squeezed, n=1, cutoff=0.6)
    if not close:
        return "Read the file first and copy the text exactly, blanks and line ends included."
    at = squeezed.index(close[0])
    return f"Line {at + 1} looks like it: {rows[at][:200]!r}. Copy it exactly, blanks and line ends included."


def move(source: Place, target: Place, *, overwrite: bool) -> Changed:
    """Give a file or folder another name within the roots."""
    with folder(source, source.names[:-1]) as from_, folder(target, target.names[:-1], make=True) as to:
        with explained(source, from_, source.name):
            is_folder = stat.S_ISDIR(os.lstat(source.name, dir_fd=from_).st_mode)
        old = None
        with suppress(FileNotFoundError):
            old = os.lstat(target.name, dir_fd=to)
        if old and (is_folder or not overwrite or not stat.S_ISREG(old.st_mode)):
            raise ToolError(f"{target.shown!r} is there already (a {kind_of(old.st_mode)}). Choose another name.")
        with explained(target, to, target.name):
            if is_folder or overwrite:
                os.rename(source.name, target.name, src_dir_fd=from_, dst_dir_fd=to)
            else:  # unlike a rename, a link fails when the name was taken meanwhile
                os.link(source.name, target.name, src_dir_fd=from_, dst_dir_fd=to, follow_symlinks=False)
                os.unlink(source.name, dir_fd=from_)
    return Changed(path=target.shown, did=f"moved from {source.shown}" + ", replacing a file" * bool(old))


def delete(at: Place, *, recursive: bool) -> Changed:
    """Remove a file, a link, or a folder."""
    with folder(at, at.names[:-1]) as handle, explained(at, handle, at.name):
        state = os.lstat(at.name, dir_fd=handle)
        if not stat.S_ISDIR(state.st_mode):
            os.unlink(at.name, dir_fd=handle)
            return Changed(path=at.shown, did=f"deleted a {kind_of(state.st_mode)}", bytes=state.st_size)
        if not recursive:
            try:
                os.rmdir(at.name, dir_fd=handle)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise ToolError(
                    f"The folder {at.shown!r} is not empty. Set recursive=true to delete all of it."
                ) from None
        else:
            shutil.rmtree(at.name, dir_fd=handle)
    return Changed(path=at.shown, did="deleted a folder")


# ---------------------------------------------------------------- the server

READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)

PathOf = Annotated[str, Field(description="Relative to the root folder, e.g. docs/report.md")]
Below = Annotated[str, Field(description="File or folder to look in, relative to the root folder; default: all of it")]
Hidden = Annotated[bool, Field(description="Also names that begin with a dot")]
Offset = Annotated[int, Field(description="Entries to skip: next_offset of the page before", ge=0)]


def build(roots: Mapping[str, Path], seconds: float = 50) -> MCPServer:
    """The MCP server over `roots`, real folders by the spellings they may be named with."""
    server = MCPServer(
        "files",
        title="Files",
        instructions="Files below the root folder. Read a file before you edit it; `edit` changes exact text.",
        log_level="ERROR",
    )
    reading(server, roots, seconds)
    changing(server, roots)
    return server


def reading(server: MCPServer, roots: Mapping[str, Path], seconds: float) -> None:
    """Add the tools that only read."""

    @server.tool(
        name="list",
        title="List files",
        description="Names, kinds and sizes in a folder; with a pattern, all of the tree below it that fits. Use it to "
        "find files. A pattern such as *.log fits names at any depth, src/**/*.py paths below `path`. Names that begin "
        "with a dot are left out unless hidden=true. Not for what is in files: use search or read.",
        annotations=READ_ONLY,
    )
    async def list_(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        ctx: Context,
        path: Below = ".",
        pattern: Annotated[str | None, Field(description="Glob: *.log, src/**/*.py, {a,b}.csv")] = None,
        hidden: Hidden = False,
        limit: Annotated[int, Field(ge=1, le=500)] = 200,
        offset: Offset = 0,
    ) -> Annotated[CallToolResult, Listing]:
        at, work = place(path, roots), Work(seconds)
        entries, notes = await in_thread(work, lambda: list_entries(at, pattern, hidden, work), ctx)
        page = entries[offset : offset + limit]
        more = offset + limit if offset + limit < len(entries) else None
        listing = Listing(path=at.shown, entries=page, total=len(entries), next_offset=more, notes=notes)
        rows = [f"{e.path}" + (f"  {e.bytes} bytes" if e.bytes is not None else f"  ({e.kind})") for e in page]
        tail = [f"{len(entries)} entries" + (f"; the next page has offset={more}" if more else ""), *notes]
        return reply(listing, with_notes("\n".join(rows) or "Nothing fits.", tail))

    @server.tool(
        title="Read a text file",
        description="Lines of a text file, with its encoding (UTF-8, UTF-16, GB18030, Windows-1252 are told apart). "
        "Use it before an edit, and after a search for what is around a match. start_line=-50 gives the last 50 lines; "
        "a long file comes in pages (next_line). Works on files of gigabytes. Binary files are named, not shown. Not "
        "for tables (CSV, Excel) or logs where their own tools are offered.",
        annotations=READ_ONLY,
    )
    async def read(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        ctx: Context,
        start_line: Annotated[int, Field(description="First line, from 1; negative: counted from the end")] = 1,
        limit: Annotated[int, Field(description="Lines at most", ge=1, le=2000)] = 500,
    ) -> Annotated[CallToolResult, Excerpt]:
        at, work = place(path, roots), Work(seconds)
        part = await in_thread(work, lambda: read_lines(at, start_line, limit, work), ctx)
        head = f"{part.path}, lines {part.first_line}-{part.last_line} of {part.total_lines}, {part.encoding}"
        tail = [f"more: start_line={part.next_line}"] if part.next_line else []
        return reply(part, with_notes(f"[{head}]\n{part.text}", [*tail, *part.notes]))

    @server.tool(
        title="Search in files",
        description="Lines that hold a text or fit a regular expression (Python's), in one file or in all text files "
        "of a tree, with lines of context. Use it to find where something is said. Results come in pages; "
        "only the first 4,000 characters of a line are searched. Not for names of files: use list.",
        annotations=READ_ONLY,
    )
    async def search(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        pattern: Annotated[
            str, Field(description="Text, e.g. pool size; or an expression, e.g. timeout after \\d+ ms")
        ],
        ctx: Context,
        path: Below = ".",
        regex: Annotated[bool, Field(description="false: the pattern is plain text")] = True,
        ignore_case: bool = False,
        glob: Annotated[str | None, Field(description="Only files that fit, e.g. *.py or src/**/*.{c,h}")] = None,
        context: Annotated[int, Field(description="Lines before and after each match", ge=0, le=20)] = 0,
        hidden: Hidden = False,
        limit: Annotated[int, Field(description="Matches a page", ge=1, le=500)] = 100,
        offset: Offset = 0,
    ) -> Annotated[CallToolResult, Found]:
        at, work = place(path, roots), Work(seconds)
        what = finder(pattern, literal=not regex, ignore_case=ignore_case)
        wanted = Search(pattern=what, context=context, limit=limit, offset=offset)
        found = await in_thread(work, lambda: search_tree(at, glob, hidden, wanted, work), ctx)
        rows: list[str] = []
        for match in found.matches:
            around = [(match.line - len(match.before) + n, "-", text) for n, text in enumerate(match.before)]
            around += [(match.line, ":", match.text)]
            around += [(match.line + n, "-", text) for n, text in enumerate(match.after, start=1)]
            rows += [f"{match.path}{mark}{number}{mark}{text}" for number, mark, text in around]
            rows += ["--"] * bool(context)
        tail = [f"{len(found.matches)} matches in {found.files_searched} files searched", *found.notes]
        tail += [f"the next page has offset={found.next_offset}"] if found.next_offset else []
        return reply(found, with_notes("\n".join(rows) or "Nothing fits.", tail))


def changing(server: MCPServer, roots: Mapping[str, Path]) -> None:
    """Add the tools that change files. They are short, and are not given up half-way."""

    async def run(call: Callable[[], Changed]) -> CallToolResult:
        changed = await anyio.to_thread.run_sync(call)
        size = f", now {changed.bytes} bytes" if changed.bytes is not None and "deleted" not in changed.did else ""
        at = f", first at line {changed.line}" if changed.line else ""
        return reply(changed, with_notes(f"{changed.path}: {changed.did}{at}{size}.", changed.notes))

    @server.tool(
        title="Write a file",
        description="Write a whole text file: a new one, or in place of the one that is there. Missing folders are "
        "made. Use it for new files such as reports. To change part of a file use edit, which keeps the rest.",
        annotations=CHANGES,
    )
    async def write(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        text: Annotated[str, Field(description="All of the file's text")],
        overwrite: Annotated[bool, Field(description="false: fail when the file is there already")] = True,
        encoding: Annotated[str, Field(description="utf-8, utf-8-sig (with BOM), gb18030, utf-16, …")] = "utf-8",
    ) -> Annotated[CallToolResult, Changed]:
        at = place(path, roots)
        try:
            data = text.encode(encoding)
        except LookupError:
            raise ToolError(f"No encoding {encoding!r}. Usual ones: utf-8, utf-8-sig, gb18030, utf-16.") from None
        except UnicodeEncodeError as error:
            wrong = error.object[error.start]
            raise ToolError(f"{encoding} cannot hold {wrong!r}. Leave encoding out for utf-8.") from None
        return await run(lambda: write_file(at, data, overwrite=overwrite))

    @server.tool(
        title="Edit a file",
        description="Replace exact text in a file. Read the file first and copy old_text exactly, blanks and line ends "
        "included; it must fit once, so take enough lines, or set all=true for every place. Encoding, mode and line "
        "ends stay. For a new file, or to replace a whole one, use write.",
        annotations=CHANGES,
    )
    async def edit(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf,
        old_text: Annotated[str, Field(description="Text as it is in the file now")],
        new_text: Annotated[str, Field(description="What takes its place; empty to remove it")],
        all: Annotated[bool, Field(description="Every place, not just one")] = False,
    ) -> Annotated[CallToolResult, Changed]:
        at = place(path, roots)
        return await run(lambda: edit_file(at, old_text, new_text, every=all))

    @server.tool(
        name="move",
        title="Move or rename",
        description="Give a file or folder another path within the root folder. Use it to rename or to file away. "
        "Missing folders are made. It never replaces a file unless overwrite=true, and never a folder. Not for copies.",
        annotations=CHANGES,
    )
    async def move_(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        source: PathOf,
        target: Annotated[str, Field(description="The new path, with the name: archive/report.md")],
        overwrite: bool = False,
    ) -> Annotated[CallToolResult, Changed]:
        from_, to = place(source, roots), place(target, roots)
        return await run(lambda: move(from_, to, overwrite=overwrite))

    @server.tool(
        name="delete",
        title="Delete",
        description="Delete a file or an empty folder for good; with recursive=true a folder and all in it. There is "
        "no way back: list first what is there. A link is deleted itself, not what it points to.",
        annotations=CHANGES,
    )
    async def delete_(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        path: PathOf, recursive: bool = False
    ) -> Annotated[CallToolResult, Changed]:
        at = place(path, roots)
        return await run(lambda: delete(at, recursive=recursive))


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


def folders(given: Sequence[str], parser: argparse.ArgumentParser) -> dict[str, Path]:
    """The real folders by their spellings; ends with exit code 2 when one is none."""
    found: dict[str, Path] = {}
    for path in given:
        if not Path(path).is_dir():
            parser.error(f"not a folder: {path}")
        real = Path(path).resolve()
        found |= {str(real): real, os.path.abspath(path): real}
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Serve over stdio until the client hangs up."""
    parser = argparse.ArgumentParser(prog="files", description="MCP server: files within the folders given here.")
    parser.add_argument("--root", action="append", metavar="DIR", help="folder to work in (default: the current one)")
    parser.add_argument("--timeout", type=float, default=50, metavar="SECONDS", help="for one search (default 50)")
    arguments = parser.parse_args(argv)
    if os.open not in os.supports_dir_fd:
        parser.error("this system cannot open files relative to a folder, without which no path is safe")
    roots = folders(arguments.root or ["."], parser)
    with traced("files"):
        build(roots, arguments.timeout).run("stdio")


if __name__ == "__main__":
    sys.exit(main())
