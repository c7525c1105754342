"""JSON as people write it (comments, trailing commas) and TOML, both with the line of every member."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from orchestrator.config.report import Document, Where
from orchestrator.errors import ConfigurationError, Problem

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"({_TEXT})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA = re.compile(rf"({_TEXT})|(?<!,),(?=\s*[}}\]])", re.DOTALL)
_TOKEN = re.compile(rf'(?P<key>{_TEXT}(?=\s*:))|{_TEXT}|[{{}}\[\],:\n]|[^\s{{}}\[\],:"]+', re.DOTALL)
_HEADER = re.compile(r"\s*(\[{1,2})([^\[\]]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\- ])+?)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")
_TOML_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)$")


def parse_json(text: str, file: Path | None = None) -> Document:
    """Reads JSON with comments and trailing commas.

    Raises:
        ConfigurationError: with file, line and column of the first thing that cannot be read.
    """
    plain = _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    try:
        value = json.loads(plain, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # finds half of a character, as in "\ud800"
    except RecursionError:
        raise ConfigurationError(Problem("this is nested too deeply.", file)) from None
    except json.JSONDecodeError as error:
        said = f"this is not JSON: {error.msg.removesuffix(' at')}."
        if error.msg.startswith("Expecting") and not plain[error.pos :].strip():
            said = _missing(plain)
        raise ConfigurationError(Problem(said, file, error.lineno, error.colno)) from None
    except ValueError as error:
        raise ConfigurationError(Problem(f"this is not JSON: {error}.", file)) from None
    return replace(_scan(plain)[0], value=value)


def _blank(match: re.Match[str]) -> str:
    """A text as it is, anything else as spaces, so that all that follows keeps its place."""
    return match[1] or re.sub(r"[^\n]", " ", match[0])


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"`{word}` is no value")


def _missing(text: str) -> str:
    """What a text that ends too early lacks."""
    document, path = _scan(text)
    if not path:
        return "the file is empty."
    opening, closing = "[]" if isinstance(path[-1], int) else "{}"
    line = document.lines.get(tuple(path[:-1]), 1)
    return f"the file ends here: `{closing}` is missing, for the `{opening}` of line {line}."


def _scan(text: str) -> tuple[Document, list[str | int]]:
    """The line of each member of JSON, and of each that is there again; and the path to where the text ends."""
    document = Document()
    path: list[str | int] = []  # a key or a position for each bracket that is open
    line = 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["key"]:
            path[-1] = json.loads(token)
            document.put(tuple(path), line)
        elif token == "\n":
            line += 1
        elif token in ("}", "]"):
            path.pop()
        elif token == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
        elif token != ":":
            if path and isinstance(path[-1], int):
                document.lines[tuple(path)] = line
            if token in ("{", "["):
                path.append("" if token == "{" else 0)
    return document, path


def parse_toml(text: str, file: Path) -> Document:
    """Reads TOML, with the line of each table, and of each key that starts a line.

    Raises:
        ConfigurationError: with file, line and column of what is not TOML.
    """
    try:
        document = Document(value=tomllib.loads(text))
    except RecursionError:
        raise ConfigurationError(Problem("this is nested too deeply.", file)) from None
    except ValueError as error:
        found = _TOML_PLACE.search(str(error))
        place = (int(found[1]), int(found[2])) if found else (text.count("\n") + 1, None)
        raise ConfigurationError(Problem(f"this is not TOML: {error}.", file, *place)) from None
    table: Where = ()
    latest: dict[Where, int] = {}  # position of the last `[[table]]` of an array, by the array's path
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line[:200]):
            table = _placed(_parts(header[2]), latest, adds=header[1] == "[[")
            document.lines.setdefault(table, number)
        elif key := _KEY.match(line[:200]):
            document.lines.setdefault((*table, *_parts(key[1])), number)
    return document


def _placed(parts: Where, latest: dict[Where, int], *, adds: bool) -> Where:
    """The path of a table, with the positions of the arrays that it is in. `adds`: it is a new one of an array."""
    table: Where = ()
    for number, part in enumerate(parts, 1):
        table = (*table, part)
        if adds and number == len(parts):
            latest[table] = latest.get(table, -1) + 1
        if table in latest:
            table = (*table, latest[table])
    return table


def _parts(dotted: str) -> Where:
    return tuple("".join(match.groups(default="")) for match in _PART.finditer(dotted))
