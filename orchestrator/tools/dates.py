"""Dates as people write them, to ISO 8601. Nothing is guessed: no year, no order of day and month, no UTC offset."""

import re
import unicodedata
from datetime import date, time
from typing import Final

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_YEAR_FIRST = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{4})(\d\d)(\d\d)|(\d{4}) ?年 ?(\d{1,2}) ?月 ?(\d{1,2}) ?[日号號]"
)
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_NO_YEAR = re.compile(r"\d{1,2}[-/.]\d{1,2}|\d{1,2} ?月 ?\d{1,2} ?[日号號]?")
_WEEKDAY = re.compile(r"^(mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?\.?,? ", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+|\d+")
_CLOCK = re.compile(r"(\d{1,2})(:\d\d(?::\d\d(?:\.\d{1,9})?)?)\s*(am|pm)?\s*(z|utc|gmt|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_SPLIT = re.compile(r"^(.*?\S)[tT ,]\s*(\d{1,2}:\d\d.*)$", re.DOTALL)


class NoDate(ValueError):
    """Why a text is no date; for the model to read."""


def iso_date(text: str) -> str:
    """`2025-03-09` from a common form. Raises NoDate. A time is refused unless it is midnight."""
    day, clock = _parts(text)
    if clock and clock[:8] != "00:00:00":
        raise NoDate("a date without a time of day is wanted, e.g. 2025-03-09")
    return day


def iso_datetime(text: str) -> str:
    """`2025-03-09T14:30:00Z` from a common form. Raises NoDate. A date alone is its first moment in UTC."""
    day, clock = _parts(text)
    if not clock:
        return f"{day}T00:00:00Z"
    if not (clock.endswith("Z") or "+" in clock or "-" in clock):
        raise NoDate("the offset from UTC is missing; write e.g. 2025-03-09T14:30:00Z or 2025-03-09T14:30:00+01:00")
    return f"{day}T{clock}"


FORMATS: Final = {"date": iso_date, "date-time": iso_datetime}


def problem(value: object, wanted: str) -> str:
    """What keeps a text from being a date or date-time, to be told; empty if nothing does."""
    try:
        if isinstance(value, str) and wanted in FORMATS:
            FORMATS[wanted](value)
    except NoDate as error:
        return f": {error}"
    return ""


def _parts(text: str) -> tuple[str, str]:
    text = " ".join(unicodedata.normalize("NFKC", text[:80]).split())
    if split := _SPLIT.match(text):
        return _day(split.group(1).rstrip(",")), _clock(split.group(2))
    return _day(text), ""


def _day(text: str) -> str:
    text = _WEEKDAY.sub("", text)
    if match := _YEAR_FIRST.fullmatch(text):
        year, month, day = (int(part) for part in match.groups() if part is not None)
        return _iso(year, month, day)
    if match := _YEAR_LAST.fullmatch(text):
        first, second, year = (int(part) for part in match.groups())
        if first <= 12 and second <= 12 and first != second:
            raise NoDate("day and month cannot be told apart; write the year first, e.g. 2025-03-09")
        return _iso(year, second, first) if second <= 12 else _iso(year, first, second)
    if _NO_YEAR.fullmatch(text):
        raise NoDate("the year is missing; write e.g. 2025-03-09")
    return _named_month(text.lower())


def _named_month(text: str) -> str:
    """`9 Mar 2025`, `March 9th, 2025`, `2025 March 9`: one month's name, one year of four digits, one day."""
    words = [word for word in _WORD.findall(text) if word not in {"of", "the", "st", "nd", "rd", "th"}]
    months = [
        number for word in words for number, name in enumerate(_MONTHS, 1) if len(word) > 2 and name.startswith(word)
    ]
    numbers = [word for word in words if word.isdigit()]
    years = [number for number in numbers if len(number) == 4]
    days = [number for number in numbers if len(number) <= 2]
    if len(months) == len(numbers) == 1 and not years:
        raise NoDate("the year is missing; write e.g. 2025-03-09")
    if not len(months) == len(years) == len(days) == len(words) - 2 == 1 or re.search(r"[^a-z0-9 ,.\-/]", text):
        raise NoDate("this is no date with day, month and a year of four digits; write e.g. 2025-03-09")
    return _iso(int(years[0]), months[0], int(days[0]))


def _clock(text: str) -> str:
    match = _CLOCK.fullmatch(text)
    if not match:
        raise NoDate("the time of day cannot be read; write e.g. 2025-03-09T14:30:00Z")
    hour, rest, half, offset = match.groups("")
    if half:
        hour = str(int(hour) % 12 + 12 * (half.lower() == "pm")) if 1 <= int(hour) <= 12 else "no"
    clock = hour.zfill(2) + rest + ":00" * (rest.count(":") == 1)
    try:
        time.fromisoformat(clock[:8])
    except ValueError as error:
        raise NoDate("there is no such time of day; write e.g. 2025-03-09T14:30:00Z") from error
    if offset.lower() in ("z", "utc", "gmt"):
        offset = "Z"
    return clock + (offset if ":" in offset or len(offset) < 2 else f"{offset[:3]}:{offset[3:]}")


def _iso(year: int, month: int, day: int) -> str:
    try:
        return date(year, month, day).isoformat()
    except ValueError as error:
        raise NoDate("there is no such day; write e.g. 2025-03-09") from error
