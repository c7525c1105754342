"""No request is ever one that a vendor refuses, and every request is a function of the journal: random runs in a small
window, with parallel calls, failures, denials, bad summaries, and a process that dies anywhere.
"""

import json
from collections import defaultdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import Options, Orchestrator
from orchestrator.config import PolicySettings, Settings
from orchestrator.config.settings import MemorySettings
from orchestrator.errors import JournalError, ModelError
from orchestrator.events import JournalEvent, ModelIntent, RunStarted, ToolResult, WindowCut
from orchestrator.models.anthropic import AnthropicCodec
from orchestrator.models.base import ModelRequest
from orchestrator.models.chat import ChatCodec
from orchestrator.runtime.offered import specs_of
from orchestrator.runtime.requests import Wire, rebuilt, tool_lists
from orchestrator.testing import CrashPoint, MemoryJournal, NullTracer, ScriptedModel, call
from tests.behaviour.test_memory import LONG, SUMMARY, pages
from tests.models.rules import broken_for_anthropic, broken_for_openai
from tests.support.runs import card, cards

WINDOW = 2400


class Play:
    """One run over a journal that outlives the process that drives it. `script` answers a request."""

    def __init__(self, script: Any) -> None:
        self.journal: Any = MemoryJournal()
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        self._script = script
        self._anthropic = AnthropicCodec("m")
        self._tools: Any = ()

    async def sit(self, *, dies_after: int | None = None, resume: str = "") -> Any:
        journal = self.journal if dies_after is None else CrashPoint(self.journal, after=dies_after, die=_die)
        with TemporaryDirectory() as home:
            options = Options(
                settings=Settings(
                    servers={},
                    policy=PolicySettings(allow=("pages__*",), deny=("pages__forbidden",)),
                    memory=MemorySettings(window_tokens=WINDOW),
                ),
                cards=cards(card("boss", tools=("pages__*",))),
                servers={"pages": pages(900)},
                model=ScriptedModel(self._answer),
                home=Path(home),
                journal=journal,
                tracer=NullTracer(),
            )
            async with Orchestrator(options, agent="boss") as orchestrator:
                return await (orchestrator.resume(resume) if resume else orchestrator.run("the job", limits=LONG))

    async def to_the_end(self, deaths: list[int]) -> list[JournalEvent]:
        """Dies after so many events of each sitting, and goes on. Returns the journal of the run."""
        run = ""
        for death in (*deaths, None):
            try:
                await self.sit(dies_after=death, resume=run)
                break
            except JournalError:
                run = (await self.journal.runs())[0].run_id if await self.journal.runs() else ""
        return list(await self.journal.read((await self.journal.runs())[0].run_id))

    def _answer(self, request: ModelRequest) -> Any:
        self._check(request)
        if not request.summary:
            self.sent[request.turn].append(request.body)
        return self._script(request)

    def _check(self, request: ModelRequest) -> None:
        self._tools = request.tools or self._tools
        assert broken_for_openai(json.loads(request.body)) is None, request.body
        codec = self._anthropic
        encoded = [codec.message(message) for message in request.messages]
        body = codec.body(encoded, codec.tools(self._tools), request.max_output_tokens)
        assert broken_for_anthropic(json.loads(body)) is None, body


def _die() -> None:
    raise JournalError("the power is gone")


def erratic(seed: int) -> Any:
    """Every turn is drawn by itself, so that a turn that is asked again is answered in the same way."""

    def script(request: ModelRequest) -> Any:
        chance = Random(f"{seed} {request.turn} {request.summary}")
        if request.summary:
            bad = ["", "y" * 9000, call("pages__read", {"n": 1}), ModelError("bad_request", "no")]
            return chance.choice([SUMMARY, SUMMARY, SUMMARY, *bad])
        if request.turn > 24:
            return "done"
        n = request.turn * 10
        wishes = [
            call("pages__read", {"n": n}),
            call("pages__read", {"n": n + 1}),
            call("pages__read", {"n": "x", "more": n}),
            call("pages__read", '{"n": ' + str(n + 2)),
            call("pages__nothing", {"n": n}),
            call("retrieve_result", {"id": "t1.1", "offset": n}),
            call("pin", {"text": f"At most {n} rows."}),
        ]
        match chance.randrange(8):
            case 0:
                return "" if request.turn % 2 else " "
            case 1 if request.attempt == 1:
                return ModelError("context_overflow", "too long")
            case 2:
                return ["Let me see.", *chance.sample(wishes, chance.randrange(1, 5)), wishes[0]]
            case _:
                return [wishes[0], *chance.sample(wishes[1:], chance.randrange(0, 3))]

    return script


def beginning(journal: list[JournalEvent]) -> RunStarted:
    assert isinstance(journal[0], RunStarted)
    return journal[0]


def checked_by_the_journal(play: Play, journal: list[JournalEvent], bodies: dict[str, bytes]) -> None:
    """Every request is made again, byte for byte, from nothing but the events before it."""
    codec = ChatCodec("scripted")
    started = beginning(journal)
    tools = {name: specs_of(bodies[name]) for name in tool_lists(journal)}
    system = bodies[started.system].decode()
    for request in rebuilt(journal, iter([Wire(codec, False)]), system, tools, {}):
        assert request.checked
        assert request.body in play.sent[request.turn]


async def _played(script: Any, deaths: list[int]) -> tuple[Play, list[JournalEvent]]:
    play = Play(script)
    journal = await play.to_the_end(deaths)
    names = [*tool_lists(journal), beginning(journal).system]
    checked_by_the_journal(play, journal, {name: await play.journal.body(name) for name in names})
    return play, journal


@pytest.mark.requirement("D1", "D2")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), deaths=st.lists(st.integers(3, 60), max_size=3))
def test_every_request_of_a_random_run_is_valid_and_comes_from_the_journal(seed: int, deaths: list[int]) -> None:
    anyio.run(_played, erratic(seed), deaths)


def steady(request: ModelRequest) -> Any:
    if request.summary:
        return SUMMARY
    return call("pages__read", {"n": request.turn}) if request.turn <= 16 else "done"


@pytest.mark.requirement("D2", "H1")
def test_after_a_death_at_any_event_the_model_is_asked_the_same_to_the_byte() -> None:
    async def main() -> None:
        whole, journal = await _played(steady, [])
        assert sum(isinstance(event, WindowCut) for event in journal) >= 2
        last = {turn: bodies[-1] for turn, bodies in whole.sent.items()}
        for death in range(2, len(journal) - 1, 3):
            play, after = await _played(steady, [death])
            assert {turn: bodies[-1] for turn, bodies in play.sent.items()} == last, death
            assert all(set(bodies) == {last[turn]} for turn, bodies in play.sent.items())
            assert sum(isinstance(event, ToolResult) for event in after) == 16
            assert sum(isinstance(event, ModelIntent) for event in after) <= 19

    anyio.run(main)
