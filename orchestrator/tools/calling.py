"""One call of a tool whose server may ask a person for more, in both eras of the protocol.

2026-07-28: the server answers "input required", and the call is made again with what was said; nothing is held open.
Before it, the server asks within the running call. Who can answer at once does; else the call is stopped, and made
again when there is an answer. Either way the caller gets a result, or `Asked`.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    InputResponses,
)

from orchestrator.events import Question
from orchestrator.tools.elicitation import Asked, Unanswerable, answer, answered, key_of, question, questions

ROUNDS = 10
"""Times that a server may ask within one call; the SDKs' own bound."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25
"""Seconds before a call is made again whose server only says that it is not ready; the SDKs' own."""

Ask = Callable[[Question], Awaitable[Question | None]]
"""Puts a question to whoever can answer at once; None when nobody can, and the call is to be stopped."""

Result = CallToolResult | InputRequiredResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known when a call is made: the answers of all its rounds, with the server's `state` of the last `round`.

    `ask` is for what the server asks while the call runs.
    """

    answers: tuple[Question, ...] = ()
    state: str | None = None
    round: int = 0
    ask: Ask | None = None


NOTHING = Given()


class ToolTimeout(Exception):
    """A call took longer than it may; the server has been told to stop it. `seconds` is the limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no answer within {seconds:g} s")


class Send(Protocol):
    """Makes the call, perhaps again."""

    async def __call__(self, responses: InputResponses | None = None, state: str | None = None, /) -> Result: ...


class Clock:
    """A call's time limit in seconds, which stands still while a person is asked."""

    def __init__(self, limit: float | None) -> None:
        self.limit = float("inf") if limit is None else limit
        self._left: float | None = None
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + self.limit)

    def restart(self) -> None:
        if self._left is None:
            self.scope.deadline = anyio.current_time() + self.limit

    def stop(self) -> None:
        self._left, self.scope.deadline = self.scope.deadline - anyio.current_time(), float("inf")

    def go_on(self) -> None:
        self.scope.deadline, self._left = anyio.current_time() + (self._left or 0.0), None


async def converse(send: Send, given: Given) -> CallToolResult | Asked:
    """A call of the newer era: sent with the answers to the last round, until there is a result or a new question.

    A server that no longer knows its own state (it keeps it for minutes, or was started anew) is called from the
    beginning: it had asked instead of finishing. What it asks again gets the answer that is known.

    Raises:
        Unanswerable: it asks for what no person can give, or too often.
    """
    last = tuple(each for each in given.answers if each.round == given.round)
    responses, state, known, pause = _responses(last), given.state, (), FIRST_PAUSE
    for _ in range(ROUNDS):
        try:
            result = await send(responses, state)
        except MCPError as error:
            if state is None or error.error.code != INVALID_PARAMS:
                raise
            responses, state, known = None, None, given.answers
            continue
        if isinstance(result, CallToolResult):
            return result
        state = result.request_state
        if result.input_requests:
            asked = questions(result.input_requests)
            if (again := answered(asked, known)) is None:
                return Asked(questions=asked, state=state, meta=result.meta or {})
            responses = _responses(again)
        else:
            await anyio.sleep(pause)  # the protocol has no event for "now it is ready"
            responses, pause = None, min(pause * 2, LONGEST_PAUSE)
    raise Unanswerable(f"its server asked for more input {ROUNDS} times")


def _responses(answers: tuple[Question, ...]) -> InputResponses | None:
    return {each.key: answer(each) for each in answers} or None


class Held:
    """A call of the older era, and what its server asks while it runs. `asked` is the question that stopped it."""

    def __init__(self, given: Given, clock: Clock) -> None:
        self.asked: Question | None = None
        self._known = list(given.answers)
        self._ask = given.ask
        self._clock = clock
        self._turn = anyio.Lock()
        self._dialogue = anyio.CancelScope()
        self._ended = anyio.Event()

    async def answer(self, question: Question) -> ElicitResult:
        """The answer of a person, now or earlier; else "cancel", once the call has been told to stop."""
        async with self._turn:
            known = next((each for each in self._known if each.key == question.key and each.action), None)
            if known is not None:
                self._known.remove(known)
            elif self._ask is not None and self.asked is None:
                self._clock.stop()
                with self._dialogue:
                    known = await self._ask(question)
                self._clock.go_on()
        if known is not None:
            return answer(known)
        self.asked = self.asked or question
        self._clock.scope.cancel()
        await self._ended.wait()
        return ElicitResult(action="cancel")

    def end(self) -> None:
        self._dialogue.cancel()
        self._ended.set()


HELD: ContextVar[Held] = ContextVar("orchestrator_held_call")
"""The call that a message belongs to, where the transport tells: over HTTP a question comes in its call's context."""


class Line:
    """The calls under way on one server. `concurrency` is how many may be."""

    def __init__(self, concurrency: int | None) -> None:
        self._slots = anyio.CapacityLimiter(concurrency or float("inf"))
        self._held: list[Held] = []

    def turn(self) -> AbstractAsyncContextManager[object]:
        """The time of one call; waits until it may begin."""
        return self._slots if self._slots.total_tokens != float("inf") else nullcontext()

    async def call(self, send: Send, given: Given | None, clock: Clock, *, modern: bool) -> Result | Asked:
        """Makes a call within its time. Without `given`, what the server answers is handed on as it is.

        Raises:
            ToolTimeout: there was no answer in time; the server has been told.
            Unanswerable: the server asks for what no person can give, or too often.
        """
        if given is not None and not modern:
            return await self._hold(send, given, clock)
        with clock.scope:
            return await (send() if given is None else converse(send, given))
        raise ToolTimeout(clock.limit)

    async def _hold(self, send: Send, given: Given, clock: Clock) -> Result | Asked:
        held = Held(given, clock)
        self._held.append(held)
        token = HELD.set(held)
        try:
            with clock.scope:
                return await send()
        except MCPError as error:
            if error.error.code != URL_ELICITATION_REQUIRED:
                raise
            pages = UrlElicitationRequiredError.from_error(error.error).elicitations
            return Asked(questions=tuple(question(key_of(page), page) for page in pages), restarts=True)
        finally:
            HELD.reset(token)
            self._held.remove(held)
            held.end()
        if held.asked is None:
            raise ToolTimeout(clock.limit)
        return Asked(questions=(held.asked,), restarts=True)

    async def elicited(
        self, context: Any, params: ElicitRequestFormParams | ElicitRequestURLParams
    ) -> ElicitResult | ErrorData:
        """A server's question within a call. Over a pipe nothing says which call it belongs to, so it must be the only
        one; a server of which that was not so once gets its calls one by one from then on.
        """
        del context
        held = HELD.get(None)
        if held not in self._held:
            if len(self._held) > 1:
                self._slots.total_tokens = 1
            if len(self._held) != 1:
                return ErrorData(code=INVALID_REQUEST, message="it is not clear which call asks; make the call again")
            held = self._held[0]
        try:
            asked = question(key_of(params), params)
        except Unanswerable as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        return await held.answer(asked)
