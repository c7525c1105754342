"""What the models of a run were shown: every request, as it went over the wire."""

from collections.abc import Mapping, Sequence

from orchestrator.errors import ConfigurationError
from orchestrator.events import JournalEvent, RunStarted, ToolResult
from orchestrator.lifetimes import Models
from orchestrator.models.base import Codec
from orchestrator.models.resolve import plain_codec
from orchestrator.options import Options
from orchestrator.runtime.journal import Journal
from orchestrator.runtime.offered import specs_of
from orchestrator.runtime.replay import ReplayedRun
from orchestrator.runtime.requests import rebuilt, tool_lists


async def add_requests(run: ReplayedRun, tree: Mapping[str, Sequence[JournalEvent]], journal: Journal) -> bool:
    """Puts the last request of each turn into a replayed run and all below it.

    False when some model is not configured here as the run had it: what is set for it beside its name, such as a
    temperature, is then missing in its requests.
    """
    started = tree[run.run_id][0]
    assert isinstance(started, RunStarted), "a run begins with its start"
    codec, known = await _codec(started, await _options(tree, run.run_id, journal))
    system = (await journal.body(started.system)).decode()
    tools = {digest: specs_of(await journal.body(digest)) for digest in tool_lists(tree[run.run_id])}
    results = [event for event in tree[run.run_id] if isinstance(event, ToolResult)]
    shown = [kept.body for event in results for kept in event.kept if kept.shown]
    images = {body: await journal.body(body) for body in shown}
    requests = {request.turn: request for request in rebuilt(tree[run.run_id], codec, system, tools, images)}
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


async def _codec(started: RunStarted, options: Options | None) -> tuple[Codec, bool]:
    """How the model of a run writes its requests, and whether that is certain."""
    if options is not None:
        try:
            models = Models(options.model, options.load_settings())
            model = models.of(options.load_cards().get(started.agent))
            await models.close()
            if model.name == started.model:
                return model.codec, True
        except ConfigurationError:  # another machine's run, a key that is not set here, a card that has gone
            pass
    return plain_codec(started.model), False
