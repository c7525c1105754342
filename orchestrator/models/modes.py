"""Requests for models that act without the wire's tool calls: by JSON that a schema fixes, or by text.

Both rewrite a chat completions request, so that a run can change over in the middle: tools move into the system
message, calls and results become text. Pure; what was sent before stays as it was, byte by byte.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.models.base import FINAL, Mode
from orchestrator.models.lenient import as_list, as_object, as_text, dump, parse

Json = dict[str, Any]

MOST_TOOLS: Final = 10
"""More than these take too much of a prompt that describes them in words."""

_LONGEST_TEXT: Final = 200  # characters of one argument of a weak model, so that none runs on
_MOST_ITEMS: Final = 10
_THOUGHT: Final[Json] = {"type": "string", "maxLength": 400}
_SHOWN_SCHEMA: Final = 300
_SHOWN_TASK: Final = 400
# What a server's grammar can be made of; the rest is checked when the call is made.
_KEPT: Final = frozenset(
    {"type", "enum", "const", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "required"}
)
_PLAIN_PATTERN = re.compile(r"\^(?:[\w\- .,:/+*?(){}|]|\\[dws.\-+()]|\[[^\[\]]*\])*\$")

JSON_FORM: Final = """Work step by step: each reply is ONE JSON object that picks the next action.
Actions:
{tools}
- final{answer}: finish. Use it when the results answer the whole task, or when no action is needed.
Never repeat an action whose result you already have."""

REACT_FORM: Final = """You can use these tools:
{tools}

Reply in one of these two forms, and in no other. Angle brackets mark what you fill in.

Example 1, to use a tool:
Thought: <why this tool is needed now>
Action: <name of one tool>
Action Input: {{"<name of an argument>": <its value>}}

Example 2, to finish:
Thought: <why nothing is missing>
Final Answer: <the whole answer>

