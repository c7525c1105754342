"""Orchestrators that call each other's agents: each a process of its own, in a folder of its own."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.command import (
    COMMAND,
    EFFECTS,
    OFF,
    Ended,
    end,
    environment,
    orchestrator,
    plain,
    record,
    servers,
    start,
    write_cards,
)
from tests.support.runs import ledger_lines

USAGE = {"input_tokens": 100, "output_tokens": 10}
TOKENS = 110
"""What every reply costs."""


@dataclass
class Office:
    """One orchestrator. Its effects server is `fx`, beside `more`; the agents of `below`, served over HTTP (at the port
    of a gateway, where there is one) or a pipe, are `inner`.
    """

    folder: Path
    agents: Mapping[str, str]
    replies: list[dict[str, Any]]
    below: "Office | None" = None
    pipe: bool = False
    gateway: int = 0
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    process: subprocess.Popen[str] | None = None
    port: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        entries: dict[str, Any] = {**OFF, "fx": plain(EFFECTS, self.folder / "ledger"), **self.more}
        if self.below is not None and self.pipe:
            env = {"ORCHESTRATOR_HOME": str(self.below.folder / "home"), **self.env}
            command = ["serve", "--stdio", *self.below.arguments]
            entries["inner"] = {"command": str(COMMAND), "args": command, "cwd": str(self.below.folder), "env": env}
        elif self.below is not None:
            entries["inner"] = {"type": "http", "url": f"http://127.0.0.1:{self.gateway or self.below.port}/mcp"}
        servers(self.folder / ".mcp.json", **entries)
        write_cards(self.folder, **self.agents)
        (self.folder / "orchestrator.toml").write_text(self.settings or '[policy]\nallow = ["inner__*"]\n')
        record(self.folder / "model.jsonl", *({"usage": USAGE, **reply} for reply in self.replies))

    @property
    def arguments(self) -> list[str]:
        return ["--agents", str(self.folder / "cards"), "--model", f"scripted:{self.folder / 'model.jsonl'}"]

    @property
    def effects(self) -> list[str]:
        """Which tools were reached."""
        return ["cancelled" if "cancelled" in line else line["tool"] for line in ledger_lines(self.folder / "ledger")]

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Those that no collector took, be it because there is none."""
        file = self.folder / "home/traces/spans.jsonl"
        return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []

    def run(self, *more: object) -> Ended:
        return end(self.begin(*self.job, *more))

    @property
    def job(self) -> list[object]:
        """The command that runs its first agent."""
        return ["run", "the job", "--agent", next(iter(self.agents)), *self.arguments, "--json"]

    def command(self, *words: object) -> Ended:
        return orchestrator(*words, folder=self.folder, env=self.env)

    def begin(self, *words: object) -> subprocess.Popen[str]:
        return start(*words, folder=self.folder, env=self.env)

    def start(self) -> None:
        """Serves over HTTP; returns when it says that it listens."""
        self.process = subprocess.Popen(
            [str(COMMAND), "serve", "--port", str(self.port), *self.arguments],
            cwd=self.folder,
            env=environment(self.folder / "home", self.env),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.process.stderr is not None
        lines: list[str] = []
        for line in self.process.stderr:
            lines.append(line)
            if "MCP at" in line:
                return
        raise AssertionError("".join(lines))

    def kill(self) -> None:
        """A power cut."""
        if self.process is not None:
            with self.process:
                self.process.kill()
            self.process = None

    def end(self) -> None:
        """As one that is told to stop: its spans are sent before it ends."""
        if self.process is not None:
            with self.process:
                self.process.terminate()
                self.process.communicate(timeout=60)
            self.process = None


@contextlib.contextmanager
def serving(*offices: Office) -> Generator[None]:
    try:
        for office in offices:
            office.start()
        yield
    finally:
        for office in offices:
            office.end()
