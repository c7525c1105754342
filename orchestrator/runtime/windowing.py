"""The part of the fold that is about what the model is shown: pins, summaries and cuts of the window."""

from typing import assert_never

from orchestrator.events import MemoryCompacted, MemoryEvent, MemoryIntent, MemoryPinned, WindowCut
from orchestrator.memory.pins import Pin, added
from orchestrator.runtime.runstate import Reservation, RunState


def apply_memory(state: RunState, event: MemoryEvent) -> RunState:
    match event:
        case MemoryPinned():
            pin = Pin(text=event.text, about=event.about, source=event.source, replaces=event.replaces)
            return state._replace(pins=added(state.pins, pin))
        case MemoryIntent():
            held = Reservation(tokens=event.reserved, cost=event.reserved_cost)
            return state._replace(summarising=event, held=held)
        case MemoryCompacted():
            charged = event.charged and state.held is not None
            return state._replace(
                own=state.own + event.usage,
                own_cost=state.own_cost + event.cost,
                summarising=None,
                summary=event,
                held=None,
                lost=(*state.lost, state.held) if charged and state.held is not None else state.lost,
            )
        case WindowCut():
            if event.reason == "overflow":
                state = state._replace(failure=None, ceiling=event.budget)
            if event.apart:
                return state._replace(apart=event)
            return state._replace(
                window=event,
                summarising=None,
                summary=None,
                input_tokens=0,  # what the model counted was the window as it was
                measured=0,
            )
        case _:
            assert_never(event)
