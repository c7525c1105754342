"""What a server asks of a person: read from the wire, checked, and answered. Pure; both eras of the protocol."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, InputRequest

from orchestrator.events import Question
from orchestrator.tools.arguments import ArgumentSchema, InvalidArguments, canonical

LONGEST_MESSAGE = 4_000
"""Characters of a server's words to a person."""


class Unanswerable(Exception):
    """A server wants something that no person here can be asked for; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a server needs of a person before it goes on. `state` goes back to it with the answers.

    `restarts`: it asked within the call, which has been stopped. `meta` is what it sent beside its questions.
    """

    questions: tuple[Question, ...]
    state: str | None = None
    restarts: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


def question(key: str, params: ElicitRequestFormParams | ElicitRequestURLParams) -> Question:
    """An elicitation as a question. Raises Unanswerable for a schema or a URL that cannot be used."""
    message = params.message[:LONGEST_MESSAGE]
    if isinstance(params, ElicitRequestURLParams):
        if not _is_web(params.url):
            raise Unanswerable(f"its server asks to open {params.url[:200]!r}, which is no http or https URL")
        return Question(key=key, message=message, url=params.url)
    try:
        ArgumentSchema(params.requested_schema)
    except ValueError as error:
        raise Unanswerable(f"its server asks for input by a schema that cannot be used: {error}") from error
    return Question(key=key, message=message, requested=params.requested_schema)


def questions(requests: Mapping[str, InputRequest]) -> tuple[Question, ...]:
    """All that is asked at once. Raises Unanswerable where anything among it is no question to a person."""
    for request in requests.values():
        if not isinstance(request, ElicitRequest):
            raise Unanswerable(f"its server asks for {request.method}; only questions to a person are passed on")
    return tuple(question(key, each.params) for key, each in requests.items() if isinstance(each, ElicitRequest))


def key_of(params: ElicitRequestFormParams | ElicitRequestURLParams) -> str:
    """Names a question that the server gave no name, so that it is known again when the call is made again."""
    asked = params.model_dump(mode="json", include={"message", "requested_schema", "url"}, exclude_none=True)
    return sha256(canonical(asked).encode()).hexdigest()[:16]


def answered(asked: Iterable[Question], known: Iterable[Question]) -> tuple[Question, ...] | None:
    """The same questions with the answers that are known of them; None if one was never asked."""
    answers = {_asked(each): each for each in known if each.action is not None}
    found = [(each, answers.get(_asked(each))) for each in asked]
    if any(answer is None for _, answer in found):
        return None
    return tuple(
        each.model_copy(update={"action": answer.action, "content": answer.content}) for each, answer in found if answer
    )


def answer(question: Question) -> ElicitResult:
    """An answered question as the wire has it."""
    assert question.action is not None, "only an answered question is sent"
    action = "accept" if question.content is not None else question.action  # a no in the form's own words is sent in it
    return ElicitResult(action=action, content=question.content)


def content(question: Question, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What is sent for what a person gave, or for the form's defaults where nothing was given.

    Raises:
        InvalidArguments: it does not fit what was asked for.
    """
    if question.url is not None:
        if given:
            raise InvalidArguments("a URL is opened or not; it takes no values", "no arguments", {})
        return None
    requested = question.requested or {}
    fields: Mapping[str, Any] = requested.get("properties") or {}
    if given is None:
        given = {name: each["default"] for name, each in fields.items() if "default" in each}
    if unknown := sorted(set(given) - set(fields)):
        known = ", ".join(fields) or "none"
        raise InvalidArguments(f"there is no field {unknown[0]}; the fields are: {known}")
    checked = ArgumentSchema(requested).check(dict(given))
    for name, value in checked.items():
        flat: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        if any(isinstance(each, dict | list) for each in flat):
            shown = json.dumps(value, ensure_ascii=False)[:100]
            raise InvalidArguments(f"{name}: a form holds text, numbers, yes or no, and lists of text, not {shown}")
    return checked


def said(question: Question, given: Mapping[str, Any] | None, note: str, *, approved: bool) -> dict[str, Any] | None:
    """What is sent for a yes or a no. A form of an orchestrator's needs no filling in: it is its own yes and no.

    Raises:
        InvalidArguments: what was given does not fit what was asked for.
    """
    if is_verdict(question.requested) and (given is None or not approved):
        noted = {"note": note} if note and "note" in (question.requested or {})["properties"] else {}
        return {"decision": "approve" if approved else "deny", **noted}
    return content(question, given) if approved else None


def is_verdict(form: Mapping[str, Any] | None) -> bool:
    """Whether a form asks to approve or to deny, with a note at most: a call inside another orchestrator waits."""
    fields: Mapping[str, Any] = (form or {}).get("properties") or {}
    choices: list[Any] = fields.get("decision", {}).get("enum") or []
    return sorted(map(str, choices)) == ["approve", "deny"] and fields.keys() <= {"decision", "note"}


def is_empty(question: Question) -> bool:
    """Whether a yes is all that is asked for."""
    return question.url is None and not (question.requested or {}).get("properties")


def _asked(question: Question) -> str:
    return canonical({"message": question.message, "schema": question.requested, "url": question.url})


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
