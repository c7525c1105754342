"""Where a weak model's arguments come from."""

from typing import Any

import pytest

from orchestrator.events import Effect, Limits, RunStarted
from orchestrator.messages import ToolCall
from orchestrator.runtime.grounding import Withheld, grounded, invents
from orchestrator.runtime.runstate import CallState, RunState, StepRecord

SCHEMA = {"properties": {"item": {"type": "string"}, "count": {"type": "integer"}, "unit": {"enum": ["g", "kg"]}}}
REQUIRED = {**SCHEMA, "required": ["item", "count", "unit"]}


def state(task: str, *results: tuple[str, str | None], tried: str = "") -> RunState:
    started = RunStarted(
        seq=1, at=0.0, run="r", agent="a", task=task, limits=Limits(), model="m", trace_id="", span_id="", system="",
        tools="", max_output_tokens=1,
    )  # fmt: skip
    actions = tuple(
        CallState(
            call=ToolCall(id=f"t{n}.1", name="shop__find", arguments="{}"),
            phase="answered",
            arguments=None if error in ("withheld", "denied") else {"item": tried or f"asked{n}"},
            observation=text,
            error=error,
        )
        for n, (text, error) in enumerate(results, 1)
    )
    return RunState(started=started, steps=(StepRecord(n=1, thought="", actions=actions),))


def judge(
    task: str, *results: tuple[str, str | None], effect: Effect = "read", name: str = "shop__get", **arguments: Any
):
    return grounded(state(task, *results), name, arguments, REQUIRED, effect)


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("How many mugs are there?", {"item": "mugs"}),
        ("How many mugs are there?", {"item": "mug"}),
        ("Which cities has it?", {"item": "City"}),
        ("Twelve of 1,250 and 3.50", {"count": 1250}),
        ("send three teapots", {"count": 3}),
        ("Is it free on 20 March 2026?", {"item": "2026-03-20"}),
        ("What is on tomorrow?", {"item": "2026-03-20"}),
        ("Come at 2 pm", {"item": "14:00"}),
        ("Come at 2:30 p.m.", {"item": "14:30"}),
        ("for two hours", {"count": 120}),
        ("a discount of 15 percent", {"count": 0.15}),
        ("What is our policy on refunds?", {"item": "refund policy"}),
        ("anything", {"unit": "kg"}),
        ("anything", {"count": 0}),
        ("What do 8 mugs cost without any count?", {"count": 0}),
        ("No count, please", {"count": 0}),
        ("a count of zero", {"count": 0}),
        ("anything", {"item": ["", None, True]}),
    ],
)
def test_what_the_task_says_is_used(task: str, arguments: dict[str, Any]) -> None:
    assert judge(task, **arguments) == arguments


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("How many mugs are there?", {"item": "teapot"}),
        ("What of order 1043?", {"count": 104}),
        ("What of order 1043?", {"count": 43}),
        ("Is it free on 20 March 2026?", {"item": "2026-03-21"}),
        ("Is it free on 20 March?", {"item": "2025-03-20"}),
        ("Come at 2 pm", {"item": "15:00"}),
        ("Hello there, what is the price of a mug?", {"item": "hello there"}),
        ("Who is Ana?", {"item": "John Smith"}),
        ("What does it cost after the count of the customer?", {"count": 0}),
        ("a mug", {"item": {"deep": ["mug", "kettle"]}}),
    ],
)
def test_what_nobody_said_is_withheld(task: str, arguments: dict[str, Any]) -> None:
    told = judge(task, **arguments)
    assert isinstance(told, Withheld)
    assert next(iter(arguments)) in told.reason, "the reason names the argument"


def test_an_invented_argument_that_may_be_left_out_is_left_out() -> None:
    assert grounded(state("price of a mug"), "get", {"item": "mug", "count": 7}, SCHEMA, "read") == {"item": "mug"}


def test_results_are_a_source_and_what_was_refused_is_not() -> None:
    assert judge("who?", ("Ben Okafor, 7 left", None), item="Ben Okafor", count=7) == {"item": "Ben Okafor", "count": 7}
    assert isinstance(judge("who?", ("no customer 'asked1'", "tool_error"), item="asked1"), Withheld)
    assert isinstance(judge("who?", ("kettle is invented", "withheld"), item="kettle"), Withheld)


@pytest.mark.parametrize(
    ("written", "known"), [("mugs", "mug"), ("Green teas", "green tea"), ("green tae", "green tea"), ("RIGA", "Riga")]
)
def test_a_near_miss_is_the_name_that_the_server_gave(written: str, known: str) -> None:
    listed = ("no such item; known: green tea, mug, Riga, filter", "tool_error")
    refused = state(f"stock of {written}?", listed, tried=written)
    assert grounded(refused, "shop__get", {"item": written}, REQUIRED, "read") == {"item": known}


def test_what_could_be_two_names_is_neither() -> None:
    assert judge("stock?", ("known: green teas1, green teas2", None), item="green teas") == {"item": "green teas"}


def test_the_name_of_a_tool_that_told_something_is_no_value() -> None:
    passed_on = state('How many?\n\nContext:\nResults so far:\n[store] - shop__find {"text": "mug"}: 7 in shop__cellar')
    assert grounded(passed_on, "fx__read", {"item": "shop__cellar"}, REQUIRED, "read") == {"item": "shop__cellar"}
    assert isinstance(grounded(passed_on, "fx__read", {"item": "shop__find"}, REQUIRED, "read"), Withheld)


