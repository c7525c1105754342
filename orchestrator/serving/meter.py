"""Where a run is, in a line: agent, step, tool and what was spent so far."""

from decimal import Decimal

from orchestrator.events import ApprovalEvent, PublicEvent, StateEvent, ToolCallEvent, UsageEvent


class Meter:
    """Makes lines of the events of a run and of all below it."""

    def __init__(self) -> None:
        self._tokens = 0
        self._cost = Decimal(0)

    def line(self, event: PublicEvent) -> str | None:
        """What there is to say now; None where that is nothing new to a person who waits."""
        match event:
            case UsageEvent():
                self._tokens += event.usage.tokens
                self._cost += event.cost.amount
                return None
            case StateEvent() if event.state == "THINKING":
                return self._said(event, "thinking")
            case ToolCallEvent():
                return self._said(event, event.tool)
            case ApprovalEvent():
                return self._said(event, f"{event.tool} waits for approval")
            case _:
                return None

    def _said(self, event: PublicEvent, what: str) -> str:
        cost = f", ${self._cost:.4f}" if self._cost else ""
        return f"{event.agent} · step {event.step} · {what} · {self._tokens:,} tokens{cost}"
