"""`orchestrator serve` as a process of its own, and its callers over HTTP."""

import re
import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

from tests.support.command import EFFECTS, OFF, end, plain, record, servers, start, write_cards

TOKENS = {name: f"token-of-{name}-0123456789" for name in ("ann", "bob", "sam")}


def tables(**more: Mapping[str, Any]) -> str:
    """Tokens of Ann, Bob and Sam by their hashes; `more` are further lines of each one's table."""
    lines: list[str] = []
    for name, token in TOKENS.items():
        lines += [f"[serve.tokens.{name}]", f'sha256 = "{sha256(token.encode()).hexdigest()}"']
        lines += [f"{key} = {value}" for key, value in more.get(name, {}).items()]
    return "\n".join(lines) + "\n"


@contextmanager
def site(folder: Path, toml: str, *replies: Mapping[str, Any], **more: Any):
    """A served folder: yields the address, and stops the server in the end. `entries` are more servers of it."""
    process, address = open_site(folder, toml, *replies, **more)
    try:
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        ended = end(process)
    assert ended.code == 0, ended.err


def open_site(
    folder: Path,
    toml: str,
    *replies: Mapping[str, Any],
    flags: tuple[str, ...] = (),
    entries: Mapping[str, Any] = {},
    **cards: str,
) -> tuple[subprocess.Popen[str], str]:
    (folder / "orchestrator.toml").write_text(toml)
    write_cards(folder, **(cards or {"lone": 'tools: ["fx__*"]', "other": "tools: []"}))
    servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"), **OFF, **entries)
    model = record(folder / "r.jsonl", *(replies or ({"text": "done"}, {"agent": "other", "text": "done too"})))
    process = start("serve", "--port", "0", "--agents", "cards", "--model", model, *flags, folder=folder)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"MCP at (http://\S+)/mcp", line):
            return process, found[1]
    raise AssertionError(f"it did not start: {end(process)}")


@contextmanager
def caller(address: str, name: str | None = None, **headers: str) -> Generator[httpx2.Client]:
    if name is not None:
        headers["authorization"] = f"Bearer {TOKENS[name]}"
    with httpx2.Client(base_url=address, headers=headers, timeout=60) as client:
        yield client
