"""Hides secrets and personal data in text that people or other systems get to see."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote

from orchestrator.masking.names import STEMS, compiled, ends_with, names_secret, snake
from orchestrator.masking.patterns import DETECTORS, Detector, number

SECRET = "[secret]"
SHORTEST_SECRET = 6
"""Characters of a known secret that is looked for as it is; a shorter one would be found in ordinary words."""

_PASSES = 4
"""What is put in a secret's place may let another be seen; masking goes on until nothing changes."""

_REMEMBERED = 64
"""Characters of a text that is masked once and remembered: names of models and tools come by again and again."""

_HIDDEN_CHARACTERS = re.compile(r"\\(?:u00|/)")
"""JSON that writes ordinary characters as escapes, so that what stands in it is seen only when it is read."""

_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_PAIR = (
    r"""(?P<name>[\w.-]{1,64})(?:\\*["']?[ \t]{0,3}(?:=>|:=|[:=])[ \t]{0,3}|(?P<option>[ \t]{1,3}))"""
    r"""(?P<open>\\*["'])?"""
    r"""(?P<value>(?(open)"""
    r"""(?:(?<=[^\\]")(?:[^"\\\n]|\\.)*|(?<=[^\\]')(?:[^'\\\n]|\\.)*|(?<=\\["'])[^"'\\\n]*)"""
    r"""|(?:(?:Bearer|Basic|Digest|Token|ApiKey)[ ]+)?[^\s"'\\,;&<>(){}]+))"""
)
_NO_SECRET = r"(?i:\$|…|\.\.\.|(?:true|false|null|none|nil|undefined|str|string|bytes|int|bool|required|optional)\b)"
_REST_OF_COOKIE = r"[^\n\r\"'\\]*"


