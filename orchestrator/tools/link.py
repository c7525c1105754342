"""What one connection to a server is made with."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp.client.session import ElicitationFnT

from orchestrator.tools.changes import Bell
from orchestrator.tools.listing import Hello
from orchestrator.tools.sieve import Sieve


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a connection is made with.

    `lost` is told why when the other side has gone, where the transport sees that by itself; `bell` hears what the
    server says unasked, and `elicited` gets what it asks a person for.
    """

    hello: Hello
    bell: Bell
    lost: Callable[[str], None]
    elicited: ElicitationFnT
    sieve: Sieve

    def remote(self, transport: AbstractAsyncContextManager[Any]) -> Client:
        """A client of a server that is not ours, whose list may hold anything."""
        client = self.client(self.sieve.around(transport))
        self.sieve.version = lambda: client.protocol_version
        return client

    def client(self, transport: Any) -> Client:
        """The one place where a client is made; `transport` may be a server object of this process."""
        return Client(
            transport,
            mode=self.hello.mode,
            prior_discover=self.hello.prior,
            message_handler=self.bell.heard,
            elicitation_callback=self.elicited,
        )


Connect = Callable[[Link], AbstractAsyncContextManager[Client]]
