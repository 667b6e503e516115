"""The client's address of a request, for the audit log."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from tenants.access import client_address
from tenants.audit import acting_from


class AddressMiddleware:
    """Records the client's address for audit entries during a request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer of the view."""
        with acting_from(client_address(request.META)):
            return self.get_response(request)
