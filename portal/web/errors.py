"""Error pages. None of them repeats anything from the request."""

import sys
from http import HTTPStatus

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template import loader
from rest_framework.renderers import JSONRenderer

from portal.api.errors import PROBLEM_JSON, problem
from portal.words import refusal_text
from tenants.platform.errors import Refused, missing
from tenants.web.frame import busy_page, refused_page


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Returns 404: the same page as for an object of another tenant."""
    return refused_page(request, missing("page"))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Returns 400. Does not read the request, which may be hostile."""
    return _plain(
        "Bad request",
        "Your browser sent a request that can't be processed.",
        HTTPStatus.BAD_REQUEST,
    )


def denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Returns 403."""
    return _page(request, "Not allowed", "You don't have permission to do this.", HTTPStatus.FORBIDDEN)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Returns 403 for a form without a valid CSRF token: sent by another site, or expired."""
    return _page(
        request,
        "This form has expired",
        "Nothing was changed. Reload the page and submit the form again.",
        HTTPStatus.FORBIDDEN,
    )


def broken(request: HttpRequest) -> HttpResponse:
    """Returns 500 without using database or session.

    Returns 503 for an uncaught database error or timeout.
    """
    if isinstance(sys.exception(), OperationalError | InterfaceError):
        return busy(request)
    return _plain(
        "Something went wrong",
        "The error was logged and your request was not completed. Try again, or contact the operator.",
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def busy(request: HttpRequest) -> HttpResponse:
    """Returns 503 as a page or as problem JSON."""
    if not request.path_info.startswith("/api/"):
        return busy_page()
    response = problem(Refused("busy", refusal_text("busy_page")))
    return HttpResponse(
        JSONRenderer().render(response.data),
        status=response.status_code,
        headers={**dict(response.items()), "Content-Type": PROBLEM_JSON},
    )


def _page(request: HttpRequest, heading: str, text: str, status: HTTPStatus) -> HttpResponse:
    context = {"heading": heading, "text": text}
    return render(request, "errors/page.html", context, status=status)


def _plain(heading: str, text: str, status: HTTPStatus) -> HttpResponse:
    page = loader.render_to_string("errors/busy.html", {"heading": heading, "text": text})
    return HttpResponse(page, status=status)
