"""Access to bookings and series. A foreign one gets the same answer as a missing one."""

import re
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.models import (
    Approval,
    Booking,
    BookingArray,
    Series,
)
from allocation.points import stood_in_by
from allocation.rules.states import TERMINAL
from allocation.words.refusals import refusal_text
from tenants.access import Actor, acting_members
from tenants.models import Role
from tenants.platform.database.compiled import ANY_INDEX, ANY_NUMBER, ANY_TENANT, Compiled
from tenants.platform.database.look import ASKED_AT
from tenants.platform.errors import Refused, denied, missing
from tenants.platform.log_ids import log_id

LABEL = re.compile(r"BK-([1-9][0-9]{0,17})(?:\[([1-9][0-9]{0,8})\])?", re.IGNORECASE)
IDENTIFIER = re.compile(r"bk_([0-9a-f]{32})")
SERIES = re.compile(r"sr_([0-9a-f]{32})")
ARRAY = re.compile(r"ar_([0-9a-f]{32})")


_PARTS = ("project", "tier", "owner", "campaign")
_by_id = Compiled(lambda _now, keys: Booking.objects.select_related(*_PARTS).filter(id__in=keys))
_numbered = Compiled(lambda *_: _of_number(array_index=None))
_element = Compiled(lambda *_: _of_number(array_index=ANY_INDEX))


def _of_number(array_index: int | None) -> QuerySet[Booking]:
    rows = Booking.objects.select_related(*_PARTS)
    return rows.filter(tenant_id=ANY_TENANT, number=ANY_NUMBER, array_index=array_index)


def access_booking(actor: Actor, reference: str) -> Booking:
    """Returns a booking of a project that the actor may see, by `BK-2041`, `BK-2041[17]` or
    `bk_<hex>`; also their own that is not over, in a project that they have left.

    Raises:
        Refused: `not_found`, or `array_not_booking` for the number of an array.
    """
    found = None
    if label := LABEL.fullmatch(reference):
        found = _booking_labelled(actor, int(label[1]), int(label[2]) if label[2] else None)
        if found is None and not label[2]:
            _array_check(actor, reference)
    elif identifier := IDENTIFIER.fullmatch(reference):
        found = next(iter(_by_id(ASKED_AT, [UUID(identifier[1])])), None)
    if found is None or found.tenant_id != actor.tenant_id or not _may_see(actor, found):
        raise missing("booking")
    log_id(booking=found.label)
    return found


def _may_see(actor: Actor, booking: Booking) -> bool:
    """What is theirs and still has GPUs can be given back, also by who has left the project."""
    if actor.role_in(booking.project_id) is not None:
        return True
    is_mine = booking.owner_id == actor.user_id and booking.state not in TERMINAL
    return is_mine and actor.only_project in (None, booking.project_id)


def _booking_labelled(actor: Actor, number: int, index: int | None) -> Booking | None:
    named: dict[UUID | int, UUID | int] = {ANY_TENANT: actor.tenant_id, ANY_NUMBER: number}
    if index is None:
        rows = _numbered(ASKED_AT, values=named)
    else:
        rows = _element(ASKED_AT, values={**named, ANY_INDEX: index})
    return next(iter(rows), None)


def access_array(actor: Actor, reference: str) -> BookingArray:
    """Returns an array of a project that the actor may see, by `BK-2041` or `ar_<hex>`.

    Raises:
        Refused: `not_found`.
    """
    found = _array_of(actor, reference)
    if found is None:
        raise missing("array")
    return found


