"""`${…}` in server entries, in the spellings of the hosts whose files are read, and the `.env` files they name.

`${VAR}` and `${env:VAR}` are environment variables, with `:-` a default for one that is unset or empty; `${input:id}`
is asked of a person; `${workspaceFolder}`, `${userHome}` and a few more are places. What a variable holds is not
expanded again. Anything else in `${…}` is left as it is, for a shell in `args` to read.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

Lookup = Callable[[str], str]

_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\Z")
_EXPORT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)\Z", re.DOTALL)
_DEEPEST = 10
_BRACE = re.compile(r"\$\{|\}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A value that a person is asked for when a server is started. `secret` ones are not shown while typed."""

    id: str
    description: str = ""
    secret: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


Ask = Callable[[Input], str]


class Unresolved(Exception):
    """A placeholder has no value; the message says which one and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expander:
    """Replaces placeholders. `ask` is None where nobody can be asked."""

    environ: Mapping[str, str]
    workspace: Path
    inputs: Mapping[str, Input]
    ask: Ask | None = None

    def expand(self, text: str) -> str:
        """`text` with its placeholders replaced.

        Raises:
            Unresolved: a variable is not set and has no default, or an input cannot be asked for.
        """
        return self._expand(text, 0)

    def _expand(self, text: str, depth: int) -> str:
        if depth > _DEEPEST:
            raise Unresolved("`${…}` is nested too deeply.")
        return "".join(self._value(part, depth) if placeholder else part for placeholder, part in _parts(text))

    def _value(self, inner: str, depth: int) -> str:
        name, default_follows, default = inner.partition(":-")
        if variable := _VARIABLE.match(name):
            if default_follows:
                return self.environ.get(variable[1]) or self._expand(default, depth + 1)
            if variable[1] in self.environ:
                return self.environ[variable[1]]
            if (place := self._place(inner)) is not None:
                return place
            raise Unresolved(
                f"the environment variable `{variable[1]}` is not set; set it, or write `${{{variable[1]}:-default}}`."
            )
        if inner.startswith("input:"):
            return self._input(inner.removeprefix("input:"))
        place = self._place(inner.partition(":")[0] if inner.startswith("workspaceFolder:") else inner)
        if place is not None:
            return place
        if inner.startswith(("config:", "command:")):
            raise Unresolved(f"`${{{inner}}}` has a meaning in an editor only; write the value or a `${{VAR}}`.")
        return f"${{{inner}}}"

    def _place(self, name: str) -> str | None:
        match name:
            case "workspaceFolder" | "cwd" | "CLAUDE_PROJECT_DIR":
                return str(self.workspace)
            case "workspaceFolderBasename":
                return self.workspace.name
            case "userHome":
                return self.environ.get("HOME") or self.environ.get("USERPROFILE") or str(Path.home())
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _input(self, name: str) -> str:
        wanted = self.inputs.get(name) or Input(id=name)
        if self.ask is not None:
            return self.ask(wanted)
        if wanted.default is not None:
            return wanted.default
        about = f" ({wanted.description})" if wanted.description else ""
        raise Unresolved(
            f"the input `{name}`{about} has to be asked for, and there is no terminal to ask at; "
            f"start from a terminal, or write `${{SOME_VARIABLE}}` in place of `${{input:{name}}}`."
        )


def placeholders(text: str) -> bool:
    """Whether there is anything in `text` to expand."""
    return any(placeholder for placeholder, _ in _parts(text))


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """Reads `NAME=value` lines as `.env` files have them: comments, `export`, quotes.

    Returns the variables, and the numbers of the lines that are nothing of the kind.
    """
    found: dict[str, str] = {}
    wrong: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if match := _EXPORT.match(stripped):
            found[match[1]] = _unquoted(match[2])
        else:
            wrong.append(number)
    return found, wrong


def _unquoted(value: str) -> str:
    quote = value[:1]
    if quote in ("'", '"') and (end := _closing(value, quote)):
        inner = value[1:end]
        return inner if quote == "'" else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)
    return re.split(r"\s#", value, maxsplit=1)[0].rstrip()


def _closing(value: str, quote: str) -> int:
    """Where the quote that opens `value` is closed; 0 when it is not, or when more than a comment follows."""
    at = 1
    while at < len(value) and value[at] != quote:
        at += 2 if value[at] == "\\" and quote == '"' else 1
    rest = value[at + 1 :].strip()
    return at if at < len(value) and (not rest or rest.startswith("#")) else 0


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """The text in order: (False, plain text) and (True, what stands between `${` and its `}`)."""
    at = 0
    while (start := text.find("${", at)) >= 0 and (end := _end(text, start + 2)) >= 0:
        yield False, text[at:start]
        yield True, text[start + 2 : end]
        at = end + 1
    yield False, text[at:]


def _end(text: str, at: int) -> int:
    """Where the `${` before `at` is closed; -1 when it is not."""
    depth = 1
    for match in _BRACE.finditer(text, at):
        depth += 1 if match[0] == "${" else -1
        if not depth:
            return match.start()
    return -1
