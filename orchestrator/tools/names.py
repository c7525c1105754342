"""The names that a model sees: `server__tool`, safe for every vendor, unique and stable."""

import re
from hashlib import sha256

LONGEST = 64
"""Characters; the shortest limit among the vendors (OpenAI's)."""

SEPARATOR = "__"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_HASH = 6


def sanitise(name: str) -> str:
    """Every character that some vendor refuses becomes `_`."""
    return _UNSAFE.sub("_", name)


def model_name(server: str, tool: str) -> str:
    """Joins a server's and a tool's name in `[A-Za-z0-9_-]`, at most 64 characters.

    A name that is cut, or that lost letters of another script, ends its server's part with a hash of the originals;
    the server's part is cut before the tool's.
    """
    safe_server, safe_tool = sanitise(server), sanitise(tool)
    if len(name := safe_server + SEPARATOR + safe_tool) <= LONGEST and (server + tool).isascii():
        return name
    digest = sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH]
    room = LONGEST - len(SEPARATOR) - len(safe_tool) - _HASH - 1
    if room >= 1:
        return f"{safe_server[:room]}-{digest}{SEPARATOR}{safe_tool}"
    kept = LONGEST - len(SEPARATOR) - _HASH - 3
    return f"{safe_server[:1]}-{digest}{SEPARATOR}{safe_tool[:kept]}"


def distinct(server: str, tool: str) -> str:
    """The name to use when `model_name` is taken by another tool: always with a hash of the originals."""
    digest = sha256(f"{server}\0{tool}".encode()).hexdigest()[:_HASH]
    return model_name(f"{sanitise(server)[:20]}-{digest}", tool)
