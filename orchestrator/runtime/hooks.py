"""Where a run can be watched and steered from outside: before it thinks, before each call, before it ends.

A hook is an async function of a `Moment`. It returns None to let things go on, or a decision, which is an event of the
run's journal: after a resume, what was decided stays decided.

    async def office_hours(moment: Moment) -> Decision | None:
        if moment.kind == "acting" and not 9 <= datetime.now().hour < 17:
            return Veto("calls are made in office hours only")
        return None
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

MomentKind = Literal["thinking", "acting", "finishing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A transition that is about to happen: to THINKING, to ACTING (once for each call) or to FINISHED.

    `tool` and `arguments` are those of the call, `answer` the one that the run is about to end with. What cannot be
    sent (an unknown tool, wrong arguments) is not shown to hooks.
    """

    run_id: str
    agent: str
    step: int
    kind: MomentKind
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Veto:
    """It does not happen. A call is answered with the reason; thinking or finishing ends the run with it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """It happens with other arguments, or the run ends with another answer. Arguments go out as they are given."""

    arguments: dict[str, Any] | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """The model is told something first: before it thinks, or instead of ending. For a call it is a veto."""

    message: str


Decision = Veto | Replace | Redirect


class Hook(Protocol):
    def __call__(self, moment: Moment, /) -> Awaitable[Decision | None]: ...
