"""The Content-Security-Policy of all answers."""

from collections.abc import Callable

from csp.constants import HEADER
from csp.utils import build_policy
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class PolicyMiddleware:
    """Sets the header to the policy of the settings, which is the same for all answers.

    The package's own middleware builds it for each answer, for views that change it; we have none.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._policy = build_policy()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Returns the view's answer with the header."""
        response = self._get_response(request)
        response[HEADER] = self._policy
        return response