def access_array_to_change(actor: Actor, reference: str) -> BookingArray:
    """Returns an array whose elements the actor may cancel.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    array = access_array(actor, reference)
    if not may_change_array(actor, array):
        raise denied(refusal_text("array_not_yours"))
    return array


def may_change_array(actor: Actor, array: BookingArray) -> bool:
    """Returns whether the actor owns the array or leads its project; who may not book any more may
    still give back."""
    return actor.may_lead(array.project_id) or array.owner_id == actor.user_id


def _array_of(actor: Actor, reference: str) -> BookingArray | None:
    rows = BookingArray.objects.select_related("project", "owner", "tenant")
    rows = rows.filter(tenant_id=actor.tenant_id)
    found = None
    if (label := LABEL.fullmatch(reference)) and not label[2]:
        found = rows.filter(number=int(label[1])).first()
    elif identifier := ARRAY.fullmatch(reference):
        found = rows.filter(id=UUID(identifier[1])).first()
    return None if found is None or actor.role_in(found.project_id) is None else found


def _array_check(actor: Actor, reference: str) -> None:
    array = _array_of(actor, reference)
    if array is not None:
        sentence = refusal_text("array_not_booking", label=array.label)
        raise Refused("array_not_booking", sentence, "invalid", "reference")


def access_approval(actor: Actor, approval_id: UUID, now: datetime) -> Approval:
    """Returns a request for approval that the actor made or may decide, also as a stand-in.

    Raises:
        Refused: `not_found`.
    """
    rows = Approval.objects.select_related("booking", "project", "asker", "decided_by", "change")
    found = rows.filter(tenant_id=actor.tenant_id, id=approval_id).first()
    if found is None or not may_see_approval(actor, found, now):
        raise missing("approval")
    return found


def may_see_approval(actor: Actor, approval: Approval, now: datetime) -> bool:
    """Returns whether the actor made the request or may decide it, also as a stand-in."""
    return (
        actor.may_lead(approval.project_id)
        or (approval.asker_id == actor.user_id and actor.only_project in (None, approval.project_id))
        or any(principals_of(actor, approval, now))
    )


def principals_of(actor: Actor, approval: Approval, now: datetime) -> Iterator[tuple[int, str]]:
    """Yields the approvers that the actor stands in for at this request, with their present role.

    Nobody decides for the person who asks.
    """
    if actor.only_project not in (None, approval.project_id):
        return
    named = {
        each.approver
        for each in stood_in_by(actor.user_id, actor.tenant_id, now)
        if each.is_for(approval.project_id) and each.approver != approval.asker_id
    }
    if not named:
        return
    roles = Q(role=Role.TENANT_ADMIN) | Q(role=Role.LEAD, project=approval.project_id)
    found = acting_members(actor.tenant_id).filter(roles, user__in=named)
    yield from found.order_by("user_id", "role").values_list("user_id", "role")


def deciding_for(actor: Actor, approval: Approval, now: datetime) -> int | None:
    """Returns the approver that the actor would stand in for at the present step; None: they decide
    in their own right, or not at all."""
    is_admins = approval.present_step.role == "admin"
    if actor.is_tenant_admin or (actor.may_lead(approval.project_id) and not is_admins):
        return None
    acts = approval.acts.all()
    done = {each for act in acts for each in (act.person_id, act.principal_id)}
    for principal, role in principals_of(actor, approval, now):
        if principal not in done and (role == Role.TENANT_ADMIN or not is_admins):
            return principal
    return None


def deciding_refusal(actor: Actor, approval: Approval, now: datetime) -> Refused | None:
    """Returns why the actor may not decide the present step; None if they may."""
    code = ""
    is_admins = approval.present_step.role == "admin"
    may_lead = actor.may_lead(approval.project_id)
    mine = Q(person=actor.user_id) | Q(principal=actor.user_id)
    if approval.asker_id == actor.user_id:
        code = "approval_own"
    elif approval.acts.filter(mine).exists():
        code = "approval_twice"
    elif (
        not actor.is_tenant_admin
        and (is_admins or not may_lead)
        and deciding_for(actor, approval, now) is None
    ):
        code = "approval_admins_only" if may_lead else "approval_leads_only"
    is_over = approval.state != Approval.State.OPEN
    if not code or (is_over and code != "approval_own"):
        return None
    return denied(refusal_text(code))


def access_series(actor: Actor, reference: str) -> Series:
    """Returns a series of a project that the actor may see, by `sr_<hex>`.

    Raises:
        Refused: `not_found`.
    """
    found = None
    if identifier := SERIES.fullmatch(reference):
        rows = Series.objects.select_related("project", "owner")
        found = rows.filter(tenant_id=actor.tenant_id, id=UUID(identifier[1])).first()
    if found is None or actor.role_in(found.project_id) is None:
        raise missing("series")
    return found


def may_change_series(actor: Actor, series: Series) -> bool:
    """Returns whether the actor owns the series or leads its project; for who may not book any more
    its dates do not grow."""
    return actor.may_lead(series.project_id) or series.owner_id == actor.user_id


def access_series_to_change(actor: Actor, reference: str) -> Series:
    """Returns a series that the actor may cancel.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    series = access_series(actor, reference)
    if not may_change_series(actor, series):
        raise denied(refusal_text("series_not_yours"))
    return series


def may_change(actor: Actor, booking: Booking) -> bool:
    """Returns whether the actor owns the booking or leads its project."""
    return actor.may_lead(booking.project_id) or (
        booking.owner_id == actor.user_id and actor.may_book(booking.project_id)
    )


def may_give_back(actor: Actor, booking: Booking) -> bool:
    """Returns whether the actor may end the booking or make it smaller: its owner may, also one who
    may not book any more."""
    return actor.may_lead(booking.project_id) or booking.owner_id == actor.user_id


def access_booking_to_give_back(actor: Actor, reference: str) -> Booking:
    """Returns a booking that the actor may end or change; a change that takes more is refused to an
    owner who may not book any more (`growth_check`).

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    booking = access_booking(actor, reference)
    if not may_give_back(actor, booking):
        raise denied(refusal_text("booking_not_yours"))
    return booking


def access_booking_to_change(actor: Actor, reference: str) -> Booking:
    """Returns a booking for which the actor may ask for more.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    booking = access_booking_to_give_back(actor, reference)
    if not may_change(actor, booking):
        raise denied(refusal_text("booking_bookers_only"))
    return booking