After an action its result comes as an observation. Never write an observation yourself."""

ONLY_FORM: Final = """Reply with ONE JSON object that makes this call:
{tools}"""

ANSWER_FORM: Final = (
    "Reply with one JSON object: `working` takes each part of the question in turn, with its fact and any sum; "
    "`answer` is one or two full sentences that state everything that was asked for."
)

MISSING: Final = "Is anything of it still missing? If not, choose final."


def rewritten(
    mode: Mode, messages: Sequence[Json], tools: Sequence[Json], shut: Collection[str], *, weak: bool
) -> tuple[list[Json], Json]:
    """The messages as this mode has them, and the settings that go with them. `shut` are tools, or `final`, that no
    reply may choose now; where that is `final`, one of the others must be chosen."""
    functions = [as_object(tool.get("function")) for tool in tools]
    messages = [{**message, "content": as_text(message.get("content"))} for message in messages]
    said = [*(_json_messages(messages, weak=weak) if mode == "json" else _react_messages(messages))]
    only = FINAL in shut and len(functions) == 1
    said = _joined([_described(mode, said[0], functions, weak=weak, only=only), *said[1:]] if functions else said)
    if mode == "json":
        if weak and not functions:
            said[0] = {**said[0], "content": f"{said[0]['content']}\n\n{ANSWER_FORM}"}
        shown = [function for function in functions if function["name"] not in shut]
        schema = _steps(shown, weak=weak, final=FINAL not in shut) if functions or not weak else _ANSWER
        return said, {"response_format": _format(schema)}
    names = [function["name"] for function in functions if function["name"] in shut]
    if names and FINAL not in shut:
        note = f"\n\n(These tools lead nowhere now, so do not use them: {', '.join(names)}.)"
        said[-1] = {**said[-1], "content": said[-1]["content"] + note}
    return said, {"stop": ["\nObservation:"]} if functions else {}


def _format(schema: Json) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "step", "strict": True, "schema": schema}}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_ANSWER: Final = _object(working={"type": "string", "maxLength": 400}, answer={"type": "string", "maxLength": 1200})
"""The answer of a weak model: with a field to work in before the field that counts."""


def _steps(functions: Sequence[Json], *, weak: bool, final: bool) -> Json:
    """One branch an action, with its constant name. A weak model gets no field to think in before it acts."""
    thought: Json = {} if weak else {"thought": _THOUGHT}
    branches = [
        _object(**thought, action={"const": function["name"]}, arguments=_bounded(function["parameters"], weak=weak))
        for function in functions
    ]
    answer: Json = {} if weak else {"arguments": _object(answer={"type": "string"})}
    return {"anyOf": [*branches, *([_object(**thought, action={"const": FINAL}, **answer)] if final else [])]}


def _bounded(schema: Mapping[str, Any], *, weak: bool) -> Json:
    """The part of a schema that a grammar can hold. A weak model is asked for every argument, and for short ones."""
    kept: Json = {key: value for key, value in schema.items() if key in _KEPT}
    if isinstance(pattern := schema.get("pattern"), str) and _PLAIN_PATTERN.fullmatch(pattern):
        kept["pattern"] = pattern
    for key in ("anyOf", "oneOf"):
        if branches := as_list(schema.get(key)):
            kept["anyOf"] = [_bounded(as_object(branch), weak=weak) for branch in branches]
    if isinstance(schema.get("items"), dict):
        kept["items"] = _bounded(schema["items"], weak=weak)
    kind = schema.get("type")
    if properties := as_object(schema.get("properties")):
        kept["properties"] = {name: _bounded(as_object(one), weak=weak) for name, one in properties.items()}
        kept["additionalProperties"] = False
        if weak:
            kept["required"] = list(properties)
    if weak and kind == "string" and not kept.keys() & {"enum", "const", "pattern", "maxLength"}:
        kept["maxLength"] = _LONGEST_TEXT
    if weak and kind == "array":
        kept.setdefault("maxItems", _MOST_ITEMS)
    return kept


def _described(mode: Mode, system: Json, functions: Sequence[Json], *, weak: bool, only: bool) -> Json:
    tools = "\n".join(map(_listed, functions))
    form = REACT_FORM.format(tools=tools)
    if mode == "json" and only:
        form = ONLY_FORM.format(tools=tools)
    elif mode == "json":
        form = JSON_FORM.format(tools=tools, answer="" if weak else "(answer: string)")
    return {**system, "content": f"{system['content']}\n\n{form}"}


def _listed(function: Json) -> str:
    """A tool in one line: its arguments with type and meaning, and what it does."""
    properties = as_object(as_object(function.get("parameters")).get("properties"))
    arguments = ", ".join(_argument(name, as_object(one)) for name, one in properties.items())
    return f"- {function['name']}({arguments}): {' '.join(str(function.get('description', '')).split())}"


def _argument(name: str, schema: Json) -> str:
    values = schema.get("enum")
    kind = "|".join(map(str, as_list(values))) if values else schema.get("type", "any")
    if kind in ("object", "array") or not isinstance(kind, str):
        inner = {key: value for key, value in schema.items() if key != "description"}
        kind = dump(inner).decode()
        kind = kind if len(kind) <= _SHOWN_SCHEMA else kind[:_SHOWN_SCHEMA] + "…"
    about = " ".join(str(schema.get("description", "")).split())
    return f"{name}: {kind}" + (f" ({about})" if about else "")


def _json_messages(messages: Sequence[Json], *, weak: bool) -> Iterator[Json]:
    task = next((str(message["content"]) for message in messages if message["role"] == "user"), "")
    task = task if len(task) <= _SHOWN_TASK else task[:_SHOWN_TASK] + "…"
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            last = place + 1 == len(messages) or messages[place + 1]["role"] != "tool"
            asks = f"\nTask: {task}\n{MISSING}" if last else ""
            yield _user(f"Result of {names.get(message['tool_call_id'], 'it')}: {message['content']}{asks}")
            continue
        for call in _calls(message):
            names[call["id"]] = call["function"]["name"]
        yield _plain(message, "\n".join(_json_lines(message, weak=weak)))


def _json_lines(message: Json, *, weak: bool) -> Iterator[str]:
    for number, call in enumerate(_calls(message)):
        thought = {"thought": message.get("content") or ""} if not weak and number == 0 else {}
        step = {**thought, "action": call["function"]["name"], "arguments": parse(call["function"]["arguments"])}
        yield dump(step).decode()


def _react_messages(messages: Sequence[Json]) -> Iterator[Json]:
    for message in messages:
        if message["role"] == "tool":
            yield _user(f"Observation: {message['content']}")
        else:
            yield _plain(message, _react_text(message))


def _react_text(message: Json) -> str:
    thought = [f"Thought: {message['content']}"] if message.get("content") else []
    functions = [call["function"] for call in _calls(message)]
    steps = [f"Action: {function['name']}\nAction Input: {function['arguments']}" for function in functions]
    return "\n".join([*thought, *steps])


def _calls(message: Json) -> list[Json]:
    return [as_object(call) for call in as_list(message.get("tool_calls"))]


def _plain(message: Json, calls: str) -> Json:
    """A message in text alone; what else a vendor wants back belongs to the calls that are no more."""
    return {"role": message["role"], "content": calls if _calls(message) else message["content"]}


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _joined(messages: Sequence[Json]) -> list[Json]:
    """Turns of one role in a row as one: some servers refuse them."""
    made: list[Json] = []
    for message in messages:
        if made and made[-1]["role"] == message["role"] == "user":
            made[-1] = _user(f"{made[-1]['content']}\n\n{message['content']}")
        else:
            made.append(message)
    return made
