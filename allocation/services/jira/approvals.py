"""Approvals that are decided in Jira: by a status of the issue, or by an automation's request.

The decision is that of the mapped approver, by the same rules as on the page: in time, once, never
on a request of their own, and not on what has changed after the message.
"""

from datetime import datetime

from django.db.models import Q

from allocation.models import (
    Approval,
    Booking,
    BookingChange,
    JiraConnection,
    JiraMessage,
    JiraProject,
)
from allocation.rules.jira import Said, issue_url
from allocation.services.bookings.approval.decisions import Decision, Verdict, approval_decide
from allocation.services.jira.outcome import Outcome
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused

State = JiraMessage.State


def verdict_of(mapping: JiraProject, said: Said) -> Verdict | None:
    """Returns how the message decides; None if it decides nothing."""
    if mapping.approver_id is None or said.kind != "issue":
        return None
    if said.verdict:
        return "approve" if said.verdict == "approve" else "decline"
    status = said.fields.get("status", "").casefold()
    if status and status == mapping.approve_status.casefold():
        return "approve"
    if status and status == mapping.decline_status.casefold():
        return "decline"
    return None


def decision_take(
    actor: Actor,
    connection: JiraConnection,
    mapping: JiraProject,
    said: Said,
    verdict: Verdict,
    now: datetime,
) -> Outcome | None:
    """Decides the request of the issue's booking for the mapped approver, who is the actor; None
    if the issue has no booking that ever asked for an approval.

    Raises:
        Refused: as `approval_decide`, or `jira_decided` and `approval_changed`.
    """
    reference = issue_url(connection.receiver.url, said.subject)
    asked = Approval.objects.filter(
        tenant_id=actor.tenant_id, project=mapping.project, booking__external_ref=reference
    ).select_related("booking", "decided_by")
    latest = asked.order_by("-asked", "-id").first()
    if latest is None:
        return None
    booking = latest.booking
    if latest.state != Approval.State.OPEN:
        return _over(latest, verdict)
    if _has_changed_since(booking, latest, said.at):
        sentence = refusal_text("approval_changed_since", booking=booking.label)
        raise Refused("approval_changed", sentence)
    reason = said.reason or (f"Declined in Jira, {said.subject}" if verdict == "decline" else "")
    decision = Decision(verdict, latest.digest, reason or f"{said.subject} in Jira")
    approval_decide(actor=actor, approval_id=latest.id, decision=decision, now=now)
    done = "Approved" if verdict == "approve" else "Declined"
    return Outcome(State.DONE, f"{done} {booking.label} for {actor.name}.", booking)


def _has_changed_since(booking: Booking, approval: Approval, at: datetime) -> bool:
    """Whether what is to be approved is younger than the message."""
    changes = BookingChange.objects.filter(booking=booking).exclude(strength="word")
    later = changes.filter(Q(asked_at__gt=at) | Q(decided_at__gt=at))
    return approval.asked > at or later.exists()


def _over(approval: Approval, verdict: Verdict) -> Outcome:
    """What a message about a decided request leads to: nothing, said only if it is otherwise."""
    label = approval.booking.label
    state = approval.get_state_display().lower()
    answer = f"The request of {label} is {state} already."
    is_same = approval.state == ("approved" if verdict == "approve" else "declined")
    comment = "" if is_same else f"{answer} The status of this issue does not change that."
    return Outcome(State.IGNORED, answer, approval.booking, comment)
