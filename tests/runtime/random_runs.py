"""Random runs: `decide` says what is next, chance says what comes of it, as the shell around the fold would note it.

A process may die after any event; another one then goes on. Verdicts come in any order, twice, and on other arguments.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, assert_never

from hypothesis import strategies as st

from orchestrator.events import (
    AnswerReviewed,
    ApprovalAsked,
    ApprovalDecided,
    Event,
    HookApplied,
    InputAsked,
    JournalEvent,
    LimitReached,
    Limits,
    MemoryCompacted,
    MemoryIntent,
    MemoryPinned,
    ModelFailed,
    ModelIntent,
    ModelResult,
    PlanMade,
    PlanStep,
    Question,
    ReviewAsked,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunParked,
    RunResumed,
    RunStarted,
    ToolInDoubt,
    ToolIntent,
    ToolResult,
    ToolRetried,
    ToolsChanged,
    WindowCut,
)
from orchestrator.messages import AssistantMessage, Cost, ToolCall, Usage
from orchestrator.runtime.plans import report
from orchestrator.runtime.runstate import Act, CallState, Done, Fail, Finish, RunState, Stop, Think, Wait
from orchestrator.runtime.state import apply, decide
from orchestrator.tools.toolset import REPEATABLE

LONGEST = 80

TEXTS = ("", " ", "ok", "数字 42", "a\u2028b\x00c", '{"half": ')
ARGUMENTS = ('{"x": 1}', '{"x": "ü"}', "{'x': 1,}", "", "[]", "null")
EFFECTS = ("read", "idempotent", "write", "agent")
TOOLS = ("fx__look", "fx__pay", "agents__worker", "plan")


class Died(Exception):
    """The process ended here."""


@dataclass
class Player:
    random: Random
    events: list[JournalEvent] = field(default_factory=list[JournalEvent])
    state: RunState = field(default_factory=RunState)
    deadly: bool = True

    def note(self, kind: type[Event], /, *, turn: int | None = None, **facts: Any) -> None:
        at = (self.state.last_at or 1000.0) + self.one_of(-1.0, 0.0, 0.25, 8.0)
        event: Any = kind(
            seq=self.state.seq + 1,
            at=at,
            run="r",
            agent="a",
            turn=self.state.turn if turn is None else turn,
            **facts,
        )
        self.events.append(event)
        self.state = apply(self.state, event)
        if self.deadly and self.chance(6 if kind is ToolIntent else 25):
            raise Died

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def spent(self) -> Usage:
        return Usage(input_tokens=self.random.randrange(900), output_tokens=self.random.randrange(90))

    def play(self) -> list[JournalEvent]:
        self.deadly = False
        steps = self.one_of(None, None, 2, 5)
        hashes = {"system": "s", "tools": "t"}
        self.note(
            RunStarted,
            task="do",
            limits=Limits(steps=steps),
            model="m",
            trace_id="1",
            span_id="2",
            max_output_tokens=9,
            plan=self.one_of("never", "auto", "always", "led"),
            **hashes,
        )
        while len(self.events) < LONGEST and self.state.end is None:
            self.deadly = True
            try:
                self.step()
            except Died:
                self.deadly = False
                if self.state.end is None:
                    self.verdicts()
                    self.note(RunResumed, fence=len(self.events))
        return self.events

    def step(self) -> None:
        match decide(self.state):
            case Think() as step:
                self.think(step)
            case Act(calls):
                self.act(calls)
            case Wait():
                self.wait()
            case Stop(limit, detail):
                self.note(LimitReached, limit=limit, detail=detail, closing=self.chance(2))
            case Finish() as step:
                self.finish(step)
            case Fail(kind, error):
                self.note(RunFailed, kind=kind, error=error)
            case Done():
                self.verdicts()
                self.note(RunResumed, fence=len(self.events))
            case other:
                assert_never(other)

    def think(self, step: Think) -> None:
        if self.chance(50):
            self.note(RunCancelled, reason="by its caller")
            return
        if self.chance(30):
            stop = self.state.stop
            self.note(LimitReached, limit=stop.limit if stop else "max_tokens", detail="none left", closing=False)
            return
        if not step.closing and step.attempt == 1 and self.chance(10):
            self.note(HookApplied, hook="h", moment="thinking", decision="redirect", text="mind the time")
        if not step.closing and step.attempt == 1 and self.chance(6):
            self.note(
                ToolsChanged, tools=self.one_of("t2", "t3"), chosen=("fx__pay",), tokens=self.random.randrange(90)
            )
        if self.chance(5):
            self.remember()
        asked = {
            "attempt": step.attempt,
            "closing": step.closing,
            "planning": step.planning,
            "messages": len(self.state.messages),
        }
        self.note(ModelIntent, turn=step.turn, request="d", reserved=self.random.randrange(5000), **asked)
        match self.one_of("reply", "failure", "interrupt", "reply", "reply", "reply", "reply"):
            case "failure":
                retry_in = self.one_of(None, 0.0, 0.5)
                self.note(ModelFailed, attempt=step.attempt, kind="overloaded", error="no", retry_in=retry_in)
            case "interrupt":
                self.note(RunParked, reason="interrupted")
            case _:
                self.reply()

    def remember(self) -> None:
        """Something is pinned, a summary is asked for or comes, or the window is cut."""
        through = len(self.state.messages)
        match self.one_of("pin", "ask", "come", "cut"):
            case "pin":
                gone = tuple(pin.text for pin in self.state.pins[:1])
                text, about = self.one_of(*TEXTS), (self.one_of("time", "limit:row"),)
                self.note(MemoryPinned, text=text, source=self.one_of("user", "model"), about=about, replaces=gone)
            case "ask" if self.state.held is None:
                self.note(MemoryIntent, through=through, reserved=self.random.randrange(900))
            case "come" if self.state.held is not None:
                error, charged = self.one_of(("", False), ("empty", False), ("broken_stream", True))
                self.note(MemoryCompacted, through=through, error=error, charged=charged, usage=self.spent())
            case _:
                reason = self.one_of("full", "overflow")
                self.note(WindowCut, reason=reason, first=0, through=through, text="é", budget=900)

    def reply(self) -> None:
        turn = self.state.turn
        size = self.one_of(1, 1, 2, 2, 3, 4, 0)
        names = self.random.choices(TOOLS, k=size)
        calls = tuple(
            ToolCall(id=f"t{turn}.{n}", name=name, arguments=self.one_of(*ARGUMENTS)) for n, name in enumerate(names, 1)
        )
        message = AssistantMessage(text=self.one_of(*TEXTS), calls=calls, extra=self.one_of({}, {"r": [1, None, "ü"]}))
        usage = Usage(model_calls=1) + self.spent()
        self.note(ModelResult, message=message, finish="tool_calls" if calls else "stop", usage=usage, cost=Cost())

    def act(self, calls: tuple[CallState, ...]) -> None:
        sent: list[str] = []
        for call in calls:
            if self.prepare(call):
                sent.append(call.call.id)
        for call_id in self.random.sample(sent, len(sent)):
            state = next(call for call in self.state.calls if call.call.id == call_id)
            if state.effect == "agent" and self.chance(3):
                continue  # it waits for a person itself
            if state.effect != "agent" and self.chance(6):
                self.ask(state)
                continue
            planned = any(call.step for call in self.state.calls)  # one plan a turn
            if state.call.name == "plan" and state.step is None and not planned and self.chance(2):
                self.plan(call_id)
                continue
            child = {"child": f"r/{call_id}", "usage": self.spent()} if state.effect == "agent" else {}
            name = {"call": call_id, "tool": state.call.name, "short": self.one_of("", "", "a partial result")}
            error = self.one_of(None, None, "tool_error", "timeout")
            self.note(ToolResult, observation=self.one_of(*TEXTS), error=error, **name, **child)

    def plan(self, call: str) -> None:
        """Some steps, each of which needs some of those before it, or one that was done long ago."""
        steps: list[PlanStep] = []
        for n in range(self.random.randrange(1, 5)):
            needs = tuple(step.id for step in steps if self.chance(2)) + (("old",) if self.chance(5) else ())
            steps.append(PlanStep(id=f"s{n}", tool=self.one_of(*TOOLS), arguments={"x": 1}, needs=needs))
        self.note(PlanMade, call=call, revision=self.state.plans, steps=tuple(steps))

    def ask(self, call: CallState) -> None:
        """Its server needs a person before it goes on."""
        asked = Question(key="k", message="?", requested={}, digest=f"of {call.call.id}")
        name = {"call": call.call.id, "tool": call.call.name, "server": "s"}
        self.note(InputAsked, arguments={}, questions=(asked,), restarts=self.chance(2), **name)

    def prepare(self, call: CallState) -> bool:
        name = {"call": call.call.id, "tool": call.call.name}
        arguments = dict(call.arguments) if call.arguments is not None else {"x": 1}
        if call.plan:
            observation, error = report(self.state, call)
            self.note(ToolResult, observation=observation, error=error, **name)
            return False
        if call.interrupted:
            if call.effect not in REPEATABLE:
                self.note(ToolInDoubt, observation="nobody knows", **name)
                return False
            self.note(ToolRetried, attempt=call.attempt + 1, **name)
            self.note(ToolIntent, arguments=arguments, effect=call.effect, attempt=call.attempt + 1, **name)
            return True
        way = "send" if call.phase == "approved" else self.one_of("send", "send", "ask", "refuse")
        if call.phase == "denied" or way == "refuse":
            self.note(ToolResult, observation="no", error=self.one_of("denied", "unknown_tool"), **name)
            return False
        if way == "ask":
            self.note(ApprovalAsked, arguments=arguments, reason="it pays", digest=f"of {call.call.id}", **name)
            return False
        self.note(ToolIntent, arguments=arguments, effect=self.one_of(*EFFECTS), attempt=call.attempt + 1, **name)
        return True

    def wait(self) -> None:
        if self.chance(2):
            self.verdicts()
        if isinstance(decide(self.state), Wait):
            self.note(RunParked, reason="approval")

    def verdicts(self) -> None:
        """A person answers some calls, perhaps twice, or on other arguments, or long ago."""
        waiting = [call.call.id for call in self.state.calls if call.phase == "waiting"]
        chosen = self.random.choices([*waiting, *waiting, "t1.1"], k=self.random.randrange(5)) if waiting else []
        for call_id in chosen:
            digest = self.one_of(f"of {call_id}", f"of {call_id}", "of another")
            edited = self.one_of(None, None, {"x": 2})
            approved = self.chance(2)
            self.note(ApprovalDecided, call=call_id, approved=approved, digest=digest, arguments=edited, note="é")

    def review(self) -> bool:
        """Whether a review takes the place of the end."""
        if self.state.review is not None:
            self.note(AnswerReviewed, accepted=self.chance(2), by="judge", text="mend it")
            return True
        if self.state.reviewed or self.chance(2):
            return False
        self.note(ReviewAsked, call=f"t{self.state.turn}.review", tool="agents__judge", arguments={"task": "judge"})
        return True

    def finish(self, step: Finish) -> None:
        if step.status == "finished" and self.review():
            return
        if step.status == "finished" and self.chance(6):
            self.note(HookApplied, hook="h", moment="finishing", decision="redirect", text="once more")
            return
        if step.status == "finished" and self.chance(6):
            self.note(HookApplied, hook="h", moment="finishing", decision="replace", text="another answer")
        answer = self.state.answer if step.status == "finished" and self.state.answer else step.answer
        self.note(RunFinished, status=step.status, stop_reason=step.stop_reason, answer=answer)


def runs() -> st.SearchStrategy[list[JournalEvent]]:
    """The events of a run, ended or not. Hypothesis gives the seed: smaller choices of its own make dull runs."""
    return st.randoms(use_true_random=True, note_method_calls=False).map(lambda random: Player(random).play())
