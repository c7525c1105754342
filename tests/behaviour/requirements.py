"""What the product promises, as data. Tests name the promises they keep: `@pytest.mark.requirement("A2", "A3")`.

`tests/house/test_requirements.py` ties both ways: every id that is not pending is named by a test, and tests name no
other ids. A pending one is not, or not wholly, kept yet; the list of pending ids only shrinks.
"""

from dataclasses import dataclass
from typing import Literal

Area = Literal["run", "models", "tools", "memory", "teams", "seeing", "proof", "long life"]


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    area: Area
    statement: str
    pending: bool = False


REQUIREMENTS = (
    Requirement("A1", "run", "A run is a state machine whose transitions are events that hooks may change."),
    Requirement("A2", "run", "A limit ends a run with its best partial result and the limit's name."),
    Requirement("A3", "run", "One ledger reserves and settles tokens, money and time of the whole tree."),
    Requirement("A4", "run", "Breakers end a run that keeps failing or makes no progress."),
    Requirement("A5", "run", "A failing tool is an observation; every call gets exactly one answer."),
    Requirement("A6", "run", "Many runs share one orchestrator and see nothing of each other."),
    Requirement("A7", "run", "Planning, preview and review plug into the loop as nodes."),
    Requirement("A8", "run", "Independent calls of a turn run at once, bounded, and answer in call order."),
    Requirement("A9", "run", "A call has a time limit, and one that passes it is cancelled on its server."),
    Requirement("A10", "run", "A call that only reads starts while the reply is still streaming."),
    Requirement("A11", "run", "A run streams public events; leaving the stream cancels it cleanly."),
    Requirement("A12", "run", "A result has answer, steps, usage, cost, duration, stop reason and trace id."),
    Requirement("B1", "models", "Vendor, model and base URL change in configuration only."),
    Requirement("B2", "models", "Streaming or not, one interface; cached and reasoning tokens apart."),
    Requirement("B3", "models", "Model errors are told apart by kind, and only some are tried again."),
    Requirement("B4", "models", "Models act by tool calls, by JSON or by ReAct text."),
    Requirement("B5", "models", "Badly written output is read where it is certain what was meant."),
    Requirement("B6", "models", "Output that was cut off is noticed and completed."),
    Requirement("B7", "models", "Token estimates are right within 15 % in every script."),
    Requirement("B8", "models", "Prompts keep a stable prefix, so that providers' caches are hit."),
    Requirement("B9", "models", "An unknown price is said to be unknown, never taken for nothing."),
    Requirement("B10", "models", "A card's output schema is asked for, checked, and repaired once."),
    Requirement("B11", "models", "A provider's rate limits are kept over all runs, by waiting in turn."),
    Requirement("C1", "tools", "A typed Python function becomes a tool by one decorator."),
    Requirement("C2", "tools", "Servers that users have already configured work unchanged."),
    Requirement("C3", "tools", "Names that clash or do not exist are told at the start."),
    Requirement("C4", "tools", "Arguments are repaired, coerced and validated before they are sent."),
    Requirement("C5", "tools", "Hundreds of tools are found in groups rather than listed."),
    Requirement("C6", "tools", "A role bounds what may be called, and is checked at the call."),
    Requirement("C7", "tools", "What writes, sends, deletes or pays waits for a person."),
    Requirement("C8", "tools", "Results read well, and long ones are cut and kept whole."),
    Requirement("C9", "tools", "Tool descriptions are linted, with what they cost."),
    Requirement("D1", "memory", "The window slides over all but what is pinned."),
    Requirement("D2", "memory", "Old turns are summarised before the window is full."),
    Requirement("D3", "memory", "A run of 200 steps stays bounded in input and flat in time."),
    Requirement("D4", "memory", "Notes outlive a run where that was asked for."),
    Requirement("E1", "teams", "A plan is data, runs in parallel where it can, and is thought over again."),
    Requirement("E2", "teams", "A supervisor calls specialists as tools, in parallel and nested."),
    Requirement("E3", "teams", "Agents are served to other hosts over MCP."),
    Requirement("E4", "teams", "An approval raised at any depth is asked once, at the top."),
    Requirement("E5", "teams", "New cards and servers are picked up without a restart."),
    Requirement("F1", "seeing", "A run is one trace over agents, processes and sittings, with its cost."),
    Requirement("F2", "seeing", "Spans go to any OTLP collector, or to a local file without one."),
    Requirement("F3", "seeing", "Requests, calls, approvals and limits are audited."),
    Requirement("F4", "seeing", "Structured logs with run and trace id rotate and never block."),
    Requirement("F5", "seeing", "Secrets and personal data are masked wherever they are shown."),
    Requirement("F6", "seeing", "A run can be replayed from its journal, prompts included."),
    Requirement("G1", "proof", "Scripted and recorded models ship for users' own tests."),
    Requirement("G2", "proof", "Tasks are evaluated over many runs and compared over time."),
    Requirement("H1", "long life", "A killed run goes on; what may have happened is not repeated."),
    Requirement("H2", "long life", "One machine needs no server; many workers share one journal.", pending=True),
)
