"""What vendors refuse of JSON Schema, and how their copies of a tool get around it.

A tool comes here as a schema that stands by itself; what leaves is shown to the model and validates nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from orchestrator.models.base import ToolSpec
from orchestrator.models.lenient import as_list, as_object

Json = dict[str, Any]
Flavour = Callable[[ToolSpec], Json]
"""Makes the `function` of a tool's wire form."""

LONGEST_DESCRIPTION: Final = 1024
"""Characters of a function's description that Azure and several gateways take; those of parameters have no limit."""

_AT_TOP: Final = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else")
_INSIDE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


_ANTHROPIC_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


def flavour_of(model: str, url: str) -> Flavour:
    """The flavour of a model at an address. Gemini behind a gateway is known by its name."""
    host = urlsplit(url).hostname or ""
    return gemini if host.endswith(".googleapis.com") or "gemini" in model.lower() else plain


def plain(tool: ToolSpec) -> Json:
    """What OpenAI takes, and servers that follow it: no union at the top, `items` in every array."""
    parameters = _with_items(_flat(tool.parameters))
    if (long := tool.description)[LONGEST_DESCRIPTION:]:
        said = parameters.pop("description", "")
        parameters = {"description": f"…{long[LONGEST_DESCRIPTION - 1 :]} {said}".strip(), **parameters}
        return _function(tool.name, long[: LONGEST_DESCRIPTION - 1] + "…", parameters)
    return _function(tool.name, tool.description, parameters)


def gemini(tool: ToolSpec) -> Json:
    """What Gemini takes: a part of OpenAPI 3.0; the first unknown keyword would cost the whole request."""
    function = plain(tool)
    if as_object(function["parameters"].get("properties")):
        return {**function, "parameters": _openapi(function["parameters"])}
    return {key: value for key, value in function.items() if key != "parameters"}  # an object must have properties


def anthropic(tool: ToolSpec) -> Json:
    """What Anthropic takes, as the whole tool: no union at the top, and names of arguments of a few signs only."""
    schema = {**_nameable(_flat(tool.parameters)), "type": "object"}
    named = {"name": tool.name, "description": tool.description, "input_schema": schema}
    return {key: value for key, value in named.items() if value}


def _nameable(schema: Json) -> Json:
    """A schema whose properties have names that Anthropic takes; it is told of the others in words."""
    properties = as_object(schema.get("properties"))
    strange = [name for name in properties if not _ANTHROPIC_NAME.fullmatch(name)]
    if strange:
        required = [name for name in as_list(schema.get("required")) if name not in strange]
        said = ", ".join(f"`{name}`" for name in strange)
        schema = {
            **schema,
            "properties": {name: one for name, one in properties.items() if name not in strange},
            "required": required,
            "description": f"{schema.get('description', '')} Also takes: {said}.".strip(),
        }
    return _each(schema, _nameable)


def _function(name: str, description: str, parameters: Mapping[str, Any]) -> Json:
    return {"name": name, "description": description, "parameters": parameters}


def _flat(schema: Mapping[str, Any]) -> Json:
    """An object without a union at its top: what any branch has may be given, and what all demand must be."""
    kept = {key: value for key, value in schema.items() if key not in _AT_TOP}
    branches = [as_object(one) for key in ("anyOf", "oneOf") for one in as_list(schema.get(key))]
    if not branches:
        return kept
    properties: Json = {}
    for branch in (*branches, schema):
        properties |= as_object(branch.get("properties"))
    needs = [as_list(branch.get("required")) for branch in branches]
    common = [name for name in needs[0] if all(name in need for need in needs)]
    note = "Give " + " or ".join(f"({', '.join(map(str, need)) or 'nothing more'})" for need in needs) + "."
    kept["properties"] = properties
    if required := [*as_list(schema.get("required")), *common]:
        kept["required"] = list(dict.fromkeys(required))
    if len({tuple(need) for need in needs}) > 1:
        kept["description"] = f"{schema.get('description', '')} {note}".strip()
    return kept


