"""`doctor --probe`: models behind real HTTP that act well, badly or not at all, through the command line."""

import json
import os
import pty
import subprocess
import threading
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from orchestrator.cli.probing import edited
from orchestrator.config import Settings
from orchestrator.doctor.probe import Bounds, probe
from tests.support.command import COMMAND, Ended, environment, orchestrator, write_cards
from tests.support.model_server import model_server

pytestmark = pytest.mark.requirement("B4")

Answer = Callable[[dict[str, Any]], dict[str, Any]]

KEY = {"TRIAL_KEY": "sk-loopback"}
BEFORE = '# mine\nmodel = "m"\n\n[models.m]  # a table\n'
AFTER = """\
temperature = 0.1  # kept
weak = true  # was
fallback = ["other"]

[models.other]
base_url = "http://127.0.0.1:9/v1"

[limits]
steps = 3
"""
DONE = {"price": "41 and 96", "stock": "17", "order": "K208"}


def task_of(body: dict[str, Any]) -> str:
    content = next(each["content"] for each in body["messages"] if each["role"] == "user")
    return content if isinstance(content, str) else content[0]["text"]


def wish(body: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    task = task_of(body)
    if "stock" in task:
        return "shop__stock", {"item": "chair", "city": "Leeds"}
    if "Order" in task:
        return "shop__order", {"item": "lamp", "count": 3}
    if "price" in task:
        return "shop__price", {"item": "lamp" if "lamp" in task else "desk"}
    return None


def turns_of(body: dict[str, Any]) -> int:
    return sum(each["role"] == "assistant" for each in body["messages"])


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def step(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"text": json.dumps({"thought": "so", "action": name, "arguments": arguments})}


def capable(body: dict[str, Any]) -> dict[str, Any]:
    wanted = wish(body)
    acted = turns_of(body) > 0
    answer = DONE[wanted[0][6:]] if wanted else "7"
    if "tools" in body:
        return {"text": answer} if acted or not wanted else calling(wanted[0], **wanted[1])
    name, arguments = wanted if wanted and not acted else ("final", {"answer": answer})
    if "response_format" in body:
        return step(name, arguments)
    if "Action Input" not in body["messages"][0]["content"]:  # no tools at all
        return {"text": answer}
    if name == "final":
        return {"text": f"Thought: so\nFinal Answer: {answer}"}
    return {"text": f"Thought: so\nAction: {name}\nAction Input: {json.dumps(arguments)}"}


def nameless(body: dict[str, Any]) -> dict[str, Any]:
    """Its server gives calls no ids."""
    return {**capable(body), "ids": False}


def in_text(body: dict[str, Any]) -> dict[str, Any]:
    """Its calls are text where they have a place of their own."""
    reply = capable(body)
    if "tools" in body and "calls" in reply:
        return {"text": json.dumps(reply["calls"][0])}
    return reply


def refusing(body: dict[str, Any]) -> dict[str, Any]:
    return {"status": 400, "error": "this model does not support tools"} if "tools" in body else capable(body)


def careless(body: dict[str, Any]) -> dict[str, Any]:
    """Does well by text alone: no calls of the wire, and its server does not keep to a schema."""
    if "response_format" in body:
        return capable({name: value for name, value in body.items() if name != "response_format"})
    return refusing(body)


def blurting(body: dict[str, Any]) -> dict[str, Any]:
    """Answers from nowhere wherever it can; where it can only act it acts well, but for an order that nobody wants."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    if "working" in schema.get("properties", {}):
        wanted = wish(body)
        return {"text": json.dumps({"working": "so", "answer": DONE[wanted[0][6:]] if wanted else "7"})}
    branches = {each["properties"]["action"]["const"]: each["properties"] for each in schema.get("anyOf", [])}
    if not branches or "arguments" in branches.get("final", {}):
        return {"text": "Final Answer: 12"} if not branches else step("final", {"answer": "12"})
    wanted = None if turns_of(body) else wish(body)
    if wanted and "stock" in task_of(body) and "shop__order" in branches:
        wanted = "shop__order", {"item": "lamp", "count": 9}
    return {"text": json.dumps({"action": wanted[0], "arguments": wanted[1]} if wanted else {"action": "final"})}


def hasty(body: dict[str, Any]) -> dict[str, Any]:
    """Does four of five however it acts; what it does wrong is an order that nobody asked for, or else an answer."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    finals = [each for each in schema.get("anyOf", []) if each["properties"]["action"]["const"] == "final"]
    weak = "working" in schema.get("properties", {}) or any("arguments" not in each["properties"] for each in finals)
    if "desk" in task_of(body) and "working" in schema.get("properties", {}):
        return {"text": json.dumps({"working": "so", "answer": "12"})}
    if weak or "stock" not in task_of(body) or turns_of(body):
        return blurting(body) if weak else capable(body)
    order: dict[str, Any] = {"item": "lamp", "count": 9}
    return calling("shop__order", **order) if "tools" in body else step("shop__order", order)


def hopeless(body: dict[str, Any]) -> dict[str, Any]:
    answer = {"answer": "I do not know."}
    form = {"thought": "", "action": "final", "arguments": answer, "working": "", **answer}
    return {"text": json.dumps(form) if "response_format" in body else answer["answer"]}


def configured(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "orchestrator.toml"
    table = f'provider = "loopback"\nbase_url = "{url}"\napi_key_env = "TRIAL_KEY"\n{more}'
    file.write_text(BEFORE + table + AFTER)
    return file


def probed(folder: Path, url: str, *more: str, env: dict[str, str] = KEY) -> Ended:
    configured(folder, url)
    return orchestrator("doctor", "--probe", "m", *more, folder=folder, env=env)


def at_a_terminal(folder: Path, typed: str) -> tuple[int, str, str]:
    """Its code, standard output, and what the terminal showed."""
    ours, theirs = pty.openpty()
    command = [str(COMMAND), "doctor", "--probe", "m"]
    env = environment(folder / "home", KEY)
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, encoding="utf-8"
    )
    os.close(theirs)
    os.write(ours, f"{typed}\n".encode())
    out, _ = process.communicate(timeout=90)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    return process.returncode, out, shown


@pytest.mark.parametrize(
    ("answer", "mode", "more"),
    [
        (capable, "tools", []),
        (nameless, "tools", []),
        (in_text, "json", []),
        (refusing, "json", []),
        (careless, "react", [("react", True)]),
        (blurting, "json", [("json", True)]),
        (hasty, "json", [("json", True)]),
    ],
)
def test_the_best_way_of_acting_is_found(
    tmp_path: Path, answer: Answer, mode: str, more: list[tuple[str, bool]]
) -> None:
    """`more` are the ways that are tried because the better ones are not good enough."""
    weak = answer in (blurting, hasty)
    with model_server(answer) as server:
        ended = probed(tmp_path, server.url, "--json")
    assert ended.code == 0, ended.err
    found = ended.json
    assert (found["mode"], found["weak"], found["stopped"]) == (mode, weak, ""), found
    assert found["lines"] == [f'mode = "{mode}"', f"weak = {str(weak).lower()}"]
    trials = {(trial["mode"], trial["weak"]): trial for trial in found["trials"]}
    assert list(trials) == [("tools", False), ("json", False), *more, ("react", False)]
    best = trials[mode, weak]
    right = 4 if answer is hasty else 5
    told = [best[key] for key in ("tried", "right", "calls", "answers", "as_text", "unasked")]
    assert told == [5, right, 5, right, 0, 0]
    assert found["requests"] == len(server.seen) - (answer in (refusing, careless))  # the refusal is none
    assert found["tokens"] == 110 * found["requests"]
    if answer is in_text:
        assert (trials["tools", False]["as_text"], trials["tools", False]["right"]) == (4, 1)
    if answer in (refusing, careless):
        assert "no tools" in trials["tools", False]["problem"]
    if answer is careless:
        assert "no JSON Schema" in trials["json", False]["problem"]
    if answer is hasty:
        assert [(trials[each, False]["right"], trials[each, False]["unasked"]) for each in ("tools", "json")] == [
            (4, 1)
        ] * 2
    if answer is blurting:
        assert [trials[each, False]["right"] for each in ("tools", "json", "react")] == [0, 0, 0]


def awry(body: dict[str, Any]) -> dict[str, Any]:
    """Each task has one thing wrong with it, and no other."""
    task, turns = task_of(body), turns_of(body)
    if "lamp?" in task:  # knows without having asked
        return {"text": "41"}
    if "stock" in task and turns == 1:  # says what no result says
        return {"text": "It is 12."}
    if "Order" in task and turns == 1:  # does once more what is done
        return calling("shop__order", item="lamp", count=3)
    if "desk" in task and turns < 2:  # its first call is one that nobody can read
        unread = {"text": '<tool_call>{"name": "shop__price", "arguments": {"item": <'}
        return calling("shop__price", item="desk") if turns else unread
    if wish(body) is None and turns == 0:  # calls where nothing was wanted
        return calling("shop__price", item="lamp")
    return capable(body)


def spelt(body: dict[str, Any]) -> dict[str, Any]:
    """Writes names as it likes, which is no mistake; another number is one."""
    if "calls" in (reply := capable(body)):
        name, arguments = wish(body) or ("", {})
        if "count" in arguments:
            return calling(name, item=" LAMP ", count=2)
        return calling(name, **{key: value.upper() for key, value in arguments.items()})
    return reply


@pytest.mark.parametrize(("answer", "counted"), [(awry, (0, 4, 4, 1, 2)), (spelt, (4, 4, 5, 0, 1))])
def test_each_thing_that_is_wrong_counts(tmp_path: Path, answer: Answer, counted: tuple[int, ...]) -> None:
    with model_server(lambda body: hopeless(body) if "json_schema" in json.dumps(body) else answer(body)) as server:
        found = probed(tmp_path, server.url, "--json").json
    names = ("right", "calls", "answers", "as_text", "unasked")
    assert tuple(found["trials"][0][name] for name in names) == counted, found


def test_a_model_that_does_nothing_right_is_no_reason_for_advice(tmp_path: Path) -> None:
    with model_server(hopeless) as server:
        ended = probed(tmp_path, server.url, "--json")
    found = ended.json
    assert (ended.code, found["mode"], found["weak"], found["lines"]) == (1, None, False, [])
    assert [(trial["mode"], trial["weak"], trial["tried"], trial["right"]) for trial in found["trials"]] == [
        ("tools", False, 5, 0),
        ("json", False, 5, 0),
        ("json", True, 5, 0),
        ("react", False, 5, 0),
    ]
    assert ended.err == "error: m did none of the tasks right in any way of acting, so nothing is advised\n"


def test_a_dead_server_and_a_missing_key_are_told(tmp_path: Path) -> None:
    dead = probed(tmp_path, "http://127.0.0.1:9/v1")
    assert (dead.code, "error:" in dead.err) == (1, True), dead.err
    keyless = probed(tmp_path, "http://127.0.0.1:9/v1", env={})
    assert keyless.code == 2
    assert keyless.err == "error: [models.m] needs a key: set the environment variable TRIAL_KEY.\n"


def test_a_wrong_key_costs_nothing_and_is_told_in_a_line(tmp_path: Path) -> None:
    with model_server(capable) as server:
        ended = probed(tmp_path, server.url, env={"TRIAL_KEY": "sk-not-the-right-one"})
    assert (ended.code, ended.out, server.seen) == (2, "", [])
    assert len(ended.err.splitlines()) == 1
    assert "wrong key (the key is read from TRIAL_KEY)" in ended.err
    assert "sk-not" not in ended.err


@pytest.mark.parametrize(("status", "said"), [(401, "TRIAL_KEY"), (404, "is the model's name right")])
def test_what_a_server_says_only_when_it_is_used_ends_the_trial_at_once(tmp_path: Path, status: int, said: str) -> None:
    """A list of models that anyone may read says nothing about a key, nor about a name."""
    with model_server(lambda _: {"status": status, "error": "no"}) as server:
        ended = probed(tmp_path, server.url)
    assert (ended.code, ended.out, len(server.seen)) == (2, "", 1), ended.err
    assert len(ended.err.splitlines()) == 1
    assert said in ended.err


def test_a_vendors_spec_is_written_as_a_table_of_its_own(tmp_path: Path) -> None:
    write_cards(tmp_path, lone="tools: []")
    with model_server(in_text) as server:
        ended = orchestrator("doctor", "--probe", "openai:gpt-0.5", folder=tmp_path, env=server.env)
        assert ended.code == 0, ended.err
        best, said, *lines = ended.out.splitlines()
        assert (best, said) == ("best: json", "to paste into orchestrator.toml:")
        (tmp_path / "orchestrator.toml").write_text("\n".join(lines))
        assert tomllib.loads("\n".join(lines))["models"]["gpt-0.5"]["provider"] == "openai"
        arguments = ("--agents", "cards", "--agent", "lone", "--model", "gpt-0.5")
        run = orchestrator("run", "Which number comes after 6?", *arguments, folder=tmp_path, env=server.env)
    assert (run.code, run.out) == (0, "7\n"), run.err
    assert server.seen[-1]["model"] == "gpt-0.5"
    assert "response_format" in server.seen[-1]


def test_anthropics_wire_has_one_way_of_acting(tmp_path: Path) -> None:
    with model_server(capable) as server:
        ended = orchestrator("doctor", "--probe", "anthropic:claude-0", "--json", folder=tmp_path, env=server.env)
    assert ended.code == 0, ended.err
    assert server.paths == {"/v1/messages"}
    assert [(trial["mode"], trial["right"]) for trial in ended.json["trials"]] == [("tools", 5)]
    assert ended.json["lines"][2:] == ['mode = "tools"', "weak = false"]


def test_anthropics_wire_is_not_tried_as_weak(tmp_path: Path) -> None:
    """There is no such way there, so that it could not be used."""
    with model_server(eager_everywhere) as server:
        file = configured(tmp_path, server.url, 'api = "anthropic"\n')
        file.write_text(file.read_text().replace("weak = true", "vision = false"))
        ended = orchestrator("doctor", "--probe", "m", "--json", folder=tmp_path, env=KEY)
    assert ended.code == 0, ended.err
    assert [(trial["mode"], trial["right"], trial["unasked"]) for trial in ended.json["trials"]] == [("tools", 1, 4)]
    assert (ended.json["mode"], ended.json["weak"]) == ("tools", False)


def eager_everywhere(body: dict[str, Any]) -> dict[str, Any]:
    return calling("shop__stock", item="x", city="y") if wish(body) and not turns_of(body) else capable(body)


def test_a_trial_ends_at_its_bound_of_requests(tmp_path: Path) -> None:
    """Each call is another, so that every task takes all that one may: 4 turns and a last one without tools."""
    seen: list[int] = []

    def restless(body: dict[str, Any]) -> dict[str, Any]:
        seen.append(1)
        if "response_format" in body or "tools" in body:
            name, arguments = "shop__price", {"item": f"x{len(seen)}"}
            return calling(name, **arguments) if "tools" in body else step(name, arguments)
        return {"text": f'Thought: so\nAction: shop__price\nAction Input: {{"item": "x{len(seen)}"}}'}

    with model_server(restless) as server:
        ended = probed(tmp_path, server.url)
    assert (ended.code, ended.out, len(server.seen)) == (1, "", 80)
    assert "json + weak: 0 of 5 tasks right" in ended.err
    assert "react: not tried" in ended.err
    assert "80 requests · 8,800 tokens" in ended.err
    assert "stopped at 80 requests, which is as long as a trial may be" in ended.err


def test_a_bound_of_requests_holds_in_the_middle_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut off by it is not judged."""
    monkeypatch.setenv("TRIAL_KEY", "sk-loopback")
    with model_server(lambda body: calling("shop__price", item=f"x{len(server.seen)}")) as server:
        table = {"provider": "loopback", "base_url": server.url, "api_key_env": "TRIAL_KEY"}
        found = anyio.run(partial(probe, "m", Settings(models={"m": table}), Bounds(requests=7)))
    assert (found.requests, len(server.seen), found.stopped) == (7, 7, "7 requests")
    assert [trial.tried for trial in found.trials] == [1, 0, 0, 0]


def test_a_trial_ends_at_its_bound_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAL_KEY", "sk-loopback")
    gone, late = threading.Event(), threading.Event()

    def silent(body: dict[str, Any]) -> dict[str, Any]:
        if not gone.wait(20):
            late.set()
        return hopeless(body)

    with model_server(silent) as server:
        table = {"provider": "loopback", "base_url": server.url, "api_key_env": "TRIAL_KEY"}
        bounds = Bounds(seconds=1)
        found = anyio.run(partial(probe, "m", Settings(models={"m": table}), bounds))
        gone.set()
    assert not late.is_set()
    assert (found.stopped, found.mode, sum(trial.tried for trial in found.trials)) == ("1 seconds", None, 0)


def test_without_a_terminal_nothing_is_written(tmp_path: Path) -> None:
    with model_server(capable) as server:
        before = configured(tmp_path, server.url).read_text()
        ended = probed(tmp_path, server.url)
    assert ended.out == 'best: tools\nto paste into [models.m] of orchestrator.toml:\nmode = "tools"\nweak = false\n'
    assert (tmp_path / "orchestrator.toml").read_text() == before
    assert "Write these lines" not in ended.err


def test_a_no_writes_nothing(tmp_path: Path) -> None:
    with model_server(capable) as server:
        file = configured(tmp_path, server.url)
        before = file.read_bytes()
        code, out, shown = at_a_terminal(tmp_path, "n")
    assert (code, file.read_bytes()) == (0, before), shown
    assert "nothing is written" in shown
    assert 'mode = "tools"\nweak = false\n' in out


@pytest.mark.parametrize(("answer", "mode", "weak"), [(capable, "tools", "false"), (blurting, "json", "true")])
def test_at_a_terminal_two_keys_are_written_and_a_run_goes_by_them(
    tmp_path: Path, answer: Answer, mode: str, weak: str
) -> None:
    write_cards(tmp_path, lone="tools: []")
    with model_server(answer) as server:
        file = configured(tmp_path, server.url)
        before = file.read_text()
        code, out, shown = at_a_terminal(tmp_path, "y")
        assert (code, "written:" in out) == (0, True), shown
        arguments = ("--agents", "cards", "--agent", "lone")
        run = orchestrator("run", "Which number comes after 6?", *arguments, folder=tmp_path, env=KEY)
    wanted = before.replace("# a table\n", f'# a table\nmode = "{mode}"\n').replace("= true  #", f"= {weak}  #")
    assert file.read_text() == wanted
    assert tomllib.loads(wanted)["models"]["m"]["weak"] == (weak == "true")
    assert (run.code, run.out) == (0, "7\n"), run.err
    assert ("response_format" in server.seen[-1]) == (mode == "json")


KEYS = {"mode": "json", "weak": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[models.m]\r\nvision = true\r\n", '[models.m]\r\nmode = "json"\r\nweak = true\r\nvision = true\r\n'),
        ("[models.m]", '[models.m]\nmode = "json"\nweak = true\n'),
        ("[ models . 'm' ] # x\nmode='react'# y\n", "[ models . 'm' ] # x\nweak = true\nmode = \"json\"# y\n"),
        (
            '[models.o]\nmode = "tools"\n[models."m"]\nweak = false\n[models.m.prices]\ninput = 0\noutput = 0\n',
            '[models.o]\nmode = "tools"\n[models."m"]\nmode = "json"\nweak = true\n'
            "[models.m.prices]\ninput = 0\noutput = 0\n",
        ),
        ('models = { m = { mode = "tools" } }\n', None),
        ("[models]\nm.vision = true\n", None),
        ('note = """\n[models.m]\n"""\n[models.m]\nvision = true\n', None),
        ('[models.m]\n"mode" = "tools"\n', None),
    ],
)
def test_only_these_keys_change_or_nothing_does(before: str, after: str | None) -> None:
    tomllib.loads(before)
    assert edited(before, "m", KEYS) == after
    if after is not None:
        assert {key: tomllib.loads(after)["models"]["m"][key] for key in KEYS} == KEYS
