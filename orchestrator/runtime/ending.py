"""How a run ends: what is checked of its answer, the first limit, and what hooks say to a transition."""

import json
from typing import Literal

from orchestrator.events import HookApplied, LimitReached, OutputChecked, RunFailed, RunFinished, StopReason
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.hooks import Moment, Redirect, Replace, Veto
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.runstate import Finish
from orchestrator.runtime.tree import Tree
from orchestrator.runtime.words import output_wrong
from orchestrator.tools.arguments import InvalidArguments


class Ending:
    """Judges one run's transitions and ends it."""

    def __init__(self, tree: Tree, agent: Agent, recorder: Recorder) -> None:
        self._tree = tree
        self._agent = agent
        self._recorder = recorder

    async def finish(self, step: Finish) -> None:
        """Ends the run, unless a hook sends the answer back or puts another in its place."""
        if step.status == "finished" and not self._conforms(step.answer):
            return
        if step.status == "finished" and await self.hooked("finishing", self._recorder.state.answer or step.answer):
            return
        answer = (
            self._recorder.state.answer if step.status == "finished" and self._recorder.state.answer else step.answer
        )
        self._recorder.note(
            self._recorder.make(RunFinished, status=step.status, stop_reason=step.stop_reason, answer=answer)
        )

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
                self._recorder.note(self._recorder.make(OutputChecked, valid=False, text=output_wrong(error)))
            return False
        text = json.dumps(found, ensure_ascii=False)
        self._recorder.note(self._recorder.make(OutputChecked, valid=True, text=text))
        return True

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
                    self._recorder.note(
                        self._recorder.make(RunFailed, kind="vetoed", error=f"the hook {name} ended the run: {reason}")
                    )
                    return True
                case _:
                    continue
        return False

    def _note_hook(self, hook: str, kind: str, decision: str, text: str) -> None:
        self._recorder.note(self._recorder.make(HookApplied, hook=hook, moment=kind, decision=decision, text=text))

    def limit(self, limit: StopReason, detail: str, *, closing: bool) -> None:
        """A run is stopped by the first limit that it reaches; what its closing request meets is not told."""
        if (first := self._recorder.state.stop) is not None:
            limit, detail = first.limit, first.detail
        self._recorder.note(self._recorder.make(LimitReached, limit=limit, detail=detail, closing=closing))
