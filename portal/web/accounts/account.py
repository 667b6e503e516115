"""The page of a person's account: invitations, sessions and password."""

from django.contrib.auth import logout, update_session_auth_hash
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.web.accounts.limits import Attempt, sign_in_done, sign_in_try
from portal.web.accounts.sign_in import LONGEST_PASSWORD, own_path
from portal.words import refusal_text
from tenants.access import actor_in, client_address, tenants_of
from tenants.models import Tenant, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.wall import tenant_tx
from tenants.queries import (
    OwnRole,
    is_connected,
    own_roles,
    received_invitations,
    sign_on_is_on,
)
from tenants.services import (
    invitation_accept,
    invitation_decline,
    membership_remove,
    own_password_set,
    own_session_end,
    own_sessions_end,
)
from tenants.services.sign_in.passwords import password_holder, password_prove
from tenants.services.sign_in.second_factor import has_second_factor, second_factor_needed
from tenants.web.frame import person_page
from tenants.web.parts import counted
from tenants.web.sessions import proof_give, sessions_shown


@sensitive_post_parameters("current", "password", "again")
@require_http_methods(["GET", "HEAD", "POST"])
@person_page
def account(request: HttpRequest, user: User) -> HttpResponse:
    """Shows invitations, sessions and the password form.

    Forms of other pages post here with `next`.
    """
    refusal = None
    roles = _roles(user)
    if request.method == "POST":
        if (question := _question(roles, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(
            request,
            {
                "end": lambda form: _end(user, form),
                "end-others": lambda _: _end_others(user),
                "accept": lambda form: _accept(user, form),
                "decline": lambda form: _decline(user, form),
                "leave": lambda form: _leave(user, roles, form),
                "password": lambda form: _password(request, user, form),
            },
        )
        if refusal is None:
            return redirect(own_path(request.POST.get("next") or "/account"))
    context = {
        "invitations": received_invitations(user.credential, timezone.now()),
        "sessions": sessions_shown(request),
        "roles": roles,
        "sign_ons": _sign_ons(user),
        "has_second_factor": has_second_factor(user.credential, timezone.now()),
        "refusal": refusal,
    }
    return render(request, "portal/account.html", context, status=422 if refusal else 200)


def _roles(user: User) -> list[OwnRole]:
    """The person's roles in all their tenants."""
    roles: list[OwnRole] = []
    for choice in tenants_of(user, timezone.now()):
        with tenant_tx(choice.tenant_id):
            roles += own_roles(user.pk, Tenant.objects.get(id=choice.tenant_id))
    return roles


def _sign_ons(user: User) -> list[tuple[Tenant, bool]]:
    """The person's tenants with single sign-on, and whether the account is connected there."""
    found: list[tuple[Tenant, bool]] = []
    for choice in tenants_of(user, timezone.now()):
        with tenant_tx(choice.tenant_id):
            if sign_on_is_on(choice.tenant_id):
                tenant = Tenant.objects.get(id=choice.tenant_id)
                found.append((tenant, is_connected(choice.tenant_id, user.pk)))
    return found


def _role(roles: list[OwnRole], form: QueryDict) -> OwnRole:
    membership_id = id_read(form, "membership", "membership")
    for each in roles:
        if each.membership_id == membership_id:
            return each
    raise missing("membership", "membership")


def _leave(user: User, roles: list[OwnRole], form: QueryDict) -> str:
    role, now = _role(roles, form), timezone.now()
    actor = actor_in(user, role.tenant_slug, now)
    with tenant_tx(actor.tenant_id):
        membership_remove(actor=actor, membership_id=role.membership_id, now=now)
    return f"You left {role.place}."


def _question(roles: list[OwnRole], form: QueryDict) -> Confirmation | None:
    """Before the person leaves a project or a tenant's administration."""
    if form.get("act") != "leave" or CONFIRMED_FIELD in form:
        return None
    role = _role(roles, form)
    others = sum(each.tenant_slug == role.tenant_slug for each in roles) - 1
    rest = (
        f"You keep {counted(others, 'other role')} in {role.tenant_name}."
        if others
        else f"It is your only role in {role.tenant_name}: your tokens there stop working."
    )
    return Confirmation(
        title=f"Leave {role.place}?",
        lost=(
            f"You are no longer {role.role_name} from your next request on. {rest}",
            "Your bookings stay and are charged. Cancel or release those that you don't need.",
            "To come back, you have to be invited again.",
        ),
        button=f"Leave {role.place}",
        back="/account",
    )


def _end(user: User, form: QueryDict) -> str:
    session_id = id_read(form, "session", "session")
    own_session_end(user=user, session_id=session_id, now=timezone.now())
    return "Session signed out. Its open pages stop within seconds."


def _end_others(user: User) -> str:
    ended = own_sessions_end(user=user, now=timezone.now())
    return f"Signed out in {counted(ended, 'other browser')}."


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
        raise Refused("too_many_tries", refusal_text("too_many_tries", wait=wait))
    current = password_prove(user.username, form.get("current", "")[: LONGEST_PASSWORD + 1])
    if password_holder(current) is None:
        raise invalid("wrong_password", refusal_text("wrong_password"), "current")
    sign_in_done(attempt)
    password = form.get("password", "")
    if len(password) > LONGEST_PASSWORD:
        sentence = refusal_text("password_long", longest_password=LONGEST_PASSWORD)
        raise invalid("bad_password", sentence, "password")
    if password != form.get("again", ""):
        raise invalid("not_the_same", refusal_text("not_the_same"), "again")
    new = own_password_set(user=user, current=current, password=password, now=now)
    if second_factor_needed(new):
        logout(request)
        return "Password changed. Sign in again."
    # The password change ended all sessions; this browser gets a new one.
    proof_give(request, new)
    update_session_auth_hash(request, user)
    return "Password changed. All other browsers are signed out."
