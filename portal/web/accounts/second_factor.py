"""Pages of the second factor: give a code at sign-in, set it up, remove it.

The operators' process serves them; a web process can't check a code.
"""

from datetime import datetime
from http import HTTPStatus

import segno
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.web.accounts.devices import device_of, device_remember
from portal.web.accounts.limits import Attempt, sign_in_done, sign_in_try
from portal.web.accounts.passkeys import passkey_acts, session_sign_in_with, why_not
from portal.web.accounts.sign_in import LONGEST_PASSWORD, own_path
from portal.words import refusal_text
from tenants.access import client_address
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.platform.wall import operator_tx, require_operators_process
from tenants.services.sign_in.passkeys import passkey_check, passkey_creation_options, passkeys_of
from tenants.services.sign_in.passwords import password_holder, password_prove, sign_in_failed
from tenants.services.sign_in.second_factor import (
    WaitingSignIn,
    factor_begin,
    factor_check,
    factor_confirm,
    factor_mark,
    factor_of,
    factor_remove,
    factor_secret,
    factor_uri,
    is_begun,
    is_fresh,
    is_protected,
    recovery_codes_renew,
    session_verify,
    waiting_sign_in,
)
from tenants.services.sign_in.sessions import sessions_end
from tenants.web.frame import person_page
from tenants.web.sessions import credential_of
from tenants.web.step_up import factor_context, kept_fields, send_again_page

ASK = "ask"
# In the session of the browser that began a secret.
BEGUN_MARK = "second_factor_begun"


@sensitive_post_parameters("code")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def second_factor(request: HttpRequest) -> HttpResponse:
    """Asks for a code: to complete a sign-in, or before a dangerous act."""
    after = own_path(request.POST.get("next") or request.GET.get("next") or "/")
    if request.session.is_empty():
        return redirect("sign-in")
    require_operators_process()
    with operator_tx():
        waiting = waiting_sign_in(credential_of(request), timezone.now())
        if waiting is None or not is_protected(waiting.user):
            return redirect("sign-in")
        refusal = None
        # A page of a web process sends its kept form with ASK: only this process can ask.
        if request.method == "POST" and request.POST.get("act") != ASK:
            acts: dict[str, FormAction] = {
                "check": lambda form: _check(request, waiting, form),
                "passkey": lambda form: _check_passkey(request, waiting, form),
            }
            refusal = form_action_run(request, acts)
            if refusal is None:
                kept = waiting.is_signed_in and any(kept_fields(request.POST))
                response = send_again_page(request, after) if kept else redirect(after)
                device_remember(request, response, waiting.user.username)
                return response
        context = {
            "refusal": refusal,
            "next": after,
            "kept": list(kept_fields(request.POST)),
            "is_again": waiting.is_signed_in,
            **factor_context(request, waiting.user),
        }
        status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
        if refusal is not None and refusal.code == "too_many_tries":
            status = HTTPStatus.TOO_MANY_REQUESTS
        return render(request, "portal/second_factor.html", context, status=status)


@sensitive_post_parameters("code", "current")
@require_http_methods(["GET", "HEAD", "POST"])
@person_page
def second_factor_setup(request: HttpRequest, user: User) -> HttpResponse:
    """Sets up, renews or removes the second factor and passkeys. Recovery codes are shown once."""
    require_operators_process()
    codes: list[str] = []
    creation: list[str] = []
    with operator_tx():
        refusal = None
        if request.method == "POST":
            refusal = form_action_run(
                request,
                {
                    "begin": lambda form: _begin(request, user, form),
                    "confirm": lambda form: _confirm(request, user, form, codes),
                    "codes": lambda form: _renew(request, user, form, codes),
                    "remove": lambda form: _remove(request, user, form),
                    "passkey-begin": lambda form: _passkey_begin(request, user, form, creation),
                    **passkey_acts(request, user),
                },
            )
            if refusal is None and not codes and not creation:
                return redirect("second-factor-setup")
        factor = factor_of(user)
        is_new = is_begun(factor, request.session.get(BEGUN_MARK, ""), timezone.now())
        if factor is not None and factor.confirmed is None and not is_new:
            factor = None
        context = {
            "factor": factor,
            "is_new": is_new,
            "secret": factor_secret(factor) if factor and is_new else "",
            "qr": segno.make(factor_uri(factor)).svg_data_uri(scale=5, border=2) if factor and is_new else "",
            "codes": codes,
            "passkeys": passkeys_of(user),
            "creation": creation[0] if creation else "",
            "is_fresh": is_fresh(user, credential_of(request), timezone.now()),
            "why_not": why_not(),
            "refusal": refusal,
        }
        status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
        return render(request, "portal/second_factor_setup.html", context, status=status)


