"""`plan`: several steps at once, in the order of their needs. The call only makes the plan; the run carries it out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from orchestrator.events import PlanStep
from orchestrator.runtime import wire
from orchestrator.runtime.builtin import BuiltIn, Unanswerable
from orchestrator.runtime.grounding import is_told
from orchestrator.runtime.plans import PLAN, REVISIONS, finished, is_led
from orchestrator.runtime.runstate import RunState
from orchestrator.runtime.tree import Caller
from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.toolset import Offer, nearest

MOST_STEPS: Final = 40

_PART: Final = 160  # characters of a specialist's part of the job, so that a weak model does not run on

_TEXT: Final = {"type": "string"}
_STEP: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "agent": _TEXT,
        "task": {**_TEXT, "description": "What the agent has to do, in full"},
        "tool": {**_TEXT, "description": "In place of an agent"},
        "arguments": {"type": "object"},
        "needs": {"type": "array", "items": _TEXT, "description": "Ids of steps that come before"},
        "expect": {**_TEXT, "description": "What a good result is"},
        "check": {**_TEXT, "description": "A word that a good result holds"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
TOOL = Tool(
    name=PLAN,
    title="Plan",
    description=(
        "Carries out a job of several steps: those that do not need each other at once, the others as soon as they "
        "can. An agent is given the results of the steps it needs. Make a single step without a plan."
    ),
    input_schema={
        "type": "object",
        "properties": {"steps": {"type": "array", "items": _STEP}},
        "required": ["steps"],
    },
    annotations=ToolAnnotations(read_only_hint=True),
)


def keyed(agents: Iterable[Offer]) -> Tool:
    """The same tool for a weak model: a field for each specialist, with its part of the job."""
    parts = {
        agent.tool.name: {**_TEXT, "maxLength": _PART, "description": agent.tool.description or ""} for agent in agents
    }
    description = (
        "Split the job: give each specialist, by name, its part of the job in one sentence, with the names, numbers "
        "and dates that it needs; leave empty whom the job does not need."
    )
    schema = {"type": "object", "properties": parts, "additionalProperties": False}
    return TOOL.model_copy(update={"description": description, "input_schema": schema})


async def _answer(caller: Caller, arguments: Mapping[str, Any]) -> str | CallToolResult:
    state = caller.tree.states[caller.run]
    if state.plans > REVISIONS:
        raise Unanswerable(f"this run was planned {state.plans} times. Answer with what there is; say what is missing")
    plans = [call.call.id for call in state.calls if call.call.name == PLAN]
    if plans and plans[0] != caller.call:
        raise Unanswerable("one plan at a time: put all steps into one call")
    if is_led(state):
        steps, reused = _of_parts(caller, state, arguments), list[str]()
    else:
        steps, reused = _Reader(caller.offers, state).read(arguments["steps"])
    made = {"steps": [step.model_dump(mode="json") for step in steps], "reused": reused}
    return CallToolResult(content=[TextContent(type="text", text="The plan is made.")], _meta={wire.PLAN: made})


def _of_parts(caller: Caller, state: RunState, parts: Mapping[str, Any]) -> list[PlanStep]:
    """The specialists that have a part, one after the other in their order. A part with a number that the job does not
    say, or of a single word, is not passed on: the specialist gets the job as it is, as all do when the job was not
    split."""
    agents = {offer.tool.name: offer for offer in caller.offers.values() if offer.effect == "agent"}
    split = {name: part for name, each in parts.items() if (part := str(each).strip())}
    job, steps = state.run.task, list[PlanStep]()
    for name, offer in agents.items():
        if split and name not in split:
            continue
        part = split.get(name, "")
        task = part if _is_sentence(part) and is_told(part, state.opening) else job
        steps.append(PlanStep(id=name, tool=offer.name, arguments={"task": task}, needs=tuple(s.id for s in steps)))
    return steps


def _is_sentence(part: str) -> bool:
    """Whether it says more than a name does; Chinese is written without spaces."""
    return len(part.split()) > 1 or not part.isascii()


class _Reader:
    """Reads a plan as the model wrote it; what is wrong is told all at once, with an example of what is right."""

    def __init__(self, offers: Mapping[str, Offer], state: RunState) -> None:
        self._offers = offers
        self._done = finished(state)
        self._wrong: list[str] = []

    def read(self, written: Sequence[Mapping[str, Any]]) -> tuple[list[PlanStep], list[str]]:
        """The steps to run, and the ids of finished ones that the plan builds on. Raises Unanswerable."""
        steps = [step for step in map(self._step, written) if step is not None]
        again = [step.id for step in steps if self._is_done(step)]
        steps = [step for step in steps if step.id not in again]
        self._judge(steps, [str(step["id"]) for step in written])
        if not self._wrong and not steps:
            self._wrong.append("it has no step that is not done yet" if again else "it has no steps")
        if self._wrong:
            problems = "\n".join(f"- {problem}" for problem in self._wrong[:10])
            right = json.dumps(self._example(), ensure_ascii=False)
            raise Unanswerable(f"the plan cannot be carried out:\n{problems}\nRight: {right}")
        named = [need for step in steps for need in step.needs if need in self._done]
        return steps, list(dict.fromkeys([*again, *named]))

    def _step(self, written: Mapping[str, Any]) -> PlanStep | None:
        id, name = str(written["id"]), str(written.get("agent") or written.get("tool") or "")
        if not name:
            self._wrong.append(f"step {id!r} has neither `agent` nor `tool`")
            return None
        if (offer := self._offer(name)) is None:
            known = nearest(name, [n for n in self._offers if n != PLAN])
            there = f"; there is {', '.join(known)}" if known else ""
            self._wrong.append(f"step {id!r}: there is no agent or tool {name!r} to be planned{there}")
            return None
        given = dict(written.get("arguments") or {})
        expect, check = str(written.get("expect", "")), str(written.get("check", ""))
        if offer.effect == "agent" and "task" in written:
            given["task"] = f"{written['task']}\nExpected result: {expect}" if expect else written["task"]
        try:
            given = offer.schema.check(given)
        except InvalidArguments as error:
            field = "`task`" if offer.effect == "agent" else "`arguments`"
            self._wrong.append(f"step {id!r}, {field}: {error.problem.strip()}\n  expected: {error.expected}")
            return None
        needs = tuple(dict.fromkeys(map(str, written.get("needs") or ())))
        return PlanStep(id=id, tool=offer.name, arguments=given, needs=needs, expect=expect, check=check)

    def _offer(self, name: str) -> Offer | None:
        """An agent by its own name, anything else as it is called; a plan holds no plan."""
        agents = (offer for offer in self._offers.values() if offer.effect == "agent" and offer.tool.name == name)
        found = self._offers.get(name) or next(agents, None)
        return None if found is None or found.name == PLAN else found

    def _is_done(self, step: PlanStep) -> bool:
        done = self._done.get(step.id)
        if done is None or done.step is None:
            return False
        if (done.step.tool, done.step.arguments) != (step.tool, step.arguments):
            self._wrong.append(f"step {step.id!r} is done, and was another one: give the new step another id")
        return True

    def _judge(self, steps: Sequence[PlanStep], ids: Sequence[str]) -> None:
        if len(ids) > MOST_STEPS:
            self._wrong.append(f"it has {len(ids)} steps, and {MOST_STEPS} are the most")
        for twice in dict.fromkeys(id for id in ids if ids.count(id) > 1):
            self._wrong.append(f"two steps have the id {twice!r}")
        for step in steps:
            for need in step.needs:
                if need not in ids and need not in self._done:
                    self._wrong.append(f"step {step.id!r} needs {need!r}, which is no step of it and none that is done")
        try:
            TopologicalSorter({step.id: step.needs for step in steps}).prepare()
        except CycleError as error:
            self._wrong.append(f"steps wait for each other: {' needs '.join(reversed(error.args[1]))}")

    def _example(self) -> dict[str, Any]:
        name = next((offer.tool.name for offer in self._offers.values() if offer.effect == "agent"), "")
        if name:
            first = {"id": "first", "agent": name, "task": "…"}
            return {"steps": [first, {"id": "second", "agent": name, "task": "…", "needs": ["first"]}]}
        tool = next(offer for offer in self._offers.values() if offer.name != PLAN)
        return {"steps": [{"id": "first", "tool": tool.name, "arguments": tool.schema.example()}]}


PLANNING = BuiltIn(tool=TOOL, answer=_answer)
