"""What a server offers, and whether it still says what it said when it was first seen.

The first definition of a tool is taken on trust, as the user chose the server. A later change of what a model reads or
what decides about approval (description, title, schema, annotations) is reported. For a server that is not trusted the
known definition stays in use, and each call is asked for, until a person has approved one.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp import Client
from mcp_types import DiscoverResult, Tool
from pydantic import BaseModel, ValidationError

from orchestrator.tools.remembered import Definition, Memory, Record

logger = logging.getLogger(__name__)

Trust = Literal["ask", "report", "own"]
"""What a change of a known tool needs: a person's approval, a warning, or nothing, as the server is a part of us."""

ORCHESTRATOR = "orchestrator"
"""The experimental capability of a server whose tools are agents: they take our limits and say what they spent."""

LONGEST_QUOTE = 300
MOST_GONE = 500
"""Tools that a server does not list any more and whose definitions are kept, lest they come back changed."""

_MATTERS: Mapping[str, str] = {
    "description": "description",
    "title": "title",
    "inputSchema": "input schema",
    "annotations": "annotations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """How a connection begins: by asking which protocol the server speaks, or by what it spoke the last time."""

    mode: str = "auto"
    prior: DiscoverResult | None = None


ASK = Hello()


class Listing:
    """The tools of one server. `changes` says, by tool, what nobody has approved yet."""

    def __init__(self, server: str, trust: Trust, memory: Memory | None = None) -> None:
        self._server = server
        self._trust: Trust = trust
        self._memory = memory
        self._record = memory.record if memory else Record()
        self.tools: tuple[Tool, ...] = ()
        self.changes: dict[str, str] = {}
        try:
            self._offer(())
        except ValidationError as error:
            logger.debug("what was remembered of server %s is not used: %s", server, error)
            self._record = Record()
            if memory:
                memory.record = self._record

    @property
    def about(self) -> str:
        return self._record.about

    @property
    def agents(self) -> bool:
        """Whether its tools are agents: it says that it is an orchestrator."""
        return self._record.agents

    @property
    def seen(self) -> bool:
        """Whether its tools are known: from a connection, or from the last time."""
        return self._record.listed is not None

    def take(self, tools: Sequence[Tool]) -> bool:
        """What the server lists now; True when that changes what is offered or must be approved."""
        before = (self.tools, self.changes, self._record.listed)
        first: dict[str, Definition] = {}
        for tool in tools:
            first.setdefault(tool.name, written(tool))
        for name, definition in first.items():
            self._judge(name, definition)
        gone = [name for name in self._record.known if name not in first]
        for name in gone[: max(0, len(gone) - MOST_GONE)]:
            del self._record.known[name]
        self._record.listed = list(first)
        self._offer(tools)
        self.save()
        return (self.tools, self.changes, self._record.listed) != before

    def accept(self, tool: str) -> bool:
        """A person has approved a call of a changed tool: the new definition is the known one from now on."""
        if (definition := self._record.changed.pop(tool, None)) is None:
            return False
        self._record.known[tool] = definition
        self._offer(())
        self.save()
        return True

    def hellos(self) -> list[Hello]:
        """Ways to begin a connection, the quickest first. One that fails is followed by asking."""
        era, discover = self._record.era, self._record.discover
        if self._memory is None or not era:
            return [ASK]
        if discover is None:
            return [Hello(mode="legacy"), ASK]
        try:
            return [Hello(mode=era, prior=DiscoverResult.model_validate(discover)), ASK]
        except ValidationError as error:
            logger.debug("server %s is asked for its protocol again: %s", self._server, error)
            return [ASK]

    def met(self, client: Client, hello: Hello) -> None:
        """Remembers the protocol of a connection; one that calls itself otherwise by now is asked the next time."""
        info = client.server_info
        server = None if info is None else written(info)
        found = client.session.discover_result
        same = hello is ASK or found is not None or server == self._record.server
        self._record.era = client.protocol_version if same else ""
        self._record.server, self._record.about = server, about(client)
        self._record.agents = ORCHESTRATOR in (client.server_capabilities.experimental or {})
        self._record.discover = None if found is None else written(found)

    def _judge(self, name: str, definition: Definition) -> None:
        known, pending = self._record.known.get(name), self._record.changed.get(name)
        if known is None or _matter(known) == _matter(definition):
            self._record.changed.pop(name, None)
        elif self._trust == "ask":
            self._record.changed[name] = definition
            if pending is None or _matter(pending) != _matter(definition):
                logger.warning("%s. Its calls are asked for until one is approved", self._change(name))
            return
        elif self._trust == "report":
            logger.warning("%s", _told(self._server, name, known, definition))
        self._record.known[name] = definition

    def _offer(self, live: Sequence[Tool]) -> None:
        """Makes the tools from the known definitions; of those that `live` lists twice, the others stay as they are."""
        record = self._record
        self.changes = {name: self._change(name) for name in record.changed if name in (record.listed or ())}
        named: Iterable[str] = [tool.name for tool in live] or record.listed or ()
        made: dict[str, Tool] = {}
        tools: list[Tool] = []
        for at, name in enumerate(named):
            if name in made:
                tools.append(live[at])
                continue
            made[name] = live[at] if live and name not in record.changed else Tool.model_validate(record.known[name])
            tools.append(made[name])
        self.tools = tuple(tools)

    def _change(self, name: str) -> str:
        return _told(self._server, name, self._record.known[name], self._record.changed[name])

    def save(self) -> None:
        """Writes what is to be remembered, if anything changed."""
        if self._memory is not None:
            self._memory.save()


def written(value: BaseModel) -> dict[str, Any]:
    """A value of the protocol as it came over the wire."""
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


def about(client: Client) -> str:
    """What a server says of itself: its title, else the first line of its instructions."""
    info = client.server_info
    lines = (client.instructions or "").strip().splitlines()
    return (info.title if info is not None and info.title else "") or (lines[0] if lines else "")


def _matter(definition: Definition) -> list[Any]:
    return [definition.get(key) for key in _MATTERS]


def _told(server: str, tool: str, known: Definition, now: Definition) -> str:
    """What changed. The digest tells changes apart that read alike."""
    kinds = [word for key, word in _MATTERS.items() if known.get(key) != now.get(key)]
    text = f"server {server} changed its tool {tool} since it was first seen: {', '.join(kinds)}"
    if known.get("description") != now.get("description"):
        said = str(now.get("description", ""))
        text += f"; it says now: {said[:LONGEST_QUOTE]}{'…' if len(said) > LONGEST_QUOTE else ''}"
    digest = hashlib.sha256(json.dumps(_matter(now), sort_keys=True).encode()).hexdigest()[:8]
    return f"{text} [{digest}]"
