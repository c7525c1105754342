"""How spans end: errors, cancellation, crashes; the same whether they are sent or written. Requirement F1."""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.tracing.port import ChatOutcome, RunOutcome, Scope, ToolOutcome, Tracer
from orchestrator.tracing.setup import make_tracer

from .receiver import http_receiver
from .runs import SUPERVISOR, USAGE, chat_facts, finished, tool_facts


@dataclass(frozen=True)
class Ending:
    status: str
    error_type: str | None
    message: str
    attributes: dict[str, Any]
    events: list[str]


@dataclass
class Recorder:
    """Traces with `tracer`, and says how spans ended, in the order they did."""

    tracer: Tracer
    read: Callable[[], list[Ending]]

    def endings(self) -> list[Ending]:
        anyio.run(self.tracer.aclose)
        return self.read()

    def ending(self) -> Ending:
        [ending] = self.endings()
        return ending


def _of_file(path: Path) -> list[Ending]:
    spans = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [
        Ending(
            span["status"]["code"],
            span["attributes"].get("error.type"),
            span["status"].get("message", ""),
            span["attributes"],
            [event["name"] for event in span["events"]],
        )
        for span in spans
    ]


@pytest.fixture(params=["file", "otlp"])
def recorder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorder]:
    if request.param == "file":
        yield Recorder(make_tracer(tmp_path, {}), lambda: _of_file(tmp_path / "traces" / "spans.jsonl"))
        return
    with http_receiver() as receiver:
        yield Recorder(
            make_tracer(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}),
            lambda: [
                Ending(s.status, s.attributes.get("error.type"), s.message, s.attributes, [n for n, _ in s.events])
                for s in receiver.spans
            ],
        )


@pytest.mark.parametrize(
    ("outcome", "status", "kind", "message"),
    [
        (finished(), "UNSET", None, ""),
        (finished(status="stopped", stop_reason="max_steps"), "UNSET", None, ""),
        (finished(status="parked", stop_reason="approval"), "UNSET", None, ""),
        (finished(status="cancelled", stop_reason="cancelled"), "ERROR", "cancelled", "cancelled"),
        (finished(status="failed", stop_reason="error", error="rate_limit"), "ERROR", "rate_limit", "rate_limit"),
        (finished(status="failed", stop_reason="error", error="No route to it."), "ERROR", "_OTHER", "No route to it."),
        (finished(status="failed", stop_reason="error"), "ERROR", "error", "error"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_a_run_is_an_error_when_it_failed_or_was_cancelled(
    recorder: Recorder, outcome: RunOutcome, status: str, kind: str | None, message: str
) -> None:
    with recorder.tracer.workflow(SUPERVISOR) as scope:
        scope.settle(outcome)
    ending = recorder.ending()
    assert (ending.status, ending.error_type, ending.message) == (status, kind, message)
    assert ending.attributes["orchestrator.run.status"] == outcome.status


def test_a_failed_chat_says_why_and_shows_no_tokens_that_were_not_spent(recorder: Recorder) -> None:
    with recorder.tracer.chat(chat_facts(SUPERVISOR)) as scope:
        scope.settle(ChatOutcome(error="rate_limit", message="429 from the server"))
    ending = recorder.ending()
    assert (ending.status, ending.error_type, ending.message) == ("ERROR", "rate_limit", "429 from the server")
    assert not [key for key in ending.attributes if key.startswith(("gen_ai.usage", "orchestrator.cost"))]
    assert ending.events == []


def test_a_chat_that_broke_off_still_shows_what_it_cost(recorder: Recorder) -> None:
    with recorder.tracer.chat(chat_facts(SUPERVISOR)) as scope:
        scope.settle(ChatOutcome(usage=USAGE, error="broken_stream"))
    ending = recorder.ending()
    assert (ending.attributes["gen_ai.usage.input_tokens"], ending.events) == (100, ["cost"])


@pytest.mark.parametrize("kind", ["tool_error", "timeout", "denied", "unavailable", "invalid_arguments"])
def test_a_tools_error_is_marked_without_the_text_it_answered(recorder: Recorder, kind: str) -> None:
    with recorder.tracer.tool(tool_facts(SUPERVISOR, "t1.1", "read", "files")) as scope:
        scope.settle(ToolOutcome(text="no such file: secret.txt", error=kind))
    ending = recorder.ending()
    assert (ending.status, ending.error_type, ending.message) == ("ERROR", kind, kind)


def test_an_exception_marks_every_scope_it_leaves(recorder: Recorder) -> None:
    tracer = recorder.tracer

    def crash() -> None:
        with tracer.workflow(SUPERVISOR), tracer.agent(SUPERVISOR) as agent:
            agent.settle(finished())
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        crash()
    endings = recorder.endings()
    assert [(e.status, e.error_type, e.message) for e in endings] == [("ERROR", "ValueError", "ValueError: broken")] * 2


def test_what_was_settled_as_an_error_is_not_overwritten_by_the_exception(recorder: Recorder) -> None:
    def crash() -> None:
        with recorder.tracer.chat(chat_facts(SUPERVISOR)) as scope:
            scope.settle(ChatOutcome(error="connection", message="gone"))
            raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        crash()
    assert recorder.ending().error_type == "connection"


def test_a_group_of_one_is_named_by_what_is_inside(recorder: Recorder) -> None:
    with pytest.raises(ExceptionGroup), recorder.tracer.agent(SUPERVISOR):
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("x")])])
    with pytest.raises(ExceptionGroup), recorder.tracer.agent(SUPERVISOR):
        raise ExceptionGroup("outer", [KeyError("x"), OSError()])
    assert [e.error_type for e in recorder.endings()] == ["KeyError", "ExceptionGroup"]


