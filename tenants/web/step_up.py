"""Asks for a fresh second factor before dangerous acts."""

from collections.abc import Iterator
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone

from tenants.models import User
from tenants.platform.forms.confirm import CSRF_FIELD, Confirmation
from tenants.services.sign_in.passkeys import passkey_request_options, passkeys_of
from tenants.services.sign_in.second_factor import factor_is_fresh, factor_of, is_fresh
from tenants.web.sessions import credential_of

# The form that was sent travels under these names while the person gives the code.
KEPT = "kept."


# Acts of pages that need a fresh second factor, by the page and the value of `act`:
# secrets, tokens and other people's access. Acts of a `form_page` add themselves. Pages of the
# operators' process call `step_up`.
DANGEROUS = {
    ("people", "invite"),
    ("people", "role"),
    ("people", "remove"),
    ("people", "disable"),
    ("people", "enable"),
    ("policy-hook", "rotate"),
    ("webhook", "rotate"),
    ("jira-one", "rotate"),
    ("labs", "lead"),
    ("service-accounts", "create"),
    ("service-account", "rotate"),
    ("service-account", "token"),
    ("settings", "rotate"),
    ("settings", "token"),
    ("device-sign-in", "grant"),
}


def page_step_up(request: HttpRequest) -> HttpResponse | None:
    """Returns a page that leads to the second factor, before a dangerous act of a page.

    A web process can't check a factor: the page sends the kept form to the operators' process.
    """
    match = request.resolver_match
    act = (match.url_name or "" if match else ""), request.POST.get("act", "")
    if request.method != "POST" or act not in DANGEROUS:
        return None
    if factor_is_fresh(credential_of(request), timezone.now()):
        return None
    context = {"next": request.path, "kept": _kept(request)}
    return render(request, "portal/step_up.html", context, status=HTTPStatus.FORBIDDEN)


def step_up(request: HttpRequest, user: User) -> HttpResponse | None:
    """Returns a page that asks for the code, if the person has a factor and did not just give it.

    The page keeps the form, which the person sends again afterwards. Call it in `operator_tx`.
    """
    if is_fresh(user, credential_of(request), timezone.now()):
        return None
    context: dict[str, object] = {
        "next": request.path,
        "kept": _kept(request),
        "is_again": True,
    }
    context |= factor_context(request, user)
    return render(request, "portal/second_factor.html", context, status=HTTPStatus.FORBIDDEN)


def factor_context(request: HttpRequest, user: User) -> dict[str, object]:
    """Returns what the form shows of the person's factors, with a new challenge for a passkey."""
    factor, options = factor_of(user), ""
    if passkeys_of(user):
        options = passkey_request_options(user=user, session=credential_of(request), now=timezone.now())
    return {
        "username": user.username,
        "has_app": factor is not None and factor.confirmed is not None,
        "options": options,
    }


def _kept(request: HttpRequest) -> list[tuple[str, str]]:
    """Returns the fields of the form that was sent, under the names of the page that keeps them."""
    return [
        (KEPT + name, str(value))
        for name, values in request.POST.lists()
        for value in values
        if name != CSRF_FIELD
    ]


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
