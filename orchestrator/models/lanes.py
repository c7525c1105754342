"""Connections to one model server, in pools that are small enough to be quick."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from urllib.request import getproxies, proxy_bypass

import httpx2

KEEPALIVE = 60.0  # seconds; a connection should outlive the tool calls between two turns
LANE = 4  # requests at once over one pool: httpx2 looks at all connections of a pool twice a request


@dataclass(slots=True, eq=False)
class _Lane:
    transport: httpx2.AsyncHTTPTransport
    busy: int = 0


class Lanes:
    """Several pools of few connections each, since the time of a request grows with the connections of its pool."""

    def __init__(self, url: httpx2.URL) -> None:
        self._url = url
        self._lanes: list[_Lane] = []

    @contextmanager
    def one(self) -> Generator[httpx2.AsyncHTTPTransport]:
        """The first that has room: connections that are open already are used before new ones."""
        lane = next((lane for lane in self._lanes if lane.busy < LANE), None)
        if lane is None:
            lane = _Lane(self._transport())
            self._lanes.append(lane)
        lane.busy += 1
        try:
            yield lane.transport
        finally:
            lane.busy -= 1

    async def aclose(self) -> None:
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            await lane.transport.aclose()

    def _transport(self) -> httpx2.AsyncHTTPTransport:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=LANE, keepalive_expiry=KEEPALIVE)
        return httpx2.AsyncHTTPTransport(verify=self._tls, limits=limits, proxy=self._proxy)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """One for all: reading the certificates takes 50 to 200 ms, so plain HTTP goes without them."""
        plain = self._url.scheme == "http" and self._proxy is None
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx2.create_ssl_context()

    @cached_property
    def _proxy(self) -> str | None:
        """The environment's proxy for this server (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`); never for loopback."""
        host = self._url.host
        proxies = getproxies()
        found = proxies.get(self._url.scheme) or proxies.get("all")
        if not found or host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
            return None
        return found if "://" in found else f"http://{found}"
