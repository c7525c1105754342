"""Splits a card into front matter and body, and reads front matter that is often not valid YAML.

YAML is tried first. Where it fails, or finds no keys, each key is read by itself: `key: rest of the line` at column 0,
with the lines that follow until the next key. A value that is no YAML either is taken as text. Plain values have the
types that JSON has, as in YAML 1.2 (`no` is a name, not false). Lines count from 1 in the card's file.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cards.words import misspelt_key, our_key
from orchestrator.config.report import Document, Where
from orchestrator.errors import ConfigurationError, Problem

SMALLEST = "---\nname: reviewer\ndescription: When to use this agent, and when not.\n---\nWhat the agent is to do."

_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)$")
_QUOTED = re.compile(r"""^(["'])(.*)\1$""", re.DOTALL)
_SPEAKERS = ("user", "assistant", "context", "commentary", "human", "example", "examples", "note")
_MOST_NODES = 5000
_DEEPEST = 40


def parse(text: str, file: Path) -> Document:
    """Reads a card; the value is a dict of its front matter, and its body.

    Raises:
        ConfigurationError: there is no front matter, or no key in it.
    """
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != "---":
        raise _no_card("there is no front matter.", file, 1)
    end = next((at for at in range(start + 1, len(lines)) if lines[at].rstrip() in ("---", "...")), None)
    if end is None:
        raise _no_card("the front matter is not closed: a line `---` is missing before it.", file, start + 1)
    front, first = lines[start + 1 : end], start + 2
    members = _Members()
    try:
        members.add(front, first)
    except (yaml.YAMLError, ValueError, RecursionError):
        members = _leniently(front, first)
    if not members.values:
        raise _no_card("the front matter has no keys; it should have lines like `name: reviewer`.", file, first)
    return replace(members.document, value=(members.values, "\n".join(lines[end + 1 :]).strip()))


def _no_card(message: str, file: Path, line: int) -> ConfigurationError:
    return ConfigurationError(Problem(f"{message} The smallest card that works:\n{SMALLEST}", file, line))


class _Members:
    """The keys of front matter, in order; bounded, as an alias repeated may stand for more than memory holds."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.document = Document(value=self.values)
        self._left = _MOST_NODES

    def add(self, lines: Sequence[str], first: int) -> None:
        """Adds the members of a YAML mapping. Raises `yaml.YAMLError`, ValueError or RecursionError if it is none."""
        node: yaml.Node | None = yaml.compose("\n".join(lines), Loader=yaml.SafeLoader)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(node, yaml.MappingNode):
            raise ValueError("no keys")
        for key, item in node.value:
            self.put(_word(key), self._data(item, (_word(key),), first), first + key.start_mark.line)

    def put(self, key: str, value: Any, line: int) -> None:
        self.values.setdefault(key, value)
        self.document.put((key,), line)

    def _data(self, node: yaml.Node, path: Where, first: int) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > _DEEPEST:
            raise ValueError("too large, or nested too deeply")
        if len(path) > 1:
            self.document.lines[path] = first + node.start_mark.line
        if isinstance(node, yaml.SequenceNode):
            return [self._data(item, (*path, at), first) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return {_word(key): self._data(item, (*path, _word(key)), first) for key, item in node.value}
        text = _word(node)
        if not isinstance(node, yaml.ScalarNode) or node.style is not None:
            return text
        try:
            return json.loads(text or "null", parse_constant=str)
        except ValueError:
            return None if text == "~" else text


def _word(node: yaml.Node) -> str:
    """A scalar's text; an escape that stands for half a character (`\\ud800`) becomes a question mark."""
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("a key must be a plain word")
    return str(node.value).encode("utf-8", "replace").decode()


def _leniently(lines: list[str], first: int) -> _Members:
    """Reads each key by itself, with the lines that belong to it."""
    members = _Members()
    starts = [at for at, line in enumerate(lines) if (match := _KEY.match(line)) and _is_key(match[1])]
    starts = sorted({0, *starts} if starts else ())
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        own = lines[start:end]
        try:
            members.add(own, first + start)
        except (yaml.YAMLError, ValueError, RecursionError):
            key, _, rest = "\n".join(own).partition(":")
            members.put(key.strip(), _QUOTED.sub(r"\2", rest.strip()), first + start)
    return members


def _is_key(word: str) -> bool:
    """Whether a word before a colon is a key, and not part of a long description: other hosts' keys are unknown."""
    return bool(our_key(word) or misspelt_key(word) or (word[0].islower() and word not in _SPEAKERS))
