"""Where a request comes from, for the log of what operators do."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from tenants.access import client_address
from tenants.audit import acting_from


class AddressMiddleware:
    """Says the client's address to the log while the request is answered."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer of the view."""
        with acting_from(client_address(request.META)):
            return self.get_response(request)
