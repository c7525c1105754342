"""Other frameworks call served agents (E3): the very programs of docs/serving.md, each in an environment of its own."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.serving.served import SECONDS, House
from tests.support import foreign
from tests.support.command import call
from tests.support.model_server import model_server

pytestmark = pytest.mark.requirement("E3")

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text("utf-8")
PEERS: Mapping[str, tuple[Callable[[], Path], str]] = {
    "pydantic_ai": (foreign.pydantic_ai, ""),
    "agents": (
        foreign.openai_agents,
        "import agents\nagents.set_default_openai_api('chat_completions')\nagents.set_tracing_disabled(True)\n",
    ),
    "langchain.agents": (foreign.langchain, ""),
}


def program(package: str, url: str) -> str:
    """The program of the manual that begins with this package, for another address."""
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE, re.S) if each.startswith(f"from {package} "))
    return f"{block.replace('http://127.0.0.1:8765/mcp', url)}\nimport asyncio\nasyncio.run(main())\n"


@pytest.mark.parametrize("package", PEERS)
def test_a_framework_calls_a_served_agent(tmp_path: Path, package: str) -> None:
    python, before = PEERS[package]
    interpreter = foreign.interpreter(python)
    look = ({"agent": "analyst", "calls": [call("fx__look", text="a")]}, {"agent": "analyst", "text": "May, with 42"})
    house = House.build(tmp_path, {"analyst": "tools: [fx__look]"}, *look)

    def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
        told = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        if told:
            return {"text": f"The analyst said: {told[0]}"}
        return {"calls": [call("analyst", task="Which month sold most?")]}

    house.start()
    try:
        with model_server(answer) as server:
            made = subprocess.run(
                [str(interpreter), "-c", before + program(package, house.url)],
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **server.env},
                capture_output=True,
                text=True,
                timeout=SECONDS * 2,
            )
    finally:
        house.end()
    assert made.returncode == 0, made.stderr[-2000:]
    assert "The analyst said:" in made.stdout
    assert "May, with 42" in made.stdout
    assert house.effects == ["look"]
