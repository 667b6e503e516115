"""Passkeys: sign-in without a password, and the acts of the page that adds and removes them.

The operators' process serves them; a web process can't check a passkey.
"""

from http import HTTPStatus
from ipaddress import ip_address
from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse, QueryDict
from django.middleware.csrf import rotate_token
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from portal.web.accounts.devices import device_remember
from portal.web.accounts.sign_in import own_path
from portal.words import refusal_text
from tenants.access import client_address
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.sign_in.passkeys import (
    passkey_add,
    passkey_check,
    passkey_remove,
    passkey_rename,
    passkey_request_options,
    passkeys_of,
)
from tenants.services.sign_in.rate_limits import call_limit_check
from tenants.services.sign_in.second_factor import is_fresh, session_complete, session_verify
from tenants.services.sign_in.sessions import session_digest, sessions_end
from tenants.web.sessions import SessionStore, credential_of


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def passkey_sign_in(request: HttpRequest) -> HttpResponse:
    """Signs in with a passkey alone: it says who the person is, and verified them."""
    after = own_path(request.POST.get("next") or request.GET.get("next") or "/")
    if request.user.is_authenticated:
        return redirect(after)
    require_operators_process()
    found: list[User] = []
    refusal, options = _limited(request), ""
    with operator_tx():
        if refusal is None and request.method == "POST":
            acts: dict[str, FormAction] = {"passkey": lambda form: _signed(request, form, found)}
            refusal = form_action_run(request, acts)
            if refusal is None:
                response = redirect(after)
                device_remember(request, response, found[0].username)
                return response
        if refusal is None or refusal.code != "too_many_requests":
            options = _question(request)
        status = HTTPStatus.OK if refusal is None else HTTPStatus.UNPROCESSABLE_ENTITY
        if not options:
            status = HTTPStatus.TOO_MANY_REQUESTS
        context = {"refusal": refusal, "next": after, "options": options, "why_not": why_not()}
        return render(request, "portal/passkey.html", context, status=status)


def why_not() -> str:
    """Returns why this installation can have no passkeys: browsers need a name and HTTPS."""
    host = settings.PUBLIC_HOST
    try:
        ip_address(host)
    except ValueError:
        is_private = host == "localhost" or settings.IS_HTTPS
        return "" if is_private else "The portal needs HTTPS for passkeys."
    return "The portal needs a host name for passkeys; its address is a number."


def passkey_acts(request: HttpRequest, user: User) -> dict[str, FormAction]:
    """Returns the acts of a signed-in person's passkeys."""
    return {
        "passkey-add": lambda form: _add(request, user, form),
        "passkey-rename": lambda form: _rename(user, form),
        "passkey-remove": lambda form: _remove(request, user, form),
    }


def session_sign_in_with(request: HttpRequest, user: User, only_tenant_id: UUID | None = None) -> None:
    """Signs the person in with a new session, after a passkey or a code; in `operator_tx`.

    After a tenant's provider and a code the session still opens that tenant only.
    """
    store = cast(SessionStore, request.session)
    # A new key, so that one that was known before the sign-in is worth nothing.
    store.cycle_key()
    digest = session_digest(store.session_key or "")
    session_complete(digest, user, timezone.now(), only_tenant_id)
    store.person = user.pk
    store[SESSION_KEY] = str(user.pk)
    rotate_token(request)


def _limited(request: HttpRequest) -> Refused | None:
    try:
        call_limit_check("sign_on", client_address(request.META), timezone.now())
    except Refused as refusal:
        return refusal
    return None


def _question(request: HttpRequest) -> str:
    """Returns the options of a new challenge, for a session that this browser keeps."""
    if not request.session.exists(request.session.session_key or ""):
        request.session.create()
    return passkey_request_options(user=None, session=credential_of(request), now=timezone.now())


def _signed(request: HttpRequest, form: QueryDict, found: list[User]) -> str:
    found.append(
        passkey_check(
            user=None,
            session=credential_of(request),
            answer=form.get("credential", ""),
            now=timezone.now(),
        )
    )
    session_sign_in_with(request, found[0])
    return "Signed in."


def _add(request: HttpRequest, user: User, form: QueryDict) -> str:
    now, is_first = timezone.now(), not passkeys_of(user)
    passkey = passkey_add(
        user=user,
        session=credential_of(request),
        answer=form.get("credential", ""),
        name=form.get("name", ""),
        now=now,
    )
    session_verify(credential_of(request), now)
    if not is_first:
        return f"Passkey {passkey.name} added."
    sessions_end(user.credential, now=now)
    return f"Passkey {passkey.name} added. All other browsers are signed out."


def _rename(user: User, form: QueryDict) -> str:
    passkey = passkey_rename(
        user=user,
        passkey_id=id_read(form, "passkey", "passkey"),
        name=form.get("name", ""),
        now=timezone.now(),
    )
    return f"The passkey is now {passkey.name}."


def _remove(request: HttpRequest, user: User, form: QueryDict) -> str:
    now = timezone.now()
    if not is_fresh(user, credential_of(request), now):
        raise Refused("not_fresh", refusal_text("not_fresh_remove"))
    passkey = passkey_remove(user=user, passkey_id=id_read(form, "passkey", "passkey"), now=now)
    return f"Passkey {passkey.name} removed. Remove it from your device as well."
