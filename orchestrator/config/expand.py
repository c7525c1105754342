"""`${…}` in server entries, in the spellings of the hosts whose files are read, and the `.env` files they name.

`${VAR}` and `${env:VAR}` are environment variables, with `:-` a default for one that is unset or empty; `${input:id}`
is asked of a person; `${workspaceFolder}` and a few more are places. What a variable holds is not expanded again.
Anything else in `${…}` is left as it is, for a shell in `args` to read.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

_PLACEHOLDER = re.compile(r"\$\{([^{}]+)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-.*)?\Z", re.DOTALL)
_ENV_LINE = re.compile(
    r"""(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*"""
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>.*?))(?:(?:^|\s+)\#.*)?\Z"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Input(BaseModel):
    """A value that a person is asked for when a server is started. `secret` ones are not shown while typed."""

    model_config = ConfigDict(frozen=True, defer_build=True, populate_by_name=True, hide_input_in_errors=True)

    id: str
    description: str = ""
    secret: bool = Field(default=False, alias="password")
    default: str | None = None


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
        return _PLACEHOLDER.sub(lambda match: self._value(match[1]), text)

    def _value(self, inner: str) -> str:
        kind, _, name = inner.partition(":")
        if kind == "input":
            return self._input(name)
        if (variable := _VARIABLE.match(inner)) is None:
            return f"${{{inner}}}"
        name, default = variable.groups()
        if default is not None:
            return self.environ.get(name) or default.removeprefix(":-")
        if (found := self.environ.get(name, self._place(name))) is None:
            raise Unresolved(f"the environment variable `{name}` is not set; set it, or write `${{{name}:-default}}`.")
        return found

    def _place(self, name: str) -> str | None:
        if name == "userHome":
            return self.environ.get("HOME") or str(Path.home())
        return str(self.workspace) if name in ("workspaceFolder", "CLAUDE_PROJECT_DIR") else None

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


def parse_env_file(text: str) -> tuple[dict[str, str], list[int]]:
    """Reads `NAME=value` lines as `.env` files have them: comments, `export`, quotes.

    Returns the variables, and the numbers of the lines that are nothing of the kind.
    """
    found: dict[str, str] = {}
    wrong: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if match := _ENV_LINE.match(stripped):
            found[match[1]] = match["single"] or match["bare"] or _unescaped(match["double"] or "")
        elif stripped and not stripped.startswith("#"):
            wrong.append(number)
    return found, wrong


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
