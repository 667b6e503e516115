"""Lets the sentences of an answer name GPU classes by their labels."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from allocation.queries.fleet.catalogue import class_labels, host_classes, zone_labels
from allocation.words.amounts import class_names
from billing.price_books import currency_latest


class ClassNamesMiddleware:
    """Sentences of pages and of REST name classes as people know them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Returns the view's response. The labels are read by the first sentence that needs one."""
        with class_names(class_labels, zone_labels, host_classes, currency_latest):
            return self.get_response(request)
