"""Acts on messages of Jira: books, quotes, decides approvals, or ends bookings of sprints.

For system programs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q, Window
from django.db.models.functions import RowNumber

from allocation.features.jira.calls import comment_queue, quote_text, refusal_comment
from allocation.features.jira.intake import TASK, said_of
from allocation.features.jira.models import JiraConnection, JiraMessage, JiraProject
from allocation.features.jira.rules import BadMessage, Said, issue_url, request_text, sprint_url
from allocation.models import Approval, Booking, BookingChange
from allocation.points import Sprint, sprint_acts
from allocation.rules.ask import MAX_TEXT_LENGTH
from allocation.rules.states import OPEN
from allocation.services.bookings.approval.decisions import Decision, Verdict, approval_decide
from allocation.services.bookings.creation import booking_create
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.request_text import request_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quotes import quote_make
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor, acting_members, actor_of
from tenants.failures import FailureLog
from tenants.models import User, set_by_valid_token
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.platform.rows import with_last_rows
from tenants.platform.wall import tenant_tx
from tenants.services.policy_hooks.calls import hook_ask
from tenants.services.policy_hooks.questions import HookQuestion, hook_answered

BATCH, MOST_SEEN = 50, 1_000
RETENTION = timedelta(days=30)
ANSWER_LENGTH_MAX = 500
QUEUE = "jira"
FAILED = "The portal failed on this message. The operators see it; it is tried again."
State = JiraMessage.State


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a message, and the comment for its issue, if any."""

    state: str
    answer: str
    booking: Booking | None = None
    comment: str = ""


def messages_process(now: datetime) -> int:
    """Acts on the messages that wait, each tenant's in the order of their arrival and the first of
    every tenant before the second of any; returns how many.

    A tenant whose policy hook was asked has its next message in another turn, so that a slow hook
    holds up the messages of others by one call. A message that fails is set apart.
    """
    failures = FailureLog(QUEUE, now)
    asked: set[UUID] = set()
    done = 0
    for message_id, tenant_id in _waiting(failures.held_back()):
        if tenant_id not in asked and done < BATCH:
            done += 1
            act = partial(_process_noting, message_id, tenant_id, now, asked)
            if not failures.handle(message_id, act, tenant_id=tenant_id):
                JiraMessage.objects.filter(id=message_id).update(answer=FAILED)
    if asked:
        task_request(TASK)
    return done


def _waiting(held_back: Iterable[str]) -> list[tuple[int, UUID]]:
    """The messages that wait and their tenants, in turns of the tenants."""
    turn = Window(RowNumber(), partition_by="tenant_id", order_by="id")
    rows = JiraMessage.objects.filter(state=State.RECEIVED).exclude(id__in=map(int, held_back))
    in_turns = rows.annotate(turn=turn).order_by("turn", "id").values_list("id", "tenant_id")
    return list(in_turns[:MOST_SEEN])


def _process_noting(message_id: int, tenant_id: UUID, now: datetime, asked: set[UUID]) -> None:
    """Acts on a message, and notes a tenant whose policy hook was asked."""
    if _process_asking(message_id, tenant_id, now):
        asked.add(tenant_id)


def messages_sweep(now: datetime) -> int:
    """Removes messages after a month; returns how many. Jira sends none again so late."""
    old = JiraMessage.objects.filter(received__lt=now - RETENTION).exclude(state=State.RECEIVED)
    return old.delete()[0]


def outcome_of(connection: JiraConnection, said: Said, now: datetime) -> Outcome:
    """Does what the message asks for, in the caller's transaction, which holds the connection."""
    if said.kind == "other":
        return Outcome(State.IGNORED, "Only issues and sprints lead to something.")
    mapping = _mapping(connection, said)
    if mapping is None:
        return Outcome(State.IGNORED, "Neither its project nor its board is mapped.")
    if not connection.projects.filter(set_by_valid_token(now), id=mapping.id).exists():
        return Outcome(State.IGNORED, f"The token that mapped {mapping.key} has ended. Map it again.")
    try:
        outcome = _acted(connection, mapping, said, now)
    except BadMessage as fault:
        outcome = _refused(said, invalid("bad_message", coded_text(fault.text), "request"))
    except Refused as refusal:
        outcome = _refused(said, refusal)
    return outcome if said.kind == "issue" else _with_acts(outcome, connection, mapping, said, now)


