"""The page of a person's account: invitations, sessions and password."""

from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.web.limits import Attempt, sign_in_done, sign_in_try
from portal.web.sign_in import LONGEST_PASSWORD, own_path
from tenants.access import client_address
from tenants.models import User
from tenants.platform.errors import Refused, invalid
from tenants.platform.form_actions import form_action_run, id_read
from tenants.queries import received_invitations
from tenants.services import (
    invitation_accept,
    invitation_decline,
    own_password_set,
    own_session_end,
    own_sessions_end,
)
from tenants.services.passwords import password_holder, password_prove
from tenants.web.frame import person_page
from tenants.web.sessions import proof_give, sessions_shown


@sensitive_post_parameters("current", "password", "again")
@require_http_methods(["GET", "HEAD", "POST"])
@person_page
def account(request: HttpRequest, user: User) -> HttpResponse:
    """Shows invitations, sessions and the password form.

    Forms of other pages post here with `next`.
    """
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(
            request,
            {
                "end": lambda form: _end(user, form),
                "end-others": lambda _: _end_others(user),
                "accept": lambda form: _accept(user, form),
                "decline": lambda form: _decline(user, form),
                "password": lambda form: _password(request, user, form),
            },
        )
        if refusal is None:
            return redirect(own_path(request.POST.get("next") or "/account"))
    context = {
        "invitations": received_invitations(user.credential, timezone.now()),
        "sessions": sessions_shown(request),
        "refusal": refusal,
    }
    return render(request, "portal/account.html", context, status=422 if refusal else 200)


def _end(user: User, form: QueryDict) -> str:
    session_id = id_read(form, "session", "session")
    own_session_end(user=user, session_id=session_id, now=timezone.now())
    return "Session signed out. Its open pages stop within seconds."


def _end_others(user: User) -> str:
    ended = own_sessions_end(user=user, now=timezone.now())
    return f"Signed out in {ended} other browser{'' if ended == 1 else 's'}."


def _accept(user: User, form: QueryDict) -> str:
    invitation_id = id_read(form, "invitation", "invitation")
    joined = invitation_accept(user=user, invitation_id=invitation_id, now=timezone.now())
    return f"You are now {joined.role_name} in {joined.place}."


def _decline(user: User, form: QueryDict) -> str:
    invitation_id = id_read(form, "invitation", "invitation")
    offer = invitation_decline(user=user, invitation_id=invitation_id, now=timezone.now())
    return f"Invitation to {offer.place} declined. Its members don't see your name."


def _password(request: HttpRequest, user: User, form: QueryDict) -> str:
    now = timezone.now()
    # Limits guesses of the password in a browser left signed in.
    attempt = Attempt(user.username, client_address(request.META), f"account {user.pk}")
    wait = sign_in_try(attempt, now)
    if wait:
        raise Refused("too_many_tries", f"Too many attempts. Try again in {wait} seconds.")
    current = password_prove(user.username, form.get("current", "")[: LONGEST_PASSWORD + 1])
    if password_holder(current) is None:
        raise invalid("wrong_password", "The current password is wrong.", "current")
    sign_in_done(attempt)
    password = form.get("password", "")
    if len(password) > LONGEST_PASSWORD:
        sentence = f"A password has at most {LONGEST_PASSWORD} characters."
        raise invalid("bad_password", sentence, "password")
    if password != form.get("again", ""):
        raise invalid("not_the_same", "The passwords don't match.", "again")
    new = own_password_set(user=user, current=current, password=password, now=now)
    # The password change ended all sessions; this browser gets a new one.
    proof_give(request, new)
    update_session_auth_hash(request, user)
    return "Password changed. All other browsers are signed out."
