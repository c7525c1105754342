"""Words in cards: our keys, and the keys and tools of other hosts."""

import re

from orchestrator.config.names import misspelt

KEYS = (
    "name",
    "description",
    "model",
    "tools",
    "agents",
    "mcp-servers",
    "role",
    "approve",
    "plan",
    "review",
    "limits",
    "temperature",
    "input",
    "output",
)
_ALIASES = {"allowedtools": "tools", "disallowedtools": "without", "maxturns": "steps", "maxsteps": "steps"}
_OURS = {key.replace("-", ""): key for key in KEYS} | _ALIASES
_OTHER_KEYS = ("hooks", "mode")
"""Keys of other hosts that would be taken for misspellings of ours."""

_BUILT_IN = {
    "Read NotebookRead read read/readFile": ("files__read",),
    "Grep search/textSearch": ("files__search",),
    "Glob LS search/fileSearch search/listDirectory": ("files__list",),
    "Write edit/createFile": ("files__write",),
    "Edit MultiEdit edit/editFiles": ("files__edit",),
    "edit editFiles": ("files__edit", "files__write"),
}
HERE = {word: globs for words, globs in _BUILT_IN.items() for word in words.split()}
"""Tools of other hosts that have equivalents here, as our globs."""
_ELSEWHERE = """
    Agent AskUserQuestion Bash BashOutput EnterPlanMode ExitPlanMode KillBash KillShell LSP Monitor NotebookEdit
    PowerShell SendMessage Skill SlashCommand Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
    TodoRead TodoWrite ToolSearch WebFetch WebSearch agent browser changes codebase custom-agent execute extensions
    fetch findTestFiles githubRepo new openSimpleBrowser problems runCommands runNotebooks runSubagent runTasks
    runTests search searchResults shell terminalLastCommand terminalSelection testFailure think todo todos usages
    vscode vscodeAPI web
"""
_NOT_HERE = frozenset(_ELSEWHERE.split())
_SETS = ("agent", "browser", "edit", "execute", "read", "search", "todo", "vscode", "web")
_CALL = re.compile(r"([^()]+)\((.*)\)\Z", re.DOTALL)
_OUTSIDE = re.compile(r"[^A-Za-z0-9_*?\[\]!-]")


def our_key(word: str) -> str | None:
    """Our key for one that is written in some host's way."""
    return _OURS.get(word.lower().replace("-", "").replace("_", ""))


def misspelt_key(word: str) -> str | None:
    """Our key that a word is a misspelling of."""
    return None if word in _OTHER_KEYS else misspelt(word.lower().replace("_", "-"), KEYS)


def split_list(text: str) -> list[str]:
    """The parts of a comma-separated list; commas inside brackets do not part."""
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char in ",\n" and depth <= 0:
            parts.append(text[start:at])
            start, depth = at + 1, 0
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def translate(written: str) -> tuple[tuple[str, ...], bool]:
    """A tool as some host writes it, as our globs (none: no such tool here); whether the spelling is another host's."""
    call = _CALL.match(written)
    name = call[1].strip() if call else written
    if name in HERE:
        return HERE[name], True
    group = name.partition("/")[0]
    if name in _NOT_HERE or (group in _SETS and group != name):
        return (), True
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
    elif "/" in name and "__" not in name:
        server, _, tool = name.rpartition("/")
    else:
        return (written,), False
    return (f"{_OUTSIDE.sub('_', server)}__{_OUTSIDE.sub('_', tool) or '*'}",), True
