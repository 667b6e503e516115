"""Problem JSON for errors outside of API views: unknown addresses, methods, hosts, exceptions."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from portal.api.errors import DOCS, PROBLEM_JSON
from portal.words import refusal_text

AnyResponse = TypeVar("AnyResponse", bound=HttpResponseBase)

API = "/api/"
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
    """Turns every error answer under /api/ into problem JSON."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer; an error in another format is replaced by problem JSON with its status."""
        response = self.get_response(request)
        return as_problem(response) if request.path_info.startswith(API) else response


def as_problem(response: AnyResponse) -> AnyResponse | JsonResponse:
    """Returns the response; an error in another format as problem JSON with its status."""
    if response.status_code < 400 or response.get("Content-Type") == PROBLEM_JSON:
        return response
    kept = {name: response[name] for name in _KEPT_HEADERS if name in response}
    status = response.status_code
    return JsonResponse(problem_of(status), status=status, content_type=PROBLEM_JSON, headers=kept)


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
