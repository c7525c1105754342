"""Tool lists of which one entry is wrong, read without it: the SDK would refuse the whole list, and so the server."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, cast

from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

Unusable = Callable[[str, str], None]
"""Told of a tool, by its name or its place in the list, and of what is wrong with it."""


class Sieve:
    """Takes out of each tool list what the protocol does not allow. `version` is known once a connection has begun."""

    def __init__(self, told: Unusable) -> None:
        self.version: Callable[[], str] = str
        self._told = told

    @asynccontextmanager
    async def around(
        self, transport: AbstractAsyncContextManager[TransportStreams]
    ) -> AsyncGenerator[TransportStreams]:
        """A transport whose incoming messages pass through."""
        async with transport as (incoming, outgoing):
            yield _Passing(incoming, self._sift), outgoing

    def _sift(self, item: SessionMessage | Exception) -> None:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse):
            return
        result = item.message.result
        if isinstance(tools := result.get("tools"), list):
            listed = cast("list[Any]", tools)
            problems = self._problems(result, listed)
            result["tools"] = [tool for place, tool in enumerate(listed) if place not in problems]
            for place, problem in problems.items():
                self._told(_name(listed[place]) or f"no. {place + 1}", problem)

    def _problems(self, result: Mapping[str, Any], tools: Sequence[Any]) -> dict[int, str]:
        """What the protocol has against which of the tools, by their place; what else is wrong is the SDK's to tell."""
        problems = {place: "it has no name" for place, tool in enumerate(tools) if _name(tool) == ""}
        try:
            validate_server_result("tools/list", self.version(), result)
        except ValidationError as error:
            for wrong in error.errors(include_url=False, include_input=False):
                match wrong["loc"]:
                    case ("tools", int(place), *path):
                        where = "".join(f"{part}: " for part in path[-1:])
                        problems.setdefault(place, f"its definition is not valid: {where}{wrong['msg']}")
                    case _:
                        continue
        return problems


def _name(tool: Any) -> str | None:
    name = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else None


class _Passing:
    """A stream of which every item is looked at on its way."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], look: Callable[[SessionMessage | Exception], None]
    ) -> None:
        self._stream = stream
        self._look = look

    @property
    def last_context(self) -> Any:
        """The sender's context, which the SDK looks for on the streams of some transports."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        self._look(item)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_Passing":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await self._stream.__anext__()
        self._look(item)
        return item

    async def __aenter__(self) -> "_Passing":
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
