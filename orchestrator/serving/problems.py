"""What went wrong with a request, as JSON (RFC 9457): what, where, and what to do."""

import json
from collections.abc import Mapping

from starlette.responses import Response

from orchestrator.masking import mask

TITLES: Mapping[int, str] = {
    400: "Bad request",
    401: "Who are you?",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Not now",
    413: "Too large",
    421: "Wrong host",
    429: "Too many requests",
    503: "Not available",
}


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"title": TITLES[status], "status": status, "detail": mask(detail)}
    return Response(
        json.dumps(body, ensure_ascii=False), status, dict(headers or {}), media_type="application/problem+json"
    )