class Mask:
    """One set of what is to be hidden. Calling it masks a text; JSON stays JSON, and masking twice is masking once."""

    def __init__(self, patterns: Iterable[str] = (), names: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        """`patterns` are regular expressions, `names` more names of secrets, `secrets` those that are known."""
        self._names: frozenset[str] = frozenset()
        self._secrets: frozenset[str] = frozenset()
        self._patterns: tuple[str, ...] = ()
        self._make()
        self.extend(patterns, names, secrets)

    def extend(self, patterns: Iterable[str] = (), names: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        """Adds to what is hidden from now on."""
        known = (self._patterns, self._names, self._secrets)
        self._patterns = tuple(dict.fromkeys((*self._patterns, *patterns)))
        self._names |= {snake(name) for name in names}
        self._secrets |= {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        if known != (self._patterns, self._names, self._secrets):
            self._make()

    def _make(self) -> None:
        # The longest first: one may stand in another.
        known = [_known(secret) for secret in sorted(self._secrets, key=len, reverse=True)]
        self._pairs = Detector((), self._hide_pairs)
        self._stems = (*STEMS, *{name.rpartition("_")[2] for name in self._names})
        self._all = (*known, self._pairs, *DETECTORS, *(Detector((), _substitute(each)) for each in self._patterns))
        self._hints = [(hint, each) for each in self._all for hint in each.hints]
        self._others = [each for each in self._all if not each.hints and each is not self._pairs]
        self._remembered = lru_cache(2_048)(self._mask)

    def __call__(self, text: str, *, personal: bool = True) -> str:
        """`text` with what must not be seen replaced by what it was: `[email]`, `[key]`.

        Not `personal`: data of people stays, for a person who has to see what a call is about to do.
        """
        return (self._remembered if len(text) <= _REMEMBERED else self._mask)(text, personal)

    def _mask(self, text: str, personal: bool) -> str:
        active = self._active(text, personal)
        return self._masked(text, active) if active else text

    def _active(self, text: str, personal: bool) -> Sequence[Detector]:
        """Those that may find something in `text`; mostly none does."""
        if "\\" in text and _HIDDEN_CHARACTERS.search(text):
            return [each for each in self._all if personal or not each.personal]
        seen = {id(each) for hint, each in self._hints if hint in text}
        seen.update(id(each) for each in self._others if each.may(text))
        lowered = text.lower()
        if any(stem in lowered for stem in self._stems):
            seen.add(id(self._pairs))
        return [each for each in self._all if id(each) in seen and (personal or not each.personal)] if seen else ()

    def _masked(self, text: str, active: Sequence[Detector]) -> str:
        if text[:1] in ("{", "[", '"') or text[:16].lstrip()[:1] in ("{", "["):
            try:
                value = json.loads(text, parse_float=_finite, parse_int=_short)
                masked = self._value(value, active)
            except ValueError:
                pass  # it only looks like JSON
            except RecursionError:
                return '"[nested too deep to be masked]"'
            else:
                plain = text.isascii() or "\\ud" in text or "\\uD" in text  # half a surrogate pair has no other form
                return text if masked == value else json.dumps(masked, ensure_ascii=plain, separators=(",", ":"))
        return self._plain(text, active)

    def _plain(self, text: str, active: Sequence[Detector]) -> str:
        for _ in range(_PASSES):
            before = text
            for detector in active:
                if detector.may(text):
                    text = detector.replace(text)
            if text == before:
                break
        return text

    def _value(self, value: Any, active: Sequence[Detector]) -> Any:
        match value:
            case str():
                return self._masked(value, active)
            case bool() | None | float():
                return value
            case int():
                return (number(str(value)) or value) if any(each.personal for each in active) else value
            case list():
                return [self._value(part, active) for part in cast("list[Any]", value)]
            case _:
                return self._table(cast("dict[str, Any]", value), active)

    def _table(self, table: dict[str, Any], active: Sequence[Detector]) -> dict[str, Any]:
        """By its names; `{"name": "Authorization", "value": …}` is one way to write a table, too."""
        said = table.get("name", table.get("key"))
        hidden = "value" if isinstance(said, str) and self._secret(said) else None
        masked: dict[str, Any] = {}
        for name, part in table.items():
            shown = self._masked(name, active)
            secret = name == hidden or self._secret(name) or self._secret(shown)
            masked[shown] = _hide(part) if secret else self._value(part, active)
        return masked

    def _secret(self, name: str) -> bool:
        return names_secret(name) or (bool(self._names) and ends_with(name, self._names))

    def _hide_pairs(self, text: str) -> str:
        """`name=value`, `"name": "value"` and `--name value` in text that is no JSON."""
        parts: list[str] = []
        done = 0
        for start in self._names_in(text):
            found = compiled(_PAIR).match(text, start) if start >= done else None
            if found is None or not found["value"] or not self._secret(found["name"]):
                continue
            option = found["option"] is not None
            if option and not found["name"].startswith("-"):
                continue
            start, end = found.span("value")
            if not found["open"]:
                if compiled(_NO_SECRET).match(found["value"]):
                    continue
                if not option and snake(found["name"]).endswith(("cookie", "cookies")):
                    end = cast("re.Match[str]", compiled(_REST_OF_COOKIE).match(text, start)).end()
            parts += (text[done:start], SECRET)
            done = end
        return "".join((*parts, text[done:]))

    def _names_in(self, text: str) -> Sequence[int]:
        """Where words begin that may be names of secrets, each once and in order."""
        lowered = text.lower()
        if len(lowered) != len(text):  # some letters of other scripts grow
            lowered = "".join(letter.lower() if letter.isascii() else letter for letter in text)
        starts: set[int] = set()
        for stem in self._stems:
            at = lowered.find(stem)
            while at >= 0:
                before = text[max(0, at - _REMEMBERED) : at]
                starts.add(at - len(before) + len(before.rstrip(_WORD)))
                at = lowered.find(stem, at + len(stem))
        return sorted(starts)


def _known(secret: str) -> Detector:
    """A secret as it is, and as JSON and addresses write it."""
    forms = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")}

    def replace(text: str) -> str:
        for form in forms:
            text = text.replace(form, SECRET)
        return text

    return Detector(tuple(forms), replace)


def _substitute(pattern: str) -> Callable[[str], str]:
    own = re.compile(pattern)
    return lambda text: own.sub("[masked]", text)


def _hide(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) or value in ("", [], {}) else SECRET


def _finite(text: str) -> float | str:
    """What JSON has no other way to write stays text."""
    value = float(text)
    return value if abs(value) < float("inf") else text


def _short(text: str) -> int | str:
    return int(text) if len(text) < 1_000 else text
