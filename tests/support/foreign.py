"""Servers of other people, of the versions that the tests know, in a cache outside the checkout.

    python -m tests.support.foreign

installs what is missing (a minute, once), so that the tests themselves need no registry.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path

EVERYTHING = "2026.8.31"
GIT = "2026.10.19"
SECONDS = 300


class Missing(Exception):
    """A server cannot be installed here; the message says why."""


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "orchestrator-tests"


@cache
def everything() -> list[str]:
    """The command of npm's `@modelcontextprotocol/server-everything`. Raises `Missing`."""
    place = folder() / f"everything-{EVERYTHING}"
    if (npm := shutil.which("npm")) is None or (node := shutil.which("node")) is None:
        raise Missing("npm and node are not on PATH")

    def install(to: Path) -> None:
        package = f"@modelcontextprotocol/server-everything@{EVERYTHING}"
        _run(npm, "install", "--prefix", str(to), "--no-audit", "--no-fund", "--no-save", package)

    _once(place, install)
    script = place / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    return [node, str(script)]


@cache
def git() -> list[str]:
    """The command of PyPI's `mcp-server-git`, in an environment of its own. Raises `Missing`."""
    place = folder() / f"git-{GIT}-{sys.version_info.major}.{sys.version_info.minor}"
    if shutil.which("git") is None:
        raise Missing("git is not on PATH")

    def install(to: Path) -> None:
        venv.create(to, with_pip=True)
        _run(str(to / "bin" / "python"), "-m", "pip", "install", "--quiet", f"mcp-server-git=={GIT}")

    _once(place, install)
    return [str(place / "bin" / "python"), "-m", "mcp_server_git"]


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
    for command in (everything, git):
        try:
            print(" ".join(command()))
        except Missing as error:
            print(f"not installed: {error}", file=sys.stderr)
