"""Pages of mailed links: answer an invitation, and replace a forgotten password."""

from functools import partial
from http import HTTPStatus

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.web.accounts.limits import Attempt, sign_in_try
from portal.web.accounts.sign_in import LONGEST_PASSWORD
from portal.words import refusal_text
from tenants.access import client_address
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.queries import received_invitations
from tenants.services import invitation_accept
from tenants.services.sign_in.mail_links import (
    InvitedAccount,
    LinkedInvitation,
    account_by_invitation,
    invitation_by_link,
    invitation_link_decline,
    password_by_link,
    reset_request,
    reset_username,
)
from tenants.web.sessions import credential_of, proof_give


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Shows the invitation of a mailed link; a person without an account creates one here."""
    found = invitation_by_link(secret, timezone.now())
    if found is None:
        return _gone(request, "This invitation is no longer open.", is_invitation=True)
    user = request.user
    if isinstance(user, User):
        mine = {each.id for each in received_invitations(user.credential, timezone.now())}
        if found.offer.id in mine:
            return redirect("account")
    refusal = None
    if request.method == "POST" and not user.is_authenticated and not found.has_account:
        acts: dict[str, FormAction] = {
            "account": partial(_account, request, secret, found),
            "decline": lambda _: _decline(secret, found),
        }
        refusal = _run(request, acts)
        if refusal is None:
            is_member = request.POST.get("act") == "account"
            return redirect(f"/t/{found.offer.tenant_slug}/" if is_member else "sign-in")
    context = {
        "found": found,
        "refusal": refusal,
        "typed": request.POST if refusal else {},
        "suggested": found.invitee.partition("@")[0],
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
    return render(request, "portal/invitation_link.html", context, status=status)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def password_forgotten(request: HttpRequest) -> HttpResponse:
    """Requests a reset link. The answer is the same for known and unknown names."""
    refusal = None
    if request.method == "POST" and settings.MAIL_ON:
        refusal = _run(request, {"ask": lambda form: _ask(request, form)})
        if refusal is None:
            return redirect("sign-in")
    context = {"refusal": refusal, "mail_on": settings.MAIL_ON}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
    if refusal is not None and refusal.code == "too_many_tries":
        status = HTTPStatus.TOO_MANY_REQUESTS
    return render(request, "portal/password_forgotten.html", context, status=status)


@sensitive_post_parameters("password", "again")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def password_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Sets a new password by a mailed link. Opening the page changes nothing."""
    username = reset_username(secret, timezone.now())
    if username is None:
        return _gone(request, "This link was used or has expired.", is_invitation=False)
    refusal = None
    if request.method == "POST":
        refusal = _run(request, {"set": lambda form: _set(request, secret, form)})
        if refusal is None:
            return redirect("sign-in")
    context = {"username": username, "refusal": refusal}
    status = HTTPStatus.UNPROCESSABLE_ENTITY if refusal else HTTPStatus.OK
    return render(request, "portal/password_link.html", context, status=status)


def _run(request: HttpRequest, acts: dict[str, FormAction]) -> Refused | None:
    try:
        return form_action_run(request, acts)
    except Refused as refusal:
        # Missing invitations have no page of their own here.
        return refusal


def _account(request: HttpRequest, secret: str, found: LinkedInvitation, form: QueryDict) -> str:
    now = timezone.now()
    username, password = form.get("username", ""), _chosen(form)
    account_by_invitation(secret, InvitedAccount(username, form.get("name", ""), password), now)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        raise Refused("sign_in_failed", refusal_text("sign_in_failed"))
    proof_give(request, user.proof)
    login(request, user)
    # The database accepts the session's key only once it is stored.
    request.session.save()
    user.credential = credential_of(request)
    joined = invitation_accept(user=user, invitation_id=found.offer.id, now=now)
    return f"You are now {joined.role_name} in {joined.place}."


def _decline(secret: str, found: LinkedInvitation) -> str:
    invitation_link_decline(secret, timezone.now())
    return f"Invitation to {found.offer.place} declined. No account was created."


def _ask(request: HttpRequest, form: QueryDict) -> str:
    wanted = form.get("username", "").strip()
    if not wanted:
        raise invalid("bad_username", refusal_text("username_missing"), "username")
    attempt = Attempt(f"password reset of {wanted}", client_address(request.META))
    wait = sign_in_try(attempt, timezone.now())
    if wait:
        raise Refused("too_many_tries", refusal_text("too_many_mails", wait=wait))
    reset_request(wanted, timezone.now())
    return (
        "If there is an account with this name or address, a link was sent to its e-mail address."
        " It works once, for an hour."
    )


def _set(request: HttpRequest, secret: str, form: QueryDict) -> str:
    password_by_link(secret, _chosen(form), timezone.now())
    # This browser's session may have been one of the person's.
    logout(request)
    return "Password changed. Sign in with it."


def _chosen(form: QueryDict) -> str:
    password = form.get("password", "")
    if len(password) > LONGEST_PASSWORD:
        sentence = refusal_text("password_long", longest_password=LONGEST_PASSWORD)
        raise invalid("bad_password", sentence, "password")
    if password != form.get("again", ""):
        raise invalid("not_the_same", refusal_text("not_the_same"), "again")
    return password


def _gone(request: HttpRequest, sentence: str, *, is_invitation: bool) -> HttpResponse:
    context = {"sentence": sentence, "is_invitation": is_invitation}
    return render(request, "portal/link_gone.html", context, status=HTTPStatus.GONE)