def _each(schema: Json, change: Callable[[Json], Json]) -> Json:
    """A schema with `change` made to every schema right inside it."""
    made = dict(schema)
    for key, value in schema.items():
        if key in ("properties", "patternProperties") and isinstance(value, dict):
            made[key] = {name: change(as_object(one)) for name, one in cast("Json", value).items()}
        elif key in ("anyOf", "oneOf", "prefixItems") and isinstance(value, list):
            made[key] = [change(as_object(one)) for one in cast("list[Any]", value)]
        elif key in _INSIDE and isinstance(value, dict):
            made[key] = change(cast("Json", value))
    return made


def _with_items(schema: Json) -> Json:
    kinds = schema.get("type")
    bare = (kinds == "array" or "array" in as_list(kinds)) and not isinstance(schema.get("items"), dict)
    return _each({**schema, "items": {}} if bare else schema, _with_items)


_KEPT: Final = frozenset(
    {"format", "description", "nullable", "enum", "properties", "required", "anyOf", "items", "minItems", "maxItems"}
    | {"minimum", "maximum", "minLength", "maxLength", "pattern"}
)
_FORMATS: Final = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
_STRING: Final[Json] = {"type": "string"}
_AS_TEXT: Final = "(a JSON object, written as text)"


def _openapi(schema: Json) -> Json:
    """A schema in Gemini's part of OpenAPI; what it cannot say moves into the description or goes."""
    source = dict(schema)
    if "oneOf" in source:
        source.setdefault("anyOf", source["oneOf"])
    if "const" in source:
        source.setdefault("enum", [source["const"]])
    for bound in ("minimum", "maximum"):
        strict = source.get("exclusive" + bound.capitalize())
        if isinstance(strict, int | float) and not isinstance(strict, bool):
            source.setdefault(bound, strict)
    kinds = as_list(source.get("type")) or [source.get("type")]
    if "null" in kinds:
        source["nullable"] = True
    real = [kind for kind in kinds if isinstance(kind, str) and kind != "null"]
    branches = [as_object(one) for one in as_list(source.get("anyOf"))]
    if {"type": "null"} in branches:
        source["nullable"] = True
        branches = [branch for branch in branches if branch != {"type": "null"}]
    if len(real) > 1 and not branches:
        branches = [{**source, "type": kind} for kind in real]
        source = {key: value for key, value in source.items() if key in ("description", "nullable")}
    if len(branches) == 1:
        rest = {key: value for key, value in source.items() if key not in ("anyOf", "oneOf")}
        return _openapi({**rest, **branches[0]})
    if branches:
        source["anyOf"] = branches
        real = []
    else:
        source.pop("anyOf", None)
    return _kept(_each(source, _openapi), None if branches else (real or ["string"])[0])


def _kept(schema: Json, kind: str | None) -> Json:
    """Only the keywords that a value of this kind may have."""
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    values = as_list(kept.pop("enum", None))
    if values and kind == "string":
        kept["enum"] = [str(value) for value in values if value not in ("", None)]
    elif values:
        kept["description"] = f"{kept.get('description', '')} One of: {', '.join(map(str, values))}.".strip()
    if kept.get("format") not in _FORMATS.get(kind or "", ()):
        kept.pop("format", None)
    if kind != "array":
        for key in ("items", "minItems", "maxItems"):
            kept.pop(key, None)
    elif not kept.get("items"):
        kept["items"] = _STRING
    if kind == "object" and not kept.get("properties"):
        return {"type": "string", "description": f"{kept.get('description', '')} {_AS_TEXT}".strip()}
    names = kept.get("properties", {}) if kind == "object" else kept.pop("properties", {})
    required = [name for name in as_list(kept.pop("required", None)) if name in names and kind == "object"]
    return {**({"type": kind} if kind else {}), **kept, **({"required": required} if required else {})}