def _check(request: HttpRequest, waiting: WaitingSignIn, form: QueryDict) -> str:
    if not _code_is_right(request, waiting.user, form):
        if not waiting.is_signed_in:
            sign_in_failed(waiting.user.username)
        raise invalid("wrong_code", refusal_text("wrong_code"), "code")
    return _accepted(request, waiting)


def _check_passkey(request: HttpRequest, waiting: WaitingSignIn, form: QueryDict) -> str:
    passkey_check(
        user=waiting.user,
        session=credential_of(request),
        answer=form.get("credential", ""),
        now=timezone.now(),
    )
    return _accepted(request, waiting)


def _accepted(request: HttpRequest, waiting: WaitingSignIn) -> str:
    if waiting.is_signed_in:
        session_verify(credential_of(request), timezone.now())
        return "Second factor accepted."
    session_sign_in_with(request, waiting.user, waiting.only_tenant_id)
    return "Signed in."


def _code_is_right(request: HttpRequest, user: User, form: QueryDict) -> bool:
    # The person's own browsers have tries of their own: whoever knows the password uses up others.
    known = device_of(request, user.username)
    device = None if known is None else f"second factor in {known}"
    attempt = Attempt(f"second factor of {user.pk}", client_address(request.META), device)
    wait = sign_in_try(attempt, timezone.now())
    if wait:
        raise Refused("too_many_tries", refusal_text("too_many_tries", wait=wait))
    if not factor_check(user=user, code=form.get("code", ""), now=timezone.now()):
        return False
    sign_in_done(attempt)
    return True


def _begin(request: HttpRequest, user: User, form: QueryDict) -> str:
    now = timezone.now()
    _fresh_check(request, user, now)
    _password_check(request, user, form)
    request.session[BEGUN_MARK] = factor_mark(factor_begin(user=user, now=now))
    return "Scan the code with your app, then enter what it shows."


def _passkey_begin(request: HttpRequest, user: User, form: QueryDict, creation: list[str]) -> str:
    now = timezone.now()
    _fresh_check(request, user, now)
    _password_check(request, user, form)
    creation.append(passkey_creation_options(user=user, session=credential_of(request), now=now))
    return "Password accepted. Name the passkey and create it."


def _fresh_check(request: HttpRequest, user: User, now: datetime) -> None:
    """Before a factor is added: a thief with a session and the password must not add their own."""
    if not is_fresh(user, credential_of(request), now):
        raise Refused("not_fresh", refusal_text("not_fresh_add"))


def _password_check(request: HttpRequest, user: User, form: QueryDict) -> None:
    attempt = Attempt(user.username, client_address(request.META), f"account {user.pk}")
    wait = sign_in_try(attempt, timezone.now())
    if wait:
        raise Refused("too_many_tries", refusal_text("too_many_tries", wait=wait))
    typed = form.get("current", "")[: LONGEST_PASSWORD + 1]
    if password_holder(password_prove(user.username, typed)) is None:
        raise invalid("wrong_password", refusal_text("wrong_password"), "current")
    sign_in_done(attempt)


def _confirm(request: HttpRequest, user: User, form: QueryDict, codes: list[str]) -> str:
    now, mark = timezone.now(), request.session.get(BEGUN_MARK, "")
    codes += factor_confirm(user=user, mark=mark, code=form.get("code", ""), now=now)
    del request.session[BEGUN_MARK]
    session_verify(credential_of(request), now)
    sessions_end(user.credential, now=now)
    return "Second factor is on. All other browsers are signed out."


def _renew(request: HttpRequest, user: User, form: QueryDict, codes: list[str]) -> str:
    if not _code_is_right(request, user, form):
        raise invalid("wrong_code", refusal_text("wrong_code"), "code")
    codes += recovery_codes_renew(user=user, now=timezone.now())
    return "New recovery codes. The old ones no longer work."


def _remove(request: HttpRequest, user: User, form: QueryDict) -> str:
    if not _code_is_right(request, user, form):
        raise invalid("wrong_code", refusal_text("wrong_code"), "code")
    factor_remove(user=user, by=user, now=timezone.now())
    return "Second factor removed."
