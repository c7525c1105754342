"""All servers as one toolset: what is offered under which name, and one way to call it.

A call never raises but for cancellation: whatever goes wrong is a reply that the model can read.
"""

import difflib
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import anyio
import anyio.to_thread
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, InputRequiredResult, Tool

from orchestrator.errors import ToolUnavailable
from orchestrator.events import Effect
from orchestrator.models.base import ToolSpec
from orchestrator.tasks import background
from orchestrator.tools import results
from orchestrator.tools.arguments import ArgumentSchema
from orchestrator.tools.calling import NOTHING, Given
from orchestrator.tools.elicitation import Asked, Unanswerable
from orchestrator.tools.names import distinct, model_name
from orchestrator.tools.servers import Server, ToolChanged, ToolTimeout, WentAway, describe
from orchestrator.tools.shown import shown

logger = logging.getLogger(__name__)

PROCESS_PARALLEL = 64
"""Tool calls at once in this process, over all runs; more wait in turn. Calls of agents, and those that stay inside,
are not counted: they make calls of their own."""

REPEATABLE: frozenset[Effect] = frozenset({"read", "idempotent", "agent"})
"""Calls that are sent again when a process died while they were under way. An agent's goes on in its own journal."""

STARTS = 16
"""Servers that start at once; the others' time to start begins when their turn comes."""

TELL_AFTER = 6.0
"""Seconds until it is said what is waited for."""

PATIENCE = 12.0
"""Seconds more that a run waits for a server that starts slowly while others have tools."""
NOT_BEGUN = frozenset({INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND})
"""Errors of the protocol by which a server refuses a request before it has begun with it."""

LONG = 100_000
"""Characters of a result from which work on it leaves the event loop."""

AGENTS = "agents"
"""The server that specialists are tools of; no configured server may have its name."""

COLLECTS = "run_result"
"""An orchestrator's tool for hosts that cannot wait for its agents; we can, and come back by our key."""

BUILTIN = "builtin"
"""The server of the orchestrator's own tools, which go by their plain names; its name is reserved as well."""

