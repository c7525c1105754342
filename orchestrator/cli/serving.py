"""`serve`: agents as MCP tools for other programs, until a signal or the end of input."""

import json
from argparse import Namespace

import anyio

from orchestrator.cli.interrupts import stopping
from orchestrator.cli.progress import say
from orchestrator.cli.running import options


async def serve(arguments: Namespace) -> int:
    if arguments.new_token is not None:
        return _new_token(arguments.new_token)
    from orchestrator.serving.opening import offering  # noqa: PLC0415 - imports the MCP package
    from orchestrator.serving.stdio import serve_stdio  # noqa: PLC0415
    from orchestrator.serving.web import serve_http  # noqa: PLC0415

    stop = anyio.Event()
    with stopping(stop.set):
        async with offering(options(arguments), arguments.only, say) as serving:
            flags = {name: getattr(arguments, name) for name in ("host", "port")}
            given = {name: value for name, value in flags.items() if value is not None}
            settings = serving.settings.serve.model_copy(update=given)
            if arguments.stdio:
                await serve_stdio(serving, settings, stop)
            else:
                await serve_http(serving, settings, stop, say)
    return 0


def _new_token(name: str) -> int:
    """Prints a token, which is kept nowhere, and how its hash is configured."""
    from orchestrator.serving.tokens import new_token  # noqa: PLC0415 - imports the MCP package

    token, digest = new_token()
    print(token)
    say(f"add to orchestrator.toml; the token above is not shown again:\n\n[serve.tokens.{json.dumps(name)}]")
    say(f'sha256 = "{digest}"')
    return 0
