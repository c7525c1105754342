"""G2: `eval` runs the tasks of a file many times, checks and measures them, and compares them with a baseline."""

import json
import os
import signal
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EFFECTS, OFF, Ended, call, end, orchestrator, plain, servers, start, write_cards
from tests.support.model_server import ModelServer, model_server, turn_of

pytestmark = pytest.mark.requirement("G2")

LOOK = call("fx__look", text="mug")
Answer = Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass
class Site:
    """A folder with one agent over the effects server, a priced model, and a file of tasks. A request costs $0.0011."""

    folder: Path
    model: ModelServer

    def evaluate(self, *flags: object, runs: int = 2) -> Ended:
        return orchestrator(*self.command(*flags, runs=runs), folder=self.folder)

    def command(self, *flags: object, runs: int = 2) -> list[object]:
        return ["eval", "tasks.toml", "-n", runs, "--model", "m", "--agents", "cards", *flags]

    def tasks(self, *tasks: str, before: str = "") -> None:
        text = "".join(f"[[tasks]]\n{task}\n" for task in tasks)
        (self.folder / "tasks.toml").write_text(f"{before}\n{text}")

    @property
    def kept(self) -> list[Any]:
        file = self.folder / "tasks.results.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def site(folder: Path, answer: Answer, tools: str = "fx__*") -> Generator[Site]:
    write_cards(folder, lone=f'tools: ["{tools}"]')
    fx = plain(EFFECTS, folder / "ledger")
    others = {name: off for name, off in OFF.items() if not tools.startswith(name)}
    servers(folder / ".mcp.json", fx=fx, **others)
    with model_server(answer) as server:
        server.key = ""
        table = f'provider = "local"\nbase_url = "{server.url}"\nprices = {{ input = 10, output = 10 }}'
        (folder / "orchestrator.toml").write_text(f'[models.m]\n{table}\n[models.other]\n{table}\nmodel = "other"\n')
        yield Site(folder, server)


def task(name: str = "stock", checks: str = "", more: str = "") -> str:
    return f'name = "{name}"\ntask = "How many mugs?"\nagent = "lone"\n{more}\nchecks = {{ {checks} }}\n'


def looking(text: str = "There are 1,204 mugs.", steps: int = 2) -> Answer:
    """An agent that looks until its last turn."""
    return lambda body: (
        {"text": text} if turn_of(body) == steps else {"calls": [call("fx__look", text=f"{turn_of(body)}")]}
    )


