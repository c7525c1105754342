"""Which tools a card may use, and whether the names it gives them exist.

Patterns are globs over `server__tool`, each part in `[A-Za-z0-9_-]`. A pattern reaches a bundled server only when it
spells out the server's name, so that `*` is what the user configured and no more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from orchestrator.cards.card import AgentCard
from orchestrator.config.names import did_you_mean, listed, nearest, sanitise
from orchestrator.errors import Problem

Known = Mapping[str, Sequence[str] | None]
"""Names of each server's tools; None for a server that cannot be reached, whose tools are not judged."""

BUILT_IN = ("find_tools", "plan", "recall", "remember", "retrieve_result")
"""Tools that are offered beside a card's globs; naming them changes nothing."""

_HOST_NAMES = ("Read", "Grep", "Glob", "Write", "Edit", "MultiEdit")


class Offer(NamedTuple):
    """A tool that is there: its server and its own name, and what models call it by."""

    server: str
    tool: str
    name: str


def select(card: AgentCard, offers: Iterable[Offer], bundled: Collection[str] = ()) -> list[Offer]:
    """The tools of `offers` that the card may use, in their order. `bundled` names the bundled servers."""
    return [
        offer
        for offer in offers
        if _selected(card, offer, offer.server in bundled)
        and not any(matches(glob, offer, bundled=False) for glob in card.without)
    ]


def matches(glob: str, offer: Offer, *, bundled: bool) -> bool:
    """Whether a pattern of a card means this tool."""
    if glob == offer.name:
        return True
    server = sanitise(offer.server)
    full = f"{server}__{sanitise(offer.tool)}"
    found = any(fnmatchcase(name, glob) for name in (full, offer.name, f"{offer.server}__{offer.tool}"))
    return found and (not bundled or glob.startswith((f"{server}__", f"{offer.server}__")))


def check_tools(card: AgentCard, known: Known, bundled: Collection[str] = ()) -> tuple[list[Problem], list[Problem]]:
    """Judges the names of tools and servers in a card; errors and warnings.

    `known` has every configured and bundled server. What another host's card names and is not configured here is a
    warning only, as is everything about a server whose list is not known.
    """
    checker = _Checker(card, known, bundled)
    for glob in card.tools or ():
        checker.tool("tools", glob)
    for glob in card.approve:
        if not _is_glob(glob) and glob not in card.agents and not glob.startswith("agents__"):
            checker.tool("approve", glob)
    for name in card.mcp_servers:
        checker.server(name)
    return checker.errors, checker.warnings


def _selected(card: AgentCard, offer: Offer, bundled: bool) -> bool:
    if card.tools is not None:
        return any(matches(glob, offer, bundled=bundled) for glob in card.tools)
    if card.mcp_servers:
        return sanitise(offer.server) in {sanitise(name) for name in card.mcp_servers}
    return not card.agents and not bundled


def _is_glob(text: str) -> bool:
    return any(char in text for char in "*?[")


class _Checker:
    def __init__(self, card: AgentCard, known: Known, bundled: Collection[str]) -> None:
        self.card = card
        self.known = known
        self.bundled = bundled
        self.keys = {sanitise(name): name for name in known}
        self.full = [f"{sanitise(name)}__{sanitise(tool)}" for name, tools in known.items() for tool in tools or ()]
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, key: str, name: str, message: str, *, only_warn: bool = False) -> None:
        (self.warnings if only_warn else self.errors).append(self.card.problem(f"{key}: {message}", key, name))

    def server(self, name: str) -> None:
        if sanitise(name) not in self.keys:
            foreign = self.card.place("mcp-servers", name).foreign
            hint = did_you_mean(name, self.known) or self.configured()
            self.error("mcp-servers", name, f"there is no server `{name}`.{hint}", only_warn=foreign)

    def configured(self) -> str:
        return f" Configured: {listed(self.known)}." if self.known else " No server is configured."

    def tool(self, key: str, glob: str) -> None:
        if any(fnmatchcase(name, glob) for name in self.full) or glob == "*" or glob in BUILT_IN:
            return
        name = self.owner(glob)
        if name is not None:
            self.tool_of(key, glob, name)
        elif "__" not in glob and not _is_glob(glob):
            self.bare(key, glob)
        elif _is_glob(glob.partition("__")[0]):
            unsure = not self.known or any(tools is None for tools in self.known.values())
            self.error(key, glob, f"`{glob}` matches no tool.", only_warn=unsure)
        else:
            self.unknown_server(key, glob)

    def owner(self, glob: str) -> str | None:
        """The known server that a pattern spells out; the longest, where a server's name has `__` itself."""
        found = [name for key, name in self.keys.items() if glob.startswith((f"{key}__", f"{name}__"))]
        return max(found, key=len, default=None)

    def tool_of(self, key: str, glob: str, server: str) -> None:
        tools = self.known[server]
        place = self.card.place(key, glob)
        if tools is None:
            message = f"`{glob}` cannot be checked: the server `{server}` cannot be reached."
            self.error(key, glob, message, only_warn=True)
            return
        own = [f"{sanitise(server)}__{sanitise(tool)}" for tool in tools]
        if any(fnmatchcase(f"{server}__{tool}", glob) for tool in tools):
            return
        hint = did_you_mean(glob, own) or (f" It has {listed(tools)}." if tools else " It has no tools.")
        message = f"the server `{server}` has no tool for `{place.text or glob}`.{hint}"
        self.error(key, glob, message, only_warn=place.foreign and server in self.bundled)

    def unknown_server(self, key: str, glob: str) -> None:
        server = glob.partition("__")[0]
        place = self.card.place(key, glob)
        if server == "agents":
            self.error(key, glob, f"`{glob}`: agents are named under `agents:`, not `{key}:`.")
            return
        near = nearest(server, self.keys)
        meant = f"{near}{glob.removeprefix(server)}" if near else ""
        hint = f" Did you mean `{meant}`?" if meant else did_you_mean(glob, self.full) or self.configured()
        what = f"`{glob}`" + (f" (written `{place.text}`)" if place.text not in ("", glob) else "")
        self.error(key, glob, f"there is no server `{server}` for {what}.{hint}", only_warn=place.foreign)

    def bare(self, key: str, name: str) -> None:
        """A name without a server: a misspelling of something here, or another host's tool."""
        if sanitise(name) in self.keys:
            self.error(key, name, f"`{name}` is a server; write `{sanitise(name)}__*` for all of its tools.")
            return
        ends = {full.partition("__")[2]: full for full in self.full}
        near = nearest(name, ends) or nearest(name, self.keys)
        meant = (ends.get(near) or f"{near}__*") if near else nearest(name, (*self.full, *BUILT_IN, *_HOST_NAMES))
        if meant or key != "tools":
            hint = f" Did you mean `{meant}`?" if meant else " Tools are named `server__tool`."
            self.error(key, name, f"there is no tool `{name}`.{hint}")
        else:
            self.error(key, name, f"left out: `{name}`; tools are named `server__tool` here.", only_warn=True)
