"""What is around a run: the folder of its state, and the collector of its spans."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2

from orchestrator.config.secrets import mask_url
from orchestrator.doctor.findings import CollectorSeen, Finding, StateSeen
from orchestrator.tracing.environment import Environment

SECONDS = 5.0
"""How long a collector may take to answer."""


def look_at_state(folder: Path) -> tuple[StateSeen, list[Finding]]:
    """Whether state can be written, and how much there is. A folder that is not there is not made."""
    exists, problem = folder.is_dir(), ""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        if exists:
            with tempfile.TemporaryFile(dir=folder):
                pass
        elif not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            problem = f"{there} is not a folder that can be written"
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror}"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if exists else 0
    seen = StateSeen(folder=folder, exists=exists, writable=not problem, bytes=size, problem=problem)
    fix = "make it writable, or set ORCHESTRATOR_HOME to a folder that is"
    return seen, [Finding(level="error", about="state", message=problem, fix=fix)] if problem else []


async def look_at_collector(
    environ: Mapping[str, str], home: Path, *, offline: bool
) -> tuple[CollectorSeen, list[Finding]]:
    """Where spans go, and whether whoever is to take them is there."""
    environment = Environment(environ)
    if environment.disabled:
        return CollectorSeen(to="nowhere", where="OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER=none"), []
    if not environment.endpoint:
        return CollectorSeen(to="file", where=str(home / "traces" / "spans.jsonl")), []
    where = mask_url(environment.endpoint)
    if offline:
        return CollectorSeen(to="collector", where=where), []
    try:
        with anyio.fail_after(SECONDS):
            problem = await (_dial if environment.grpc else _post)(environment)
    except TimeoutError:
        problem = f"it did not answer within {SECONDS:g} s"
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        problem = f"no answer: {error or type(error).__name__}"
    seen = CollectorSeen(to="collector", where=where, reachable=not problem, problem=problem)
    message = f"the collector at {where} cannot be used: {problem}"
    fix = "start it (docker compose up -d), or unset OTEL_EXPORTER_OTLP_ENDPOINT to keep spans in a file"
    return seen, [Finding(level="warning", about="collector", message=message, fix=fix)] if problem else []


async def _dial(environment: Environment) -> str:
    """gRPC: whether somebody listens there."""
    url = urlsplit(environment.endpoint if "://" in environment.endpoint else f"http://{environment.endpoint}")
    async with await anyio.connect_tcp(url.hostname or "localhost", url.port or 4317):
        return ""


async def _post(environment: Environment) -> str:
    """HTTP: an export without spans, which a collector takes."""
    headers = {"Content-Type": "application/x-protobuf", **environment.headers}
    async with httpx2.AsyncClient() as client:
        response = await client.post(environment.endpoint, content=b"", headers=headers)
    if response.status_code in (401, 403):
        return f"HTTP {response.status_code}; see OTEL_EXPORTER_OTLP_HEADERS"
    return "" if response.status_code < 400 else f"HTTP {response.status_code}; is this the address for OTLP over HTTP?"
