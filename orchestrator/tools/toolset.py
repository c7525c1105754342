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
import anyio.abc
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult, Tool

from orchestrator.errors import ToolUnavailable
from orchestrator.events import Effect
from orchestrator.models.base import ToolSpec
from orchestrator.tasks import background
from orchestrator.tools import results
from orchestrator.tools.arguments import ArgumentSchema
from orchestrator.tools.calling import NOTHING, Given
from orchestrator.tools.elicitation import Asked, Unanswerable
from orchestrator.tools.names import distinct, model_name
from orchestrator.tools.servers import Server, ToolTimeout, describe
from orchestrator.tools.shown import shown

logger = logging.getLogger(__name__)

PROCESS_PARALLEL = 64
"""Tool calls at once in this process, over all runs; more wait in turn. Calls that stay inside are not counted."""

AGENTS = "agents"
"""The server that specialists are tools of; no configured server may have its name."""

BUILTIN = "builtin"
"""The server of the orchestrator's own tools, which go by their plain names; its name is reserved as well."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A tool under the name that models see. `schema` is the original one, which validates; `spec` is its copy."""

    name: str
    server: Server
    tool: Tool
    schema: ArgumentSchema
    effect: Effect

    @cached_property
    def spec(self) -> ToolSpec:
        description = self.tool.description or self.tool.title or ""
        return ToolSpec(name=self.name, description=description, parameters=shown(self.tool.input_schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a call. `error` is a short kind, None when it worked; `meta` is what the server sent beside it.

    `waiting`: there is no answer yet, an agent that was called waits for a person. `asked`: nor is there, since the
    server asks a person for more.
    """

    text: str
    error: str | None = None
    meta: Mapping[str, Any]
    waiting: bool = False
    asked: Asked | None = None


class Toolset:
    """The servers of an orchestrator, in the order of its configuration. `version` grows with each tool that joins."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = {server.name: server for server in servers}
        self.left_out: dict[str, str] = {}
        self.version = 0
        self._offers: dict[str, Offer] = {}
        self._seen: set[tuple[str, str]] = set()
        self._started: set[str] = set()
        self._slots = anyio.CapacityLimiter(PROCESS_PARALLEL)
        self._group: anyio.abc.TaskGroup

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Toolset"]:
        """The time in which servers run. They are started by `start` or at the first need, and all end on leaving."""
        async with background() as self._group:
            try:
                yield self
            finally:
                for server in self.servers.values():
                    server.stop()

    def start(self, names: Iterable[str]) -> None:
        """Starts those of the servers that were not started yet, all at once."""
        for name in names:
            if name not in self._started:
                self._started.add(name)
                self.servers[name].start(self._group)

    async def ready(self, names: Iterable[str]) -> None:
        """Waits until each of the servers is up or known to be down, then names their tools."""
        names = list(names)
        self.start(names)
        for name in names:
            await self.servers[name].settled()
        self._name_tools()

    def offers(self, servers: Iterable[str] | None = None) -> tuple[Offer, ...]:
        """All tools of the named servers, or of all; in a fixed order."""
        wanted = None if servers is None else set(servers)
        return tuple(offer for offer in self._offers.values() if wanted is None or offer.server.name in wanted)

    def get(self, name: str) -> Offer | None:
        return self._offers.get(name)

    async def call(
        self,
        offer: Offer,
        arguments: dict[str, Any],
        *,
        timeout: float | None,
        meta: Mapping[str, Any],
        given: Given = NOTHING,
    ) -> Reply:
        """Calls a tool and words whatever happens for the model.

        `timeout`, in seconds, is the limit where the server has none of its own; `given` is what a person has said.
        """
        agent = offer.effect == "agent"
        try:
            async with nullcontext() if offer.server.name in (AGENTS, BUILTIN) else self._slots:
                result = await offer.server.call(
                    offer.tool.name, arguments, timeout=timeout, meta=meta, given=None if agent else given
                )
        except ToolUnavailable as error:
            return Reply(text=results.failure(offer.name, str(error)), error="unavailable", meta={})
        except ToolTimeout as error:
            return Reply(text=results.failure(offer.name, f"{error}; the call was stopped"), error="timeout", meta={})
        except Unanswerable as error:
            return Reply(text=results.failure(offer.name, str(error)), error="input_required", meta={})
        except MCPError as error:
            return Reply(text=results.failure(offer.name, str(error)), error=str(error.error.code), meta={})
        except Exception as error:  # noqa: BLE001 - whatever the SDK or a transport throws ends this call, not the run
            return Reply(text=results.failure(offer.name, describe(error)), error="bad_result", meta={})
        if isinstance(result, Asked):
            return Reply(text="waits for a person", meta={}, asked=result)
        if isinstance(result, InputRequiredResult):
            return Reply(text="waits for approval", meta={}, waiting=True)
        text = results.observation(result)
        if result.is_error:
            return Reply(text=results.failure(offer.name, text), error="tool_error", meta=result.meta or {})
        return Reply(text=text, meta=result.meta or {})

    def _name_tools(self) -> None:
        """Names are given once; a tool that came later joins without moving the others."""
        for server in self.servers.values():
            listed: set[str] = set()
            for tool in server.tools:
                if tool.name in listed:
                    problem = f"server {server.name} offers another tool of this name, which is used"
                    self._leave_out(model_name(server.name, tool.name), problem)
                    continue
                listed.add(tool.name)
                if (server.name, tool.name) in self._seen or not server.terms.offers(tool.name):
                    continue
                self._seen.add((server.name, tool.name))
                name = tool.name if server.name == BUILTIN else model_name(server.name, tool.name)
                if name in self._offers:
                    name = distinct(server.name, tool.name)
                if tool.execution is not None and tool.execution.task_support == "required":
                    self._leave_out(name, "its server runs it only as a task, which is not supported")
                    continue
                try:
                    schema = ArgumentSchema(tool.input_schema)
                except ValueError as error:
                    self._leave_out(name, f"its input schema cannot be used: {error}")
                    continue
                self.version += 1
                self._offers[name] = Offer(
                    name=name, server=server, tool=tool, schema=schema, effect=effect(server, tool)
                )

    def _leave_out(self, name: str, problem: str) -> None:
        if name not in self.left_out:
            self.left_out[name] = problem
            logger.warning("tool %s is left out: %s", name, problem)


def effect(server: Server, tool: Tool) -> Effect:
    """What repeating a call would do, by the server's own annotations; no annotation means that it writes."""
    if server.name == AGENTS:
        return "agent"
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "read"
    if hints is not None and hints.idempotent_hint:
        return "idempotent"
    return "write"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that look like `name`; a server's part that was left out is forgiven."""
    names = list(known)
    tails = [full for full in names if full.rpartition("__")[2] == name.rpartition("__")[2]]
    return tails[:3] or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
