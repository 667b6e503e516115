"""Accounts as the platform's operators manage them: close, reopen, erase. In `operator_tx`."""

from datetime import datetime

from django.db import transaction
from django.db.models.functions import Lower

from tenants.audit import platform_record
from tenants.models import (
    ApiToken,
    Invitation,
    Mail,
    Membership,
    Passkey,
    Password,
    SecondFactor,
    Session,
    SignOnIdentity,
    User,
)
from tenants.platform.errors import Refused, missing
from tenants.words import refusal_text


@transaction.atomic
def account_open_set(*, operator: User, user_id: int, is_open: bool, now: datetime) -> User:
    """Closes or reopens an account. Closing ends its sessions; its tokens stop working.

    Raises:
        Refused: `not_found`, `own_account` or `erased`.
    """
    user = _locked(operator, user_id)
    if user.is_active == is_open:
        return user
    if is_open and user.username == f"erased-{user.pk}":
        raise Refused("erased", refusal_text("erased"))
    user.is_active = is_open
    user.save(update_fields=["is_active"])
    platform_record(
        operator_id=operator.pk,
        action="account.opened" if is_open else "account.closed",
        target=("user", user.pk),
        now=now,
        before={"is_open": not is_open},
        after={"is_open": is_open},
    )
    return user


@transaction.atomic
def account_erase(*, operator: User, user_id: int, now: datetime) -> User:
    """Erases the personal data of a closed account for good.

    Bookings, charges and log entries keep the account's number, which then has no name. Roles,
    tokens, sessions, the password, and invitations and mails to the person are removed.

    Raises:
        Refused: `not_found`, `own_account` or `account_open`.
    """
    user = _locked(operator, user_id)
    if user.is_active:
        raise Refused("account_open", refusal_text("account_open"))
    names = [user.username.lower(), *filter(None, [user.email.lower()])]
    Invitation.objects.annotate(to=Lower("invitee")).filter(to__in=names).delete()
    Mail.objects.filter(user=user).delete()
    Mail.objects.annotate(to=Lower("address")).filter(to__in=names).delete()
    Membership.objects.filter(user=user).delete()
    ApiToken.objects.filter(user=user, revoked=None).update(revoked=now)
    ApiToken.objects.filter(user=user).update(name="erased")
    Session.objects.filter(user=user).delete()
    Password.objects.filter(user=user).delete()
    SecondFactor.objects.filter(user=user).delete()
    Passkey.objects.filter(user=user).delete()
    SignOnIdentity.objects.filter(user=user).delete()
    user.username, user.first_name, user.last_name = f"erased-{user.pk}", "", ""
    user.email, user.is_staff = "", False
    user.save(update_fields=["username", "first_name", "last_name", "email", "is_staff"])
    platform_record(
        operator_id=operator.pk,
        action="account.erased",
        target=("user", user.pk),
        now=now,
        before={"erased": False},
        after={"erased": True},
    )
    return user


def _locked(operator: User, user_id: int) -> User:
    user = User.objects.select_for_update().filter(id=user_id).first()
    if user is None:
        raise missing("account", "user")
    if user.pk == operator.pk:
        # So the last operator cannot lock everybody out.
        raise Refused("own_account", refusal_text("own_account_locked"))
    return user
