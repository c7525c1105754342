"""The command `orchestrator` as a process of its own, with no settings of whoever runs the tests."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config import bundled_servers

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("orchestrator")
EFFECTS = Path(__file__).with_name("effects_server.py")
AWKWARD = Path(__file__).with_name("awkward_server.py")
STRANGE = ("ANTHROPIC_", "OLLAMA_", "OPENAI_", "ORCHESTRATOR_", "OTEL_", "PYTHON")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, and all it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.rstrip("\n").split("\n")]


def environment(home: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STRANGE)}
    return {**kept, "ORCHESTRATOR_HOME": str(home), **more}


def start(*arguments: object, folder: Path, env: Mapping[str, str] = {}, module: bool = False) -> subprocess.Popen[str]:
    """Starts the command in `folder`, which also holds its state (in `home`)."""
    command = [sys.executable, "-m", "orchestrator"] if module else [str(COMMAND)]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        cwd=folder,
        env=environment(folder / "home", env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def end(process: subprocess.Popen[str], seconds: float = 60) -> Ended:
    """Waits for the end; a command that hangs is killed and fails the test."""
    with process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Ended(code=process.returncode, out=out, err=err)


def orchestrator(*arguments: object, folder: Path, env: Mapping[str, str] = {}, module: bool = False) -> Ended:
    return end(start(*arguments, folder=folder, env=env, module=module))


def write_cards(folder: Path, **cards: str) -> Path:
    """A folder of agents; each value is the front matter beside name and description."""
    agents = folder / "cards"
    agents.mkdir(parents=True, exist_ok=True)
    for name, front in cards.items():
        text = f"---\nname: {name}\ndescription: The {name}.\n{front}\n---\nYou are {name}.\n"
        (agents / f"{name}.md").write_text(text)
    return agents


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def record(file: Path, *lines: Mapping[str, Any]) -> str:
    """A recording with these replies, as a model spec. `agent` is `lone` unless said; turns count themselves."""
    turns: dict[str, int] = {}
    written = [{"recording": 1, "source": "a test", "model": "none"}]
    for line in lines:
        agent = str(line.get("agent", "lone"))
        turns[agent] = turns.get(agent, 0) + 1
        written.append({"agent": agent, "turn": turns[agent], **line})
    file.write_text("".join(json.dumps(line) + "\n" for line in written))
    return f"scripted:{file}"


OFF = {name: {"command": "none", "disabled": True} for name in bundled_servers()}
"""The bundled servers, switched off: a test of other things need not start four processes more."""


def servers(file: Path, **entries: Mapping[str, Any]) -> Path:
    """A file of MCP servers."""
    file.write_text(json.dumps({"mcpServers": entries}))
    return file


def plain(script: Path, *arguments: object, **more: Any) -> dict[str, Any]:
    """A server of this folder; without `site`, which is most of what starting it would take."""
    return {"command": sys.executable, "args": ["-S", "-E", str(script), *map(str, arguments)], **more}


def wait_for_end(pid: int, seconds: float = 20) -> bool:
    """Waits until a process that need not be ours has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))
    finally:
        os.close(handle)


def read_pipe(path: Path, seconds: float = 60) -> str:
    """What someone writes into a named pipe; waits for it, but not for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        assert waiting.poll(seconds * 1000), f"nobody wrote into {path}"
        os.set_blocking(handle, True)
        return os.read(handle, 4096).decode()
    finally:
        os.close(handle)


def group_ended(group: int, seconds: float = 5) -> bool:
    """Whether no process of a group runs any more. One that was killed may need a moment."""
    return all(wait_for_end(pid, seconds) for pid in alive(group))


def alive(group: int) -> Sequence[int]:
    """The processes of a group that still run, from /proc; those that have ended and were not yet collected do not."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found
