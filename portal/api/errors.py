"""Errors as problem JSON (RFC 9457): the only module that chooses status codes."""

from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from allocation.errors import AskError
from allocation.words.refusals import coded_text
from portal.words import refusal_text
from tenants.platform.errors import Refused, missing

DOCS = "/api/v1/docs/"
PROBLEM_JSON = "application/problem+json"
RETRY_SECONDS = 1

STATUS_BY_KIND = {
    "invalid": 422,
    "denied": 403,
    "missing": 404,
    "conflict": 409,
    "quota": 409,
    "budget": 409,
}
# Malformed input, and errors with a status code of their own in HTTP.
STATUS_BY_CODE = {
    **dict.fromkeys(
        (
            "malformed_json",
            "too_deep",
            "repeated_field",
            "bad_text",
            "unknown_field",
            "missing_field",
            "wrong_type",
            "naive_time",
            "bad_time",
            "bad_duration",
            "bad_amount",
            "repeated_param",
            "no_dry_run",
            "bad_cursor",
            "bad_idempotency_key",
            "not_an_object",
            "not_a_whole_number",
            "not_a_name",
            "not_a_list",
            "not_a_choice",
            "not_true_or_false",
            "not_a_time",
            "not_a_duration",
        ),
        400,
    ),
    "media_type": 415,
    "body_too_large": 413,
    "unauthenticated": 401,
    "bad_token": 401,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "busy": 503,
    "portal_upgrading": 503,
    "clock_in_doubt": 503,
    "policy_hook_failed": 503,
    "too_many_requests": 429,
    "revision_moved": 412,
    "revision_needed": 428,
}
RETRY_CODES = frozenset({"busy", "policy_hook_failed"})


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an exception in a view; None for a bug, which Django logs and answers."""
    refused = _as_refused(error)
    if refused is None:
        return None
    response = problem(refused)
    if response.status_code == 401:
        response["WWW-Authenticate"] = getattr(error, "auth_header", 'Bearer realm="portal"')
    return response


def problem(refused: Refused) -> Response:
    """Returns the refusal as problem JSON with its status."""
    status = _status(refused)
    numbers = dict(refused.numbers)
    decision = numbers.pop("decision_id", None)
    response = Response(
        {
            "type": f"urn:gpu-portal:problem:{refused.code}",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": refused.sentence,
            "code": refused.code,
            "param": refused.param,
            "rule": refused.rule,
            "owner": refused.owner,
            "numbers": numbers,
            "frees_at": refused.frees_at,
            "alternatives": list(refused.alternatives),
            "ask_for_more": dict(refused.more) or None,
            "decision_id": decision,
            "docs": DOCS,
        },
        status=status,
        content_type=PROBLEM_JSON,
    )
    wait = numbers.get("retry_after_seconds", RETRY_SECONDS)
    if refused.code in RETRY_CODES or "retry_after_seconds" in numbers:
        response["Retry-After"] = str(wait)
    return response


def _status(refused: Refused) -> int:
    # A field that names a missing object is invalid; only an address can be missing itself.
    if refused.kind == "missing" and refused.param is not None:
        return STATUS_BY_KIND["invalid"]
    return STATUS_BY_CODE.get(refused.code, STATUS_BY_KIND[refused.kind])


def _as_refused(error: Exception) -> Refused | None:
    if isinstance(error, Refused):
        return error
    if isinstance(error, AskError):
        sentence, instead = coded_text(error.text), error.alternatives
        return Refused(error.code, sentence, "invalid", param=error.param, alternatives=instead)
    if isinstance(error, exceptions.APIException | Http404 | PermissionDenied):
        return _from_framework(error)
    return _from_database(error)


def _from_framework(error: Exception) -> Refused:
    if isinstance(error, exceptions.AuthenticationFailed):
        return Refused("bad_token", refusal_text("bad_token"), "denied")
    if isinstance(error, exceptions.NotAuthenticated):
        return Refused("unauthenticated", refusal_text("unauthenticated"), "denied")
    if isinstance(error, exceptions.MethodNotAllowed):
        return Refused("method_not_allowed", refusal_text("method_not_allowed"), "invalid")
    if isinstance(error, exceptions.NotAcceptable):
        return Refused("not_acceptable", refusal_text("not_acceptable"), "invalid")
    if isinstance(error, Http404):
        return missing("address")
    return Refused("malformed_json", refusal_text("malformed_json"), "invalid")


def _from_database(error: Exception) -> Refused | None:
    """Violated constraints, values that no column can hold, locks and outages."""
    if isinstance(error, IntegrityError):
        return Refused("conflict", refusal_text("conflict"))
    if isinstance(error, DataError):
        return Refused("bad_value", refusal_text("bad_value"), "invalid")
    if isinstance(error, OperationalError | InterfaceError):
        return Refused("busy", refusal_text("busy"))
    return None
