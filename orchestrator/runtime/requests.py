"""The requests of a run, rebuilt from its events by the code that made them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.events import JournalEvent, ModelChanged, ModelIntent, RunForked, RunStarted, ToolsChanged
from orchestrator.memory.excerpts import excerpt, fits
from orchestrator.memory.pins import restated
from orchestrator.memory.prompt import ANSWER, Draft, Prompt
from orchestrator.memory.tokens import estimate
from orchestrator.memory.window import PIN_SHARE, PINNED, beginning, shown_task
from orchestrator.messages import UserMessage
from orchestrator.models.base import Codec, ToolSpec
from orchestrator.runtime.narrowing import closed
from orchestrator.runtime.plans import PLAN, is_led, must_plan, results
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.state import apply

_LEAST_SHARE = 40  # tokens of a result, below which it says nothing
_LEAST_ROOM = 200  # tokens that a request apart is made from, however small its bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A request as it was sent. `checked`: its messages and tools have the digest that the journal holds."""

    turn: int
    attempt: int
    body: bytes
    checked: bool


def tool_lists(events: Iterable[JournalEvent]) -> list[str]:
    """The bodies of the tool lists that the model was shown one after the other, by digest."""
    return [event.tools for event in events if isinstance(event, RunStarted | ToolsChanged)]


def draft_of(prompt: Prompt, state: RunState, *, closing: bool, images: Mapping[str, bytes] | None = None) -> Draft:
    """The next request of a run that stands at `state`; `images` are those that its model is shown, by hash.

    The last one of a weak model is apart: it has the task and what was found out, and no call that it could go on with.
    So are both where code leads a team; the first has the job, and no other call than a plan.
    """
    if closing and (prompt.weak or is_led(state)):
        return _within(state, lambda room: prompt.apart(facts(state, room), form=ANSWER, weights=state.weights))
    if is_led(state) and must_plan(state):
        return _within(state, lambda room: prompt.apart(_job(state, room), tools=[PLAN], weights=state.weights))
    return prompt.draft(
        state.messages,
        cut=state.window,
        measured=state.measured,
        reported=state.input_tokens,
        stop=state.stop if closing else None,
        images=images,
        weights=state.weights,
    )


@dataclass(frozen=True, slots=True)
class Closed(Collection[str]):
    """The tools of a request that lead nowhere now; found out when a wire asks, since it takes a walk over the run."""

    draft: Draft
    state: RunState
    turn: int
    weak: bool

    def names(self) -> frozenset[str]:
        return closed(self.state, self.turn, frozenset(tool.name for tool in self.draft.tools), weak=self.weak)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())


def _within(state: RunState, made: Callable[[int | None], Draft]) -> Draft:
    """A request apart from the transcript, within its bound where it has one. It is made from so many tokens as leave
    room for what else is in it."""
    draft = made(None)
    bound = room = state.apart.budget if state.apart is not None else draft.input_tokens
    while draft.input_tokens > bound and room > 0:
        draft = made(max(_LEAST_ROOM, room))
        room -= max(_LEAST_SHARE, draft.input_tokens - bound)
    return draft


def _job(state: RunState, room: int | None) -> str:
    return f"Job: {state.opening if room is None or fits(state.opening, room) else excerpt(state.opening, room)}"


def facts(state: RunState, room: int | None = None) -> str:
    """What a weak model answers from: the task, every good result, and what was wrong with its last answer, if any.

    In about `room` tokens: a task that does not fit has its constraints beside it, results have fair shares of the
    rest, and the oldest are left out where that is too little to say anything.
    """
    found, question = results(state), state.opening
    again = isinstance(last := state.messages[-1], UserMessage) and len(state.messages) > 1
    wrong = [last.text] if again else []
    pins: list[str] = []
    if room is not None:
        question = shown_task(question, room, id="")
        kept = restated(state.pins, room // PIN_SHARE) if question != state.opening else ""
        pins = [f"{PINNED}\n{kept}"] if kept else []
        wrong = [beginning(text, room // PIN_SHARE) for text in wrong]
        found = _shares(found, room - estimate("\n".join([question, *pins, *wrong]).encode()))
    return "\n".join([*(["Facts:", *found] if found else []), f"Question: {question}", *pins, *wrong])


def _shares(found: Sequence[str], room: int) -> list[str]:
    share = max(_LEAST_SHARE, room // max(1, len(found)))
    kept = found[-max(1, room // share) :]
    gap = [f"[{len(found) - len(kept):,} older results are left out]"] if len(kept) < len(found) else []
    return [*gap, *(beginning(text, share) for text in kept)]


class Wire(NamedTuple):
    """How a model was written to, and whether it was sent images."""

    codec: Codec
    vision: bool


def rebuilt(
    events: Sequence[JournalEvent],
    wires: Iterable[Wire],
    system: str,
    tools: Mapping[str, Sequence[ToolSpec]],
    images: Mapping[str, bytes],
) -> Iterator[Rebuilt]:
    """Every request of a run, in order; those that a run took over from another are that one's.

    `wires` are those of its models, one after the other. `tools` are by digest, and so are `images`: the bodies of
    those that were shown.
    """
    following = iter(wires)
    wire, state, requests = next(following), RunState(), list[Rebuilt]()
    prompt = Prompt(wire.codec, system, tools[tool_lists(events)[0]])
    for event in events:
        if isinstance(event, ToolsChanged):
            prompt.show(tools[event.tools])
        if isinstance(event, ModelChanged):
            wire = next(following)
            prompt = Prompt(wire.codec, system, tools[state.tools])
        if isinstance(event, RunForked):
            requests.clear()
        elif isinstance(event, ModelIntent):
            draft = draft_of(prompt, state, closing=event.closing, images=images if wire.vision else None)
            limit = event.output or event.reserved - draft.input_tokens  # older journals do not tell it
            shut = Closed(draft, state, event.turn, wire.codec.weak)
            body = wire.codec.body(draft.encoded, draft.encoded_tools, limit, shut)
            checked = draft.digest == event.request
            requests.append(Rebuilt(turn=event.turn, attempt=event.attempt, body=body, checked=checked))
        state = apply(state, event)
    return iter(requests)
