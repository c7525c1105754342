"""The question that a server asks of a person, at a terminal: a form field by field, or a page to visit."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.cli.progress import one_line, printable
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments

if TYPE_CHECKING:
    from orchestrator.runtime.result import ApprovalRequest
    from orchestrator.runtime.tree import Verdict

Line = Callable[[], Awaitable[str]]
"""Reads one line that was typed, with its line end; empty when the terminal has gone."""

ACCEPT, DECLINE, CANCEL = ("a", "answer", "y", "yes"), ("d", "decline", "n", "no"), ("c", "cancel")
YES, NO = ("y", "yes", "true"), ("n", "no", "false")


class Gone(Exception):
    """Nobody is at the terminal any more."""


def is_verdict(request: "ApprovalRequest") -> bool:
    """Whether a call inside another orchestrator waits for a yes or a no, so that there is no form to fill in."""
    from orchestrator.tools import elicitation  # noqa: PLC0415 - imports the MCP package

    return elicitation.is_verdict((request.input or {}).get("schema"))


async def ask(request: "ApprovalRequest", line: Line) -> "Verdict | None":
    """The dialogue about what a server asks; None when the terminal has gone."""
    from orchestrator.runtime.tree import Verdict  # noqa: PLC0415 - imports the MCP package

    asked = request.input or {}
    _say(f"\nserver {asked['server']} asks you   ({request.agent} calls {request.tool}, {request.call})")
    _say(f"  {asked['message']}".replace("\n", "\n  "))
    try:
        if "url" in asked:
            return await _page(asked, line)
        while (choice := await _choose("answer [a], decline [d], cancel [c]? ", line)) == "a":
            content = await _filled(asked["schema"], line)
            if not content:
                return Verdict(approved=True, arguments={})
            for name, value in content.items():
                _say(f"  {name}: {_shown(value)}")
            choice = await _choose("send [a], decline [d], cancel [c], or fill it in again [e]? ", line, "e")
            if choice == "a":
                return Verdict(approved=True, arguments=content)
            if choice != "e":
                break
        return Verdict(approved=False, dismissed=choice == "c")
    except Gone:
        return None


async def _page(asked: Mapping[str, Any], line: Line) -> "Verdict":
    """A page is shown and never opened: whose it is stands on a line of its own."""
    from orchestrator.runtime.tree import Verdict  # noqa: PLC0415

    _say(f"  page: {asked['url']}\n  at:   {asked['host']}")
    _say("Open it yourself if you trust this host; nothing opens it for you.")
    choice = await _choose("done, go on [a], decline [d], cancel [c]? ", line)
    return Verdict(approved=choice == "a", dismissed=choice == "c")


async def _choose(prompt: str, line: Line, *more: str) -> str:
    """`a`, `d`, `c` or one of `more`."""
    while True:
        word = (await _typed(prompt, line)).lower()
        for choice, words in (("a", ACCEPT), ("d", DECLINE), ("c", CANCEL), *((each, (each,)) for each in more)):
            if word in words:
                return choice


async def _filled(schema: Mapping[str, Any], line: Line) -> dict[str, Any]:
    """Every field of a form; what does not fit is told and asked again, also where only the whole does not fit."""
    fields: dict[str, Any] = schema.get("properties") or {}
    if fields:
        _say("What you type stays in the run's journal: no passwords and no keys. * is required.")
    while True:
        content: dict[str, Any] = {}
        for name, field in fields.items():
            content |= await _field(name, dict(field), line, required=name in schema.get("required", ()))
        try:
            return ArgumentSchema(schema).check(content)
        except InvalidArguments as error:
            _say(f"  this does not fit:{error.problem}")


async def _field(name: str, field: dict[str, Any], line: Line, *, required: bool) -> dict[str, Any]:
    """One field: what was typed, the default, or nothing where it may be left out."""
    choices = _choices(field)
    words = [str(field.get("title") or ""), str(field.get("description") or ""), _kind(field, choices)]
    _say(f"  {name}{'*' if required else ''}  {one_line(' · '.join(word for word in words if word))}")
    for number, (value, title) in enumerate(choices, 1):
        _say(f"    {number}  {one_line(title)}{f' ({one_line(value)})' if title != value else ''}")
    while True:
        default = f" [{_shown(field['default'])}]" if "default" in field else ""
        typed = await _typed(f"  {name}{default}: ", line)
        if not typed and "default" in field:
            return {name: field["default"]}
        if not typed and not required:
            return {}
        value = _value(field, typed, choices)
        try:
            return ArgumentSchema({"type": "object", "properties": {name: field}, "required": [name]}).check(
                {name: value}
            )
        except InvalidArguments as error:
            _say(f"    this does not fit:{error.problem}")


def _choices(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What may be chosen from, each with its title: of one or of several."""
    of: Mapping[str, Any] = field.get("items") or {} if field.get("type") == "array" else field
    if titled := of.get("oneOf") or of.get("anyOf"):
        return [(str(each["const"]), str(each.get("title", each["const"]))) for each in titled if "const" in each]
    values = [str(each) for each in of.get("enum") or ()]
    names = [str(each) for each in of.get("enumNames") or values]
    return list(zip(values, names, strict=False))


def _kind(field: Mapping[str, Any], choices: list[tuple[str, str]]) -> str:
    """What may be typed."""
    if choices:
        return "one or more, with commas between" if field.get("type") == "array" else "one of"
    if field.get("type") == "boolean":
        return "yes or no"
    bounds = [f"{word} {field[key]}" for key, word in _BOUNDS.items() if key in field]
    return ", ".join([str(field.get("format") or field.get("type") or "text"), *bounds])


_BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "pattern": "pattern",
}


def _value(field: Mapping[str, Any], typed: str, choices: list[tuple[str, str]]) -> Any:
    """What was typed, as the field's type has it where that is clear; the schema judges the rest."""
    if field.get("type") == "array":
        return [_chosen(part.strip(), choices) for part in typed.split(",") if part.strip()]
    if field.get("type") == "boolean":
        return True if typed.lower() in YES else False if typed.lower() in NO else typed
    return _chosen(typed, choices)


def _chosen(typed: str, choices: list[tuple[str, str]]) -> str:
    """A choice by its value, its title or its number."""
    for number, (value, title) in enumerate(choices, 1):
        if typed == value or typed.lower() == title.lower():
            return value
        if typed == str(number) and typed not in (value for value, _ in choices):
            return value
    return typed


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


async def _typed(prompt: str, line: Line) -> str:
    print(printable(prompt), end="", file=sys.stderr, flush=True)
    if not (text := await line()):
        raise Gone
    return text.strip()


def _say(text: str) -> None:
    """All of it may be a server's words."""
    print(printable(text), file=sys.stderr)
