"""`orchestrator serve` as a process of its own, over stdio or HTTP, and the MCP SDK's client before it."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult

from orchestrator.testing import SqliteJournal
from tests.support.command import COMMAND, EFFECTS, environment, plain, record, servers, write_cards
from tests.support.runs import ledger_lines

SECONDS = 60
"""How long anything here may take on a busy machine before a test is called hanging."""

ERAS = {"2026-07-28": "auto", "2025-11-25": "legacy"}
WAYS = [(way, era) for way in ("stdio", "http") for era in ERAS]


@dataclass
class House:
    """A folder with agents and the effects server `fx`, and who serves it: those agents alone, or `every` one."""

    folder: Path
    model: str
    more: tuple[str, ...] = ()
    settings: str = ""
    every: bool = False
    process: subprocess.Popen[str] | None = None
    url: str = ""
    lines: list[str] = field(default_factory=list[str])

    @classmethod
    def build(cls, folder: Path, agents: Mapping[str, str], *replies: Mapping[str, Any], **more: Any) -> "House":
        servers(folder / ".mcp.json", fx=plain(EFFECTS, folder / "ledger"))
        write_cards(folder, **agents)
        house = cls(folder=folder, model=record(folder / "model.jsonl", *replies), **more)
        (folder / "orchestrator.toml").write_text(house.settings)
        return house

    @property
    def arguments(self) -> list[str]:
        cards = [] if self.every else sorted((self.folder / "cards").glob("*.md"))
        only = [word for file in cards for word in ("--only", file.stem)]
        return ["--agents", str(self.folder / "cards"), "--model", self.model, *only, *self.more]

    @property
    def effects(self) -> list[str]:
        """Which tools were reached, and `cancelled` for one that was told to stop."""
        return ["cancelled" if "cancelled" in line else line["tool"] for line in ledger_lines(self.folder / "ledger")]

    @property
    def statuses(self) -> list[str]:
        """How all runs of callers stand, newest first."""

        async def main() -> list[str]:
            journal = SqliteJournal(self.folder / "home" / "journal.sqlite")
            try:
                return [row.status for row in await journal.runs()]
            finally:
                await journal.aclose()

        return anyio.run(main)

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All spans so far, in the order of their end."""
        return [json.loads(line) for line in (self.folder / "home/traces/spans.jsonl").read_bytes().splitlines()]

    def start(self) -> None:
        """Serves over HTTP; returns when it listens."""
        self.process = subprocess.Popen(
            [str(COMMAND), "serve", "--port", "0", *self.arguments],
            cwd=self.folder,
            env=environment(self.folder / "home"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("MCP at "):
                self.url = line.split()[2]
                return
        raise AssertionError(f"it does not serve: {self.lines}")

    def raw(self) -> subprocess.Popen[str]:
        """A server on stdio, without a client."""
        return subprocess.Popen(
            [str(COMMAND), "serve", "--stdio", *self.arguments],
            cwd=self.folder,
            env=environment(self.folder / "home"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=SECONDS)
        self.lines += err.splitlines(keepends=True)
        return self.process.returncode

    @asynccontextmanager
    async def client(self, way: str, era: str, **more: Any) -> AsyncGenerator[Client]:
        """A client in one era; over stdio it starts a server of its own."""
        stdio = StdioServerParameters(
            command=str(COMMAND),
            args=["serve", "--stdio", *self.arguments],
            cwd=self.folder,
            env=environment(self.folder / "home"),
        )
        with anyio.fail_after(SECONDS):
            async with Client(stdio if way == "stdio" else self.url, mode=ERAS[era], **more) as client:
                yield client


@asynccontextmanager
async def served(house: House, way: str, era: str, **more: Any) -> AsyncGenerator[Client]:
    """A client of a house that is served while the block runs."""
    if way == "http":
        house.start()
    try:
        async with house.client(way, era, **more) as client:
            yield client
    finally:
        if way == "http":
            house.end()


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def bell(folder: Path) -> int:
    """A pipe that the effects server rings when a call hangs."""
    path = folder / "ledger.bell"
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


async def rung(pipe: int) -> None:
    with anyio.fail_after(SECONDS):
        await anyio.wait_readable(pipe)
        os.read(pipe, 4096)
