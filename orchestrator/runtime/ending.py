"""How a run ends: what is checked of its answer, the first limit, and what hooks say to a transition."""

import json
from typing import Literal

from orchestrator.events import (
    AnswerReviewed,
    HookApplied,
    LimitReached,
    OutputChecked,
    ReviewAsked,
    RunFailed,
    RunFinished,
    StopReason,
)
from orchestrator.runtime import reviewing
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.hooks import Moment, Redirect, Replace, Veto
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.plans import has_found
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.runstate import Finish
from orchestrator.runtime.tree import Tree
from orchestrator.runtime.words import output_wrong
from orchestrator.tools.arguments import InvalidArguments


class Ending:
    """Judges one run's transitions and ends it."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tree = tree
        self._agent = agent
        self._recorder = recorder

    async def finish(self, step: Finish) -> None:
        """Ends the run, unless a hook sends the answer back or puts another in its place."""
        if step.status == "finished" and not (self._conforms(step.answer) and self._passes()):
            return
        if step.status == "finished" and await self.hooked("finishing", self._recorder.state.answer or step.answer):
            return
        answer = (
            self._recorder.state.answer if step.status == "finished" and self._recorder.state.answer else step.answer
        )
        self._recorder.note(RunFinished, status=step.status, stop_reason=step.stop_reason, answer=answer)

    def _conforms(self, answer: str) -> bool:
        """Whether the answer is what the card's `output` asks for; it is sent back once, then the run is stopped."""
        if self._agent.output is None or self._recorder.state.checked:
            return True
        try:
            found = self._agent.output.prepare(answer)
        except InvalidArguments as error:
            if self._recorder.state.sent_back:
                self.limit("unparseable_output", f"not what `output` asks for: {error.problem}", closing=False)
            else:
                self._recorder.note(OutputChecked, valid=False, text=output_wrong(error))
            return False
        text = json.dumps(found, ensure_ascii=False)
        self._recorder.note(OutputChecked, valid=True, text=text)
        return True

    def _passes(self) -> bool:
        """Whether the answer may go out: rules first, then the reviewer that the card names. What can be mended within
        the budget is sent back, some times; a review that fails holds nothing up.
        """
        state, reviewer = self._recorder.state, self._agent.offered.reviewer
        answer = state.answer or ""
        if state.reviewed or has_found(state) is not None:  # what was found is no text that could be mended
            return True
        if state.review is not None:
            accepted, text = reviewing.verdict(state.review)
            return self._judged(accepted or not self._may_mend(), text, state.review.call.name)
        if not self._may_mend():
            return True
        if problem := reviewing.broken(state, answer):
            return self._judged(False, problem, "rules")
        if reviewer is None:
            return True
        call, arguments = f"t{state.turn}.review", reviewing.question(state, answer)
        self._recorder.note(ReviewAsked, call=call, tool=reviewer.name, arguments=arguments)
        return False

    def _may_mend(self) -> bool:
        state = self._recorder.state
        steps = state.run.limits.steps
        left = self._ledger.exhausted() is None and self._ledger.remaining > 0
        return state.reviews < reviewing.SENT_BACK and left and (steps is None or state.turn < steps)

    def _judged(self, accepted: bool, text: str, by: str) -> bool:
        told = text if accepted else reviewing.sent_back(text)
        self._recorder.note(AnswerReviewed, accepted=accepted, by=by, text=told)
        return accepted

    async def hooked(self, kind: Literal["thinking", "finishing"], answer: str = "") -> bool:
        """Shows a transition to the hooks; True when one of them turned the run another way."""
        if self._tree.hooks:
            await self._recorder.save()  # a hook may take its time; what happened is not to be lost with it
        decided = self._recorder.state.decided
        for number, hook in enumerate(self._tree.hooks, 1):
            run = self._recorder.state.run
            moment = Moment(run_id=run.run, agent=run.agent, step=self._recorder.state.turn, kind=kind, answer=answer)
            name = f"{getattr(hook, '__name__', type(hook).__name__)}#{number}"
            if (kind, name) in decided:  # before this sitting
                continue
            decision = await hook(moment)
            match decision:
                case Redirect(message) if kind == "finishing":
                    self._note_hook(name, kind, "redirect", message)
                    return True
                case Redirect(message):
                    self._note_hook(name, kind, "redirect", message)
                case Replace(answer=str() as other) if kind == "finishing":
                    self._note_hook(name, kind, "replace", other)
                    answer = other
                case Veto(reason):
                    self._note_hook(name, kind, "veto", reason)
                    self._recorder.note(RunFailed, kind="vetoed", error=f"the hook {name} ended the run: {reason}")
                    return True
                case _:
                    continue
        return False

    def _note_hook(self, hook: str, kind: str, decision: str, text: str) -> None:
        self._recorder.note(HookApplied, hook=hook, moment=kind, decision=decision, text=text)

    def limit(self, limit: StopReason, detail: str, *, closing: bool) -> None:
        """A run is stopped by the first limit that it reaches; what its closing request meets is not told."""
        if (first := self._recorder.state.stop) is not None:
            limit, detail = first.limit, first.detail
        self._recorder.note(LimitReached, limit=limit, detail=detail, closing=closing)
