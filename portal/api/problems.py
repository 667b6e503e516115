"""Problem JSON for errors outside of API views: unknown addresses, methods, hosts, exceptions."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from portal.api.errors import DOCS, PROBLEM_JSON
from portal.api.scim_frame import CONTENT, ERROR
from portal.words import refusal_text

AnyResponse = TypeVar("AnyResponse", bound=HttpResponseBase)

API = "/api/"
SCIM = "/scim/"
_KEPT_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")
# The code of the problem, and that of its sentence.
_PROBLEMS = {
    400: ("malformed_request", "malformed_request"),
    403: ("not_allowed", "not_allowed"),
    404: ("not_found", "address_not_found"),
    405: ("method_not_allowed", "method_not_allowed"),
    408: ("too_slow", "too_slow"),
    413: ("body_too_large", "body_too_large"),
    429: ("too_many_requests", "too_many_requests"),
    503: ("busy", "busy"),
}


class ProblemMiddleware:
    """Turns every error answer under /api/ into problem JSON, and under /scim/ into SCIM's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer; an error in another format is replaced by JSON with its status."""
        response = self.get_response(request)
        found = format_of(request.path_info)
        return response if found is None else _as_json(response, *found)


def format_of(path: str) -> tuple[str, Callable[[int], dict[str, Any]]] | None:
    """The content type and the JSON, by status, of errors on a path; None for a page."""
    if f"{path}/".startswith(API):
        return PROBLEM_JSON, problem_of
    return (CONTENT, _scim_error_of) if f"{path}/".startswith(SCIM) else None


def as_problem(response: AnyResponse) -> AnyResponse | JsonResponse:
    """Returns the response; an error in another format as problem JSON with its status."""
    return _as_json(response, PROBLEM_JSON, problem_of)


def _as_json(
    response: AnyResponse, content: str, body_of: Callable[[int], dict[str, Any]]
) -> AnyResponse | JsonResponse:
    if response.status_code < 400 or response.get("Content-Type") == content:
        return response
    kept = {name: response[name] for name in _KEPT_HEADERS if name in response}
    status = response.status_code
    return JsonResponse(body_of(status), status=status, content_type=content, headers=kept)


def _scim_error_of(status: int) -> dict[str, Any]:
    return {"schemas": [ERROR], "status": str(status), "detail": problem_of(status)["detail"]}


def problem_of(status: int) -> dict[str, Any]:
    """The problem JSON of an error of which only the status is known."""
    usual = ("broken", "broken") if status >= 500 else _PROBLEMS[400]
    code, sentence = _PROBLEMS.get(status, usual)
    return {
        "type": f"urn:gpu-portal:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": refusal_text(sentence),
        "code": code,
        "param": None,
        "rule": None,
        "owner": None,
        "numbers": {},
        "frees_at": None,
        "alternatives": [],
        "ask_for_more": None,
        "decision_id": None,
        "docs": DOCS,
    }
