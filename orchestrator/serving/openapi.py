"""What is served over HTTP beside MCP, as OpenAPI 3.1: made from the routes and the models of their bodies."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from orchestrator import __version__
from orchestrator.runtime.result import RunResult
from orchestrator.serving.api import ApprovalList, Begun, Decided, Decision, NewRun, RunList

Operation = tuple[str, str, type[BaseModel] | None, type[BaseModel] | None, str]
"""Method, path, body, answer, summary."""

OPERATIONS: tuple[Operation, ...] = (
    ("GET", "/healthz", None, None, "Whether the process is alive."),
    ("GET", "/readyz", None, None, "Whether calls are taken; 503 while it stops, or where nothing can be written."),
    ("GET", "/openapi.json", None, None, "This description."),
    ("POST", "/api/runs", NewRun, Begun, "Begins a run, or finds the one of the same key."),
    ("GET", "/api/runs", None, RunList, "Your runs, newest first."),
    ("GET", "/api/runs/{run}", None, RunResult, "A run as it stands. In a path, `/` of a run's id is written `~`."),
    ("GET", "/api/runs/{run}/events", None, None, "Its events (server-sent); Last-Event-ID goes on after that one."),
    ("POST", "/api/runs/{run}/cancel", None, RunResult, "Ends a run and all below it."),
    ("GET", "/api/approvals", None, ApprovalList, "Calls in your runs that wait for a person."),
    ("POST", "/api/approvals/{run}/{call}", Decision, Decided, "Approves or denies one."),
)
PROBLEM = {"description": "What went wrong", "content": {"application/problem+json": {"schema": {"type": "object"}}}}


def openapi() -> dict[str, Any]:
    models = {model for _, _, body, answer, _ in OPERATIONS for model in (body, answer) if model is not None}
    modes: list[tuple[type[BaseModel], Any]] = [(m, "validation") for m in sorted(models, key=lambda m: m.__name__)]
    _, found = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for method, path, body, answer, summary in OPERATIONS:
        paths.setdefault(path, {})[method.lower()] = _operation(path, body, answer, summary)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "orchestrator", "version": __version__},
        "paths": paths,
        "components": {"schemas": found.get("$defs", {}), "securitySchemes": {"token": bearer}},
        "security": [{}, {"token": []}],
    }


def _operation(
    path: str, body: type[BaseModel] | None, answer: type[BaseModel] | None, summary: str
) -> Mapping[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    status = "202" if answer is Begun else "200"
    made: dict[str, Any] = {
        "summary": summary,
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names],
        "responses": {status: {"description": "Done", **(_content(answer) if answer else {})}, "default": PROBLEM},
    }
    if body is not None:
        made["requestBody"] = {"required": True, **_content(body)}
    return made


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}}
