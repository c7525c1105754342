"""The tools of one agent in groups, one a server, for a model that is not shown them all."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from orchestrator.tools.search import Index
from orchestrator.tools.toolset import Offer

_ABOUT = 100  # characters of a server's own words, and of the names of some of its tools
_LINE = 200  # characters of a tool's one line


class Catalogue:
    """`offers` in their order. What is built from them is built at the first need, and once."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._offers = offers

    @cached_property
    def groups(self) -> dict[str, list[Offer]]:
        groups: dict[str, list[Offer]] = {}
        for offer in self._offers:
            groups.setdefault(offer.server.name, []).append(offer)
        return groups

    @cached_property
    def outline(self) -> str:
        """The groups, one line each. A server's words about itself are marked as such."""
        return "\n".join(map(_group_line, self.groups.values()))

    def find(self, query: str, group: str | None = None) -> list[Offer]:
        """The tools that `query` names, else those that fit its words, best first; of `group` alone where it is given.

        Raises:
            KeyError: there is no such group.
        """
        offers = self._offers if group is None else self.groups[group]
        if not query.strip():
            return list(offers)
        named = set(re.split(r"[\s,;]+", query.strip()))
        exact = [offer for offer in offers if named & {offer.name, offer.tool.name}]
        if named <= {name for offer in exact for name in (offer.name, offer.tool.name) if "_" in name}:
            return exact
        if group is None and query.strip() in self.groups:
            return self.groups[query.strip()]
        wanted = {id(offer) for offer in offers}
        return [offer for place in self._index.rank(query) if id(offer := self._offers[place]) in wanted]

    @cached_property
    def _index(self) -> Index:
        return Index([_fields(offer) for offer in self._offers])


def tool_line(offer: Offer) -> str:
    """A tool in one line: its name, its arguments, what it does."""
    properties, required = _properties(offer), offer.tool.input_schema.get("required", ())
    arguments = ", ".join(name if name in required else f"{name}?" for name in properties)
    words = " ".join((offer.tool.description or offer.tool.title or "").split())
    return _cut(f"{offer.name}({_cut(arguments, _ABOUT)}): {words}", _LINE)


def _group_line(offers: Sequence[Offer]) -> str:
    server = offers[0].server
    words = " ".join(server.about.split())
    about = f' says of itself: "{_cut(words, _ABOUT)}";' if words else ""
    some = _cut(", ".join(offer.tool.name for offer in offers), _ABOUT)
    return f"- {server.name} ({len(offers)} tools){about} {some}"


def _fields(offer: Offer) -> list[tuple[str, int]]:
    tool = offer.tool
    texts = [(tool.name, 4), (tool.title or "", 3), (offer.server.name, 2), (tool.description or "", 1)]
    return [*texts, (" ".join(_properties(offer)), 1)]


def _properties(offer: Offer) -> dict[str, Any]:
    properties = offer.tool.input_schema.get("properties")
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
