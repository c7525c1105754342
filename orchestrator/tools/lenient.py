"""A reader of almost-JSON whose time grows with the text's length and no faster.

Takes what models write: single quotes, Python's literals and tuples, bare keys and words, comments, missing or spare
commas, raw line breaks and quotes within strings, missing ends. Raises ValueError where two readings are possible.
"""

import json
import re
from typing import Any, Final

_SKIP = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_BARE_KEY = re.compile(r"[^\W\d][\w$.@-]*(?=\s*(?::|\Z))")
_BARE_VALUE = re.compile(r"""[^,{}\[\]()"'\n]+""")
_COMMENT = re.compile(r"\s(?://|#|/\*).*", re.DOTALL)
_NEXT_KEY = r"""(?:["'][^"'\n:]{0,80}(?:["']\s*(?::|\Z)|\Z)|[^\W\d][\w$.@-]{0,80}\s*(?::|\Z))"""
_GAP = r"(?:\s*(?://[^\n]{0,200}\n|/\*[^*]{0,200}\*/))*\s*"
_ENDS: Final = r"""\s*\Z|\s*[}\])][\s}\])]*(?:,|\Z|[^"'\n]*(?:\n|\Z))|\s+(?://|\#|/\*)"""
_AFTER_KEY = re.compile(r"\s*(?::|\Z)")
_AFTER_MEMBER = re.compile(rf"{_ENDS}|\s*,{_GAP}(?:{_NEXT_KEY}|[}}\])]|\Z)|\s+{_NEXT_KEY}")
_AFTER_ITEM = re.compile(rf"""{_ENDS}|\s*,{_GAP}(?:["'{{\[(\d}}\])-]|(?:true|false|null|None|True|False)\b|\Z)""")
_AFTER: Final = {"key": _AFTER_KEY, "member": _AFTER_MEMBER, "item": _AFTER_ITEM}
_BAD_ESCAPE = re.compile(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}|(.?))", re.DOTALL)
_LITERALS: Final = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}


def read(text: str, start: int, decoder: json.JSONDecoder, depth: int) -> tuple[Any, int]:
    """The value at `start` and where it ends. Raises ValueError if it cannot be read or is nested beyond `depth`."""
    reader = _Reader(text, start, decoder)
    return reader.value(depth, "item"), reader.at


class _Reader:
    def __init__(self, text: str, start: int, decoder: json.JSONDecoder) -> None:
        self.at = start
        self._text = text
        self._decoder = decoder

    def value(self, depth: int, place: str) -> Any:
        if depth < 0:
            raise ValueError("nested too deeply")
        char = self._text[self.at]
        if char == "{":
            return self._object(depth)
        if char in "[(":
            return self._array(depth)
        return self._string(place) if char in "\"'" else self._bare()

    def _next(self) -> str:
        """The next character that is neither space nor comment, or "" at the end."""
        skipped = _SKIP.match(self._text, self.at)
        self.at = skipped.end() if skipped else self.at
        return self._text[self.at : self.at + 1]

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        members: dict[str, Any] = {}
        while char := self._next():
            if char in "}])":
                self.at += char == "}"  # another's bracket: this one's was forgotten
                break
            if char == ",":
                self.at += 1
                continue
            key = self._key(char)
            colon = self._next()
            if not colon:
                break  # a key cut off before its colon says nothing
            if colon != ":":
                raise ValueError(f"no colon after a key at character {self.at}")
            self.at += 1
            # A key without a value is null, which is refused or dropped later; "" would be obeyed.
            members[key] = None if self._next() in ("", ",", "}") else self.value(depth - 1, "member")
        return members

    def _array(self, depth: int) -> list[Any]:
        closer = _CLOSERS[self._text[self.at]]
        self.at += 1
        items: list[Any] = []
        while char := self._next():
            if char in "}])":
                self.at += char == closer
                break
            if char == ",":
                self.at += 1
                continue
            items.append(self.value(depth - 1, "item"))
        return items

    def _key(self, char: str) -> str:
        if char in "\"'":
            return self._string("key")
        bare = _BARE_KEY.match(self._text, self.at)
        if not bare:
            raise ValueError(f"no key at character {self.at}")
        self.at = bare.end()
        return bare.group()

    def _string(self, place: str) -> str:
        """From the quote here to the first one that something plausible follows; others are part of the text."""
        quote, start = self._text[self.at], self.at + 1
        pieces: list[str] = []
        inner = False
        for stop in re.compile(rf"\\.|{quote}", re.DOTALL).finditer(self._text, start):
            if stop.group() != quote:
                continue
            if _AFTER[place].match(self._text, stop.end()):
                pieces.append(self._text[start : stop.start()])
                self.at = stop.end()
                return self._unescaped("".join(pieces))
            inner = True
        if inner:
            raise ValueError("a string has no certain end")
        self.at = len(self._text)
        return self._unescaped(self._text[start:].removesuffix("\\"))

    def _unescaped(self, body: str) -> str:
        """Escapes that JSON does not know are the text itself, as in `C:\\Users` and `\\d+`; `\\'` is a quote."""

        def mended(match: re.Match[str]) -> str:
            other = match.group(1)
            return match.group() if other is None else "'" if other == "'" else "\\\\" + other

        body = _BAD_ESCAPE.sub(mended, body)
        body = re.sub(r'(\\.)|"', lambda match: match.group(1) or '\\"', body, flags=re.DOTALL)
        return self._decoder.decode(f'"{body}"')

    def _bare(self) -> Any:
        bare = _BARE_VALUE.match(self._text, self.at)
        if not bare:
            raise ValueError(f"no value at character {self.at}")
        self.at = bare.end()
        word = _COMMENT.sub("", bare.group()).strip()
        if word.lower() in _LITERALS:
            return _LITERALS[word.lower()]
        if word.lower().lstrip("+-") in ("nan", "infinity", "inf"):
            return self._decoder.decode("NaN")
        if _NUMBER.fullmatch(word):
            plain = word.lstrip("+").replace("_", "")
            try:
                return self._decoder.decode(plain)
            except json.JSONDecodeError:
                return float(plain) if "." in plain else int(plain)
        if ":" in word:
            raise ValueError("a colon within a bare word")
        return word
