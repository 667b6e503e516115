"""Asks for a fresh second factor before dangerous acts."""

from collections.abc import Iterator
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from tenants.models import User
from tenants.platform.confirm import CSRF_FIELD, Confirmation
from tenants.services.second_factor import is_fresh
from tenants.web.sessions import credential_of

# The form that was sent travels under these names while the person gives the code.
KEPT = "kept."


def step_up(request: HttpRequest, user: User) -> HttpResponse | None:
    """Returns a page that asks for the code, if the person has a factor and did not just give it.

    The page keeps the form, which the person sends again afterwards. Call it in `operator_tx`.
    """
    if is_fresh(user, credential_of(request), timezone.now()):
        return None
    fields = [
        (KEPT + name, value)
        for name, values in request.POST.lists()
        for value in values
        if name != CSRF_FIELD
    ]
    context = {"next": request.path, "username": user.username, "kept": fields, "is_again": True}
    return render(request, "portal/second_factor.html", context, status=HTTPStatus.FORBIDDEN)


def kept_fields(form: QueryDict) -> Iterator[tuple[str, str]]:
    """Returns the fields of the kept form, under the names of the page."""
    for name, values in form.lists():
        if name.startswith(KEPT):
            yield from ((name, str(value)) for value in values)


def send_again_page(request: HttpRequest, to: str) -> HttpResponse:
    """Returns the page whose button sends the kept form to the path that it was for."""
    fields = [(name.removeprefix(KEPT), value) for name, value in kept_fields(request.POST)]
    question = Confirmation(
        title="Code accepted",
        lost=("Nothing was changed yet. Send the change now, or go back.",),
        button="Send the change",
        back="/",
        keep="Go back",
    )
    context = {"question": question, "action": to, "fields": fields}
    return render(request, "parts/confirm_page.html", context)
