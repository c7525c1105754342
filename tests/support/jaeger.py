"""A real Jaeger, built once from the Go module proxy into a cache outside the checkout.

    python -m tests.support.jaeger build     what is missing: six minutes on two cores, once; then seconds
    python -m tests.support.jaeger           one at the usual ports, until Ctrl-C; `make jaeger` comes here

What is built is Jaeger 2.13 without its pages, which are not in the module; its query API is whole.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.foreign import Missing

VERSION = "v1.76.0"
MODULE = "github.com/jaegertracing/jaeger/cmd/jaeger"
SECONDS = 1500
READY = "Everything is ready"
HOW = "start a Docker engine, or install Go 1.25 or newer, and try again"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Of loopback. `page` is where queries are answered; `internal` is Jaeger's own, for queries over gRPC."""

    page: int = 16686
    http: int = 4318
    grpc: int = 4317
    internal: int = 16685

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody has; all are held until the last is found, so that they differ."""
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            page, http, grpc, internal = (each.getsockname()[1] for each in sockets)
            return cls(page=page, http=http, grpc=grpc, internal=internal)


@dataclass(frozen=True, kw_only=True)
class Jaeger:
    """One that runs. `http` and `grpc` are endpoints for spans."""

    page: str
    http: str
    grpc: str

    def trace(self, trace_id: str) -> dict[str, Any]:
        """A trace by the query API, as the JSON form of OTLP's `TracesData` that protobuf reads."""
        with urllib.request.urlopen(f"{self.page}/api/v3/traces/{trace_id}", timeout=30) as answer:
            found = json.load(answer)["result"]
        for group in found["resourceSpans"]:
            for span in (span for scoped in group["scopeSpans"] for span in scoped.get("spans", ())):
                for key in ("traceId", "spanId", "parentSpanId"):
                    # OTLP writes ids in hex, where protobuf's own JSON has base64.
                    span[key] = b64encode(bytes.fromhex(span.get(key, ""))).decode()
        return found

    def services(self) -> list[str]:
        with urllib.request.urlopen(f"{self.page}/api/v3/services", timeout=30) as answer:
            return json.load(answer)["services"]


def built() -> Path:
    """The program, if it is there. Raises `Missing`."""
    place = _place()
    if not place.exists():
        raise Missing(f"there is none at {place}; `make jaeger` or `python -m tests.support.jaeger build` builds it")
    return place


def binary() -> Path:
    """The program, built if need be. Raises `Missing`."""
    with contextlib.suppress(Missing):
        return built()
    if (go := shutil.which("go")) is None:
        raise Missing(f"Jaeger cannot be built, since `go` is not on PATH: {HOW}")
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _build(go, place)
    return place


def _place() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "orchestrator-jaeger" / f"jaeger-{VERSION}"


def _build(go: str, place: Path) -> None:
    """In a module of its own, since `go install` refuses a module that replaces others."""
    with tempfile.TemporaryDirectory() as folder:
        for step in (
            ("mod", "init", "scratch"),
            ("get", "-tool", f"{MODULE}@{VERSION}"),
            ("build", "-o", f"{place}.part", MODULE),
        ):
            done = subprocess.run([go, *step], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
            if done.returncode:
                raise Missing(f"`go {' '.join(step)}` failed: {done.stderr.strip()[-500:]}")
    Path(f"{place}.part").rename(place)


@contextlib.contextmanager
def running(program: Path, ports: Ports) -> Iterator[Jaeger]:
    """Runs one with what is needed and nothing else: bare, it opens 14 ports. A span can be read once it was taken."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "jaeger.yaml")
        config.write_text(json.dumps(_config(ports)))  # JSON is YAML
        process = subprocess.Popen(
            [str(program), "--config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        ready = threading.Event()
        said: list[str] = []
        reader = threading.Thread(target=_listen, args=(process, ready, said))
        reader.start()
        try:
            ready.wait()
            if not said or READY not in said[-1]:
                raise RuntimeError(f"Jaeger does not start:\n{''.join(said)[-2000:]}")
            yield Jaeger(
                page=f"http://localhost:{ports.page}",
                http=f"http://localhost:{ports.http}",
                grpc=f"http://localhost:{ports.grpc}",
            )
        finally:
            process.terminate()
            reader.join()
            process.wait()


def _listen(process: subprocess.Popen[str], ready: threading.Event, said: list[str]) -> None:
    """Reads what it says until it ends, and remembers all up to the line that says that it is ready."""
    with process.stderr or contextlib.nullcontext(()) as lines:
        for line in lines:
            if not ready.is_set():
                said.append(line)
            if READY in line:
                ready.set()
    ready.set()


def _config(ports: Ports) -> dict[str, Any]:
    def at(port: int) -> dict[str, str]:
        return {"endpoint": f"127.0.0.1:{port}"}

    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "info"}},
        },
        "extensions": {
            "jaeger_query": {"storage": {"traces": "mem"}, "http": at(ports.page), "grpc": at(ports.internal)},
            "jaeger_storage": {"backends": {"mem": {"memory": {"max_traces": 10_000}}}},
        },
        "receivers": {"otlp": {"protocols": {"http": at(ports.http), "grpc": at(ports.grpc)}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "mem"}},
    }


def main(arguments: list[str]) -> int:
    try:
        program = binary()
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments == ["build"]:
        print(program)
        return 0
    ends = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ends.set())
    with running(program, Ports()) as jaeger:
        print(f"Jaeger takes spans at {jaeger.http} and answers queries at {jaeger.page}; Ctrl-C ends it.")
        print(f"export OTEL_EXPORTER_OTLP_ENDPOINT={jaeger.http}")
        print(
            "It was built without its pages; with a Docker engine, `make jaeger` starts one that has them.", flush=True
        )
        ends.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
