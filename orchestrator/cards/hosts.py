"""Words of other hosts in cards: their keys, and their names for tools."""

import re
from collections.abc import Iterable, Mapping


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


KEYS: Mapping[str, str] = {
    "allowedtools": "tools",
    "disallowedtools": "without",
    "mcpservers": "mcp-servers",
    "maxturns": "steps",
    "maxsteps": "steps",
}
"""Spellings of other hosts' keys (without case, `-` and `_`) and ours."""

OTHER_KEYS = _words(
    "arguments argumenthint author background category color context date disablemodelinvocation effort emoji file",
    "globs handoffs hooks icon id infer initialprompt isolation lang license memory metadata mode permissionmode",
    "skills tag tags target title tone type userinvocable userinvokable version when applyto",
)
"""Keys that other hosts have and we do not; never taken for misspellings of ours."""

_BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "Read": ("files__read",),
    "NotebookRead": ("files__read",),
    "Grep": ("files__search",),
    "Glob": ("files__list",),
    "LS": ("files__list",),
    "Write": ("files__write",),
    "Edit": ("files__edit",),
    "MultiEdit": ("files__edit",),
    "read": ("files__read",),
    "edit": ("files__edit", "files__write"),
    "editFiles": ("files__edit", "files__write"),
    "read/readFile": ("files__read",),
    "edit/editFiles": ("files__edit",),
    "edit/createFile": ("files__write",),
    "search/textSearch": ("files__search",),
    "search/fileSearch": ("files__list",),
    "search/listDirectory": ("files__list",),
}
_NOT_HERE = _words(
    "Agent AskUserQuestion Bash BashOutput EnterPlanMode ExitPlanMode KillBash KillShell LSP Monitor NotebookEdit",
    "PowerShell SendMessage Skill SlashCommand Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate",
    "TodoRead TodoWrite ToolSearch WebFetch WebSearch agent browser changes codebase custom-agent execute extensions",
    "fetch findTestFiles githubRepo new openSimpleBrowser problems runCommands runNotebooks runSubagent runTasks",
    "runTests search searchResults shell terminalLastCommand terminalSelection testFailure think todo todos usages",
    "vscode vscodeAPI web",
)
_SETS = ("agent", "browser", "edit", "execute", "read", "search", "todo", "vscode", "web")
_CALL = re.compile(r"([^()]+)\((.*)\)\Z", re.DOTALL)
_OUTSIDE = re.compile(r"[^A-Za-z0-9_*?\[\]!-]")


def split_list(text: str) -> list[str]:
    """The parts of a comma-separated list; commas inside brackets do not part."""
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char in ",\n" and depth <= 0:
            parts.append(text[start:at])
            start, depth = at + 1, 0
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def translate(written: str) -> tuple[tuple[str, ...], bool, str | None]:
    """A tool as some host writes it, as our globs; whether the spelling is another host's; and what to warn of.

    No globs means that there is no such tool here.
    """
    call = _CALL.match(written)
    name = call[1].strip() if call else written
    if name in _BUILT_IN:
        lost = f"`{written}` is taken as {_BUILT_IN[name][0]}: the part in brackets has no meaning here."
        return _BUILT_IN[name], True, lost if call else None
    if name in _NOT_HERE or (name.partition("/")[0] in _SETS and "/" in name):
        return (), True, None
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return (f"{_clean(server)}__{_clean(tool) or '*'}",), True, None
    if "/" in name and "__" not in name:
        server, _, tool = name.rpartition("/")
        return (f"{_clean(server)}__{_clean(tool) or '*'}",), True, None
    return (written,), False, None


def left_out(names: Iterable[str]) -> str:
    """The warning about tools that have no equivalent here."""
    quoted = ", ".join(f"`{name}`" for name in names)
    return f"left out, as there is no equivalent of another host's tool here: {quoted}."


def _clean(part: str) -> str:
    return _OUTSIDE.sub("_", part.strip())
