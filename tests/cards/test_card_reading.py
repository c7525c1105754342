"""Front matter: keys, values, lenience, and what is said about what cannot be used."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cards import AgentCard, load_card, tool_name
from orchestrator.errors import ConfigurationError, Problem
from orchestrator.events import Limits


def card(tmp_path: Path, front: str, body: str = "x") -> AgentCard:
    path = tmp_path / "some.agent.md"
    path.write_text(f"---\n{front}\n---\n{body}")
    return load_card(path)[0]


def errors(tmp_path: Path, front: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        card(tmp_path, front)
    return [f"{problem.line}: {problem.message}" for problem in caught.value.problems]


def warnings(tmp_path: Path, front: str, body: str = "x") -> list[str]:
    path = tmp_path / "some.md"
    path.write_text(f"---\n{front}\n---\n{body}")
    return [f"{problem.line}: {problem.message}" for problem in load_card(path)[1]]


def test_every_key(tmp_path: Path) -> None:
    found = card(
        tmp_path,
        """name: analyst
description: d
model: [openai:a, local]
tools: [tables__*, "charts__draw"]
agents: [writer]
mcp-servers: git, time
role: guest
approve: ["*__write"]
plan: always
limits: {steps: 6, tokens: 1_000, cost: 0.5, seconds: 90, model_calls: 7}
temperature: 0
input:
  type: object
  properties: {path: {type: string}, n: {type: integer, minimum: 1, default: 2}, b: {const: true}}