def _with_acts(
    outcome: Outcome, connection: JiraConnection, mapping: JiraProject, said: Said, now: datetime
) -> Outcome:
    """The outcome for a sprint, with what features did for it. They comment on issues of its project."""
    try:
        actor = _owner(connection, mapping)
    except Refused:
        return outcome
    ends = said.fields.get("ends", "")
    sprint = Sprint(
        actor=actor,
        project=mapping.project,
        reference=sprint_url(connection.receiver.url, said.subject[7:]),
        name=said.fields.get("name", ""),
        ends=datetime.fromisoformat(ends) if ends else None,
        is_started=said.kind == "sprint_started",
    )
    acts = sprint_acts(sprint, now)
    for act in acts:
        if act.issue.rpartition("-")[0] == mapping.key:
            comment_queue(connection, act.issue, act.sentence, now)
    state = State.DONE if acts else outcome.state
    answer = " ".join([outcome.answer, *(act.sentence for act in acts)])
    return Outcome(state, answer, outcome.booking, outcome.comment)


def _acted(connection: JiraConnection, mapping: JiraProject, said: Said, now: datetime) -> Outcome:
    """Decides an approval, ends the bookings of a sprint, books or quotes."""
    decided = _decided(connection, mapping, said, now)
    if decided is not None:
        return decided
    actor = _owner(connection, mapping)
    if said.kind == "sprint_closed":
        return _sprint_end(actor, connection, said, now)
    with transaction.atomic():
        return _ask(actor, connection, mapping, said, now)


def _decided(connection: JiraConnection, mapping: JiraProject, said: Said, now: datetime) -> Outcome | None:
    """Decides an approval if the message does; None if it does not."""
    verdict = verdict_of(mapping, said)
    if said.verdict and mapping.approver is None:
        return Outcome(State.IGNORED, f"Nobody is named who decides for {mapping.key} in Jira.")
    if verdict is None or mapping.approver is None:
        return None
    actor = _person(connection, mapping, mapping.approver)
    with transaction.atomic():
        return decision_take(actor, connection, mapping, said, verdict, now)


def _process_asking(message_id: int, tenant_id: UUID, now: datetime) -> bool:
    """Acts on a message; returns whether the tenant's policy hook was asked about it."""

    def run() -> None:
        with tenant_tx(tenant_id):
            _process(message_id, now)

    try:
        with_last_rows(run)
    except HookQuestion as question:
        answers = hook_ask(question)
    else:
        return False
    with hook_answered(answers):
        with_last_rows(run)
    return True


def _process(message_id: int, now: datetime) -> None:
    # Messages of one site wait for each other, so two about one issue don't book twice.
    locked = JiraConnection.objects.select_for_update(of=("self",)).select_related("receiver")
    connection = locked.filter(messages__id=message_id).first()
    message = JiraMessage.objects.select_for_update().filter(id=message_id).first()
    if connection is None or message is None or message.state != State.RECEIVED:
        return
    said = said_of(message)
    outcome = _overtaken(message) or outcome_of(connection, said, now)
    message.state, message.booking = outcome.state, outcome.booking
    message.answer = outcome.answer[:ANSWER_LENGTH_MAX]
    message.save(update_fields=["state", "booking", "answer"])
    if outcome.comment and said.kind == "issue":
        comment_queue(connection, said.subject, outcome.comment, now)


def _overtaken(message: JiraMessage) -> Outcome | None:
    """Ignores a message that is older than one of its subject that was acted on."""
    later = JiraMessage.objects.filter(
        connection_id=message.connection_id, subject=message.subject, at__gt=message.at
    ).exclude(state=State.RECEIVED)
    if not later.exists():
        return None
    return Outcome(State.IGNORED, "A later message about it was acted on before.")


def _mapping(connection: JiraConnection, said: Said) -> JiraProject | None:
    rows = connection.projects.select_related("project", "owner", "approver", "tier", "tenant")
    if said.kind == "issue":
        return rows.filter(key=said.project).first()
    return rows.filter(board=said.board).first()


def _owner(connection: JiraConnection, mapping: JiraProject) -> Actor:
    """The person whose bookings they are."""
    return _person(connection, mapping, mapping.owner)


def _person(connection: JiraConnection, mapping: JiraProject, person: User) -> Actor:
    """A person in whose name Jira acts, with the present rights. For web processes, too."""
    rows = (
        acting_members(connection.tenant_id)
        .filter(user=person)
        .values_list("tenant_id", "project_id", "role", "user__username", "user__time_zone")
    )
    if not rows:
        name = person.username
        raise Refused("not_allowed", refusal_text("jira_person_left", name=name), "denied")
    return actor_of(person.pk, mapping.tenant.slug, list(rows))


