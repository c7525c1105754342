"""Code blocks of Markdown files, run as a reader would run them. One document is one sitting in one folder.

| block | what happens |
| --- | --- |
| `console` | lines after `$ ` are run in one shell, what stands below each is what it must print (stderr included) |
| `bash`, `sh` | run as a script, which must succeed |
| `python` | run as a program, which must succeed |
| `python`, `markdown` with `<!-- file: NAME -->` above it | written there for later blocks |
| `json`, `toml` | parsed; with `<!-- file: NAME -->` above it, written there for later blocks |
| `text` with `<!-- output -->` above it | what the last `bash` or `python` block printed |
| `text`, `mermaid`, `yaml`, `markdown` | for reading |

Within expected output `…` stands for anything on its line, and alone on a line for any number of lines. Above a block,
`<!-- exit: 3 -->` is the exit code of its last command, and `<!-- not run: REASON -->` leaves it out. A block without a
language, or of another one, must be left out with a reason.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ_ONLY = ("text", "mermaid", "yaml", "markdown")
RUN = ("console", "bash", "sh", "python")
SECONDS = 120

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)[^`\n]*$")
_NOTE = re.compile(r"^\s*<!-- (?P<key>not run|exit|file|output)(?:: (?P<value>.+))? -->\s*$")
_SPLIT = "\x1e"


class Wrong(AssertionError):
    """A block does not do what the document says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`notes` are the comments right above it. `line` counts from 1 in `file`."""

    file: Path
    line: int
    language: str
    text: str
    notes: dict[str, str]

    def wrong(self, message: str) -> Wrong:
        return Wrong(f"{self.file}:{self.line}: {message}")


def blocks(file: Path) -> Iterator[Block]:
    """The fenced blocks of a file, in order."""
    lines = file.read_text(encoding="utf-8").splitlines()
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        if note := _NOTE.match(lines[at]):
            notes[note["key"]] = note["value"] or ""
        elif fence := _FENCE.match(lines[at]):
            start, indent = at, len(fence["indent"])
            at += 1
            while at < len(lines) and lines[at].strip() != fence["fence"]:
                at += 1
            body = "".join(line[min(indent, len(line) - len(line.lstrip())) :] + "\n" for line in lines[start + 1 : at])
            yield Block(file=file, line=start + 1, language=fence["language"], text=body, notes=notes)
            notes = {}
        elif lines[at].strip():
            notes = {}
        at += 1


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    expected: str


def commands(block: Block) -> Sequence[Command]:
    """The commands of a `console` block; one ends with `\\` where it goes on in the next line."""
    found: list[tuple[str, list[str]]] = []
    going_on = False
    for line in block.text.splitlines():
        if going_on:
            found[-1] = (f"{found[-1][0]}\n{line.removeprefix('> ')}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise block.wrong("a console block begins with a `$ command` line")
        going_on = bool(found) and found[-1][0].endswith("\\") and not found[-1][1]
    return [Command(text, "\n".join(expected)) for text, expected in found]


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is what a document says; trailing blanks and blank lines at the ends do not count."""
    pattern: list[str] = []
    for line in expected.strip().splitlines():
        if line.strip() == "…":
            pattern.append(r"(?:[^\n]*\n)*?")
        else:
            pattern.append("[^\n]*?".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ \t]*\n")
    return re.fullmatch("".join(pattern), printed.strip() + "\n" if printed.strip() else "") is not None


class Sitting:
    """Runs the blocks of one document, in a folder that holds a copy of the examples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        self._printed: str | None = None

    def play(self, block: Block) -> None:
        """Raises `Wrong`."""
        if "not run" in block.notes:
            if not block.notes["not run"]:
                raise block.wrong("say why this block is not run: <!-- not run: REASON -->")
            return
        match block.language:
            case "console":
                self._console(block)
            case "bash" | "sh":
                self._printed = self._run(block, ["bash", "-euo", "pipefail", "-c", block.text])
            case "python" | "markdown" if "file" in block.notes:
                self._write(block)
            case "python":
                self._printed = self._run(block, [sys.executable, "-c", block.text])
            case "json" | "toml":
                self._data(block)
            case "text" if "output" in block.notes:
                if self._printed is None:
                    raise block.wrong("no bash or python block stands above this output")
                self._compare(block, block.text, self._printed)
            case language if language in READ_ONLY:
                return
            case language:
                raise block.wrong(
                    f"a {language or 'nameless'} block is neither run nor left out with a reason; "
                    "put <!-- not run: REASON --> above it"
                )

    def _console(self, block: Block) -> None:
        listed = commands(block)
        script = "".join(f"{command.text}\nprintf '{_SPLIT}%s{_SPLIT}' $?\n" for command in listed)
        parts = self._run(block, ["bash", "-c", script], exit_code=0).split(_SPLIT)
        wanted = int(block.notes.get("exit", "0"))
        if len(parts) != 2 * len(listed) + 1:
            raise block.wrong("a command ended the shell; put it in parentheses")
        for number, command in enumerate(listed):
            printed, code = parts[2 * number], int(parts[2 * number + 1])
            last = number == len(listed) - 1
            if code != (wanted if last else 0):
                raise block.wrong(f"`{command.text}` ended with {code}:\n{printed}")
            self._compare(block, command.expected, printed)

    def _data(self, block: Block) -> None:
        try:
            json.loads(block.text) if block.language == "json" else tomllib.loads(block.text)
        except ValueError as error:
            raise block.wrong(f"not {block.language.upper()}: {error}") from error
        if "file" in block.notes:
            self._write(block)

    def _write(self, block: Block) -> None:
        place = self.folder / block.notes["file"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, encoding="utf-8")

    def _run(self, block: Block, command: Sequence[str], exit_code: int | None = None) -> str:
        wanted = int(block.notes.get("exit", "0")) if exit_code is None else exit_code
        environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        printed = done.stdout.decode("utf-8", "replace")
        if done.returncode != wanted:
            raise block.wrong(f"ended with {done.returncode}:\n{printed}")
        return printed

    def _compare(self, block: Block, expected: str, printed: str) -> None:
        if not matches(expected, printed):
            raise block.wrong(f"the document says\n{expected.strip()}\n--- and it printed\n{printed.strip()}")
