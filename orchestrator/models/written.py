"""Calls that a model wrote as text, where the wire has a place for them that it did not use.

Known forms: an object with a tool's name and its arguments, alone, in fences or tags, in a list, or inside prose;
`Action:` and `Action Input:` lines; `<function=NAME>{…}`; and `name(key="value")`. Nothing is called that is not
offered. What looks like a call and cannot be read as one is told as a doubt, with the fragment.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.models.base import ToolSpec
from orchestrator.models.lenient import as_list, as_object, dump
from orchestrator.models.repair import repair

_NAMES: Final = ("name", "tool", "tool_name", "action", "function", "function_name", "recipient_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "action_input", "input", "tool_input", "params", "kwargs")
_BESIDE: Final = frozenset({"id", "type", "index", "thought", "thoughts", "reasoning", "call_id"})
_MOST_OBJECTS: Final = 32
_LONGEST: Final = 60_000  # characters of a reply that are looked at
_FRAGMENT: Final = 300

_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(
    r"</?(?:tool_calls?|function_calls?|tools|function|call|invoke)>|\[/?TOOL_CALLS\]|<\|[a-z_▁ ]{1,30}\|>|"
    r"```[A-Za-z0-9_+-]*[ \t]*",
    re.IGNORECASE,
)
_ACTION = re.compile(
    r"^[ \t>*#-]*Action[ \t*]*[:：][ \t*]*(.+?)[ \t*]*\n+[ \t>*#-]*Action[ _]Input[ \t*]*[:：][ \t*]*"
    r"(?:\s*(?:```\w*\s*)?(?=[{｛]))?",
    re.M | re.IGNORECASE,
)
_FUNCTION = re.compile(r"<function=([\w.-]+)>\s*")
_BRACKET = re.compile(r"\"(?:[^\"\\]|\\.)*\"?|“[^”]*”?|(?<=[{\[:,(])\s*'(?:[^'\\]|\\.)*'?|[{}\[\]｛｝［］]", re.DOTALL)
_OPENING = re.compile(r"[{｛]")
_OPENS: Final = "{[｛［"
_CALL_OF_A_WORD: Final = r"\((?:\s*\w+\s*=|\s*[\"'{\[]|\))"
_NAMED = re.compile(r"""["'“](?:name|tool|tool_name|action|function)["'”]\s*[:：]\s*["'“]([\w.-]+)["'”]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a text holds: `calls` as name and arguments (JSON text, perhaps broken), and the text without them.

    `doubt` is the part that looks like a call, when none can be read; `tool` is the offered one that it names, if any.
    """

    text: str
    calls: Sequence[tuple[str, str]] = ()
    doubt: str = ""
    tool: str = ""


def read_calls(text: str, tools: Sequence[ToolSpec], *, cut: bool = False) -> Written:
    """Looks for calls of `tools` in a reply's text. `cut` says that it ended at its output limit. Never raises."""
    said = _THOUGHT.sub("", text)
    if not tools or len(said) > _LONGEST or not re.search(r"[{｛(<]|Action", said):
        return Written(text=text)
    return _Reading(said, tools, cut=cut).written(text)


def span_of(text: str, start: int) -> tuple[int, bool]:
    """Where the brackets that open at `start` close, and whether they do."""
    depth = 0
    for token in _BRACKET.finditer(text, start):
        bracket = token.group()
        if len(bracket) == 1 and bracket not in "\"“'":
            depth += 1 if bracket in _OPENS else -1
            if depth <= 0:
                return token.end(), True
    return len(text), False


class _Reading:
    def __init__(self, text: str, tools: Sequence[ToolSpec], *, cut: bool) -> None:
        self._text = text
        self._cut = cut
        self._names = names_of(tools)
        self._properties = {tool.name: as_object(tool.parameters.get("properties")).keys() for tool in tools}
        self._calls: list[tuple[str, str]] = []
        self._spans: list[tuple[int, int]] = []
        self._doubt = ""

    def written(self, whole: str) -> Written:
        for found in (self._actions, self._functions, self._objects, self._python):
            found()
            if self._calls:
                return Written(text=self._rest(), calls=self._calls)
        if doubt := self._doubt or self._suspicion():
            named = [tool for name, tool in self._names.items() if re.search(rf"\b{re.escape(name)}\b", self._text)]
            return Written(text=whole, doubt=doubt[:_FRAGMENT], tool=named[0] if named else "")
        return Written(text=whole)

    def _actions(self) -> None:
        """ReAct's two lines."""
        for found in _ACTION.finditer(self._text):
            if name := self._names.get(found[1].strip("`\"'[]() ")):
                start = found.end()
                end = self._value_at(start)
                self._take(name, self._text[start:end].strip(), found.start(), end)

    def _functions(self) -> None:
        """Llama's `<function=NAME>{…}`."""
        for found in _FUNCTION.finditer(self._text):
            if name := self._names.get(found[1]):
                end = self._value_at(found.end())
                self._take(name, self._text[found.end() : end], found.start(), end)

    def _value_at(self, start: int) -> int:
        if self._text[start : start + 1] in ("{", "｛"):
            return span_of(self._text, start)[0]
        end = self._text.find("\n", start)
        return len(self._text) if end < 0 else end

    def _objects(self) -> None:
        """Objects that name a tool, wherever they stand."""
        at = 0
        for _ in range(_MOST_OBJECTS):
            if (found := _OPENING.search(self._text, at)) is None:
                break
            start = found.start()
            end, closed = span_of(self._text, start)
            if self._cut and not closed:  # what is missing must not be guessed
                self._fragment(start)
                break
            calls = list(self._calls_in(_value(self._text[start:end])))
            for name, arguments in calls:
                self._take(name, arguments, start, end)
            at = end if calls else start + 1

    def _fragment(self, start: int) -> None:
        """The beginning of a call whose end is missing: its name, and its arguments as far as they go."""
        fragment = self._text[start:]
        named = _NAMED.search(fragment)
        if named and (name := self._names.get(named[1])):
            begun = fragment.find("{", named.end())
            self._take(name, fragment[begun:] if begun >= 0 else "{", start, len(self._text))
        elif _TAGS.sub("", self._text[:start]).strip(" \n[") == "":  # with words before it, it may as well be an answer
            self._doubt = fragment

    def _take(self, name: str, arguments: str, start: int, end: int) -> None:
        nothing = "{" if self._cut and end >= len(self._text) else "{}"
        self._calls.append((name, arguments or nothing))
        self._spans.append((start, end))

    def _calls_in(self, value: Any) -> Iterator[tuple[str, str]]:
        fields = as_object(value)
        for each in as_list(value) or as_list(fields.get("tool_calls")) or as_list(fields.get("tool_uses")):
            yield from self._calls_in(each)
        if inner := as_object(fields.get("function")) or as_object(fields.get("function_call")):
            yield from self._calls_in(inner)
        elif (
            len(fields) == 1 and (name := self._names.get(key := next(iter(fields)))) and self._keyed(key, fields[key])
        ):
            yield name, dump(fields[key]).decode()
        elif name := next((self._names[n] for n in self._said(fields) if n in self._names), None):
            yield from self._arguments(name, fields)

    def _keyed(self, key: str, value: Any) -> bool:
        """Whether a value under a tool's name are its arguments; under a word of the language it may be an answer."""
        if not isinstance(value, dict):
            return False
        given = as_object(value).keys()
        return not is_word(key) or (bool(given) and given <= self._properties[self._names[key]])

    def _arguments(self, name: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        key = next((key for key in _ARGUMENTS if key in fields and key not in self._properties[name]), None)
        key = key or next((key for key in _ARGUMENTS if key in fields), None)
        rest = {k: v for k, v in fields.items() if k not in _BESIDE and k not in _NAMES}
        if key is not None:
            given = fields[key]
            yield name, given if isinstance(given, str) else dump({} if given is None else given).decode()
        elif rest.keys() <= self._properties[name] and (rest or not all(map(is_word, self._said(fields)))):
            yield name, dump(rest).decode()

    def _said(self, fields: Mapping[str, Any]) -> Iterator[str]:
        return (value.strip() for key in _NAMES if isinstance(value := fields.get(key), str))

    def _python(self) -> None:
        """`name(key="value")`, when that is all there is."""
        text = _TAGS.sub("", self._text).strip()
        try:
            body = ast.parse(text, mode="eval").body if len(text) < 4_000 else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for call in body.elts if isinstance(body, ast.List) else [body]:
            if isinstance(call, ast.Call) and (name := self._names.get(ast.unparse(call.func))):
                self._take(name, self._keywords(name, call), 0, len(self._text))

    def _keywords(self, name: str, call: ast.Call) -> str:
        names = [*list(self._properties[name])[: len(call.args)], *(keyword.arg for keyword in call.keywords)]
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        try:
            given = {str(key): ast.literal_eval(value) for key, value in zip(names, values, strict=False)}
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return ast.unparse(call)
        return dump(given).decode()

    def _suspicion(self) -> str:
        """The part of a text that is no call, and yet nothing that a person should get as an answer.

        A tool whose name is a word of the language says little where it stands in prose.
        """
        fragments = [
            self._text[start : span_of(self._text, start)[0]]
            for start in [match.start() for match in _OPENING.finditer(self._text)][:_MOST_OBJECTS]
        ]
        objects = [(fragment, as_object(_value(fragment))) for fragment in fragments]
        for name, tool in self._names.items():
            bracket = _CALL_OF_A_WORD if is_word(name) else r"\s*\("
            if found := re.search(rf"\b{re.escape(name)}{bracket}", self._text):
                return self._text[found.start() :]
            if not re.search(rf"\b{re.escape(name)}\b", self._text):
                continue
            for fragment, fields in objects:
                alike = fields.keys() <= self._properties[tool] or fields.keys() & {*_NAMES, *_ARGUMENTS}
                if name in self._said(fields) or (fields and alike and not is_word(name)):
                    return fragment
        whole = _TAGS.sub("", self._text).strip()
        fields = as_object(_value(whole)) if whole.startswith(("{", "｛")) else {}
        called = any(self._said(fields)) and any(key in fields for key in _ARGUMENTS[:2])
        return whole if called or re.match(r"\s*(?:<tool_call>|\[TOOL_CALLS\]|<function=)", self._text) else ""

    def _rest(self) -> str:
        text, at = "", 0
        for start, end in sorted(self._spans):
            text += self._text[at:start]
            at = max(at, end)
        text = _TAGS.sub("", text + self._text[at:])
        return re.sub(r"\n{3,}", "\n\n", re.sub(r"^[\s\[\],]+$", "", text)).strip()


def is_word(name: str) -> bool:
    """Whether a name may stand in ordinary text as well: `search`, but not `web__search` or `getOrder`."""
    return name.isalpha() and name[1:].islower()


def names_of(tools: Sequence[ToolSpec]) -> dict[str, str]:
    """The offered names, and their last parts where those are clear, to the offered name."""
    leaves: dict[str, list[str]] = {}
    for tool in tools:
        leaves.setdefault(tool.name.rpartition("__")[2], []).append(tool.name)
    short = {leaf: names[0] for leaf, names in leaves.items() if len(names) == 1}
    return short | {tool.name: tool.name for tool in tools}


def _value(text: str) -> Any:
    try:
        return repair(text)
    except ValueError:
        return None
