"""`chat`: a conversation whose every turn is a run that knows what was said before."""

import asyncio
import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from orchestrator.cli import INTERRUPTED, replaying
from orchestrator.cli.interrupts import parking
from orchestrator.cli.lines import Lines, lines
from orchestrator.cli.progress import one_line, say
from orchestrator.cli.running import Watch, options, report, run_options, watching
from orchestrator.config.names import did_you_mean
from orchestrator.errors import ConfigurationError, OrchestratorError
from orchestrator.files import Files
from orchestrator.memory.conversation import earlier
from orchestrator.options import Options
from orchestrator.orchestrator import Orchestrator

if TYPE_CHECKING:
    from orchestrator.runtime.result import RunResult
    from orchestrator.runtime.sittings import RunOptions

PROMPT = "> "
COMMANDS = {
    "/help": "what can be typed here",
    "/agents": "the agents, and what each is for",
    "/tools": "what this agent and those below it can call",
    "/cost": "what the conversation has used",
    "/replay": "the last run step by step, or the one whose id follows",
    "/resume": "go on with a run of this conversation that is parked",
    "/exit": "end; Ctrl-D does as well",
}
_COMMAND = re.compile(r"/[a-z]+(?=\s|$)")

Drive = Callable[[Orchestrator, "RunOptions", Watch], Awaitable["RunResult"]]


async def chat(arguments: Namespace) -> int:
    """Reads lines until they end. Cards and servers that were changed meanwhile count from the next turn on."""
    with anyio.CancelScope() as scope:  # around the files: what is opened anew must be the last that was opened
        async with Opened(arguments) as opened:
            said = lines(PROMPT)
            if said.terminal and not arguments.quiet:
                say(f"orchestrator chat with {arguments.agent}: /help says what can be typed, Ctrl-D ends")
            talk = Conversation(arguments, opened, said, scope.cancel)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talk.interrupt)
            return await talk.hold()
    return INTERRUPTED


class Opened:
    """An open orchestrator, and another one as soon as its files say something else."""

    def __init__(self, arguments: Namespace) -> None:
        self._agent = arguments.agent
        self._files = Files(options(arguments), _kept)
        self.orchestrator = self._make(self._files.options)

    async def __aenter__(self) -> "Opened":
        await self.orchestrator.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.orchestrator.__aexit__(None, None, None)

    async def look(self) -> None:
        """Takes in what was changed since; where that is wrong, it is told once, and all stays as it was."""
        if not self._files.touched or (made := self._files.look(self._make)) is None:
            return
        await self.orchestrator.__aexit__(None, None, None)
        self.orchestrator = made
        await made.__aenter__()

    def _make(self, options: Options) -> Orchestrator:
        return Orchestrator(options, agent=self._agent)


