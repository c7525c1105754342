"""Splits a card into front matter and body, and reads front matter that is often not valid YAML.

YAML is tried first. Where it fails, or finds no keys, each key is read by itself: `key: rest of the line` at column 0,
with the lines that follow until the next key. A value that is no YAML either is taken as text. All plain values stay
text (`no` is a name, not false); who wants another type converts it. Lines count from 1 in the card's file.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str | int, ...]

_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)$")
_TAG = re.compile(r"<(/?)([A-Za-z_][\w-]*)>")
_QUOTED = re.compile(r"""^(["'])(.*)\1$""", re.DOTALL)
_INTEGER = re.compile(r"[-+]?\d+\Z")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?\Z")
_SPEAKERS = ("user", "assistant", "context", "commentary", "human", "example", "examples", "note")
_MOST_NODES = 5000
_DEEPEST = 40
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class Broken(Exception):
    """A card's front matter cannot be read; `line` is where."""

    def __init__(self, message: str, line: int) -> None:
        self.message = message
        self.line = line
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What stands under one key. `data` is text, list or dict of texts; None when nothing stands there.

    `raw` is the text as it stands in the file, `typed` is `data` with numbers, booleans and nulls, as a JSON Schema
    needs it. `lines` are those of the parts inside, by path. `broken` says why a value is not YAML, and is text only.
    """

    line: int
    data: Any
    typed: Any
    raw: str
    lines: dict[Path, int]
    broken: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """Keys as written, in order. `repeated` are keys that stand there again, with their lines."""

    values: dict[str, Value]
    repeated: list[tuple[str, int]]
    body: str


def split(text: str) -> tuple[list[str], int, str] | None:
    """The lines between the two `---`, the number of the first of them, and the body; None without front matter.

    Raises:
        Broken: the front matter is not closed.
    """
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if lines[start].rstrip() != "---":
        return None
    for at in range(start + 1, len(lines)):
        if lines[at].rstrip() in ("---", "..."):
            return lines[start + 1 : at], start + 2, "\n".join(lines[at + 1 :]).strip()
    raise Broken("the front matter is not closed: a line `---` is missing before the instructions.", start + 1)


def read(
    lines: list[str], first: int, body: str, ours: Callable[[str], bool], near: Callable[[str], bool]
) -> FrontMatter:
    """Reads front matter. `ours` says whether a word is one of our keys, `near` whether it is a misspelling of one."""
    try:
        pairs = list(_pairs("\n".join(lines), first))
    except (yaml.YAMLError, Broken, RecursionError, ValueError):
        pairs = []
    if not pairs:
        pairs = list(_leniently(lines, first, ours, near))
    values: dict[str, Value] = {}
    repeated: list[tuple[str, int]] = []
    for key, value in pairs:
        if key in values:
            repeated.append((key, value.line))
        else:
            values[key] = value
    return FrontMatter(values=values, repeated=repeated, body=body)


def _pairs(text: str, first: int) -> Iterator[tuple[str, Value]]:
    """The members of a YAML mapping; nothing when the text is YAML of another kind."""
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(node, yaml.MappingNode):
        return
    converter = _Converter(first)
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise Broken("a key must be a plain word.", first)
        converter.lines = {}
        data = converter.data(item, (), 0)
        yield (
            _text(key),
            Value(
                line=first + key.start_mark.line,
                data=data,
                typed=converter.data(item, (), 0, typed=True),
                raw=text[item.start_mark.index : item.end_mark.index].strip(),
                lines=converter.lines,
            ),
        )


class _Converter:
    """Nodes to data, bounded: an alias that is repeated over and over stands for more than memory holds."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.left = _MOST_NODES
        self.lines: dict[Path, int] = {}

    def data(self, node: yaml.Node, path: Path, depth: int, *, typed: bool = False) -> Any:
        self.left -= 1
        line = self.first + node.start_mark.line
        if self.left < 0 or depth > _DEEPEST:
            raise Broken("this is too large or nested too deeply for a card.", line)
        self.lines[path] = line
        if isinstance(node, yaml.SequenceNode):
            return [self.data(item, (*path, at), depth + 1, typed=typed) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            found: dict[str, Any] = {}
            for key, item in node.value:
                name = _text(key)
                found[name] = self.data(item, (*path, name), depth + 1, typed=typed)
                self.lines[(*path, name)] = self.first + key.start_mark.line
            return found
        text = _text(node)
        if not isinstance(node, yaml.ScalarNode) or node.style is not None:
            return text
        return _typed(text) if typed else (None if text in ("", "~", "null") else text)


def _text(node: yaml.Node) -> str:
    """A node's text; an escape that stands for half a character (`\\ud800`) becomes a question mark."""
    return str(node.value).encode("utf-8", "replace").decode()


def _typed(text: str) -> Any:
    """A plain YAML scalar as JSON would have it (YAML 1.2: `no` is text)."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.match(text) and len(text) < 100:
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _leniently(
    lines: list[str], first: int, ours: Callable[[str], bool], near: Callable[[str], bool]
) -> Iterator[tuple[str, Value]]:
    """Each key with the lines that belong to it. In an open `<example>` and the like, only our very keys are keys."""
    starts: list[int] = []
    open_tags = 0
    for at, line in enumerate(lines):
        match = _KEY.match(line)
        word = match[1] if match else ""
        if word and (
            ours(word) and word[0].islower() if open_tags else ours(word) or near(word) or _looks_like_key(word)
        ):
            starts.append(at)
            open_tags = 0
        open_tags += sum(-1 if tag[1] else 1 for tag in _TAG.finditer(line))
        open_tags = max(open_tags, 0)
    if not starts:
        raise Broken("the front matter has no keys; it should have lines like `name: reviewer`.", first)
    stray = next((at for at in range(starts[0]) if lines[at].strip() and not lines[at].startswith("#")), None)
    if stray is not None:
        raise Broken("this line belongs to no key; lines like `name: reviewer` are expected.", first + stray)
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _one(lines[start:end], first + start)


def _looks_like_key(word: str) -> bool:
    return word[0].islower() and word not in _SPEAKERS


def _one(lines: list[str], first: int) -> tuple[str, Value]:
    """One key, as YAML when it is, else as text."""
    match = _KEY.match(lines[0])
    key, rest = (match[1], match[2] or "") if match else ("", lines[0])
    broken = "this is not valid YAML"
    try:
        pairs = list(_pairs("\n".join(lines), first))
        if len(pairs) == 1:
            return pairs[0]
    except yaml.MarkedYAMLError as error:
        broken = f"this is not valid YAML: {error.problem}"
    except (yaml.YAMLError, Broken, RecursionError, ValueError) as error:
        broken = error.message if isinstance(error, Broken) else broken
    text = "\n".join([rest, *lines[1:]]).strip()
    if quoted := _QUOTED.match(text):
        text = quoted[2]
    items = [line.strip() for line in lines[1:] if line.strip()]
    data: Any = text
    if not rest.strip() and items and all(item.startswith("- ") for item in items):
        data = [re.sub(r"""^(["'])(.*)\1$""", r"\2", item[2:].strip()) for item in items]
    return key, Value(line=first, data=data, typed=data, raw=text, lines={(): first}, broken=broken)