output: {type: object, required: [no]}""",
    )
    assert found.model == ("openai:a", "local")
    assert found.tools == ("tables__*", "charts__draw")
    assert (found.agents, found.mcp_servers, found.role) == (("writer",), ("git", "time"), "guest")
    assert (found.approve, found.plan, found.temperature) == (("*__write",), "always", 0)
    assert found.limits == Limits(steps=6, tokens=1000, cost=0.5, seconds=90, model_calls=7)
    assert found.input == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "n": {"type": "integer", "minimum": 1, "default": 2},
            "b": {"const": True},
        },
    }
    assert found.output == {"type": "object", "required": ["no"]}
    assert found.places["tools:charts__draw"].line == 5


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("1.", 1), (".5", 0.5), ("0.25", 0.25), ("1e0", 1), ("'1'", 1)])
def test_numbers(tmp_path: Path, text: str, value: float) -> None:
    assert card(tmp_path, f"description: d\ntemperature: {text}").temperature == value


def test_defaults_and_the_name_of_the_file(tmp_path: Path) -> None:
    found = card(tmp_path, "description: d")
    assert (found.name, found.title, found.tool_name) == ("some", "some", "some")
    assert (found.tools, found.agents, found.model, found.plan, found.limits) == (None, (), (), "auto", Limits())
    assert (found.temperature, found.input, found.output, found.source) == (None, None, None, "user")


@pytest.mark.parametrize(
    ("front", "tools"),
    [
        ("tools: []", ()),
        ("tools:", None),
        ("tools: ''", ()),
        ("tools: '*'", ("*",)),
        ("tools: *", ("*",)),
        ("tools: a__b, c__d", ("a__b", "c__d")),
        ("allowed-tools: Read", ("files__read",)),
        ("allowedTools: [Read]", ("files__read",)),
        ("allowed_tools:\n  - Write\n  - Edit\n  - MultiEdit", ("files__write", "files__edit")),
        ("tools: LS, Glob, Grep, NotebookRead", ("files__list", "files__search", "files__read")),
        ("tools: mcp__git", ("git__*",)),
        ("tools: mcp__my_srv__do-it", ("my_srv__do-it",)),
        ("tools: ['io.github.x/srv/*', 'git/diff']", ("io_github_x_srv__*", "git__diff")),
        ("tools: ['read', 'edit', 'web/fetch', 'vscode/x']", ("files__read", "files__edit", "files__write")),
        ("tools: Bash(git diff:*, ls), Agent(a, b), Read(src/**)", ("files__read",)),
    ],
)
def test_tools(tmp_path: Path, front: str, tools: tuple[str, ...] | None) -> None:
    front = f"description: d\n{front}"
    assert card(tmp_path, front).tools == tools


def test_tools_that_are_refused(tmp_path: Path) -> None:
    assert card(tmp_path, "disallowedTools: mcp__git__push, Bash, Write").without == ("git__push", "files__write")


def test_warnings_about_tools(tmp_path: Path) -> None:
    assert warnings(tmp_path, "description: d\ntools:\n  - Bash\n  - Task") == [
        "3: tools: left out, as there is no equivalent of another host's tool here: `Bash`, `Task`. "
        "So this agent has no tools.",
    ]
    assert warnings(tmp_path, "description: d\ntools:") == [
        "3: tools: nothing stands here, so it counts as left out; write [] for none."
    ]
    assert "the part in brackets has no meaning here" in warnings(tmp_path, "description: d\ntools: Read(src/**)")[0]


def test_other_warnings(tmp_path: Path) -> None:
    assert warnings(tmp_path, "name: x", "") == [
        "1: `description` is missing: others cannot know when to call this agent.",
        "1: there are no instructions below the front matter.",
    ]
    assert card(tmp_path, "description: d\nmcpServers:\n  - git\n  - play: {command: x}").mcp_servers == ("git", "play")
    assert warnings(tmp_path, "description: d\nhooks: {}\nskills: [a]\nlang: en\nversion: 1.0") == [
        "3: keys of other hosts are ignored: `hooks`, `skills`, `lang` and `version`."
    ]


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("descripton: d", ["2: unknown key `descripton`. Did you mean `description`?"]),
        ("tool: a__b", ["2: unknown key `tool`. Did you mean `tools`?"]),
        ("nmae: x", ["2: unknown key `nmae`. Did you mean `name`?"]),
        ("mcp-server: x", ["2: unknown key `mcp-server`. Did you mean `mcp-servers`?"]),
        ("Limit: {}", ["2: unknown key `Limit`. Did you mean `limits`?"]),
        ("name: a\nname: b", ["3: `name` is there twice; leave one."]),
        ("tools: a__b\nallowed-tools: c__d", ["3: `allowed-tools` says the same as another key above; leave one."]),
        ("plan: allways", ["2: `plan` must be 'auto', 'always' or 'never'."]),
        ("plan: [auto]", ["2: `plan` must be 'auto', 'always' or 'never'."]),
        ("temperature: 3", ["2: `temperature` must be less than or equal to 2."]),
        ("temperature: 1_", ["2: `temperature` must be a number, which `1_` is not here."]),
        ("temperature: -1", ["2: `temperature` must be greater than or equal to 0."]),
        ("temperature: .nan", ["2: `temperature` must be a number, which `.nan` is not here."]),
        ("limits: 12", ["2: `limits` are written like {steps: 12, cost: 0.50, seconds: 120}."]),
        (
            "limits:\n  steps: 1.5\n  tokens: 100,000\n  cost: €1,5\n  seconds: 1.5h\n  setps: 3",
            [
                "3: `limits.steps` must be a valid integer, got a number with a fractional part.",
                "4: `limits.tokens` must be a number, which `100,000` is not here; write 100000.",
                "5: `limits.cost` must be a number, which `€1,5` is not here; write 1.5.",
                "6: `limits.seconds` must be a number, which `1.5h` is not here; write 5400.",
                "7: unknown key `limits.setps`. Did you mean `steps`? Known:",
            ],
        ),
        ("limits: {steps: 0}", ["2: `limits.steps` must be greater than 0."]),
        ("maxTurns: many", ["2: `maxTurns` must be a number, which `many` is not here."]),
        ("input: {path: string}", ["2: `input` must be a JSON Schema, like {type: object"]),
        ("output: text", ["2: `output` must be a JSON Schema, like {type: object"]),
        ("output:\n  type: strnig", ["2: `output` must be a JSON Schema, like {type: object"]),
        ("output: {type: object, properties: [a]}", ["2: `output` must be a JSON Schema, like {type: object"]),
        ("agents: {a: b}", ["2: `agents` must be a list."]),
        ("tools: [a__*, *]", ['2: `tools` is not YAML: put the items in quotes, like ["a__*", "*"].']),
        ('name: "a\\nb"', ["2: `name` must be at most 100 printable characters."]),
    ],
)
def test_errors(tmp_path: Path, front: str, expected: list[str]) -> None:
    found = errors(tmp_path, front)
    assert len(found) == len(expected)
    for message, start in zip(found, expected, strict=True):
        assert message.startswith(start)


def test_keys_of_other_hosts_that_look_like_ours_are_not_misspellings(tmp_path: Path) -> None:
    front = "description: d\n" + "\n".join(
        f"{key}: x" for key in ("hooks", "mode", "date", "file", "tone", "type", "tags")
    )
    assert len(warnings(tmp_path, front)) == 1


@pytest.mark.parametrize(
    ("front", "description"),
    [
        ("description: Use it: always", "Use it: always"),
        ('description: Say "x": then y\nmodel: m', 'Say "x": then y'),
        ('description: "Broken: quote\nmodel: m', '"Broken: quote'),
        ("description: 'It's here'\nmodel: m", "It's here"),
        ("description: [WIP] reviews: code", "[WIP] reviews: code"),
        ("description: @ping `x`", "@ping `x`"),
        ("description: >\n  one\n  two\nbad: a: b", "one two"),
        ("description: |\n  one\n  two: three\nbad: a: b", "one\ntwo: three"),
        (
            'description: Use when: x\n\n<example>\nContext: c\nuser: "hi"\nassistant: "ok: go"\n</example>\nmodel: m',
            'Use when: x\n\n<example>\nContext: c\nuser: "hi"\nassistant: "ok: go"\n</example>',
        ),
        ("description: a: b\nuser: c\nmodel: m", "a: b\nuser: c"),
        ("description: a\tb: c\nmodel: m", "a\tb: c"),
    ],
)
def test_front_matter_that_is_not_yaml(tmp_path: Path, front: str, description: str) -> None:
    found = card(tmp_path, f"name: n\n{front}\ntools: a__b, c__d")
    assert found.description == description
    assert (found.name, found.tools) == ("n", ("a__b", "c__d"))
    assert found.model == (("m",) if "\nmodel" in front else ())


def test_misspellings_are_found_in_front_matter_that_is_not_yaml(tmp_path: Path) -> None:
    assert errors(tmp_path, "name: n\ndescription: a: b\nmodle: m\nTols: [x]") == [
        "4: unknown key `modle`. Did you mean `model`?",
        "5: unknown key `Tols`. Did you mean `tools`?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: there is no front matter"),
        ("\n\n---\nname: x\n", "3: the front matter is not closed"),
        ("---\n---\nbody", "2: the front matter has no keys"),
        ("---\n- a\n- b\n---\nbody", "2: the front matter has no keys"),
    ],
)
def test_what_is_no_card(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.md"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_card(path)
    (problem,) = caught.value.problems
    assert f"{problem.line}: {problem.message}".startswith(said)


def test_marks_encodings_and_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_bytes("---\r\nname: é\r\ndescription: d\r\n...\r\nbody\r\nmore".encode(encoding))
        found, said = load_card(path)
        assert (found.name, found.instructions, said) == ("é", "body\nmore", [])
    path.write_bytes(b"---\nname: \xe9\n---\n")
    with pytest.raises(ConfigurationError, match=r"x\.md:2: this agent card is not text"):
        load_card(path)
    with pytest.raises(ConfigurationError, match="there is no such agent card"):
        load_card(tmp_path / "none.md")


def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(9)
    )
    card(tmp_path, f"description: d\n{bomb}")  # read one key at a time, each too large: all are another host's
    assert "must be a JSON Schema" in errors(tmp_path, "input: &a {type: object, x: *a}")[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reviewer", "reviewer"),
        ("Code_Reviewer-2", "Code_Reviewer-2"),
        ("Code Reviewer", "Code-Reviewer"),
        ("Résumé writer!", "Resume-writer"),
        ("数据", "agent-"),
        ("v2 数据", "v2-"),
        ("🙂", "agent-"),
        ("x" * 80, "x" * 39 + "-"),
    ],
)
def test_tool_names(name: str, expected: str) -> None:
    found = tool_name(name)
    assert found == tool_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", found)
    assert re.fullmatch(re.escape(expected) + ("[0-9a-f]{8}" if expected.endswith("-") else ""), found)


@given(st.text(min_size=1))
def test_any_name_has_a_tool_name(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", tool_name(name))


hostile = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LINES = r"""name:
name: x
description: a: b
tools: [*]
tools: {a: b}
limits: {
limits: [1]
  - x
model: &a [*a]
model: *b
input: {type: 1}
input: !!python/object:x y
? a
-
---
...
mcp-servers: [{a: b}, [c], 1]
agents: [[a]]
	x
'
"
name: "\ud800"
temperature: 1e999
plan: ~
<example>
user: x
approve:
output: {? [a] : b}
role: |
role: >"""


def problems(path: Path) -> Sequence[Problem]:
    try:
        load_card(path)
    except ConfigurationError as error:
        return error.problems
    return ()


@hostile
@given(st.binary(max_size=200))
def test_bytes_raise_nothing_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.md"
    for content in (data, b"---\n" + data + b"\n---\nbody"):
        path.write_bytes(content)
        assert all(problem.file == path for problem in problems(path))


@hostile
@given(st.lists(st.sampled_from(LINES.split("\n"))))
def test_lines_raise_nothing_else(tmp_path: Path, front: list[str]) -> None:
    path = tmp_path / "x.md"
    path.write_text("---\n" + "\n".join(front) + "\n---\nbody")
    assert all(problem.line for problem in problems(path))


@hostile
@given(st.text(alphabet="abc:-[]{}*&!|>'\"%@`#, \n\t<>/", max_size=120))
def test_text_raises_nothing_else(tmp_path: Path, front: str) -> None:
    path = tmp_path / "x.md"
    path.write_text(f"---\n{front}\n---\nbody")
    assert all(problem.line for problem in problems(path))
