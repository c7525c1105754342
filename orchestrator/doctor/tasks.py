"""The tiny tasks that a model is tried on, the shop that they are about, and how a run of one is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from orchestrator.events import Event, ModelResult, ToolResult
from orchestrator.models.base import Mode
from orchestrator.runtime.grounding import WITHHELD
from orchestrator.runtime.result import RunResult


@dataclass(frozen=True)
class Task:
    """`calls` are all that may be made, in any order and once each; `fact` must stand in the answer."""

    text: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    fact: str


TASKS: Final = (
    Task("What is the price of the item lamp?", [("price", {"item": "lamp"})], "41"),
    Task("How many of the item chair are in stock in Leeds?", [("stock", {"item": "chair", "city": "Leeds"})], "17"),
    Task("Order 3 of the item lamp and tell me the order number.", [("order", {"item": "lamp", "count": 3})], "K208"),
    Task("What is the price of the item desk?", [("price", {"item": "desk"})], "96"),
    Task("Answer without any tool: which number comes after 6?", [], "7"),
)


class Trial(BaseModel):
    """One mode's tasks, counted. `right` are those with nothing wrong; `problem` says why the mode cannot be used."""

    mode: Mode
    weak: bool = False
    tried: int = 0
    right: int = 0
    calls: int = 0
    answers: int = 0
    as_text: int = 0
    unasked: int = 0
    problem: str = ""

    def count(self, task: Task, result: RunResult, events: Sequence[Event]) -> None:
        """Adds a run that is over. A call that the loop withheld from a weak model was not made."""
        withheld = {event.call for event in events if isinstance(event, ToolResult) and event.error == WITHHELD}
        actions = [each for step in result.steps for each in step.actions if each.call not in withheld]
        made = [(each.tool.rpartition("__")[2], _plain(each.arguments)) for each in actions]
        wanted = [(name, _plain(arguments)) for name, arguments in task.calls]
        called = all(call in made for call in wanted)
        unasked = any(made.count(call) > wanted.count(call) for call in made)
        answered = result.status == "finished" and task.fact in result.answer.replace("-", "")
        as_text = any(self._is_text(event) for event in events if isinstance(event, ModelResult))
        self.tried += 1
        self.calls += called
        self.answers += answered
        self.as_text += as_text
        self.unasked += unasked
        self.right += called and answered and not as_text and not unasked

    def _is_text(self, reply: ModelResult) -> bool:
        """Whether a reply was neither a call nor an answer, or a call in the text where the wire has a place for it."""
        native = self.mode == "tools"
        return bool(reply.problem) or (native and any(call.wire_id is None for call in reply.message.calls))


def _plain(arguments: Mapping[str, Any] | str) -> Any:
    if isinstance(arguments, str):
        return arguments
    return {key: value.casefold().strip() if isinstance(value, str) else value for key, value in arguments.items()}


def shop() -> MCPServer:
    server = MCPServer("shop", log_level="ERROR")

    @server.tool(description="The price of an item in dollars.")
    async def price(item: str) -> str:
        return f"{item}: {({'lamp': 41, 'desk': 96}).get(item.casefold(), 'not sold here')}"

    @server.tool(description="How many of an item are in stock in a city.")
    async def stock(item: str, city: str) -> str:
        return f"{17 if (item.casefold(), city.casefold()) == ('chair', 'leeds') else 0} in stock"

    @server.tool(description="Orders an item.")
    async def order(item: str, count: int) -> str:
        return f"Ordered {count} {item}; the order number is K208."

    return server