class Conversation:
    """What was said, run by run, and what is said next."""

    def __init__(self, arguments: Namespace, opened: Opened, said: Lines, end: Callable[[], None]) -> None:
        self._arguments = arguments
        self._opened = opened
        self._lines = said
        self._end = end
        self._asked: dict[str, str] = {}
        self._results: dict[str, RunResult] = {}
        self._turn: anyio.CancelScope | None = None
        self._interrupted = False
        self._ended = False

    async def hold(self) -> int:
        with parking(self._park_and_end):
            while not self._ended and (line := await self._lines.next(self._names())) is not None:
                try:
                    await self._take(line.strip())
                except OrchestratorError as error:
                    if not self._lines.terminal:
                        raise
                    _tell(error)
        return 0

    def interrupt(self) -> None:
        """Ctrl-C parks the run of this turn, and the second one ends the process; between turns it ends the chat."""
        if self._interrupted:
            os._exit(INTERRUPTED)
        self._interrupted = True
        if self._turn is None:
            self._end()
        elif not self._opened.orchestrator.park():
            self._turn.cancel()  # nothing runs yet

    def _park_and_end(self) -> bool:
        """SIGTERM: what runs is parked, and no further turn follows."""
        self._ended = True
        return self._turn is not None and self._opened.orchestrator.park()

    async def _take(self, line: str) -> None:
        command = _COMMAND.match(line)
        if not line:
            return
        if command is None:
            task = os.fsencode(line).decode("utf-8", "replace")
            said = [*self._asked.values()]
            above = earlier([(asked, _told(self._results[run])) for run, asked in self._asked.items()])
            await self._run(
                task, lambda o, how, see: o.run(task, options=replace(how, earlier=above, said=said), on_event=see)
            )
            return
        rest = line[command.end() :].strip()
        match command[0]:
            case "/help":
                print("\n".join(f"{name:9} {words}" for name, words in COMMANDS.items()))
            case "/agents":
                await self._opened.look()
                self._agents()
            case "/tools":
                await self._opened.look()
                await self._tools()
            case "/cost":
                self._cost()
            case "/replay":
                await self._replay(rest)
            case "/resume":
                await self._resume()
            case "/exit" | "/quit":
                self._ended = True
            case other:
                say(f"there is no {other}.{did_you_mean(other, COMMANDS)} /help says what there is")

    async def _run(self, task: str, drive: Drive) -> None:
        """One turn; what is parked in it stays for `/resume`."""
        await self._opened.look()
        with anyio.CancelScope() as self._turn:
            try:
                orchestrator = self._opened.orchestrator
                with watching(self._arguments) as (watch, progress):
                    result = await drive(orchestrator, run_options(self._arguments, progress), watch)
                    progress.close()
                for kept in (self._asked, self._results):  # the newest last, one that was resumed as well
                    kept.pop(result.run_id, None)
                self._asked[result.run_id], self._results[result.run_id] = task, result
                report(result, self._arguments, orchestrator.settings)
                if result.status == "parked":
                    say("or go on with it here: /resume")
            finally:
                self._turn, self._interrupted = None, False
            return
        say("interrupted before it began")

    async def _resume(self) -> None:
        parked = [run for run, result in self._results.items() if result.status == "parked"]
        if not parked:
            say("no run of this conversation is parked")
            return
        run = parked[-1]
        await self._run(self._asked[run], lambda o, how, see: o.resume(run, options=how, on_event=see))

    def _agents(self) -> None:
        for card in self._opened.orchestrator.cards.cards.values():
            mark = "*" if card.name == self._arguments.agent else " "
            print(f"{mark} {card.name}  {one_line(card.description)}")

    async def _tools(self) -> None:
        orchestrator = self._opened.orchestrator
        await orchestrator.check(self._arguments.agent)
        team = orchestrator.team
        offers = team.toolset.offers(team.servers_below(orchestrator.cards.get(self._arguments.agent)))
        for offer in offers:
            print(f"{offer.name}  {offer.effect}  {one_line(offer.tool.description or '')}")
        if not offers:
            print("no tools")

    def _cost(self) -> None:
        found = list(self._results.values())
        amount = f"${sum(each.cost.amount for each in found):.4f}"
        cost = amount if all(each.cost.known for each in found) else "cost unknown"
        read, written = (sum(getattr(each.usage, kind) for each in found) for kind in ("input_tokens", "output_tokens"))
        models, tools = (sum(getattr(each.usage, kind) for each in found) for kind in ("model_calls", "tool_calls"))
        print(f"{len(found)} runs · {read:,} + {written:,} tokens · {models} model calls · {tools} tool calls · {cost}")

    async def _replay(self, run: str) -> None:
        run = run or next(reversed(self._results), "")
        if not run:
            say("nothing ran yet in this conversation")
            return
        wanted = Namespace(**{**vars(self._arguments), "run_id": run, "journal": None, "prompts": False})
        await replaying.show_run(await replaying.read_run(wanted), stepwise=False)

    def _names(self) -> list[str]:
        """What may be completed: commands, agents, tools that are known by now, and this conversation's runs."""
        orchestrator = self._opened.orchestrator
        tools = [offer.name for offer in orchestrator.team.toolset.offers()] if self._lines.terminal else []
        return sorted([*COMMANDS, *orchestrator.cards.cards, *tools, *self._results])


def _told(result: "RunResult") -> str:
    """What came of a run, as later ones read it."""
    status = "" if result.status == "finished" else f"[{result.status}: {result.stop_reason}] "
    return f"{status}{result.answer}"


def _kept(error: ConfigurationError) -> None:
    _tell(error)
    say("going on with the files as they were")


def _tell(error: OrchestratorError) -> None:
    for problem in error.problems if isinstance(error, ConfigurationError) else [error]:
        say(f"error: {problem}")
    sys.stdout.flush()
