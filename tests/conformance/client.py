"""A scenario of the suite, gone through by our toolset as a run would: connect, sign in where asked, call the tools."""

from pathlib import Path
from typing import Any

import anyio

from orchestrator.config import ServerSettings
from orchestrator.config.oauth import OAuthSettings
from orchestrator.events import Question
from orchestrator.tools.calling import Given
from orchestrator.tools.elicitation import content
from orchestrator.tools.examples import example
from orchestrator.tools.login import sign_in
from orchestrator.tools.servers import Terms
from orchestrator.tools.toolset import Offer, Reply, Toolset
from orchestrator.tools.transports import http_server
from tests.support.oauth_server import browse

SECONDS = 20
SIGN_INS = 3
"""How often a person would sign in before giving up."""


async def go_through(url: str, context: dict[str, Any], store: Path) -> str:
    """What a person would be told at the end when it went wrong, else nothing."""
    oauth = OAuthSettings.model_validate({key: value for key, value in context.items() if key.startswith("client_")})
    where = ServerSettings(name="suite", transport="http", url=url, oauth=oauth, file=Path("suite.json"), line=1)
    problem = ""
    for _ in range(SIGN_INS):
        problem = await one_run(where, context, store)
        if "orchestrator login suite" not in problem:
            break
        await sign_in_by_browser(where, store)
    return problem


async def one_run(where: ServerSettings, context: dict[str, Any], store: Path) -> str:
    server = http_server("suite", lambda: where, start_timeout=SECONDS, terms=Terms(), store=store)
    async with Toolset([server]).running() as toolset:
        await toolset.ready(["suite"])
        if not server.up:
            return server.problem
        for call in context.get("toolCalls") or [{"name": each.tool.name} for each in toolset.offers()]:
            offer = next(each for each in toolset.offers() if each.tool.name == call["name"])
            reply = await asked(toolset, offer, call.get("arguments"))
            if reply.error not in (None, "tool_error"):
                return reply.text
    return ""


async def asked(toolset: Toolset, offer: Offer, arguments: dict[str, Any] | None) -> Reply:
    """The answer to a call; who is asked meanwhile says yes to what the form proposes."""
    sent = example(offer.tool.input_schema) if arguments is None else arguments
    given = Given(ask=agree)
    while True:
        reply = await toolset.call(offer, sent, timeout=SECONDS, meta={}, given=given)
        if reply.asked is None:
            return reply
        number = given.round + 1
        answers = [(await agree(each)).model_copy(update={"round": number}) for each in reply.asked.questions]
        given = Given(answers=(*given.answers, *answers), state=reply.asked.state, round=number, ask=agree)


async def agree(question: Question) -> Question:
    return question.model_copy(update={"action": "accept", "content": content(question, None)})


async def sign_in_by_browser(where: ServerSettings, store: Path) -> None:
    async with anyio.create_task_group() as group:

        async def look(address: str) -> None:
            page = await browse(address)
            if page.url.path != "/callback":
                raise RuntimeError(f"the page to sign in at answers {page.status_code}")

        async def show(address: str) -> None:
            group.start_soon(look, address)

        await sign_in(where, store, show)