def _ask(
    actor: Actor, connection: JiraConnection, mapping: JiraProject, said: Said, now: datetime
) -> Outcome:
    """Books or quotes what an issue, or a sprint that has started, asks for."""
    request = _request(actor, connection, mapping, said, now)
    if mapping.act == JiraProject.Act.QUOTE and said.kind == "issue":
        quote = quote_make(actor=actor, request=request, now=now)
        return Outcome(State.DONE, "Quoted.", comment=quote_text(request, quote, actor, now))
    rows = Booking.objects.filter(tenant_id=actor.tenant_id, project=mapping.project)
    made = rows.filter(external_ref=request.external_ref, state__in=OPEN).first()
    if made is not None:
        return Outcome(State.IGNORED, f"{made.label} is open for it already.", made)
    booking = booking_create(actor, request, now, uuid4())
    return Outcome(State.DONE, f"Requested {booking.label}: {request.request_text}", booking)


def _request(
    actor: Actor, connection: JiraConnection, mapping: JiraProject, said: Said, now: datetime
) -> BookingRequest:
    """The request of a message; amounts in it are read like those that a person types."""
    base = connection.receiver.url
    if said.kind == "issue":
        text = request_text(mapping.request, said.fields)
        name, reference = said.fields.get("summary", ""), issue_url(base, said.subject)
    else:
        text = request_text(mapping.sprint_request, {"remaining": _remaining(said, now)})
        name, reference = said.fields.get("name", ""), sprint_url(base, said.subject[7:])
    if len(text) > MAX_TEXT_LENGTH:
        raise BadMessage("jira_request_long", most=MAX_TEXT_LENGTH)
    slug = mapping.project.slug
    ask, tier = request_read(text, project=slug, zone=actor.time_zone, now=now)
    return BookingRequest(
        project=slug,
        tier=tier or mapping.tier_id,
        ask=ask,
        name=name[:80],
        zone=actor.time_zone,
        request_text=text,
        labels=mapping.labels,
        external_ref=reference,
    )


def _remaining(said: Said, now: datetime) -> str:
    """The time until the end of the sprint, such as `190h`; empty without an end."""
    ends = said.fields.get("ends", "")
    hours = int((datetime.fromisoformat(ends) - now).total_seconds()) // 3600 if ends else 0
    return f"{hours}h" if hours > 0 else ""


def _sprint_end(actor: Actor, connection: JiraConnection, said: Said, now: datetime) -> Outcome:
    """Ends the open bookings of a sprint."""
    reference = sprint_url(connection.receiver.url, said.subject[7:])
    rows = Booking.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id)
    found = list(rows.filter(external_ref=reference, state__in=OPEN).order_by("number"))
    for booking in found:
        booking_cancel(actor=actor, booking=booking, now=now)
    names = ", ".join(each.label for each in found)
    return Outcome(State.DONE, f"Ended {names}." if names else "Nothing was booked for it.")


def _refused(said: Said, refusal: Refused) -> Outcome:
    comment = refusal_comment(refusal) if said.kind == "issue" else ""
    return Outcome(State.REFUSED, refusal.sentence, comment=comment)


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
    if a status decides and the issue has no booking yet.

    Raises:
        Refused: as `approval_decide`, or `jira_decided` and `approval_changed`.
    """
    reference = issue_url(connection.receiver.url, said.subject)
    asked = Approval.objects.filter(
        tenant_id=actor.tenant_id, project=mapping.project, booking__external_ref=reference
    ).select_related("booking", "decided_by")
    latest = asked.order_by("-asked", "-id").first()
    if latest is None:
        return _unasked(mapping, said, reference)
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


def _unasked(mapping: JiraProject, said: Said, reference: str) -> Outcome | None:
    """What a decision leads to that nobody asked for."""
    rows = Booking.objects.filter(tenant_id=mapping.tenant_id, project=mapping.project)
    booking = rows.filter(external_ref=reference, state__in=OPEN).first()
    if booking is not None:
        return Outcome(State.IGNORED, f"{booking.label} waits for no approval.", booking)
    if said.verdict:
        return Outcome(State.IGNORED, f"No booking of {said.subject} waits for an approval.")
    return None


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
