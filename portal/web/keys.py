"""The page of keys: what each does, and where."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from tenants.models import User
from tenants.web.frame import person_page

KEYS = (
    (
        "Everywhere",
        (
            (("Ctrl K", "/"), "Find a page, a booking, a project, a person or a node, or book"),
            (("?",), "Show these keys"),
            (("Esc",), "Close what is open"),
            (("Tab",), "Next link or field; the first one skips to the content"),
        ),
    ),
    (
        "Home and booking",
        (
            (("/",), "To the request line"),
            (("Enter",), "See times and prices; once more to book"),
        ),
    ),
    (
        "Timeline",
        (
            (("↑", "↓"), "Row by row"),
            (("←", "→"), "Cell by cell; on the name of a node close and open it"),
            (("B",), "Begin a booking at the cell"),
            (("Shift →",), "Make it longer"),
            (("M",), "Move the booking at the cell"),
            (("Enter",), "Open the booking at the cell, or take what is drawn"),
            (("Home", "End"), "First and last time shown; with Ctrl first and last row"),
        ),
    ),
    (
        "Approvals",
        (
            (("J", "K"), "Next and previous request"),
            (("A",), "Approve"),
            (("R",), "Decline, with a reason"),
        ),
    ),
)


@require_safe
@person_page
def keys(request: HttpRequest, user: User) -> HttpResponse:
    """Shows the keys; `part=1` returns only the list, for the dialog."""
    name = "list" if request.GET.get("part") else "page"
    return render(request, f"portal/keys_{name}.html", {"groups": KEYS})


urlpatterns = [path("keys", keys, name="keys")]
