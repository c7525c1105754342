"""Whether a weak model may make a call: its arguments must come from the task or from a result.

What is nearly a name that the task or a server gave is that name; an optional argument that is invented, or that a
server refused by name though the task does not say it, is left out; any other invention, a call that was made before,
and a write that the task does not ask for are withheld. What other agents found and passed on is a result, and asks for
nothing. Pure: all of it is read from the state.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from mimetypes import guess_type
from typing import Any, Final

from orchestrator.events import Effect
from orchestrator.models.repair import is_list, is_object
from orchestrator.runtime.plans import apart, ordered
from orchestrator.runtime.runstate import RunState
from orchestrator.tools.arguments import canonical

WITHHELD: Final = "withheld"
"""The kind of error of a call that was not sent, and that the transcript does not keep."""

_PROSE: Final = 6  # words from which on a text is written, not copied; only its numbers are looked up then
_NEAR: Final = 0.85
_LONGEST_NAME: Final = 60
_MOST_NAMES: Final = 2_000
_MONTHS: Final = "janfebmaraprmayjunjulaugsepoctnovdec"
_NUMBERS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|dear \w+|good (?:morning|afternoon|evening|day)|greetings)\b(?: (?:there|all|everyone))?[,!.]"
    r"|\b(?:please|thanks|thank you)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_TOOL = re.compile(r"(?<=- )(?=[\w-]+?__)[\w-]++(?= \{)")  # beside what it told, as specialists pass it on
_FILE = re.compile(r"(?<![\w-])[\w-]+\.\w{2,5}\b")
_PATH = re.compile(r"(?<![\w./-])[\w./-]+\.\w{2,5}\b")
_OF_FILES: Final = frozenset(("path", "file", "filename"))
_MOST_FILES: Final = 10  # that are told beside an invention
_SEPARATOR = re.compile(r"[,;:\n\"'()\[\]{}|?!]|\. ")
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::00)?")
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|(?:mon|tues|wednes|thurs|fri|satur|sun)day|week|month)\b"
)
_MEASURES: Final = {30: "half an hour", 60: "hour", 90: "hour and a half|and a half hours", 12: "dozen", 7: "week"}
# What a task says when it asks for what a tool's name says.
_DESTROYS: Final = "cancel delete remove drop clear undo revoke discard erase"
_ASKS: Final = tuple(
    frozenset(words.split())
    for words in (
        "add put create insert schedule book enter register record log save",
        _DESTROYS,
        "send mail email notify message forward",
        "update change edit modify move rename set adjust raise lower increase decrease correct",
        "reserve hold book keep",
        "buy purchase",
        "pay refund transfer charge",
        "run execute start launch trigger deploy restart",
    )
)
_TELLING: Final = 5  # letters from which on a word of an argument's name says what it is about
_NONE = re.compile(r"\b(?:without|no|not|never|zero|before|ignor\w+|exclud\w+)(?:\s+\w+){0,2}\s+$")
_REFUSED = r"(?<!not )(?<!n't )(?<!never )(?<!without )"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a call is not sent. `mendable`: another value could be said, but not another call."""

    reason: str
    mendable: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What the run was told: all of it as text, as it is spelt and without case, and the names in it. `refused`: values
    that a server did not take."""

    spelt: str
    task: str
    text: str
    results: str
    refused: frozenset[str]

    def names(self) -> list[str]:
        """Short pieces between separators, from the newest: what a server lists, and what stands in quotes."""
        pieces = (piece.strip(" .") for piece in _SEPARATOR.split(self.results))
        return [piece for piece in dict.fromkeys(pieces) if 1 < len(piece) <= _LONGEST_NAME][:_MOST_NAMES]


def known(state: RunState) -> Known:
    """The task without its greetings, and every observation; an error's without the arguments that led to it. The name
    of a tool that told something to another agent is no value."""
    asked, given = apart(state.run.task)
    task = _GREETING.sub(" ", asked)
    told = [_TOOL.sub(" ", given)]
    refused: set[str] = set()
    for step in state.steps:
        for action in step.actions:
            # One that was never sent: its observation says what the model said, or else why it was denied.
            if action.arguments is None and action.error != "denied":
                continue
            text = action.observation
            for value in _leaves(action.arguments) if action.is_error else ():
                refused.add(str(value).casefold())
                text = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", " ", text)
            told.append(text)
    results = "\n".join(reversed(told))
    spelt = f"{state.run.earlier}\n{task}\n{results}"
    orders = _GREETING.sub(" ", ordered(state)).casefold()
    return Known(spelt=spelt, task=orders, text=spelt.casefold(), results=results, refused=frozenset(refused))


def is_told(text: str, told: str) -> bool:
    """Whether every number of a text stands in another."""
    return _numbers_in(text.casefold(), told.casefold())


def grounded(
    state: RunState,
    name: str,
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    effect: Effect,
    *,
    destroys: bool = False,
) -> dict[str, Any] | Withheld:
    """The arguments to send, or why the call is withheld. A tool that `destroys`, as its server or its name says, is
    never called with less than was written: what is left out may be what spares the rest."""
    told = known(state)
    if effect == "agent":
        prose = " ".join(str(value) for value in _leaves(arguments))
        return dict(arguments) if _numbers_in(prose, told.text) else Withheld("its task holds numbers that nobody gave")
    if effect != "read" and not _asked_for(name, told.task):
        return Withheld(f"the task does not ask for {name}")
    sent: dict[str, Any] = {}
    invented: list[str] = []
    destroys = destroys or any(word in _DESTROYS.split() for word in _words_of(name.rpartition("__")[2]))
    required = arguments if destroys else schema.get("required", ())
    blamed = _blamed(state, name)
    for key, value in arguments.items():
        part = schema.get("properties", {}).get(key, {})
        if key not in required and (key, value) in blamed and not _phrase_in(value.casefold(), told.task):
            continue
        if _denies(key, value, told):
            invented.append(f"that {key} is {value!r}")
        elif _is_fixed(part, value):
            sent[key] = value
        elif (found := _from(value, told)) is not None:
            sent[key] = found[0]
        elif key in required:
            invented.extend(_inventions(key, value, told))
    if invented:
        return Withheld(f"neither the task nor a result says {', '.join(invented)}", mendable=True)
    made = {canonical(a.arguments) for step in state.steps for a in step.actions if a.call.name == name and a.arguments}
    return Withheld(f"{name} was called with these arguments before") if canonical(sent) in made else sent


def _blamed(state: RunState, name: str) -> list[tuple[str, str]]:
    """The texts of failed calls of a tool that the error names, with the argument that each was."""
    failed = [a for step in state.steps for a in step.actions if a.call.name == name and a.is_error]
    return [
        (key, value)
        for action in failed
        for key, value in (action.arguments or {}).items()
        if isinstance(value, str) and value and _phrase_in(value.casefold(), action.observation.casefold())
    ]


def _inventions(key: str, value: Any, told: Known) -> list[str]:
    """Those parts of an argument that come from nowhere, each by its own name; of a file, with those there are."""
    if is_object(value):
        return [each for name, part in value.items() for each in _inventions(f"{key}.{name}", part, told)]
    if _from(value, told) is not None:
        return []
    named = dict.fromkeys(_PATH.findall(told.spelt)) if _words_of(key.rpartition(".")[2])[-1] in _OF_FILES else ()
    files = ", ".join([file for file in named if guess_type(file)[0]][:_MOST_FILES])
    return [f"{key} {value!r}{f' (it speaks of {files})' if files else ''}"]


def _is_fixed(part: Any, value: Any) -> bool:
    """Whether the schema itself gives the value."""
    return is_object(part) and (bool(part.get("enum")) or "const" in part or part.get("default", ...) == value)


def _denies(key: str, value: Any, told: Known) -> bool:
    """Whether a zero says "none" of what the task speaks of, though nobody said that there is none."""
    if isinstance(value, bool) or value != 0 or _number_in(0, told.text):
        return False
    words = [word for word in _words_of(key) if len(word) >= _TELLING]
    said = [place for word in words for place in re.finditer(rf"\b{re.escape(word)}", told.task)]
    return any(_NONE.search(told.task[: place.start()]) is None for place in said)


def _words_of(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold().replace("-", "_").split("_")


def _from(value: Any, told: Known) -> tuple[Any] | None:
    """The value as it was told, perhaps spelt as a server spells it; None when it comes from nowhere."""
    if is_object(value):
        found = {key: _from(each, told) for key, each in value.items()}
        return None if None in found.values() else ({key: each[0] for key, each in found.items() if each},)
    if is_list(value):
        items = [_from(each, told) for each in value]
        return None if None in items else ([each[0] for each in items if each],)
    if value is None or isinstance(value, bool) or value in (0, ""):
        return (value,)
    if isinstance(value, int | float):
        return (value,) if _number_in(value, told.text) else None
    return _text_from(str(value), told)


def _text_from(value: str, told: Known) -> tuple[str] | None:
    plain = value.strip().casefold()
    names = told.names()
    if same := [name for name in names if _singular(name.casefold()) == _singular(plain)]:
        return (next((name for name in same if name.casefold() == plain), same[0]),)
    said = _phrase_in(plain, told.text) or _is_time_in(plain, told.text)
    if said and plain not in told.refused:
        return (value,)
    if (near := _nearest(plain, names)) is not None:
        return (near,)
    if said:
        return (value,)
    words = re.findall(r"\w+", plain)
    if len(words) >= _PROSE:
        return (value,) if _numbers_in(plain, told.text) else None
    stems = [word[: max(4, len(word) - 3)] for word in words if len(word) > 3 or word.isdigit()]
    return (value,) if stems and all(re.search(rf"\b{re.escape(stem)}", told.text) for stem in stems) else None


def _phrase_in(plain: str, text: str) -> bool:
    """Whether a text stands there, in the singular or in the plural."""
    one = _singular(plain)
    many = "(?:y|ies)" if one.endswith("y") else "(?:s|es)?"
    form = f"{re.escape(one.removesuffix('y'))}{many}"
    return re.search(rf"(?<!\w)(?:{re.escape(plain)}|{form})(?!\w)", text) is not None


def invents(state: RunState, answer: str) -> bool:
    """Whether an answer names a file that nobody named, or holds a number that nobody gave, though what was looked up
    gave nothing. A number may be a sum of others; a name is of no such make."""
    plain, text = answer.casefold(), known(state).text
    if any(guess_type(name)[0] is not None and name not in text for name in _FILE.findall(plain)):
        return True
    actions = [action for step in state.steps for action in step.actions]
    if not actions or any(action.error is None for action in actions):
        return False
    return not _numbers_in(plain, text)


def _nearest(plain: str, names: list[str]) -> str | None:
    """The one name that is spelt nearly so."""
    if len(plain) < 4 or any(letter.isdigit() for letter in plain):
        return None
    ratio = {name: SequenceMatcher(None, plain, name.casefold()).ratio() for name in names if name[:1].isalpha()}
    near = [name for name, close in ratio.items() if close >= _NEAR]
    return near[0] if len(near) == 1 else None


def _singular(text: str) -> str:
    for ending, other in (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("sses", "ss"), ("s", "")):
        if text.endswith(ending) and not text.endswith("ss"):
            return text.removesuffix(ending) + other
    return text


def _numbers_in(prose: str, text: str) -> bool:
    return all(_number_in(float(number), text) for number in _NUMBER.findall(prose))


def _number_in(value: float, text: str) -> bool:
    """Whether a number is told, in figures or as a word; a share may be told in percent, minutes in hours."""
    plain = text.replace(",", "")
    if _written(value, plain) or (0 < value < 1 and _written(value * 100, plain)):
        return True
    at = int(value) if float(value).is_integer() else -1
    if 0 <= at < len(_NUMBERS) and re.search(rf"\b{_NUMBERS[at]}\b", text):
        return True
    if at in _MEASURES and re.search(_MEASURES[at], text):
        return True
    return at > 0 and at % 60 == 0 and "hour" in text and _number_in(at // 60, text)


def _written(value: float, text: str) -> bool:
    return re.search(rf"(?<![\d.]){re.escape(f'{value:.10g}')}(?:\.0+)?(?!\.?\d)", text) is not None


def _is_time_in(plain: str, text: str) -> bool:
    """Whether a date or a time is told in other words. Which date tomorrow is, the model must know."""
    if time := _TIME.fullmatch(plain):
        hour, minutes = int(time[1]), time[2]
        half = "am" if hour < 12 else "pm"
        clock = rf"(?<!\d){hour % 12 or 12}" + ("" if minutes == "00" else f"[:.]{minutes}")
        return re.search(clock + rf"\s*{half[0]}\.?m\b", text) is not None or (plain == "12:00" and "noon" in text)
    parts = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})(?:t.*)?", plain)
    if parts is None or not 1 <= int(parts[2]) <= 12:
        return False
    month, day = _MONTHS[3 * int(parts[2]) - 3 : 3 * int(parts[2])], str(int(parts[3]))
    named = re.search(rf"\b{month}", text) and re.search(rf"(?<!\d){day}(?!\d)", text) and parts[1] in text
    return bool(named) or _RELATIVE.search(text) is not None


def _asked_for(name: str, task: str) -> bool:
    """Whether the task has the verb of a tool's name, or another that asks for the same.

    What has been done ("cancelled") asks for nothing in a question.
    """
    tokens = _words_of(name.rpartition("__")[2])
    verbs = [token for token in tokens if any(token in group for group in _ASKS)]
    verb = tokens[0] if not verbs or tokens[0] in verbs else verbs[-1]
    wanted = {verb}.union(*(group for group in _ASKS if verb in group))
    stems = "|".join(re.escape(word.removesuffix("e")) for word in wanted)
    plain = re.compile(rf"{_REFUSED}\b(?:{stems})(?:e|s|es)?\b")
    other = re.compile(rf"{_REFUSED}\b(?:{stems})(?:d|ed|[a-z]?ed|[a-z]?ing|ment|l?ation)\b")
    sentences = re.findall(r"[^.?!\n]+[.?!]?", task)
    return any(plain.search(each) or (not each.endswith("?") and other.search(each)) for each in sentences)


def _leaves(value: Any) -> Iterator[Any]:
    if is_object(value):
        for each in value.values():
            yield from _leaves(each)
    elif is_list(value):
        for each in value:
            yield from _leaves(each)
    elif value not in (None, "", True, False):
        yield value
