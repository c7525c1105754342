"""The MCP server for callers from outside: agents as its tools, in both eras of the protocol."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolsCapability,
)

from orchestrator import __version__
from orchestrator.cards import AgentCard
from orchestrator.config import Settings
from orchestrator.errors import OrchestratorError, UnknownRun
from orchestrator.masking import mask
from orchestrator.runtime import wire
from orchestrator.runtime.delegation import DEFAULT_INPUT, task_text
from orchestrator.serving.calls import RUN_RESULT, Call, Calls, Context, Reply, unsettled
from orchestrator.serving.editions import Editions
from orchestrator.serving.guests import Guest, current_guest
from orchestrator.serving.offered import Offered
from orchestrator.serving.polling import Polling, TaskParams
from orchestrator.serving.request import key_of, options_of
from orchestrator.serving.runs import NotTaken, Order, Runs
from orchestrator.serving.sealed import Seals
from orchestrator.serving.tasks import AFTER, EXTENSION, has_tasks
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments

COLLECT = Tool(
    name=RUN_RESULT,
    title="Result of a run",
    description="Collects the answer of an agent's run that was said to go on, or that waited for a person's approval.",
    input_schema={
        "type": "object",
        "properties": {
            "run": {"type": "string", "description": "The run's id, as the call of the agent told it."},
            "wait": {"type": "number", "minimum": 0, "description": "Seconds to wait for it at most, while it runs."},
        },
        "required": ["run"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
)


class Serving:
    """Agents as an open server has them. `settings` are those of `[serve]`."""

    def __init__(self, editions: Editions, runs: Runs, store: Path) -> None:
        self.editions = editions
        self.journal = editions.journal
        self.runs = runs
        self.listening = ListenHandler(editions.listeners)
        self._calls = Calls(runs, editions.journal, Seals(store))
        self.polling = Polling(runs, editions.journal, self._calls, self._card_of)

    @property
    def settings(self) -> Settings:
        """The settings as they are now."""
        return self.editions.now.orchestrator.settings

    @property
    def offered(self) -> Offered:
        """The agents that are served now."""
        return self.editions.now.offered

    def server(self) -> "AgentServer":
        """A server object, for one transport."""
        return AgentServer(self)

    async def drain(self) -> None:
        """Takes no more calls, waits for those under way within the grace time, and parks what is left."""
        self.listening.close()
        await self.runs.drain(self.settings.serve.grace)

    async def tools(self) -> list[Tool]:
        await self.editions.look()
        offered = self.offered
        with self.editions.used():  # it is the same one
            return [*await offered.tools(current_guest()), COLLECT]

    async def call(self, ctx: Context, params: CallToolRequestParams) -> Reply:
        """Answers a call. What the caller can mend, and what went wrong, is an error result that says so."""
        guest = current_guest()
        await self.editions.look()
        try:
            if params.name == RUN_RESULT:
                return await self._collect(ctx, params, guest)
            return await self._agent(ctx, params, guest)
        except (InvalidArguments, OrchestratorError) as error:
            meta = {wire.UNBEGUN: True} if isinstance(error, InvalidArguments | NotTaken) else None
            return CallToolResult(content=[TextContent(type="text", text=mask(str(error)))], is_error=True, _meta=meta)

    async def _agent(self, ctx: Context, params: CallToolRequestParams, guest: Guest) -> Reply:
        card = self.offered.card(params.name, guest)
        if card is None:
            raise MCPError(INVALID_PARAMS, f"no agent {params.name!r} is served here")
        arguments = ArgumentSchema(card.input or DEFAULT_INPUT).check(params.arguments or {})
        meta: Mapping[str, Any] = dict(params.meta or {})
        key = key_of(meta)
        order = Order(agent=card.name, task=task_text(card, arguments), options=options_of(meta, guest), key=key)
        # Another orchestrator waits as long as its own limits say.
        patience = float("inf") if key and wire.LIMITS in meta else self._patience
        if has_tasks(ctx):
            patience = min(patience, AFTER)
        call = Call(ctx=ctx, guest=guest, card=card, patience=patience, order=order)
        if key and meta.get(wire.CANCEL) is True:
            return await self._calls.call_off(call)
        return await self._calls.make(call, params)

    async def _collect(self, ctx: Context, params: CallToolRequestParams, guest: Guest) -> Reply:
        arguments = ArgumentSchema(COLLECT.input_schema).check(params.arguments or {})
        run = str(arguments["run"])
        card = await self._card_of(run, guest)
        patience = min(arguments.get("wait", self._patience), self._patience)
        call = Call(ctx=ctx, guest=guest, card=card, patience=patience)
        if self.runs.live(run) is None and unsettled(await self.runs.states(run), run):
            self.runs.go_on(run, guest.name)
        return await self._calls.collect(call, run)

    async def _card_of(self, run: str, guest: Guest) -> AgentCard:
        """The card of a run of this caller; what is of others is not there for them. Raises `UnknownRun`."""
        if (live := self.runs.live(run)) is not None and live.agent:  # its journal may not know it yet
            agent, by = live.agent, live.by
        else:
            started = (await self.runs.states(run))[run].run
            agent, by = started.agent, started.by
        card = self.offered.card(self.editions.now.orchestrator.cards.get(agent).tool_name, guest)
        if card is None or by != guest.name:
            raise UnknownRun(f"there is no run {run!r}")
        return card

    @property
    def _patience(self) -> float:
        return self.settings.serve.answer_within or float("inf")


class AgentServer(Server[Any]):
    """The server of one transport. It says of itself, in both eras, that it is an orchestrator."""

    def __init__(self, serving: Serving) -> None:
        async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
            del ctx, params
            return ListToolsResult(tools=await serving.tools())

        super().__init__(
            "orchestrator",
            version=__version__,
            on_list_tools=list_tools,
            on_subscriptions_listen=serving.listening,
        )
        self.add_request_handler("tools/call", CallToolRequestParams, serving.call)
        for method, answer in serving.polling.methods().items():
            self.add_request_handler(method, TaskParams, answer)
        self.extensions[EXTENSION] = {}
        self.add_notification_handler(
            "notifications/initialized", NotificationParams, serving.editions.listeners.session
        )
        self.middleware.clear()  # spans: a run's own stand right below the caller's

    def get_capabilities(self, *args: Any, **more: Any) -> ServerCapabilities:
        found = super().get_capabilities(*args, **more)
        ours = {**(found.experimental or {}), **wire.ORCHESTRATOR}
        return found.model_copy(update={"experimental": ours, "tools": ToolsCapability(list_changed=True)})
