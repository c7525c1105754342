"""What a run keeps of a result: its text as the model is shown it, and the whole of it in the journal's bodies.

A long result is cut once, here, when it arrives. What was shown is in the event, so it never changes; the whole is
written before the event that names it.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import anyio.to_thread

from orchestrator.events import Kept
from orchestrator.memory.excerpts import excerpt, fits
from orchestrator.runtime.agent import Agent
from orchestrator.runtime.publish import call_path
from orchestrator.runtime.team import digest
from orchestrator.runtime.tree import Tree
from orchestrator.tools import results
from orchestrator.tools.toolset import BUILTIN, LONG, Offer, Reply

AGENT_TOKENS = 8000
"""Tokens of an agent's answer that are shown at least. It is written to be read, and bounded by its output limit."""

REMARK_TOKENS = 1000
"""Tokens of what is said before a result; the arguments that were sent may be in it."""

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_PICTURE = 4_000_000
MOST_PICTURES = 4
"""What vendors take: kinds, bytes of one, and how many of one result, so that a turn stays payable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A result as it is recorded. `bodies` are what is kept, by hash."""

    text: str
    kept: tuple[Kept, ...] = ()
    bodies: dict[str, bytes] = field(default_factory=dict[str, bytes])


async def observe(tree: Tree, agent: Agent, offer: Offer, key: str, reply: Reply, before: str) -> Observed:
    """Cuts and keeps what came of the call `key`, and returns once what is kept is in the journal.

    `before` is said before its text.
    """
    tokens = tree.result_tokens
    tokens = (
        max(tokens, AGENT_TOKENS)
        if offer.effect == "agent"
        else offer.server.terms.shown_tokens(offer.tool.name, tokens)
    )
    tokens = tree.shown_at_once(tokens, together=len(tree.states[key.rpartition("/")[0]].calls))
    work = partial(_observed, reply.parts, call_path(*key.rsplit("/", 1)), agent, offer, tokens)
    if sum(len(part) if isinstance(part, str) else len(part.data) for part in reply.parts) < LONG:
        observed = work()
    else:
        observed = await anyio.to_thread.run_sync(work)
    if observed.bodies:
        with anyio.CancelScope(shield=True):  # the call is done: what came of it is not to be lost now
            await tree.journal.keep(observed.bodies)
    if not before:
        return observed
    return replace(
        observed, text=(before if fits(before, REMARK_TOKENS) else excerpt(before, REMARK_TOKENS)) + observed.text
    )


def _observed(parts: results.Parts, id: str, agent: Agent, offer: Offer, tokens: int) -> Observed:
    text = results.text(parts, id)
    kept, bodies = list[Kept](), dict[str, bytes]()
    if offer.server.name != BUILTIN and not fits(text, tokens):
        body = text.encode()
        kept.append(Kept(id=id, body=digest(body), kind="text", mime_type="text/plain", size=len(body)))
        bodies[kept[0].body] = body
        text = excerpt(text, tokens, id if any(spec.name == "retrieve_result" for spec in agent.specs) else "")
    pictures = 0
    for number, media in enumerate((part for part in parts if isinstance(part, results.Media)), 1):
        fine = media.kind == "image" and media.mime_type in PICTURES and 0 < len(media.data) <= LARGEST_PICTURE
        shown = agent.model.vision and fine and pictures < MOST_PICTURES
        pictures += shown
        name = digest(media.data)
        bodies[name] = media.data
        kept.append(
            Kept(
                id=f"{id}#{number}",
                body=name,
                kind=media.kind,
                mime_type=media.mime_type,
                size=len(media.data),
                shown=shown,
            )
        )
    return Observed(text=text, kept=tuple(kept), bodies=bodies)