def test_runs_are_counted_checked_and_measured(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        good = 'contains = ["1204 MUGS"], matches = "mugs\\\\.$", calls = ["fx__l*"], not_calls = ["fx__pay"]'
        place.tasks(task("good", good), task("bad", 'contains = ["cups"]'))
        done = place.evaluate("--json", runs=3)
        assert done.code == 0, done.err
        good, bad = done.json["tasks"]
        assert (good["name"], good["runs"], good["success"], good["failures"]) == ("good", 3, 1.0, [])
        assert (good["steps"], good["tokens"]) == ({"mean": 2, "deviation": 0}, {"mean": 220, "deviation": 0})
        assert good["cost"] == {"mean": 0.0022, "deviation": 0}
        assert good["seconds"]["mean"] > 0
        assert (bad["success"], len(bad["failures"])) == (0.0, 3)
        assert bad["failures"][0]["problems"] == ["the answer does not contain 'cups'"]
        assert len(place.model.seen) == 12
        shown = orchestrator("runs", "show", bad["failures"][0]["run_id"], folder=tmp_path)
        assert "There are 1,204 mugs." in shown.out, "each run is in the journal as any other"


@pytest.mark.parametrize(
    ("checks", "problem"),
    [
        ('not_contains = ["1204"]', "the answer contains '1204'"),
        ('matches = "^[0-9]+$"', "the answer does not match '^[0-9]+$'"),
        ('calls = ["fx__fail"]', "no call of fx__fail worked"),
        ('not_calls = ["fx__*"]', "fx__* was called"),
        ('files = ["*.png"]', "no file *.png was made"),
    ],
)
def test_what_is_not_as_it_must_be_is_said(tmp_path: Path, checks: str, problem: str) -> None:
    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        return {"calls": [call("fx__fail", text="x")]} if turn_of(body) == 1 else {"text": "1,204"}

    with site(tmp_path, answer) as place:
        (tmp_path / "old.png").touch()
        place.tasks(task(checks=checks))
        done = place.evaluate("--json", runs=1)
        assert done.json["tasks"][0]["failures"][0]["problems"] == [problem]


def test_a_run_that_does_not_finish_is_not_right(tmp_path: Path) -> None:
    with site(tmp_path, lambda body: {"calls": [call("fx__fail", text="x")]}) as place:
        place.tasks(task())
        [failure] = place.evaluate("--json", runs=1).json["tasks"][0]["failures"]
        assert failure["problems"] == ["the run stopped: repeated_failure"]


def test_what_is_far_from_the_baseline_is_flagged(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task(checks='contains = ["1204"]'))
        assert place.evaluate().code == 0
        place.model.answer = looking(steps=3)
        worse = place.evaluate("--json")
        assert worse.code == 1
        flags = {flag["measure"]: flag for flag in worse.json["flags"] if flag["measure"] != "seconds"}
        assert {(flag["measure"], flag["change"], flag["worse"]) for flag in flags.values()} == {
            ("steps", 0.5, True),
            ("tokens", 0.5, True),
            ("cost", 0.5, True),
        }
        place.model.answer = looking("There are none.")
        shown = place.evaluate()
        assert shown.code == 1
        assert "stock: success -100% (1 → 0)" in shown.out
        assert [each["baseline"] for each in place.kept] == [True, False, False]


def test_a_new_baseline_is_what_later_ones_are_compared_with(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        place.evaluate()
        place.model.answer = looking(steps=3)
        assert place.evaluate("--baseline").code == 1
        again = place.evaluate("--json")
        assert (again.code, again.json["compared_with"]) == (0, place.kept[1]["at"])
        place.model.answer = looking()
        better = place.evaluate()
        assert (better.code, "better stock: steps -33%" in better.out) == (0, True)


def test_a_task_that_changed_is_not_compared(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        place.evaluate(runs=1)
        place.model.answer = looking(steps=4)
        place.tasks(task().replace("mugs", "cups"), task("new"))
        done = place.evaluate(runs=1)
        assert done.code == 0
        assert "stock is another task there, and is not compared" in done.out
        assert "new is not there, and is not compared" in done.out


def test_results_are_shown_over_time_without_a_run(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        place.evaluate(runs=1)
        place.evaluate("--model", "other", runs=2)
        asked = len(place.model.seen)
        first, second = place.evaluate("--history", "--json").json
        assert ([first["model"], second["model"]], len(place.model.seen)) == (["m", "other"], asked)
        lines = place.evaluate("--history").out.splitlines()
        assert len(lines) == 3
        assert ("baseline" in lines[1], "100% of 2" in lines[2]) == (True, True)


def test_each_run_works_in_a_copy_of_the_folder(tmp_path: Path) -> None:
    """The second would find the file of the first, which it must not write over."""

    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        write = call("files__write", path="note.txt", text="mugs", overwrite=False)
        return {"calls": [write]} if turn_of(body) == 1 else {"text": "Written."}

    with site(tmp_path, answer, tools="files__*") as place:
        box = tmp_path / "box"
        box.mkdir()
        (box / "kept.txt").write_text("as it was")
        checks = 'files = ["note.txt"], calls = ["files__write"]'
        place.tasks(task(checks=checks, more='workspace = "box"'))
        done = place.evaluate("--approve", "all", "--json", runs=2)
        assert done.json["tasks"][0]["failures"] == []
        assert [path.name for path in box.iterdir()] == ["kept.txt"]
        refused = place.evaluate("--json", runs=1).json["tasks"][0]["failures"][0]["problems"]
        assert refused == ["no call of files__write worked", "no file note.txt was made"]


def test_a_judge_says_whether_an_answer_is_right(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        if "You judge" not in body["messages"][0]["content"]:
            return {"text": f"About {len(place.model.seen)} mugs."}
        asked = body["messages"][1]["content"]
        assert "The criterion:\nNames a number." in asked
        assert body["model"] == "other"
        accept = "About 1 mugs." in asked
        return {"text": json.dumps({"reasons": "It says about.", "accept": accept})}

    with site(tmp_path, answer) as place:
        place.tasks(task(checks='judge = "Names a number."'), before='judge_model = "other"')
        found = place.evaluate("--json", runs=2).json
        assert found["tasks"][0]["success"] == 0.5
        assert found["tasks"][0]["failures"][0]["problems"] == ["the judge: It says about."]
        assert found["tasks"][0]["cost"]["mean"] == 0.0011, "the judge's cost is not the agent's"
        assert found["judged"] == 0.0022


def test_an_answer_without_a_verdict_is_not_right(tmp_path: Path) -> None:
    with site(tmp_path, lambda body: {"text": "Fine, I accept."}) as place:
        place.tasks(task(checks='judge = "Is fine."'))
        [failure] = place.evaluate("--json", runs=1).json["tasks"][0]["failures"]
        assert failure["problems"][0].startswith("the judge gave no verdict")


def test_the_cost_of_all_runs_is_bounded(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        done = place.evaluate("--max-cost", "0.02", "--json", runs=20)
        assert done.code == 3
        assert "--max-cost 0.02 is used up" in done.err
        [found] = done.json["tasks"]
        assert (found["runs"], found["success"]) == (len(place.model.seen) // 2, 1.0)
        assert 0.01 < len(place.model.seen) * 0.0011 <= 0.02
        assert place.kept == []


def test_what_a_verdict_may_cost_is_what_its_run_left(tmp_path: Path) -> None:
    """A run of $0.0066 leaves too little of the bound for a verdict, for which the whole would do."""

    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        judging = "You judge" in body["messages"][0]["content"]
        return {"text": json.dumps({"reasons": "", "accept": True})} if judging else looking(steps=6)(body)

    with site(tmp_path, answer) as place:
        place.tasks(task(checks='judge = "Is fine."'))
        done = place.evaluate("--max-cost", "0.0105", "--json", runs=1)
        assert (done.code, done.json["tasks"], len(place.model.seen)) == (3, [], 6)
        assert not (tmp_path / "tasks.results.jsonl").exists()


def test_an_interrupted_evaluation_shows_what_there_is_and_keeps_nothing(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        if len(place.model.seen) == 3:
            process.send_signal(signal.SIGINT)
        return looking()(body)

    with site(tmp_path, answer) as place:
        place.tasks(task())
        process = start(*place.command(runs=50), folder=tmp_path)
        done = end(process)
        assert done.code == 130
        assert "100% of 1" in done.out
        assert "interrupted: these results are not kept" in done.err
        assert place.kept == []


WRONG = {
    "no tasks": ("", "tasks.toml: `tasks` is missing."),
    "not toml": ("[[tasks]\n", "tasks.toml:1"),
    "none": ("tasks = []", "there are no tasks"),
    "a typo": (task(checks='contain = ["x"]'), "tasks.toml:6: unknown key `tasks.0.checks.contain`."),
    "not a pattern": (task(checks='matches = "("'), "must be a regular expression"),
    "outside": (task(checks='files = ["../x"]'), "must lie inside the folder"),
    "no folder": (task(more='workspace = "nowhere"'), "there is no folder"),
    "no files": (task(checks='files = ["./"]'), "`tasks.0.checks.files.0` must name files"),
    "half a folder": (task(checks='files = ["out**"]'), "`tasks.0.checks.files.0` must name files"),
    "an empty text": (task(checks='contains = [""]'), "tasks.toml:6: `tasks.0.checks.contains.0`"),
    "a blank text": (task(checks='contains = [" "]'), "`tasks.0.checks.contains.0` must not be blank"),
    "a blank task": (task().replace("How many mugs?", " "), "`tasks.0.task` must not be blank"),
    "not a table": (task().replace("checks = {  }", "checks = []"), "`tasks.0.checks` must be a table.\n"),
    "twice": (task() + "[[tasks]]\n" + task(), "two tasks have the name `stock`"),
    "no such agent": (task().replace("lone", "ghost"), "ghost"),
    "none in the last": (task() + "[[tasks]]\n" + task("last").replace("lone", "ghost"), "ghost"),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_the_file_is_said_before_anything_runs(tmp_path: Path, text: str, told: str) -> None:
    with site(tmp_path, looking()) as place:
        (tmp_path / "tasks.toml").write_text(f"[[tasks]]\n{text}" if text.startswith("name") else text)
        done = place.evaluate()
        assert (done.code, place.model.seen, place.kept) == (2, [], [])
        assert told in done.err


def test_a_judge_without_a_price_is_not_asked_within_a_bound_on_cost(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        table = f'[models.free]\nprovider = "local"\nbase_url = "{place.model.url}"\n'
        with (tmp_path / "orchestrator.toml").open("a") as settings:
            settings.write(table)
        place.tasks(task(checks='judge = "Is fine."'), before='judge_model = "free"')
        done = place.evaluate("--max-cost", "1")
        assert (done.code, place.model.seen, "model 'free'" in done.err) == (2, [], True)
        place.model.answer = lambda body: {"text": '{"reasons": "It is.", "accept": true}'}
        assert "the judge cost an unknown sum" in place.evaluate().out


def test_a_verdict_that_the_bound_on_cost_stops_says_nothing_of_the_run(tmp_path: Path) -> None:
    with site(tmp_path, lambda body: {"text": "Fine."}) as place:
        place.tasks(task(checks=f'judge = "{"Is fine. " * 10_000}"'))
        done = place.evaluate("--max-cost", "0.15", "--json", runs=1)
        assert (done.code, done.json["tasks"], len(place.model.seen), place.kept) == (3, [], 1, [])


def test_what_an_error_leaves_is_shown_and_not_kept(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        (tmp_path / "box").mkdir()

        def answer(body: dict[str, Any]) -> Mapping[str, Any]:
            if len(place.model.seen) == 2:
                (tmp_path / "box").rmdir()
            return looking()(body)

        place.model.answer = answer
        place.tasks(task(more='workspace = "box"'))
        done = place.evaluate()
        assert done.code == 2
        assert "100% of 1" in done.out
        assert "these results are not kept" in done.err
        assert "box cannot be copied: [Errno 2]" in done.err
        assert place.kept == []


def test_the_folder_of_the_file_can_be_the_workspace_with_a_socket_in_it(tmp_path: Path) -> None:
    with site(tmp_path / "here", looking()) as place, socket.socket(socket.AF_UNIX) as there:
        there.bind(str(place.folder / "s"))
        os.mkfifo(place.folder / "pipe")
        (place.folder / "dead").symlink_to("nowhere")
        place.tasks(task(more='workspace = "."'))
        done = place.evaluate("--json", runs=1)
        assert done.json["tasks"][0]["success"] == 1.0, done.err


def test_a_pattern_that_takes_for_ever_is_given_up(tmp_path: Path) -> None:
    with site(tmp_path, lambda body: {"text": "a" * 60}) as place:
        place.tasks(task(checks='matches = "^(a|aa)+$b"'))
        [failure] = place.evaluate("--json", runs=1).json["tasks"][0]["failures"]
        assert failure["problems"] == ["'^(a|aa)+$b' takes more than 5 s to look for; it tries too many ways"]


def test_a_problem_is_a_short_line_without_secrets(tmp_path: Path) -> None:
    """The file of results is one to commit."""

    def answer(body: dict[str, Any]) -> Mapping[str, Any]:
        if "You judge" not in body["messages"][0]["content"]:
            return {"text": "Fine."}
        return {"text": json.dumps({"reasons": f"No.\nAsk ann@shop.example. {'Long. ' * 99}", "accept": False})}

    with site(tmp_path, answer) as place:
        place.tasks(task(checks='judge = "Is fine."'))
        done = place.evaluate(runs=1)
        [failure] = place.kept[0]["tasks"][0]["failures"]
        [problem] = failure["problems"]
        assert problem.startswith("the judge: No. Ask ")
        assert (len(problem), "ann@" in problem) == (300, False)
        assert "\nAsk" not in done.err


def test_nothing_is_said_to_be_near_a_baseline_that_nothing_is_compared_with(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        place.evaluate(runs=1)
        place.tasks(task("new"))
        assert "nothing is more than 15 % off" not in place.evaluate(runs=1).out


def test_a_last_line_without_its_end_is_not_written_on(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        place.evaluate(runs=1)
        file = tmp_path / "tasks.results.jsonl"
        file.write_text(file.read_text().rstrip("\n"))
        place.evaluate(runs=1)
        assert len(place.kept) == 2


def test_results_that_cannot_be_read_or_written_are_said_before_anything_runs(tmp_path: Path) -> None:
    with site(tmp_path, looking()) as place:
        place.tasks(task())
        results = tmp_path / "tasks.results.jsonl"
        results.write_text("{}\n")
        done = place.evaluate()
        assert (done.code, "tasks.results.jsonl:1" in done.err) == (2, True)
        results.unlink()
        results.mkdir()
        assert place.evaluate().code == 2
        assert place.model.seen == []