REMEMBER, RECALL, FORGET = NOTES = ("remember", "recall", "forget")
"""Built-in tools that reach beyond the run: to what is kept of others."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A tool under the name that models see. `schema` is the original one, which validates; `spec` is its copy."""

    name: str
    server: Server
    tool: Tool
    schema: ArgumentSchema
    effect: Effect

    @property
    def inside(self) -> bool:
        """Whether it is our own: an agent of this process, or a built-in tool."""
        return self.server.name in (AGENTS, BUILTIN)

    @property
    def remote(self) -> bool:
        """Whether it is an agent of another orchestrator."""
        return self.effect == "agent" and not self.inside

    @property
    def change(self) -> str:
        """What its server says otherwise by now and nobody has approved; empty: nothing."""
        return self.server.listing.changes.get(self.tool.name, "")

    @cached_property
    def spec(self) -> ToolSpec:
        description = self.tool.description or self.tool.title or ""
        return ToolSpec(name=self.name, description=description, parameters=shown(self.tool.input_schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a call. `error` is a short kind, None when it worked; `meta` is what the server sent beside it.

    `sent` is false where it is sure that nothing reached the tool. `waiting`: there is no answer yet, an agent that was
    called waits for a person. `asked`: nor is there, since the server asks a person for more.
    """

    parts: results.Parts
    error: str | None = None
    meta: Mapping[str, Any]
    sent: bool = True
    waiting: bool = False
    asked: Asked | None = None

    @property
    def text(self) -> str:
        return results.text(self.parts)


class Toolset:
    """The servers of an orchestrator, in the order of its configuration. `version` grows whenever offers change."""

    def __init__(self, servers: Sequence[Server], patience: float = PATIENCE) -> None:
        self.servers = {server.name: server for server in servers}
        self.left_out: dict[str, str] = {}
        self.version = 0
        self._patience = patience
        self._offers: dict[str, dict[str, Offer]] = {}
        self._by_name: dict[str, Offer] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._waited: set[str] = set()
        self._slots = anyio.CapacityLimiter(PROCESS_PARALLEL)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Toolset"]:
        """The time in which servers run. They are started by `start` or at the first need, and all end on leaving."""
        starts = anyio.CapacityLimiter(STARTS)
        async with background() as group:
            for server in self.servers.values():
                server.open(group, starts)
                server.told = self._heard
            try:
                yield self
            finally:
                for server in self.servers.values():
                    server.stop()

    def start(self, names: Iterable[str]) -> None:
        """Starts those of the servers that are not up, all at once."""
        for name in names:
            self.servers[name].start()

    async def ready(self, names: Iterable[str]) -> None:
        """Waits until the tools of each of the servers are known, or it is known to be down, then names them.

        What is remembered of a server is enough. One that takes long is waited for only as long as no other has tools:
        its own join when it is up.
        """
        servers = [self.servers[name] for name in names]
        waiting = [server for server in servers if not server.listing.seen and server.name not in self._waited]
        for server in waiting:
            server.start()
        if waiting:
            await self._wait(waiting, servers)
        self._waited.update(server.name for server in servers)
        for name, server in self.servers.items():
            if name in self._waited:
                self._name_tools(server)

    async def live(self, names: Iterable[str]) -> None:
        """As `ready`, but what is remembered is not enough: each is up, or known to be down."""
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(self.servers[name].settled)
        await self.ready(names)

    async def _wait(self, waiting: Sequence[Server], wanted: Sequence[Server]) -> None:
        """Waits for servers that start, and says what for once it takes long."""

        def slow() -> list[Server]:
            return [server for server in waiting if not (server.up or server.down)]

        with anyio.move_on_after(TELL_AFTER):
            for server in waiting:
                await server.settled()
        if late := slow():
            logger.warning("waiting for %s to start", " and ".join(f"server `{server.name}`" for server in late))
        with anyio.move_on_after(self._patience) as patience:
            for server in waiting:
                await server.settled()
        if patience.cancelled_caught and not any(server.tools for server in wanted):
            for server in waiting:
                await server.settled()
        for server in slow():
            logger.warning("going on without server `%s`; its tools join when it has started", server.name)

    def offers(self, servers: Iterable[str] | None = None) -> tuple[Offer, ...]:
        """All tools of the named servers, or of all; in the order of the configuration and of each server's list."""
        wanted = self.servers if servers is None else set(servers)
        return tuple(offer for name in self.servers if name in wanted for offer in self._offers.get(name, {}).values())

    def get(self, name: str) -> Offer | None:
        return self._by_name.get(name)

    def accept(self, offer: Offer) -> None:
        """A person has approved a call of a tool that changed: what it says now is the truth from here on."""
        if offer.server.listing.accept(offer.tool.name):
            self._name_tools(offer.server)

    async def call(
        self,
        offer: Offer,
        arguments: dict[str, Any],
        *,
        timeout: float | None,
        meta: Mapping[str, Any],
        given: Given = NOTHING,
        aware: str = "",
    ) -> Reply:
        """Calls a tool and words whatever happens for the model.

        `timeout`, in seconds, is the limit where the server has none of its own; `given` is what a person has said.
        `aware` is the `change` of the offer when the call was decided about; it is not made if there is another since.
        """
        unbounded, repeatable = offer.inside or offer.remote, offer.effect in REPEATABLE
        try:
            async with nullcontext() if unbounded else self._slots:
                result = await offer.server.call(
                    offer.tool.name,
                    arguments,
                    timeout=timeout,
                    meta=meta,
                    given=None if offer.inside else given,
                    repeatable=repeatable,
                    aware=aware,
                )
        except ToolUnavailable as error:
            lost = isinstance(error, WentAway)
            return Reply(parts=(results.failure(offer.name, str(error)),), error="unavailable", meta={}, sent=lost)
        except ToolChanged as error:
            again = "Nothing was sent. Make the same call again if you still want it: a person will be asked"
            return Reply(parts=(f"Error from {offer.name}: {error}. {again}.",), error="changed", meta={}, sent=False)
        except ToolTimeout as error:
            return Reply(
                parts=(results.failure(offer.name, f"{error}; the call was stopped"),), error="timeout", meta={}
            )
        except Unanswerable as error:
            return Reply(parts=(results.failure(offer.name, str(error)),), error="input_required", meta={})
        except MCPError as error:
            code = error.error.code
            refused = code in NOT_BEGUN
            return Reply(parts=(results.failure(offer.name, str(error)),), error=str(code), meta={}, sent=not refused)
        except Exception as error:  # noqa: BLE001 - whatever the SDK or a transport throws ends this call, not the run
            return Reply(parts=(results.failure(offer.name, describe(error)),), error="bad_result", meta={})
        if isinstance(result, Asked):
            return Reply(parts=("waits for a person",), meta=result.meta, asked=result)
        if isinstance(result, InputRequiredResult):
            return Reply(parts=("waits for approval",), meta={}, waiting=True)
        long = results.is_long(result, LONG)
        parts = await anyio.to_thread.run_sync(results.read, result) if long else results.read(result)
        if result.is_error:
            return Reply(parts=results.failed(offer.name, parts), error="tool_error", meta=result.meta or {})
        return Reply(parts=parts, meta=result.meta or {})

    def _heard(self, server: Server) -> None:
        """A server lists other tools than before; one that nobody waited for yet is named with the others."""
        if server.name in self._waited:
            self._name_tools(server)

    def _name_tools(self, server: Server) -> None:
        """Names are given once; tools that come, change or go later move no other's."""
        before = self._offers.get(server.name, {})
        now: dict[str, Offer] = {}
        for tool, problem in server.unusable.items():
            self._leave_out(model_name(server.name, tool), problem)
        for tool in server.tools:
            if tool.name in now:
                problem = f"server {server.name} offers another tool of this name, which is used"
                self._leave_out(model_name(server.name, tool.name), problem)
            elif not server.terms.offers(tool.name) or (server.listing.agents and tool.name == COLLECTS):
                continue
            elif (known := before.get(tool.name)) is not None and _same(known, server, tool):
                now[tool.name] = known
            elif (offer := self._offer(server, tool)) is not None:
                now[tool.name] = offer
        if now != before:
            self.version += 1
            self._offers[server.name] = now
            self._by_name = {offer.name: offer for offers in self._offers.values() for offer in offers.values()}

    def _offer(self, server: Server, tool: Tool) -> Offer | None:
        name = self._named(server.name, tool.name)
        if tool.execution is not None and tool.execution.task_support == "required":
            self._leave_out(name, "its server runs it only as a task, which is not supported")
            return None
        try:
            schema = ArgumentSchema(tool.input_schema)
        except ValueError as error:
            self._leave_out(name, f"its input schema cannot be used: {error}")
            return None
        self.left_out.pop(name, None)
        return Offer(name=name, server=server, tool=tool, schema=schema, effect=effect(server, tool))

    def _named(self, server: str, tool: str) -> str:
        if (server, tool) not in self._names:
            name = tool if server == BUILTIN else model_name(server, tool)
            self._names[server, tool] = distinct(server, tool) if name in self._taken else name
            self._taken.add(self._names[server, tool])
        return self._names[server, tool]

    def _leave_out(self, name: str, problem: str) -> None:
        if name not in self.left_out:
            self.left_out[name] = problem
            logger.warning("tool %s is left out: %s", name, problem)


def effect(server: Server, tool: Tool) -> Effect:
    """What repeating a call would do, by the server's own annotations; no annotation means that it writes."""
    if server.name == AGENTS or server.listing.agents:
        return "agent"
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "read"
    if hints is not None and hints.idempotent_hint:
        return "idempotent"
    return "write"


def _same(offer: Offer, server: Server, tool: Tool) -> bool:
    return offer.tool == tool and offer.effect == effect(server, tool)


def instead(offer: Offer, others: Iterable[Offer]) -> str:
    """What else an agent may try while the server of `offer` is away; empty where there is nothing else."""
    there = [other for other in others if other.server is not offer.server and not other.server.down]
    alike = difflib.get_close_matches(offer.tool.name, [other.tool.name for other in there], n=3, cutoff=0.5)
    names = [other.name for other in there if other.tool.name in alike] or [other.name for other in there]
    return f". Meanwhile try {', '.join(names[:3])}, or go on without it" if names else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look like `name`; a server's part that was left out is forgiven."""
    names = list(known)
    tails = [full for full in names if full.rpartition("__")[2] == name.rpartition("__")[2]]
    return tails[:3] or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