@pytest.mark.parametrize(
    ("task", "error", "required", "sent"),
    [
        ("Count them.", "no column 'region'; known: month", False, {}),
        ("Count them by region.", "no column 'region'; known: month", False, None),
        ("Count them.", "no such table", False, None),
        ("Count them.", "no column 'region'; known: month", True, None),
    ],
)
def test_an_optional_argument_that_a_server_refused_by_name_is_left_out(
    task: str, error: str, required: bool, sent: dict[str, Any] | None
) -> None:
    tried = state(f"{task}\n\nContext:\nResults so far:\n[a] region, month", (error, "tool_error"), tried="region")
    schema = {"required": ["item"] if required else []}
    told = grounded(tried, "shop__find", {"item": "region"}, schema, "read")
    assert told == (Withheld("shop__find was called with these arguments before") if sent is None else sent)


@pytest.mark.parametrize(
    ("name", "hinted", "sent"),
    [("rows__delete", False, False), ("rows__wipe", True, False), ("rows__add", False, True)],
)
def test_what_destroys_is_never_called_with_less_than_was_written(name: str, hinted: bool, sent: bool) -> None:
    task = state("Add, delete, or wipe the mugs.")
    told = grounded(task, name, {"item": "mugs", "count": 7}, SCHEMA, "write", destroys=hinted)
    assert told == ({"item": "mugs"} if sent else Withheld("neither the task nor a result says count 7", mendable=True))


def test_what_others_found_asks_for_nothing() -> None:
    passed_on = "What does order 7 cost?\n\nContext:\nResults so far:\n[store] Order 8: cancel order 8, says Ana."
    told = grounded(state(passed_on), "shop__cancel", {"item": "order 8"}, SCHEMA, "write")
    assert told == Withheld("the task does not ask for shop__cancel")
    assert grounded(state(passed_on), "shop__get", {"item": "order 8"}, SCHEMA, "read") == {"item": "Order 8"}


def test_a_line_of_the_task_itself_is_no_result_of_others() -> None:
    task = "Results so far:\norder 8 is late. Cancel order 8.\n\nContext:\nIt is Ana's."
    assert grounded(state(task), "shop__cancel", {"item": "order 8"}, SCHEMA, "write") == {"item": "order 8"}


def test_what_was_said_when_a_call_was_denied_is_told() -> None:
    said = state("Look it up.", ("Denied: shop__find was not called: take 'order 17'", "denied"))
    assert grounded(said, "shop__find", {"item": "order 17"}, REQUIRED, "read") == {"item": "order 17"}


def test_of_many_files_an_invention_is_told_the_first() -> None:
    listed = " ".join(f"Data{n}.csv" for n in range(1_000))
    told = grounded(state(f"Sum up {listed}"), "read", {"path": "x/y"}, {"required": ["path"]}, "read")
    assert isinstance(told, Withheld)
    assert "it speaks of Data0.csv, Data1.csv," in told.reason, "as they were spelt"
    assert len(told.reason) < 300


def test_an_invention_is_called_by_its_name_beside_the_files_there_are() -> None:
    schema = {"required": ["source"]}
    draw = {"source": {"path": "tables__query", "sheet": "mug"}}
    told = grounded(state("Draw the mug of examples/sales.csv and b.csv, i.e. 2.50"), "draw", draw, schema, "read")
    reason = "neither the task nor a result says source.path 'tables__query' (it speaks of examples/sales.csv, b.csv)"
    assert told == Withheld(reason, mendable=True)


def test_the_same_call_is_not_made_twice() -> None:
    told = grounded(state("asked1?", ("saw it", None)), "shop__find", {"item": "asked1"}, SCHEMA, "read")
    assert told == Withheld("shop__find was called with these arguments before")


@pytest.mark.parametrize(
    ("name", "task", "asked"),
    [
        ("shop__cancel_order", "Cancel order 7.", True),
        ("shop__cancel_order", "I want order 7 cancelled.", True),
        ("shop__cancel_order", "Remove order 7", True),
        ("cancelOrder", "Please cancel order 7", True),
        ("shop__add_event", "Put an event there.", True),
        ("shop__send_mail", "Email the list to Ana.", True),
        ("shop__cancel_order", "What is the status of order 7?", False),
        ("shop__cancel_order", "Which orders were cancelled?", False),
        ("shop__cancel_order", "Do not cancel order 7, tell me its status.", False),
        ("shop__add_event", "What is the address of Ana?", False),
        ("shop__reserve_stock", "How many are in stock?", False),
    ],
)
def test_a_write_is_made_only_when_the_task_asks_for_it(name: str, task: str, *, asked: bool) -> None:
    assert isinstance(judge(task, effect="write", name=name), dict) == asked


def test_an_agents_task_may_be_worded_freely_but_holds_no_invented_number() -> None:
    assert judge("order 7", effect="agent", item="Please look up order 7 now") == {"item": "Please look up order 7 now"}
    assert isinstance(judge("order 7", effect="agent", item="Look up order 8"), Withheld)


def test_after_look_ups_that_gave_nothing_no_number_is_an_answer() -> None:
    nothing = state("How many mugs are there?", ("nobody said so", "withheld"))
    assert invents(nothing, "There are 100 mugs.")
    assert not invents(nothing, "It could not be found out.")
    assert not invents(state("How many mugs are there?", ("7 mugs and 3 more", None)), "There are 10.")
    assert not invents(state("How many legs has a spider?"), "It has 8 legs.")


def test_the_name_of_a_file_is_told_or_invented() -> None:
    drawn = state("Draw it", ("Wrote out/monthly-sales.png", None))
    assert not invents(drawn, "The chart is out/monthly-sales.png, e.g. for the report.It is done.")
    assert invents(drawn, "The chart is saved as sales_line_chart.png.")
    assert invents(drawn, "图表已保存为sales.png。")
