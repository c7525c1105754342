"""What must not get lost on the way: constraints that a person's words hold, and how few of them are kept.

Recognised by rules in what the *user* said, never in results of tools. A sentence that is taken for a constraint and is
none costs a few tokens when it is restated; one that is missed is lost with the turn that held it. So the rules are
generous, and what is kept is bounded.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.memory.excerpts import leading

MOST = 24
"""Pins of one run; above it the model's oldest go first, then the oldest of all."""

Source = Literal["user", "earlier", "model", "caller"]
"""Who said it; `earlier` is the user, before this run of the conversation."""

_BY = {"user": "", "earlier": " (said earlier in the conversation)", "model": " (your own note)", "caller": ""}

LONGEST = 300  # characters of one
_READ = 100_000  # characters of a text that are looked at

_SENTENCE = re.compile(r"(?:(?<!\bno)(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|$)|[。！？；;\n])+", re.IGNORECASE)

_DATE = r"(?:\d{4}(?:[-/年.]\d{1,2})?|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*|q[1-4])"
_UNIT = r"(?:%|[a-z]{2,}|[\u4e00-\u9fff]{1,2})"
_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|twenty|fifty"
_NUMBER = rf"[$€£¥]?(?:\d[\d.,]*|{_WORDS}|[一二两三四五六七八九十百千万]+)"

