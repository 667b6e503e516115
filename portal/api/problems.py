"""Problem JSON for errors outside of API views: unknown addresses, methods, hosts, exceptions."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from portal.api.errors import DOCS, PROBLEM_JSON

AnyResponse = TypeVar("AnyResponse", bound=HttpResponseBase)

API = "/api/"
_KEPT_HEADERS = ("Allow", "Retry-After", "WWW-Authenticate")
_PROBLEMS = {
    400: ("malformed_request", "The request is malformed."),
    403: ("not_allowed", "This is not allowed."),
    404: ("not_found", "There is no such address, or it is not open to you."),
    405: ("method_not_allowed", "This address does not take this method."),
    408: ("too_slow", "The request did not arrive in time."),
    413: ("body_too_large", "A request body may have one mebibyte at most."),
    429: ("too_many_requests", "Too many requests. Wait, then ask again."),
    503: ("busy", "The portal is busy. Ask again in a moment."),
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
    usual = ("broken", "An internal error occurred. It was logged; please inform the operator.")
    code, sentence = _PROBLEMS.get(status, usual if status >= 500 else _PROBLEMS[400])
    return {
        "type": f"urn:gpu-portal:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": sentence,
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
