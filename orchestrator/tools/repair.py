"""Reading JSON that a model wrote badly.

Knows text only, no schema. Cheap and certain readings come first: the standard decoder, then `lenient`. `json_repair`,
a guesser in pure Python, comes last and only for short texts. Above it is `arguments`, which turns failures into
observations.
"""

import json
import math
import re
from typing import Any, Final, TypeGuard

from orchestrator.tools import lenient

MAX_DEPTH: Final = 64
"""Brackets within brackets. Real calls stay below ten; validating and copying recurse, so there is a bound."""
MAX_GUESSED: Final = 2_000
"""Characters given to `json_repair`, whose time grows with the square of a hostile text's length, and worse."""
_MAX_ENCODINGS: Final = 3

_STRUCTURE: Final = dict(zip("｛｝［］【】：，、．－＋　０１２３４５６７８９", "{}[][]:,,.-+ 0123456789", strict=True))
_CLOSERS = {
    '"': '"',
    "'": "'",
    "“": "”“",
    "”": "”“",
    "„": "“”",
    "＂": "＂",
    "「": "」",
    "『": "』",
    "‘": "’‘",
    "’": "’‘",
}
_FOREIGN = re.compile("[" + "".join(_STRUCTURE) + "“”„＂「」『』‘’]")
_STRING_END = re.compile(r"\s*(?:[:,}\]：，｝］]|\Z)")
_THOUGHT = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*\s*(?=[{\[\"'｛“])")
_KEY = re.compile(r"""\s*(["'])[\w.\- ]{1,64}\1\s*:""")
_PLACEHOLDER = re.compile(r"\{[\w.\- ]*\}")
_BRACKET = re.compile(r"[{}\[\]()]")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


class NotFinite(ValueError):
    """NaN or Infinity, which JSON does not have."""


def _not_finite(literal: str) -> float:
    raise NotFinite(f"{literal} is not a JSON number")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if math.isfinite(number) else _not_finite(literal)


_STRICT = json.JSONDecoder(parse_constant=_not_finite, parse_float=_finite)
_LENIENT = json.JSONDecoder(parse_constant=_not_finite, parse_float=_finite, strict=False)
decode = _STRICT.decode


def repair(text: str) -> Any:
    """The JSON value that `text` was meant to be. Raises ValueError that says why there is none."""
    value = _read(text)
    for _ in range(_MAX_ENCODINGS):
        if not isinstance(value, str):
            break
        value = _read(value)
    if isinstance(value, str):
        raise ValueError("it is a string, not an object")
    check_sound(value)
    return value


def repaired_container(text: str) -> Any:
    """A list or object written as a string inside of arguments, or None."""
    if not text.lstrip().startswith(("[", "{", "［", "｛")):
        return None
    try:
        value = _read(text)
        check_sound(value)
    except ValueError:
        return None
    return value if is_list(value) or is_object(value) else None


def check_sound(value: Any) -> None:
    """Raise ValueError where a value is nested too deeply or cannot be written as JSON in UTF-8."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if is_object(item):
                below.extend(item.keys())
                below.extend(item.values())
            elif is_list(item):
                below.extend(item)
            elif isinstance(item, float) and not math.isfinite(item):
                _not_finite(str(item))
            elif isinstance(item, str) and not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
                raise ValueError("it holds half of a surrogate pair (\\ud800 to \\udfff), which is no character")
        if not below:
            return
        level = below
    raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _read(text: str) -> Any:
    """One layer: without what surrounds it, decoded if it can be, else guessed."""
    text = _core(text)
    if not text:
        return {}
    value = _decoded(text)
    if value is not None:
        return value
    plain = _plain(text) if _FOREIGN.search(text) else text
    value = _decoded(plain) if plain != text else None
    return value if value is not None else _guessed(plain)


def _core(text: str) -> str:
    """Without thoughts and the opening of a code fence, all only where they precede the JSON."""
    text = text.strip()
    at = 0
    while (opened := _THOUGHT.search(text, at)) and text.find("{", at, opened.start()) < 0:
        closed = _THOUGHT_END.search(text, opened.end())
        if closed is None:
            break
        at = closed.end()
    text = text[at:].lstrip()
    if (end := _THOUGHT_END.search(text)) and (rest := text[end.end() :].strip()).startswith(("{", "```", "｛")):
        text = rest
    if not text.startswith(("{", "[", '"', "'", "｛", "“")) and (fence := _FENCE.search(text)):
        text = text[fence.end() :]
    return text


def _decoded(text: str) -> Any:
    """What a tolerant but exact decoder reads at the first bracket, or None. Text after it is left aside."""
    if text.startswith('"'):
        value, end = _raw(text, 0)
        if isinstance(value, str) and not text[end:].strip("` \n"):
            return value
    start = _start(text)
    value, end = _raw(text, start) if start is not None else (None, 0)
    if is_object(value) and _another(text, end, value):
        raise ValueError("it holds several objects; send one object in one call")
    return value


def _raw(text: str, start: int) -> tuple[Any, int]:
    try:
        return _LENIENT.raw_decode(text, start)
    except NotFinite:
        raise
    except (json.JSONDecodeError, RecursionError):
        return None, start
    except ValueError:  # the interpreter's own bound on the length of an integer
        raise ValueError("a number in it has thousands of digits") from None


def _start(text: str) -> int | None:
    """Where the JSON begins: a list only at the very beginning, an object anywhere but at a `{name}` within prose."""
    if text.startswith("{"):
        return 0
    brace = text.find("{")
    if text.startswith("[") and not 0 < text.find("]") < brace:
        return 0
    start = brace
    while start >= 0 and (placeholder := _PLACEHOLDER.match(text, start)):
        start = text.find("{", placeholder.end())
    return start if start >= 0 else brace if brace >= 0 else None


def _another(text: str, end: int, first: dict[str, Any]) -> bool:
    start = text.find("{", end)
    if start < 0:
        return False
    value, _ = _raw(text, start)
    if value is None:
        try:
            value, _ = lenient.read(text, start, _LENIENT, MAX_DEPTH)
        except ValueError:
            return False  # braces in prose
    return bool(value) and value != first


def _plain(text: str) -> str:
    """Full-width punctuation, digits and typographic quotes outside of strings as ASCII."""
    out: list[str] = []
    closers = ""
    last = "{"
    escaped = False
    for index, char in enumerate(text):
        if closers:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char in closers and (char != "'" or _STRING_END.match(text, index + 1)):
                closers, char = "", char if char in "\"'" else '"'
            elif char == '"' and closers != "'":
                closers, char = ("", char) if _STRING_END.match(text, index + 1) else (closers, '\\"')
        elif char in _CLOSERS and (char not in "'‘’" or last in "{[:,"):
            closers, char = _CLOSERS[char], char if char in "\"'" else '"'
            last = char
        else:
            char = _STRUCTURE.get(char, char)
            last = last if char.isspace() else char
        out.append(char)
    return "".join(out)


def _guessed(text: str) -> Any:
    if _KEY.match(text):
        text = "{" + text
    start = _start(text)
    if start is None:
        raise ValueError("there is no JSON object in it")
    try:
        value, end = lenient.read(text, start, _LENIENT, MAX_DEPTH)
    except NotFinite:
        raise
    except ValueError:
        return _guessed_by_library(text[start:])
    if is_object(value) and _another(text, end, value):
        raise ValueError("it holds several objects; send one object in one call")
    return value


def _guessed_by_library(text: str) -> Any:
    if _deepest(text) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if len(text) > MAX_GUESSED:
        raise ValueError(f"it is broken JSON, and with {len(text)} characters too long to be guessed at")
    from json_repair import loads  # noqa: PLC0415 - 90 ms to import, and most runs never need it

    try:
        return loads(text, skip_json_loads=True)
    except Exception as error:  # a guesser on hostile text may fail in any way
        raise ValueError("it is broken JSON that cannot be mended") from error


def _deepest(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.finditer(text):
        depth = depth + 1 if bracket.group() in "{[(" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest
