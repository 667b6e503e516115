"""Access to bookings and series. A foreign one gets the same answer as a missing one."""

import re
from uuid import UUID

from allocation.models import Approval, Booking, Series
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, denied, missing
from tenants.platform.log_ids import log_id

LABEL = re.compile(r"BK-([1-9][0-9]{0,17})", re.IGNORECASE)
IDENTIFIER = re.compile(r"bk_([0-9a-f]{32})")
SERIES = re.compile(r"sr_([0-9a-f]{32})")


def access_booking(actor: Actor, reference: str) -> Booking:
    """Returns a booking of a project that the actor may see, by `BK-2041` or `bk_<hex>`.

    Raises:
        Refused: `not_found`.
    """
    found = None
    bookings = Booking.objects.select_related("project", "tier", "owner", "campaign").filter(
        tenant_id=actor.tenant_id
    )
    if label := LABEL.fullmatch(reference):
        found = bookings.filter(number=int(label[1])).first()
    elif identifier := IDENTIFIER.fullmatch(reference):
        found = bookings.filter(id=UUID(identifier[1])).first()
    if found is None or actor.role_in(found.project_id) is None:
        raise missing("booking")
    log_id(booking=found.label)
    return found


def access_approval(actor: Actor, approval_id: UUID) -> Approval:
    """Returns a request for approval that the actor made or may decide.

    Raises:
        Refused: `not_found`.
    """
    rows = Approval.objects.select_related("booking", "project", "asker", "decided_by")
    found = rows.filter(tenant_id=actor.tenant_id, id=approval_id).first()
    if found is None or not (actor.may_lead(found.project_id) or found.asker_id == actor.user_id):
        raise missing("approval")
    return found


def deciding_refusal(actor: Actor, approval: Approval) -> Refused | None:
    """Returns why the actor may not decide the present step; None if they may."""
    code = ""
    if approval.asker_id == actor.user_id:
        code = "approval_own"
    elif not actor.may_lead(approval.project_id):
        code = "approval_leads_only"
    elif approval.present_step.role == "admin" and not actor.is_tenant_admin:
        code = "approval_admins_only"
    elif approval.acts.filter(person=actor.user_id).exists():
        code = "approval_twice"
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
    """Returns whether the actor owns the series or leads its project."""
    return actor.may_lead(series.project_id) or (
        series.owner_id == actor.user_id and actor.may_book(series.project_id)
    )


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


def access_booking_to_change(actor: Actor, reference: str) -> Booking:
    """Returns a booking that the actor may cancel, release or extend.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    booking = access_booking(actor, reference)
    if not may_change(actor, booking):
        raise denied(refusal_text("booking_not_yours"))
    return booking
