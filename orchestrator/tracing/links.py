"""Where a person sees a trace: the address that is printed at the end of a run."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from orchestrator.tracing.environment import LOOPBACK, Environment

JAEGER = "http://localhost:16686/trace/{trace_id}"


def trace_link(trace_id: str, configured: str | None, environ: Mapping[str, str]) -> str | None:
    """The page of a trace; None where nobody can say.

    `configured` is the user's, with `{trace_id}` in it. Without one, spans that go to a collector of this machine are
    looked for in the Jaeger of this machine, if there is one: a collector elsewhere does not tell where its pages are.
    """
    environment = Environment(environ)
    if environment.disabled or not environment.endpoint:
        return None
    if configured is not None:
        return configured.replace("{trace_id}", trace_id)
    if urlsplit(environment.endpoint).hostname not in LOOPBACK:
        return None
    url = urlsplit(JAEGER)
    try:
        socket.create_connection((url.hostname, url.port), timeout=0.2).close()
    except OSError:
        return None
    return JAEGER.replace("{trace_id}", trace_id)