_RULES: Sequence[tuple[str, re.Pattern[str]]] = [
    (
        "limit",
        re.compile(
            rf"\b(?:at most|at least|no more than|no fewer than|not more than|fewer than|less than|more than|up to|"
            rf"under|below|above|max(?:imum)?(?: of)?|min(?:imum)?(?: of)?|limit\w*(?:\s+\w+){{0,3}}\s+to|exactly|top|"
            rf"first|within)\s+{_NUMBER}[\s-]*{_UNIT}?"
            rf"|(?:最多|至少|不超过|不多于|不少于|不低于|不高于|超过|少于|多于|上限|限制?在?|前|控制在)[^\d。，,]{{0,6}}?{_NUMBER}\s*{_UNIT}?"
            rf"|{_NUMBER}\s*{_UNIT}?(?:以内|之内|以下|以上)",
            re.IGNORECASE,
        ),
    ),
    (
        "time",
        re.compile(
            rf"\b(?:last|past|previous|this|current|next)\s+(?:\w+\s+)?(?:days?|weeks?|months?|quarters?|years?)\b"
            rf"|\b(?:since|until|before|after|between|from|in|by)\s+(?:the\s+)?(?:\w+\s+)?{_DATE}\b|\b(?:yesterday|today)\b"
            rf"|上个?月|上个?周|上周|上个?季度|本月|本周|本季度|这个?月|今年|去年|前年|昨天|今天|明天"
            rf"|(?:最近|近|过去)\s*{_NUMBER}\s*个?[天周月年日]|\d{{4}}\s*年|\d{{1,2}}\s*月|截至|以来",
            re.IGNORECASE,
        ),
    ),
    (
        "format",
        re.compile(
            r"\b(?:json|csv|tsv|yaml|xml|html|markdown|iso 8601|yyyy-mm-dd|bullet points?|bulleted|numbered list|"
            r"plain text|(?:as|in) (?:a |one )?(?:table|list|sentence|paragraph))\b|表格|列表|纯文本|格式|一句话|要点",
            re.IGNORECASE,
        ),
    ),
    (
        "language",
        re.compile(
            r"\b(?:in|into|use|using|speak|write) (?:only )?(?:plain |simple |british |american )?(?:english|chinese|"
            r"german|french|spanish|italian|japanese|korean|portuguese|russian|arabic|mandarin)\b"
            r"|(?:用|以|使用|翻译成|译成)\s*(?:简体|繁体)?(?:中文|英文|英语|汉语|日文|日语|德语|法语|韩语|西班牙语|俄语)",
            re.IGNORECASE,
        ),
    ),
    (
        "rule",
        re.compile(
            r"\b(?:do not|don['’]t|does not|never|must|mustn['’]t|may not|cannot|can['’]t|should not|shouldn['’]t|"
            r"always|only|without|avoid|exclud\w+|except|ignor\w+|leave out|omit|skip|no longer|required?|mandatory|"
            r"forbidden|under no circumstances|make sure|ensure|keep (?:it|them|the))\b"
            r"|不要|不得|不能|不可|不准|不许|不用|不包含|不包括|不含|禁止|请勿|切勿|勿|避免|排除|除外|除了|忽略|去掉"
            r"|只|仅|必须|务必|一定|始终|总是|永远|每次|一律|都要|确保|保证|千万|别(?![的人处])",
            re.IGNORECASE,
        ),
    ),
]
_LAST_WORD = re.compile(rf"{_UNIT}$", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:do not|don['’]t|never|must not|mustn['’]t|always|must|only|please|should not|should|not|exclude|include|"
    r"excluding|including)\b|不要|不得|不能|不可|禁止|请勿|切勿|不包含|不包括|不含|包含|包括|必须|务必|始终|总是|请|要|\W",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A sentence as it was said, and the things that it bounds. `replaces` are older ones, as far as they differ."""

    text: str
    about: tuple[str, ...]
    source: Source = "user"
    replaces: tuple[str, ...] = ()


def constraints(text: str) -> list[Pin]:
    """What a person's words hold of limits, time, formats, languages, orders and prohibitions; at most `MOST`."""
    found = [Pin(text=sentence, about=about) for sentence in _sentences(text[:_READ]) if (about := about_of(sentence))]
    if len(found) > MOST:  # a pasted document: what is asked stands before it or after it
        found = [*found[: MOST // 2], *found[-MOST // 2 :]]
    return list({each.text: each for each in found}.values())


def held(said: Sequence[str], source: Source = "user", before: Sequence[Pin] = ()) -> list[Pin]:
    """The pins that come of what a person said, the oldest first, in the order in which they are added to those before.

    Words that were said at once do not contradict themselves; of those that were said one after the other, what a newer
    one replaces is no more among them.
    """
    pins, new = tuple(before), tuple[Pin, ...]()
    for words in said:
        known = pins
        for found in constraints(words):
            pin = replace(found, source=source, replaces=replaced(known, found))
            pins, new = added(pins, pin), added(new, pin)
    return [*new]


def about_of(sentence: str) -> tuple[str, ...]:
    """The things that a sentence bounds: `time`, `language`, `format`, `limit:row`, or what a rule is about."""
    about: list[str] = []
    for kind, rule in _RULES:
        if (match := rule.search(sentence)) is None:
            continue
        if kind == "limit":
            unit = _LAST_WORD.search(match.group().removesuffix("以内").removesuffix("之内"))
            kind = f"limit:{unit.group().lower().removesuffix('s') if unit else ''}"
        if kind == "rule":
            kind = f"rule:{_NEGATION.sub('', sentence.lower())[:60] or sentence}"
        about.append(kind)
    return tuple(about)


def replaced(pins: Sequence[Pin], new: Pin) -> tuple[str, ...]:
    """The texts of those pins that say something else about the same."""
    return tuple(pin.text for pin in pins if set(pin.about) & set(new.about) and pin.text != new.text)


def added(pins: tuple[Pin, ...], new: Pin) -> tuple[Pin, ...]:
    """The pins with a new one. What an older one said about the same holds no more; what else it said does."""
    kept: list[Pin] = []
    for pin in pins:
        left = tuple(about for about in pin.about if about not in new.about or pin.text not in new.replaces)
        if pin.text != new.text and (left or not pin.about):
            kept.append(replace(pin, about=left))
    kept.append(new)
    while len(kept) > MOST:
        kept.remove(next((pin for pin in kept if pin.source == "model"), kept[0]))
    return tuple(kept)


def restated(pins: Sequence[Pin], tokens: int) -> str:
    """The pins as the model reads them, in at most about so many tokens; the newest stay."""
    lines: list[str] = []
    for pin in reversed(pins):
        newer = "".join(f'; in place of "{text}" where the two differ' for text in pin.replaces)
        line = f"- {pin.text}{_BY[pin.source]}{newer}"
        tokens -= len(line.encode()) // 3 + 1
        if tokens < 0:
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE.split(text):
        sentence = " ".join(part.split())
        if len(sentence) > LONGEST:
            yield from _pieces(sentence)
        elif sentence:
            yield sentence


def _pieces(sentence: str) -> Iterator[str]:
    """A sentence without an end, as pasted data has it, by its commas."""
    for piece in re.split(r"[,，、]\s*", sentence):
        yield piece[: leading(piece, LONGEST // 3)] if len(piece) > LONGEST else piece
