"""What a reply is: calls, an answer, or neither.

A call that came as text is a call. What looks like one and cannot be read goes back to the model: it is never the
answer of a run.

A reply that ended at its output limit is gone on with where it is an answer for certain, and the pieces are read as the
one text that they are. A call is made again instead: half of its arguments may be valid, and mean something else.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.messages import ToolCall
from orchestrator.models.base import ModelReply
from orchestrator.models.lenient import as_object
from orchestrator.models.repair import is_object
from orchestrator.models.written import Written, read_calls
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.grounding import invents
from orchestrator.runtime.plans import PLAN, PLAN_FIRST, is_led
from orchestrator.runtime.runstate import RunState
from orchestrator.tools.arguments import InvalidArguments, parse
from orchestrator.tools.toolset import Offer

_INVENTED = (
    "Your answer held a number, or the name of a file, that no fact gives. Say what could not be found out or done, "
    "without a guess."
)
_BEGINNING = re.compile(r'\s*(?:```\w*\s*)?\{\s*"([^"]+)"\s*:')


def read(reply: ModelReply, agent: Agent, state: RunState, *, closing: bool) -> tuple[ModelReply, str]:
    """The reply with the calls that stand in its text, and what to tell the model of one that is neither.

    `closing`: no tools were offered, so that a call is no answer there either.
    """
    reply, problem = _read(reply, agent, state, closing=closing)
    if state.planning and is_led(state):
        return _as_plan(reply, agent.offers), ""
    unplanned = state.planning and not problem and not reply.message.calls and reply.message.text.strip()
    return reply, PLAN_FIRST if unplanned else problem


def _read(reply: ModelReply, agent: Agent, state: RunState, *, closing: bool) -> tuple[ModelReply, str]:
    text, cut = "".join((*state.cut, reply.message.text)), reply.finish == "length"
    if reply.message.calls or not reply.message.text.strip() or _is_output(text, agent, cut=cut):
        return reply, ""
    written = read_calls(text, agent.specs, cut=cut)
    if closing and agent.model.codec.weak and invents(state, text):
        return reply, _INVENTED
    if closing and (written.calls or written.doubt):
        return reply, "Your reply was a call, and no tool can be called any more. Write the answer as plain text."
    if written.doubt:
        return reply, _unread(written, agent.offers)
    if not written.calls:
        return reply, ""
    calls = [ToolCall(id=str(n), name=name, arguments=given) for n, (name, given) in enumerate(written.calls, 1)]
    message = replace(reply.message, text="" if state.cut else written.text, calls=tuple(calls))
    finish = reply.finish if cut else "tool_calls"
    return replace(reply, message=message, finish=finish, final=False), ""


def _as_plan(reply: ModelReply, offers: Mapping[str, Offer]) -> ModelReply:
    """The parts of a job that a weak model gave to its specialists; none where that cannot be read."""
    written = next((call.arguments for call in reply.message.calls if call.name == PLAN), "{}")
    try:
        found = parse(written)
    except InvalidArguments:
        found = {}
    names = [offer.tool.name for offer in offers.values() if offer.effect == "agent"]
    parts = {name: found[name] for name in names if isinstance(found.get(name), str)}
    plan = ToolCall(id="1", name=PLAN, arguments=json.dumps(parts, ensure_ascii=False))
    return replace(reply, message=replace(reply.message, text="", calls=(plan,)), finish="tool_calls", final=False)


def is_final(reply: ModelReply, agent: Agent, problem: str) -> bool:
    """Whether a weak model is done; what it has found out is then put into an answer by a request of its own."""
    done = reply.final or bool(reply.message.text.strip())
    return agent.model.codec.weak and bool(agent.specs) and done and not problem and not reply.message.calls


def _is_output(text: str, agent: Agent, *, cut: bool) -> bool:
    """Whether a text is what the card asks for, whatever else it may look like, or the beginning of it.

    A form that asks nothing fits all.
    """
    form = agent.card.output or {}
    if agent.output is None or not form.get("required"):
        return False
    if cut:
        begun = _BEGINNING.match(text)
        return begun is not None and begun[1] in as_object(form.get("properties"))
    try:
        found = json.loads(text)
        return is_object(found) and bool(agent.output.check(found))
    except (ValueError, RecursionError, InvalidArguments):
        return False


def _unread(written: Written, offers: Mapping[str, Offer]) -> str:
    """The fragment, and a call as it should be."""
    name = written.tool or next(iter(offers), "")
    example = f" {json.dumps(offers[name].schema.example(), ensure_ascii=False)}" if name in offers else ""
    return (
        f"Your reply was neither a call that can be read nor an answer: {written.doubt}\n"
        f"To call a tool, give its name and its arguments as one JSON object, for example {name} with{example}. "
        f"To answer, write plain text without JSON and without the names of tools."
    )
