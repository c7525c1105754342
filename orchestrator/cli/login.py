"""`login`: a person signs in to a server at a URL."""

import json
import sys
from argparse import Namespace

from anyio.to_thread import run_sync

from orchestrator.cli.progress import say
from orchestrator.cli.running import options
from orchestrator.config.names import did_you_mean
from orchestrator.errors import ConfigurationError
from orchestrator.lifetimes import Servers


async def login(arguments: Namespace) -> int:
    """Shows where to sign in, opens a browser there if a person is at the terminal, and waits for them to come back."""
    from orchestrator.tools.login import sign_in  # noqa: PLC0415 - imports the MCP package
    from orchestrator.tools.vault import Vault  # noqa: PLC0415

    chosen, name = options(arguments), arguments.server
    servers = Servers(chosen.load_settings(), chosen.folder, chosen.ask)
    if name not in servers.settings:
        raise ConfigurationError(f"there is no server `{name}`.{did_you_mean(name, servers.settings)}")
    where = servers.expanded(name)
    if where.transport == "stdio" or where.url is None:
        raise ConfigurationError(f"`{name}` is a program on this machine, which signs in by itself if it needs to")
    if given := next((key for key in where.headers if key.lower() == "authorization"), None):
        raise ConfigurationError(f"`{name}` has an `{given}` in its `headers`, which would go before a sign-in")
    if arguments.forget:
        found = Vault(chosen.store(), where.url).forget()
        say(f"the sign-in to `{name}` is forgotten" if found else f"there was no sign-in to `{name}`")
        return 0

    async def show(address: str) -> None:
        say(f"sign in to `{name}` here: {address}")
        if sys.stdin.isatty() and sys.stderr.isatty():
            import webbrowser  # noqa: PLC0415 - no other command opens one

            await run_sync(webbrowser.open, address, abandon_on_cancel=True)

    tools, asked = await sign_in(where, chosen.store(), show)
    if arguments.json:
        print(json.dumps({"server": name, "signed_in": asked, "tools": tools}))
    else:
        words = f"signed in to `{name}`" if asked else f"`{name}` did not ask for a sign-in"
        print(f"{words}; it has {tools} tools")
    return 0
