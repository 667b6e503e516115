"""Giving roles to operators, and ending them."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from allocation.models import Node, Rack
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.audit import platform_record
from tenants.models import ApiToken, GpuClass, OperatorRole, Session, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.queries import site_operators
from tenants.rules.operator_roles import CLASS, POOL, ROLES, SITE

MOST_NAMES = 50


@terms
class OperatorRoleTerms:
    """A role of an operator. Somebody else becomes an operator by it: their sessions and API tokens end."""

    username: str = term("Sign-in name", says="Sign-in name of an open account.", max_length=150)
    role: str = term("Role", says="One of site, class, pool, read_only, billing, support.", max_length=10)
    names: Sequence[str] = term(
        "Limited to (for some roles)",
        "GPU classes, or racks and pools, with commas between.",
        example="h100, l40s",
        says="GPU classes for the role class; racks and pools for pool; else empty.",
        default=(),
        max_length=MOST_NAMES,
    )


def operator_roles() -> QuerySet[OperatorRole]:
    """Returns the roles of all operators, with those that have ended."""
    return OperatorRole.objects.select_related("user", "created_by", "approved_by", "ended_by")


def operator_role_give(*, actor: PlatformActor, terms: OperatorRoleTerms, now: datetime) -> OperatorRole:
    """Gives a role. One of `site` waits until a third operator approves it, if there is one who may.

    Raises:
        Refused: `not_found`, `bad_role`, `bad_names` or `role_given`.
    """
    names = _names_read(terms.role, terms.names)
    with transaction.atomic():
        rows = User.objects.select_for_update().filter(username=terms.username.strip(), is_active=True)
        user = None if "\x00" in terms.username else rows.first()
        if user is None:
            raise missing("account", "username")
        if OperatorRole.objects.filter(user=user, role=terms.role, ended=None).exists():
            label = ROLES[terms.role].label
            raise invalid("role_given", refusal_text("role_given", name=user.username, role=label), "role")
        others = {each.pk for each in site_operators()} - {actor.user_id, user.pk}
        waits = terms.role == SITE and bool(others)
        row = OperatorRole.objects.create(
            user=user,
            role=terms.role,
            names=names,
            created=now,
            created_by_id=actor.user_id,
            since=None if waits else now,
        )
        if not waits:
            _operator_make(user, now)
        _log(actor, row, "operator_role.asked" if waits else "operator_role.given", now)
    return row


def operator_role_approve(*, actor: PlatformActor, role_id: UUID, now: datetime) -> OperatorRole:
    """Puts a role into force that another operator has given.

    Raises:
        Refused: `not_found`, `role_not_waiting`, or `second_person_needed` for who gave or gets it.
    """
    with transaction.atomic():
        row = _locked(role_id)
        if row.since is not None or row.ended is not None:
            raise Refused("role_not_waiting", refusal_text("role_not_waiting"))
        if actor.user_id in (row.created_by_id, row.user_id):
            raise Refused("second_person_needed", refusal_text("role_second_person"), owner="operator")
        row.since, row.approved_by_id = now, actor.user_id
        row.save(update_fields=["since", "approved_by"])
        _operator_make(row.user, now)
        _log(actor, row, "operator_role.given", now)
    return row


def operator_role_end(*, actor: PlatformActor, role_id: UUID, now: datetime) -> OperatorRole:
    """Ends a role now. Who has no other one is no operator any more. Idempotent.

    Raises:
        Refused: `not_found`, or `last_site_operator`.
    """
    with transaction.atomic():
        # Two who end each other's role wait here for each other.
        site = OperatorRole.objects.select_for_update(of=("self",)).filter(OperatorRole.in_force(), role=SITE)
        able = {each.id for each in site.order_by("id")}
        row = _locked(role_id)
        if row.ended is not None:
            return row
        if able == {row.id}:
            raise Refused("last_site_operator", refusal_text("last_site_operator"))
        row.ended, row.ended_by_id = now, actor.user_id
        row.save(update_fields=["ended", "ended_by"])
        if not OperatorRole.objects.filter(user=row.user, ended=None, since__isnull=False).exists():
            User.objects.filter(id=row.user_id).update(is_staff=False)
        _log(actor, row, "operator_role.ended", now)
    return row


def _operator_make(user: User, now: datetime) -> None:
    """Makes an account that of an operator. What was made before in a web process has not their rights."""
    if not user.is_staff:
        ApiToken.objects.filter(user=user, revoked=None).update(revoked=now)
        Session.objects.filter(user=user).delete()
        User.objects.filter(id=user.pk).update(is_staff=True)


def _names_read(role: str, names: Sequence[str]) -> list[str]:
    if role not in ROLES:
        raise invalid("bad_role", refusal_text("bad_operator_role", roles=", ".join(ROLES)), "role")
    wanted = sorted({each.strip() for each in names} - {""})
    what = ROLES[role].names
    if not what and wanted:
        raise invalid("bad_names", refusal_text("role_without_names", role=ROLES[role].label), "names")
    known = _known(role)
    if what and (not wanted or len(wanted) > MOST_NAMES or not known.issuperset(wanted)):
        some = ", ".join(sorted(known)[:MOST_NAMES])
        raise invalid("bad_names", refusal_text("role_names", what=what, known=some), "names")
    return wanted


def _known(role: str) -> set[str]:
    if role == CLASS:
        return set(GpuClass.objects.values_list("slug", flat=True))
    if role == POOL:
        pools = Node.objects.exclude(pool="").values_list("pool", flat=True)
        return {*Rack.objects.values_list("name", flat=True), *pools}
    return set()


def _locked(role_id: UUID) -> OperatorRole:
    row = operator_roles().select_for_update(of=("self",)).filter(id=role_id).first()
    if row is None:
        raise missing("operator's role")
    return row


def _log(actor: PlatformActor, row: OperatorRole, action: str, now: datetime) -> None:
    after = {
        "person": row.user.username,
        "role": row.role,
        "names": row.names,
        "ended": row.ended is not None,
    }
    platform_record(actor.user_id, action, ("operator_role", row.id), now, after=after)
