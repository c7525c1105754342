"""What waits for a person: put to whoever is there, and what servers ask in the middle of a call.

A question is in the journal before anyone is asked, and the verdict before its server gets it. So an answer is never
asked for twice, and a process that dies between the two leaves a call that is known to have had its answer.
"""

import logging
from functools import partial

import anyio

from orchestrator.events import ApprovalDecided, InputAsked, Question
from orchestrator.runtime import wire
from orchestrator.runtime.ledger import Ledger
from orchestrator.runtime.recorder import Recorder
from orchestrator.runtime.remote import NO_USE, Used
from orchestrator.runtime.result import request_of
from orchestrator.runtime.runstate import CallState
from orchestrator.runtime.tree import Tree
from orchestrator.runtime.who import os_user
from orchestrator.tools.arguments import InvalidArguments
from orchestrator.tools.calling import NOTHING, ROUNDS, Given
from orchestrator.tools.elicitation import Asked, is_empty, is_verdict, said

logger = logging.getLogger(__name__)


class Asking:
    """Asks for the calls of one run. `errors` is what went wrong while a server waited, which can only be answered."""

    def __init__(self, tree: Tree, recorder: Recorder, ledger: Ledger) -> None:
        self._tree = tree
        self._recorder = recorder
        self._ledger = ledger
        self.errors: list[Exception] = []

    async def put(self, call: CallState, *, held: bool = False) -> bool:
        """Asks about a call that waits, where someone can be asked now; True when there is a verdict.

        `held`: the call is under way, and its server waits for the answer.
        """
        if self._tree.approver is None:
            return False
        began = anyio.current_time()
        verdict = await self._tree.approver(request_of(self._recorder.state, call, running=held))
        self._ledger.extend(anyio.current_time() - began)
        if verdict is None:
            self._tree.approver = None
            return False
        arguments = verdict.arguments
        if not verdict.dismissed and call.input is not None and (question := call.input.open) is not None:
            try:
                arguments = said(question, arguments, verdict.note, approved=verdict.approved)
            except InvalidArguments as error:
                logger.warning("the answer to what %s asks does not fit, so it waits on: %s", call.input.server, error)
                return False
        self._recorder.note(
            ApprovalDecided,
            call=call.call.id,
            approved=verdict.approved,
            digest=call.digest,
            note=verdict.note,
            arguments=arguments,
            dismissed=verdict.dismissed,
            held=held,
            by=verdict.by or os_user(),
        )
        await self._recorder.save(durable=True)
        return True

    def given(self, call: str, server: str, scope: anyio.CancelScope) -> Given:
        """What is known of a call when it is sent. `scope` is the run's time for it, which a person does not use up.

        A call that starts before the reply with it is complete is not in the journal, so nothing is asked within it.
        """
        if (found := self.find(call)) is None:
            return NOTHING
        ask = partial(self._ask, call, server, scope)
        if (asked := found.input) is None:
            return Given(ask=ask)
        return Given(answers=asked.questions, state=asked.state, round=asked.round, ask=ask)

    def note(self, call: str, server: str, asked: Asked, used: Used = NO_USE, *, rounds: int | None = ROUNDS) -> bool:
        """Notes what a server asks for a call, unless that is noted already; False when it has asked more than `rounds`
        times. `used` is what a remote agent has used until now.
        """
        found = self.find(call)
        assert found is not None, "what has been sent is in the state"
        if found.phase == "waiting":
            return True
        earlier, number = ((), 1) if found.input is None else (found.input.questions, found.input.round + 1)
        if rounds is not None and number > rounds:
            return False
        arguments = dict(found.arguments or {})
        new = [
            self._by_mode(each).model_copy(
                update={"round": number, "digest": wire.digest_of_question(found.call.name, arguments, each)}
            )
            for each in asked.questions
        ]
        self._recorder.note(
            InputAsked,
            call=call,
            tool=found.call.name,
            server=server,
            arguments=arguments,
            questions=(*earlier, *new),
            round=number,
            state=asked.state,
            restarts=asked.restarts,
            usage=used.usage,
            cost=used.cost,
        )
        return True

    def find(self, call: str) -> CallState | None:
        return self._recorder.state.find(call)

    def _by_mode(self, question: Question) -> Question:
        """`none` declines for the person; `all` can say yes where nothing but a yes is asked for."""
        if self._tree.approve == "none":
            return question.model_copy(update={"action": "decline"})
        if self._tree.approve == "all" and (is_empty(question) or is_verdict(question.requested)):
            content = {} if is_empty(question) else said(question, None, "", approved=True)
            return question.model_copy(update={"action": "accept", "content": content})
        return question

    async def _ask(self, call: str, server: str, scope: anyio.CancelScope, question: Question) -> Question | None:
        """A server asks within a running call. None: nobody can answer now."""
        try:
            scope.deadline = float("inf")
            return await self._answer(call, server, question)
        except Exception as error:  # noqa: BLE001 - it is raised where the call was made
            self.errors.append(error)
            return None
        finally:
            scope.deadline = self._ledger.deadline

    async def _answer(self, call: str, server: str, question: Question) -> Question | None:
        if (ours := self._by_mode(question)).action is not None:
            return ours
        if self._tree.approver is None:
            return None
        if not self.note(call, server, Asked(questions=(question,), restarts=True)):
            return question.model_copy(update={"action": "cancel"})
        await self._recorder.save(durable=True)
        waiting = self.find(call)
        if waiting is None or not await self.put(waiting, held=True):
            return None
        answered = self.find(call)
        return answered.input.questions[-1] if answered is not None and answered.input is not None else None
