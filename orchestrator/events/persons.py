"""Events of what waits for a person: a call to approve, or what a server asks in the middle of one."""

from typing import Any, Literal

from orchestrator.events.base import Data, Event
from orchestrator.messages import Cost, Usage


class ApprovalAsked(Event):
    """A call waits for a person. `digest` stands for the tool and these very arguments: a verdict must name it."""

    type: Literal["approval.asked"] = "approval.asked"
    call: str
    tool: str
    arguments: dict[str, Any]
    reason: str
    digest: str


class Question(Data):
    """What a server asks of a person in the middle of a call: a form of the `requested` schema, or a visit of `url`.

    `key` is its name for the server, `round` counts from 1 within the call, `digest` is what a verdict must name.
    `action` is None until it is answered; `content` is a form's.
    """

    key: str
    round: int = 1
    message: str
    requested: dict[str, Any] | None = None
    url: str | None = None
    digest: str = ""
    action: Literal["accept", "decline", "cancel"] | None = None
    content: dict[str, Any] | None = None


class InputAsked(Event):
    """A server needs a person before it goes on with a call: the questions of all rounds, those answered included.

    `state` goes back to the server with the answers to `round`. `restarts`: the server asks within the running call, so
    an answer that comes when that has ended makes the call again from its beginning. `usage` and `cost` are what an
    agent of another orchestrator has used until then.
    """

    type: Literal["input.asked"] = "input.asked"
    call: str
    tool: str
    server: str
    arguments: dict[str, Any]
    questions: tuple[Question, ...]
    round: int = 1
    state: str | None = None
    restarts: bool = False
    usage: Usage | None = None
    cost: Cost | None = None

    @property
    def open(self) -> Question | None:
        """The first question without an answer."""
        return next((question for question in self.questions if question.action is None), None)

    @property
    def refused(self) -> bool:
        """Whether an answer to the last round was no, or none."""
        return any(each.action in ("decline", "cancel") for each in self.questions if each.round == self.round)


class ApprovalDecided(Event):
    """The first verdict on a call, or on what a server asks. `arguments` go in the place of the asked ones, or are a
    form's content. `dismissed`: neither yes nor no to a server's question. `held`: the running call has the answer.
    `by` is whose verdict it is.
    """

    type: Literal["approval.decided"] = "approval.decided"
    call: str
    approved: bool
    digest: str
    note: str = ""
    arguments: dict[str, Any] | None = None
    dismissed: bool = False
    held: bool = False
    by: str = ""


PersonEvent = ApprovalAsked | InputAsked | ApprovalDecided
