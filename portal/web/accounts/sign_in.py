"""Signing in and out, and the start redirect."""

import re
from http import HTTPStatus
from urllib.parse import quote, urlencode

from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing.models import PriceBook
from portal.web.accounts.devices import device_of, device_remember
from portal.web.accounts.limits import Attempt, sign_in_done, sign_in_try
from portal.words import refusal_text
from tenants.access import client_address, tenants_of
from tenants.models import PasswordProof, User
from tenants.queries import received_invitations
from tenants.services.sign_in.passwords import sign_in_failed, sign_in_locked_out
from tenants.services.sign_in.second_factor import second_factor_needed
from tenants.services.sign_in.sessions import session_sign_in
from tenants.web.parts import counted
from tenants.web.sessions import proof_give

LONGEST_NAME = 150
LONGEST_PASSWORD = 128
TENANTS_PAGE = re.compile(r"/t/([a-z0-9-]{1,40})/")


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Shows the form. Every failure has the same text and duration for known and unknown names."""
    after = own_path(request.POST.get("next") or request.GET.get("next") or "/")
    if request.method != "POST":
        return redirect(after) if request.user.is_authenticated else _form(request, after)
    username = request.POST.get("username", "")
    name = username[:LONGEST_NAME]
    attempt = Attempt(name, client_address(request.META), device_of(request, name))
    wait = sign_in_try(attempt, timezone.now())
    if wait:
        sign_in_locked_out(_named(username))
        return _slow_down(request, after, wait)
    user = _authenticate(request, username, request.POST.get("password", ""))
    if user is None:
        sign_in_failed(_named(username))
        return _form(request, after, error=refusal_text("wrong_sign_in"), status=HTTPStatus.UNAUTHORIZED)
    sign_in_done(attempt)
    if user.proof is not None and second_factor_needed(user.proof):
        _wait_for_factor(request, user.proof)
        return redirect(f"/second-factor?next={quote(after)}")
    # The database binds a session only with the password's proof (tenants.web.sessions).
    proof_give(request, user.proof)
    login(request, user)
    response = redirect(after)
    device_remember(request, response, name)
    return response


def _wait_for_factor(request: HttpRequest, proof: PasswordProof) -> None:
    """Starts a new session that waits for the second factor; it is nobody's until then."""
    request.session.flush()
    request.session.create()
    session_sign_in(request.session.session_key or "", proof)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Ends the session on the server and in the browser."""
    logout(request)
    return redirect("sign-in")


@never_cache
@require_safe
def start(request: HttpRequest) -> HttpResponse:
    """Redirects a person to their tenant, an operator to the fleet, others to sign in.

    On an installation without prices, operators start at its setup.
    """
    user = request.user
    if not isinstance(user, User):
        return redirect("sign-in")
    if user.is_staff:
        return redirect("/ops/overview" if PriceBook.objects.exists() else "/ops/setup")
    now = timezone.now()
    tenants = tenants_of(user, now)
    if not tenants:
        context = {"invitations": received_invitations(user.credential, now)}
        return render(request, "portal/no_tenant.html", context)
    return redirect(f"/t/{tenants[0].slug}/")


def own_path(target: str) -> str:
    """Returns `target` if it is a path of this site, else "/"."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    is_safe = url_has_allowed_host_and_scheme(target, allowed_hosts=None)
    return target if is_path and is_safe else "/"


def _authenticate(request: HttpRequest, username: str, password: str) -> User | None:
    # Truncates long input before hashing, so that it costs no more than other input.
    user = authenticate(
        request,
        username=_named(username),
        password=password[: LONGEST_PASSWORD + 1],
    )
    return user if isinstance(user, User) else None


def _named(username: str) -> str:
    # PostgreSQL rejects text with a NUL.
    return username[: LONGEST_NAME + 1].replace("\x00", "\ufffd")


def _slow_down(request: HttpRequest, after: str, wait: int) -> HttpResponse:
    error = (
        f"Too many attempts. Try again in {_wait_text(wait)}, or use a browser in which you "
        "have signed in before."
    )
    response = _form(request, after, error=error, status=HTTPStatus.TOO_MANY_REQUESTS)
    response["Retry-After"] = str(wait)
    return response


def _wait_text(seconds: int) -> str:
    minutes = -(-seconds // 60)
    if seconds <= 90:
        return counted(seconds, "second")
    return f"{minutes} minutes"


def _sign_on_path(after: str) -> str:
    """Returns the page of single sign-on, for the organisation of the page that was asked for."""
    found = TENANTS_PAGE.match(after)
    query = {"next": after, **({"organisation": found[1]} if found else {})}
    return f"/sso?{urlencode(query)}"


def _form(
    request: HttpRequest, after: str, *, error: str = "", status: HTTPStatus = HTTPStatus.OK
) -> HttpResponse:
    context = {
        "next": after,
        "sign_on": _sign_on_path(after),
        "error": error,
        "username": request.POST.get("username", "")[:LONGEST_NAME],
    }
    return render(request, "portal/sign_in.html", context, status=status)
