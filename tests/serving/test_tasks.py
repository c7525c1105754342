"""Long calls of hosts that have the tasks extension (E3), by the SDK's client with an extension that polls."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

from tests.serving.served import House, bell, rung, served, text
from tests.serving.site import site, tables
from tests.serving.test_guests import client as guest
from tests.support.command import call

pytestmark = pytest.mark.requirement("E3")

ERA = "2026-07-28"
TASK = {"task": "x"}
PAY = ({"calls": [call("fx__wait", ms=1500)]}, {"calls": [call("fx__pay", text="a")]}, {"text": "paid"})
TOOLS = {"lone": 'tools: ["fx__*"]'}


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Ask(Request[TaskParams, str]):
    name_param = "taskId"


class Created(Result):
    result_type: Literal["task"] = "task"
    task_id: str


class Told(Result):
    """What is told of a task, or an empty acknowledgement."""

    status: str = ""
    status_message: str = ""
    input_requests: dict[str, Any] | None = None
    result: CallToolResult | None = None


async def ask(session: ClientSession, method: str, task: str, **more: Any) -> Told:
    return await session.send_request(Ask(method=method, params=TaskParams(task_id=task, **more)), Told)


class Tasks(ClientExtension):
    """Polls until a task has ended; `answer` says what is told to its questions."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> None:
        self._answer = answer

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        while True:
            told = await ask(context.session, "tasks/get", created.task_id)
            if told.status == "input_required" and self._answer is not None:
                said = self._answer(told.input_requests or {})
                await ask(context.session, "tasks/update", created.task_id, input_responses=said)
            elif told.result is not None:
                return told.result


async def created(client: Client) -> str:
    """The id of the task that a call of `lone` is answered with."""
    found = await client.session.call_tool("lone", TASK, allow_claimed=True)
    assert isinstance(found, Created), found
    return found.task_id


def left_hanging(house: House, pipe: int) -> str:
    """The id of a task whose server was killed while a call of it hung."""

    async def begin() -> str:
        async with house.client("http", ERA, extensions=[Tasks()]) as client:
            return await created(client)

    house.start()
    task = anyio.run(begin)
    anyio.run(rung, pipe)
    house.end(signal.SIGKILL)
    return task


async def until(client: Client, task: str, status: str) -> Told:
    while (told := await ask(client.session, "tasks/get", task)).status != status:
        assert told.status in ("working", "input_required")
    return told


@pytest.mark.requirement("E4")
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_a_long_call_is_a_task_whose_questions_are_answered_on_the_way(tmp_path: Path, way: str) -> None:
    """The key is of one question: an answer to the call alone is none. What was answered is not asked again."""
    house = House.build(tmp_path, TOOLS, *PAY)
    asked: list[str] = []

    def approve(requests: dict[str, Any]) -> dict[str, Any]:
        (key,) = requests
        asked.append(key)
        assert requests[key]["params"]["message"].startswith("lone wants to call fx__pay")
        said = {"action": "accept", "content": {"decision": "approve"}}
        return {key.partition(":")[0]: said} if len(asked) == 1 else {key: said}

    async def person(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("the task asks")

    async def main() -> CallToolResult:
        extensions = [Tasks(approve)]
        async with served(house, way, ERA, extensions=extensions, elicitation_callback=person) as client:
            return await client.call_tool("lone", TASK)

    result = anyio.run(main)
    assert (text(result), result.is_error, house.effects) == ("paid", False, ["wait", "pay"])
    assert len(asked) == 2
    assert (result.meta or {})["orchestrator/spent"]["status"] == "finished"


def test_a_task_is_cancelled_down_to_its_tools(tmp_path: Path) -> None:
    house = House.build(tmp_path, TOOLS, {"calls": [call("fx__hang", text="a")]})

    async def main() -> None:
        async with served(house, "http", ERA, extensions=[Tasks()]) as client:
            task = await created(client)
            assert (await ask(client.session, "tasks/get", task)).status == "working"
            for _ in range(2):  # again is no error
                assert (await ask(client.session, "tasks/cancel", task)).status == ""
            assert (await until(client, task, "cancelled")).result is None

    anyio.run(main)
    assert house.effects == ["hang", "cancelled"]


def test_a_task_outlives_its_server(tmp_path: Path) -> None:
    house = House.build(tmp_path, TOOLS, {"calls": [call("fx__hang", text="a")]})
    pipe = bell(tmp_path)

    async def go_on(task: str) -> None:
        async with house.client("http", ERA, extensions=[Tasks()]) as client:
            await until(client, task, "working")
            await rung(pipe)
            await ask(client.session, "tasks/cancel", task)
            await until(client, task, "cancelled")

    task = left_hanging(house, pipe)
    house.start()
    anyio.run(go_on, task)
    assert house.end() == 0
    assert [effect for effect in house.effects if effect != "cancelled"] == ["hang", "hang"]


def test_what_keeps_a_task_from_going_on_is_told(tmp_path: Path) -> None:
    house = House.build(tmp_path, TOOLS, {"calls": [call("fx__hang", text="a")]})
    pipe = bell(tmp_path)

    async def held_up(task: str) -> str:
        async with house.client("http", ERA, extensions=[Tasks()]) as client:
            while not (told := await ask(client.session, "tasks/get", task)).status_message:
                assert told.status == "working"
            return told.status_message

    task = left_hanging(house, pipe)
    entries = json.loads((house.folder / ".mcp.json").read_text())
    del entries["mcpServers"]["fx"]
    (house.folder / ".mcp.json").write_text(json.dumps(entries))
    (house.folder / "orchestrator.toml").write_text('[servers.fx]\ncommand = "/no/such"\nrequired = true\n')
    house.start()
    assert "server `fx` is required and not available" in anyio.run(held_up, task)
    house.end()


def test_tasks_are_for_long_calls_of_those_who_have_them(tmp_path: Path) -> None:
    house = House.build(tmp_path, TOOLS, {"text": "quick"})

    async def main() -> None:
        async with served(house, "http", ERA, extensions=[Tasks()]) as client:
            assert text(await client.session.call_tool("lone", TASK)) == "quick"  # a task would be refused here
            with pytest.raises(MCPError, match="no run") as unknown:
                await ask(client.session, "tasks/get", "another")
            assert unknown.value.error.code == -32602
            async with house.client("http", ERA) as without, house.client("http", "2025-11-25") as older:
                for lacking, code in ((without, -32021), (older, -32601)):
                    with pytest.raises(MCPError) as refused:
                        await ask(lacking.session, "tasks/get", "another")
                    assert refused.value.error.code == code

    anyio.run(main)


@pytest.mark.requirement("C6")
def test_a_task_of_somebody_else_is_not_there(tmp_path: Path) -> None:
    async def main(address: str) -> None:
        more: dict[str, Any] = {"extensions": [Tasks()]}
        async with guest(address, ERA, "ann", **more) as ann, guest(address, ERA, "bob", **more) as bob:
            task = await created(ann)
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError, match="no run"):
                    await ask(bob.session, method, task)
            assert (await ask(ann.session, "tasks/get", task)).status == "working"
            await ask(ann.session, "tasks/cancel", task)

    with site(tmp_path, tables(), {"calls": [call("fx__hang", text="a")]}) as address:
        anyio.run(main, address)
