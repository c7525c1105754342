"""Reading JSON that a model wrote badly.

Knows text only, no schema. The standard decoder comes first, wherever in the text the JSON begins; `json_repair`, a
guesser in pure Python, comes last, only for short texts and in its strict mode, in which it makes up no values. Above
it is `arguments`, which turns failures into observations.
"""

import json
import math
import re
from collections.abc import Collection
from typing import Any, Final, TypeGuard

MAX_DEPTH: Final = 64
"""Brackets within brackets. Real calls stay below ten; validating and copying recurse, so there is a bound."""
MAX_GUESSED: Final = 4_000
"""Characters given to `json_repair`, which takes a second for hostile ones, and for twice as many five."""
_MAX_ENCODINGS: Final = 4

_WIDE: Final = str.maketrans("｛｝［］【】：，、．－＋　０１２３４５６７８９", "{}[][]:,,.-+ 0123456789")
_FOREIGN = re.compile("[“„＂「『" + "".join(map(chr, _WIDE)) + "]")
_TOKEN = re.compile(
    r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|[“”„＂「『]([^“”＂」』]*)(?:[“”＂」』]|\Z)|.""", re.DOTALL
)
_THOUGHT = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"```[A-Za-z0-9_+-]*\s*(?=[{\[\"'｛“])")
_KEY = re.compile(r"""\s*(["'])[\w.\- ]{1,64}\1\s*:""")
_OBJECT = re.compile(r"\{(?!\s*[\w.\-][\w.\- ]*\})")
"""Where an object begins; `{name}` is a placeholder in prose."""
_AFTERWORD = re.compile(r"""(?<=[}\]])(?:\s*```[^{}]*|[^"'{}\[\]:,]+)\Z""")
_NOT_FINITE = re.compile(r"[:,\[]\s*([+-]?(?:NaN|Infinity))\s*[,}\]]")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isfinite(number):
        return number
    raise OverflowError(f"{literal} is not a JSON number")


_STRICT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_LENIENT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite, strict=False)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def repair(text: str) -> Any:
    """The JSON value that `text` was meant to be. Raises ValueError that says why there is none."""
    value: Any = text
    try:
        for _ in range(_MAX_ENCODINGS):
            if isinstance(value, str):
                value = _read(value)
    except OverflowError as error:
        raise ValueError(str(error)) from None
    if isinstance(value, str):
        raise ValueError("it is a string, not an object")
    if text.count("{") + text.count("[") > MAX_DEPTH or "\\u" in text or not text.isascii():
        check_sound(value)
    return value


def check_sound(value: Any) -> None:
    """Raise ValueError where a value is nested too deeply or cannot be written as JSON in UTF-8."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [below for item in level for below in _within(item)]
        if not level:
            break
    else:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    try:
        _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair (\\ud800 to \\udfff), which is no character") from None
    except ValueError:
        raise ValueError("NaN or Infinity is not a JSON number") from None


def _within(value: Any) -> Collection[Any]:
    return value.values() if is_object(value) else value if is_list(value) else ()


def _read(text: str) -> Any:
    """One layer: decoded if it can be, with or without what surrounds it, else guessed."""
    try:
        return _STRICT.decode(text)
    except (ValueError, RecursionError):
        text = _core(text)
    if not text:
        return {}
    value = _decoded(text)
    if value is None and len(text) <= MAX_GUESSED and _FOREIGN.search(text):
        text = _TOKEN.sub(_plain, text)
        value = _decoded(text)
    return _guessed(text) if value is None else value


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
    """What an exact decoder reads at the first bracket, or None. Text after it is left aside."""
    if text.startswith('"'):
        value, end = _raw(text, 0)
        if isinstance(value, str) and not text[end:].strip("` \n"):
            return value
    if (start := _start(text)) is None:
        return None
    value, end = _raw(text, start)
    if is_object(value) and (start := text.find("{", end)) >= 0:
        other, _ = _raw(text, start)
        if other and other != value:
            raise ValueError("it holds several objects; send one object in one call")
    return value


def _raw(text: str, start: int) -> tuple[Any, int]:
    try:
        return _LENIENT.raw_decode(text, start)
    except (json.JSONDecodeError, RecursionError):
        return None, start
    except ValueError:  # the interpreter's own bound on the length of an integer
        raise ValueError("a number in it has thousands of digits") from None


def _start(text: str) -> int | None:
    """Where the JSON begins: a list only at the very beginning, an object anywhere."""
    if text.startswith("{") or (text.startswith("[") and not 0 < text.find("]") < text.find("{")):
        return 0
    found = _OBJECT.search(text)
    return found.start() if found else None


def _plain(token: re.Match[str]) -> str:
    """Full-width punctuation, digits and typographic quotes outside of strings as ASCII."""
    string, quoted = token.groups()
    if string is not None:
        return string
    return token.group().translate(_WIDE) if quoted is None else '"' + quoted.replace('"', '\\"') + '"'


def _guessed(text: str) -> Any:
    text = "{" + text if _KEY.match(text) else text
    if (start := _start(text)) is None:
        raise ValueError("there is no JSON object in it")
    if len(text) > MAX_GUESSED:
        raise ValueError(
            f"it is broken JSON, and with {len(text)} characters too long to be guessed at; send valid JSON"
        )
    if literal := _NOT_FINITE.search(text):
        raise ValueError(f"{literal.group(1)} is not a JSON number")
    from json_repair import loads  # noqa: PLC0415 - 20 ms to import, and most runs never need it

    try:
        value = loads(_AFTERWORD.sub("", text[start:]), skip_json_loads=True, strict=True)
    except Exception as error:  # a guesser on hostile text may fail in any way
        raise ValueError(
            "it is broken JSON, or several objects, without a certain reading; send one valid object"
        ) from error
    check_sound(value)
    return value
