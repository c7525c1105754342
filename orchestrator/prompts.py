"""What the models of a run were shown: every request, as it went over the wire."""

from collections.abc import Mapping, Sequence

from orchestrator.errors import ConfigurationError
from orchestrator.events import JournalEvent, ModelChanged, RunStarted, ToolResult
from orchestrator.lifetimes import Models
from orchestrator.models.choice import Choice
from orchestrator.models.resolve import plain_codec
from orchestrator.options import Options
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.offered import specs_of
from orchestrator.runtime.replay import ReplayedRun
from orchestrator.runtime.requests import Wire, rebuilt, tool_lists


async def add_requests(run: ReplayedRun, tree: Mapping[str, Sequence[JournalEvent]], journal: Journal) -> bool:
    """Puts the last request of each turn into a replayed run and all below it.

    False when some model is not configured here as the run had it: what is set for it beside its name, such as a
    temperature, is then missing in its requests.
    """
    started = tree[run.run_id][0]
    assert isinstance(started, RunStarted), "a run begins with its start"
    wires, known = await _wires(tree[run.run_id], await _options(tree, run.run_id, journal))
    system = (await journal.body(started.system)).decode()
    tools = {digest: specs_of(await journal.body(digest)) for digest in tool_lists(tree[run.run_id])}
    results = [event for event in tree[run.run_id] if isinstance(event, ToolResult)]
    shown = [kept.body for event in results for kept in event.kept if kept.shown]
    images = {body: await journal.body(body) for body in shown}
    requests = {request.turn: request for request in rebuilt(tree[run.run_id], wires, system, tools, images)}
    for turn in run.turns:
        if request := requests.get(turn.n):
            turn.request, turn.request_checked = request.body.decode(), request.checked
        for call in turn.calls:
            if call.run is not None:
                known = await add_requests(call.run, tree, journal) and known
    return known


async def _options(tree: Mapping[str, Sequence[JournalEvent]], run: str, journal: Journal) -> Options | None:
    """What the tree's top run was started with, if that is told."""
    top = tree.get(run.partition("/")[0], tree[run])[0]
    assert isinstance(top, RunStarted), "a run begins with its start"
    return Options.recorded(await journal.body(top.settings)) if top.settings else None


async def _wires(events: Sequence[JournalEvent], options: Options | None) -> tuple[list[Wire], bool]:
    """How the models of a run, one after the other, have their requests, and whether that is certain."""
    choices = await _choices(events[0].agent, options)
    here = {choice.spec: choice.model for choice in choices}
    first = choices[0].spec if choices else ""
    used = [(first, event.model) for event in events if isinstance(event, RunStarted)]
    used += [(event.spec, event.model) for event in events if isinstance(event, ModelChanged)]
    wires, certain = list[Wire](), True
    for spec, name in used:
        if (model := here.get(spec)) is not None and model.name == name:
            wires.append(Wire(model.codec, model.vision))
        else:
            wires.append(Wire(plain_codec(name), vision=True))
            certain = False
    return wires, certain


async def _choices(agent: str, options: Options | None) -> Sequence[Choice]:
    """The models that an agent has here."""
    if options is not None:
        try:
            models = Models(options.model, options.load_settings())
            choices = models.choices(options.load_cards().get(agent))
            await models.close()
        except ConfigurationError:  # another machine's run, a key that is not set here, a card that has gone
            return ()
        return choices
    return ()