def test_leaving_without_a_word_is_an_error_too(recorder: Recorder) -> None:
    with recorder.tracer.agent(SUPERVISOR):
        pass
    ending = recorder.ending()
    assert (ending.status, ending.error_type) == ("ERROR", "_OTHER")


def test_cancelling_marks_what_was_open_and_not_what_was_done(recorder: Recorder) -> None:
    tracer = recorder.tracer

    async def run() -> None:
        with anyio.CancelScope() as cancelling, tracer.agent(SUPERVISOR):
            with tracer.chat(chat_facts(SUPERVISOR)) as chat:
                chat.settle(ChatOutcome(usage=USAGE))
            with tracer.tool(tool_facts(SUPERVISOR, "t1.1", "read", "files")):
                cancelling.cancel()
                await anyio.sleep_forever()

    anyio.run(run)
    assert [(e.status, e.error_type) for e in recorder.endings()] == [
        ("UNSET", None),
        ("ERROR", "cancelled"),
        ("ERROR", "cancelled"),
    ]


def test_closing_while_cancelled_still_sends(recorder: Recorder) -> None:
    async def run() -> None:
        with anyio.CancelScope() as cancelling:
            cancelling.cancel()
            with recorder.tracer.agent(SUPERVISOR) as agent:
                agent.settle(finished())
            await recorder.tracer.aclose()

    anyio.run(run)
    assert [e.status for e in recorder.read()] == ["UNSET"]


def test_a_generator_abandoned_in_a_scope_makes_no_noise(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    async def generate() -> AsyncIterator[Scope]:
        with recorder.tracer.agent(SUPERVISOR) as scope:
            yield scope

    async def abandon() -> None:
        generator = generate()
        await anext(generator)
        # Another task, so another context, closes it.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(generator.aclose)  # pyright: ignore[reportAttributeAccessIssue]

    with caplog.at_level(logging.INFO):
        anyio.run(abandon)
    assert (recorder.ending().error_type, caplog.records) == ("cancelled", [])


@pytest.mark.parametrize("bad", ["\ud800 half a character", "\x00", "x" * 10_000], ids=["surrogate", "nul", "long"])
def test_hostile_text_costs_no_span(recorder: Recorder, bad: str) -> None:
    with recorder.tracer.tool(tool_facts(SUPERVISOR, "t1.1", bad, "")) as scope:
        scope.note("retry", {"error": bad})
        scope.settle(ToolOutcome(text=bad, error=bad))
    with contextlib.suppress(ValueError), recorder.tracer.agent(SUPERVISOR):
        raise ValueError(bad)
    first, second = recorder.endings()
    assert (first.error_type, second.error_type) == ("_OTHER", "ValueError")
    assert len(first.message) <= 500
