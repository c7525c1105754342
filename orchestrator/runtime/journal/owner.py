"""Whose a claim is: a process, named so that another one with its pid is not taken for it."""

import os
import socket
from pathlib import Path


def process_identity(pid: int) -> str:
    """Names a process for good: a pid alone may belong to another process, now or in a container beside this one."""
    return f"{_host()}:{pid}:{_started(pid)}"


def owner_is_dead(owner: str) -> bool:
    """True only when the owner was a process of this host that is gone for certain."""
    host, pid, _ = owner.rsplit(":", 2)
    if host != _host():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return process_identity(int(pid)) != owner


def _host() -> str:
    """Where pids mean the same: this host, and on Linux this namespace of processes."""
    try:
        return f"{socket.gethostname()}:{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """When a process began, as the system counts; `ended` for one that waits for its parent to take note."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if facts[0] in "ZX" else facts[19]
