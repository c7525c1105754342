"""Which tools a card may use, and whether the names it gives them exist.

Patterns are globs over `server__tool`, each part in `[A-Za-z0-9_-]`. A pattern reaches a bundled server only when it
spells out the server's name, so that `*` is what the user configured and no more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from orchestrator.cards.card import AgentCard
from orchestrator.cards.reach import may_mean, may_use
from orchestrator.cards.words import HERE
from orchestrator.config.names import did_you_mean, listed, nearest, sanitise
from orchestrator.errors import Problem

Known = Mapping[str, Sequence[str] | None]
"""Names of each server's tools; None for a server that cannot be reached, whose tools are not judged."""

BUILT_IN = ("find_tools", "plan", "recall", "remember", "retrieve_result")
"""Tools that are offered beside a card's globs; naming them changes nothing."""


class Offer(NamedTuple):
    """A tool that is there: its server and its own name, and what models call it by."""

    server: str
    tool: str
    name: str


def select(card: AgentCard, offers: Iterable[Offer], bundled: Collection[str] = ()) -> list[Offer]:
    """The tools of `offers` that the card may use, in their order. `bundled` names the bundled servers."""

    def chosen(offer: Offer) -> bool:
        if card.tools is None:
            return may_use(card, offer.server, bundled=offer.server in bundled)
        return any(_matches(glob, offer, bundled=offer.server in bundled) for glob in card.tools)

    def refused(offer: Offer) -> bool:
        return any(_matches(glob, offer, bundled=False) for glob in card.without)

    return [offer for offer in offers if chosen(offer) and not refused(offer)]


def _matches(glob: str, offer: Offer, *, bundled: bool) -> bool:
    """Whether a pattern of a card means this tool."""
    names = (*_spellings(offer.server, offer.tool), offer.name)
    found = any(fnmatchcase(name, glob) for name in names) and may_mean(glob, offer.server, bundled=bundled)
    return found or glob == offer.name


def _spellings(server: str, tool: str) -> tuple[str, str]:
    return f"{sanitise(server)}__{sanitise(tool)}", f"{server}__{tool}"


def check_tools(card: AgentCard, known: Known, bundled: Collection[str] = ()) -> tuple[list[Problem], list[Problem]]:
    """Judges the names of tools and servers in a card; errors and warnings.

    `known` has every configured and bundled server. What another host's card names and is not configured here is a
    warning only, as is everything about a server whose list is not known.
    """
    errors: list[Problem] = []
    warnings: list[Problem] = []
    named = [("tools", glob) for glob in card.tools or ()]
    named += [
        ("approve", glob)
        for glob in card.approve
        if not _is_glob(glob) and glob.removeprefix("agents__") not in card.agents
    ]
    for key, glob in named:
        if fault := _fault(card, key, glob, known, bundled):
            message, only_warn = fault
            (warnings if only_warn else errors).append(card.problem(f"{key}: {message}", key, glob))
    servers = {sanitise(name) for name in known}
    for name in card.mcp_servers:
        if sanitise(name) not in servers:
            hint = did_you_mean(name, known) or _configured(known)
            problem = card.problem(f"mcp-servers: there is no server `{name}`.{hint}", "mcp-servers", name)
            (warnings if card.place("mcp-servers", name).foreign else errors).append(problem)
    return errors, warnings


def _fault(card: AgentCard, key: str, glob: str, known: Known, bundled: Collection[str]) -> tuple[str, bool] | None:
    """What is wrong with the name of a tool, and whether that is worth a warning only."""
    names = [name for server, tools in known.items() for tool in tools or () for name in _spellings(server, tool)]
    if glob in ("*", *BUILT_IN) or any(fnmatchcase(name, glob) for name in names):
        return None
    if _is_glob(glob.partition("__")[0]):
        return f"`{glob}` matches no tool.", not known or None in known.values()
    server = max((name for name in known if glob.startswith(_spellings(name, ""))), key=len, default=None)
    if server is not None and known[server] is None:
        return f"`{glob}` cannot be checked: the server `{server}` cannot be reached.", True
    meant = {name.partition("__")[2]: name for name in names}
    for each in known:
        meant[each] = meant[f"{each}__*"] = f"{sanitise(each)}__*"
    for name in (*names, *BUILT_IN, *HERE):
        meant.setdefault(name, name)
    place = card.place(key, glob)
    if near := nearest(glob, meant):
        hint = f" Did you mean `{meant[near]}`?"
    elif server is not None:
        hint = f" `{server}` has {listed(known[server] or ()) or 'no tools'}."
    else:
        hint = f" Tools are named `server__tool`.{_configured(known)}"
    elsewhere = place.foreign and (server is None or server in bundled)
    left_out = key == "tools" and "__" not in glob and not near
    return f"there is no tool `{place.text or glob}`.{hint}", elsewhere or left_out


def _configured(known: Known) -> str:
    return f" Configured: {listed(known)}." if known else " No server is configured."


def _is_glob(text: str) -> bool:
    return any(char in text for char in "*?[")
