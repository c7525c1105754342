"""Ranks tools by the words of a wish: BM25 over weighted fields, for any script, without a model.

Words are taken apart at `_`, `-` and camelCase and lose their English endings; Chinese, Japanese and Korean are matched
by pairs of characters. A word that no tool has stands for those that begin alike; a common verb also for its kin.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_SATURATION: Final = 1.2
_LENGTH: Final = 0.4  # how much a long description counts against a tool: the usual 0.75 is for prose
_KIN: Final = 0.4  # weight of a word that only means about the same
_ALIKE: Final = 4  # letters that two words must begin with alike
_RELEVANT: Final = 0.25  # of the best score; less is noise

_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_IDLE: Final = (
    " a an and any are can could do for from how i in into is it me my need of on or some that the this to tool use "
    "want what which with "
)
_VERBS: Final = (
    "add create make new insert",
    "change edit modify set update",
    "delete drop erase remove",
    "fetch get load read retrieve show view",
    "find list look query search",
    "email mail message post send",
    "execute run start",
)


def words(text: str) -> Iterator[str]:
    """The words of a text as they are matched."""
    for run in _WORD.findall(_HUMP.sub(" ", unicodedata.normalize("NFKC", text)).casefold()):
        if not re.match(f"[{_CJK}]", run):
            yield _stem(run)
        else:
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))


def telling(query: str) -> Iterator[str]:
    """The words of a wish that say something of what is looked for."""
    return (word for word in words(query) if f" {word} " not in _IDLE)


def _stem(word: str) -> str:
    """An English word without its ending; the same for all forms of most verbs and nouns."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 2 and word.endswith(ending) and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > 3 else word


_KINDRED: Final = {_stem(verb): {_stem(other) for other in row.split()} for row in _VERBS for verb in row.split()}


class Index:
    """Documents to be ranked. Each is a sequence of texts, the more important the more often it counts."""

    def __init__(self, documents: Sequence[Sequence[tuple[str, int]]]) -> None:
        self._counts = [self._count(fields) for fields in documents]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / (len(documents) or 1) or 1
        self._having = Counter(word for counts in self._counts for word in counts)

    def rank(self, query: str) -> list[int]:
        """The places of the documents that fit, best first; of equals the first."""
        asked = self._asked(query)
        scores = [self._score(place, asked) for place in range(len(self._counts))]
        best = max(scores, default=0.0)
        fitting = [place for place, score in enumerate(scores) if score > best * _RELEVANT]
        return sorted(fitting, key=lambda place: -scores[place])

    @staticmethod
    def _count(fields: Sequence[tuple[str, int]]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for text, weight in fields:
            for word in words(text):
                counts[word] += weight
                if len(word) == 2 and re.match(f"[{_CJK}]", word):  # a wish may be one character
                    counts.update(dict.fromkeys(word, weight))
        return counts

    def _asked(self, query: str) -> Mapping[str, float]:
        """The words to look for and how much each counts."""
        asked: dict[str, float] = {}
        for word in telling(query):
            kin = _KINDRED.get(word, set[str]())
            if word not in self._having and len(word) >= _ALIKE:
                kin = kin | {other for other in self._having if _alike(word, other)}
            for other, weight in ((word, 1.0), *((each, _KIN) for each in kin - {word})):
                asked[other] = max(weight, asked.get(other, 0.0))
        return asked

    def _score(self, place: int, asked: Mapping[str, float]) -> float:
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * self._lengths[place] / self._mean)
        found = ((weight * self._rarity(word), self._counts[place][word]) for word, weight in asked.items())
        return sum(weight * times / (times + norm) for weight, times in found)

    def _rarity(self, word: str) -> float:
        having = self._having[word]
        return math.log(1 + (len(self._counts) - having + 0.5) / (having + 0.5))


def _alike(one: str, other: str) -> bool:
    return len(other) >= _ALIKE and (one.startswith(other) or other.startswith(one))
