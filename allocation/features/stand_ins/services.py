"""Naming stand-ins and ending them."""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.stand_ins.models import StandIn
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, acting_members, require_in_reach
from tenants.audit import audited
from tenants.models import Project, Role
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms

LONGEST = timedelta(days=90)
MOST_OPEN = 20
LOGGED = ("person", "approver", "project", "starts", "until")


@terms
class StandInTerms:
    """A stand-in for yourself, for at most 90 days."""

    person: str = term("Person", says="Sign-in name of a member of your organisation.", max_length=150)
    project: str = term("For requests in", default="", max_length=40)
    starts: datetime | None = term(
        "First day (empty: today)",
        asks="first_day",
        says="Null: now.",
        default=None,
    )
    until: datetime = term("Last day", asks="last_day")


def stand_in_set(*, actor: Actor, terms: StandInTerms, now: datetime) -> StandIn:
    """Names a member of the organisation who decides for the actor. Rights that the actor loses
    meanwhile are lost for the stand-in, too. Ends with the token that named them.

    Raises:
        Refused: `not_allowed`, `not_found`, `stand_in_self`, `bad_until` or `too_many_stand_ins`.
    """
    project = _project_of(actor, terms.project)
    starts = max(terms.starts or now, now)
    if not timedelta(0) < terms.until - starts <= LONGEST:
        raise invalid("bad_until", refusal_text("stand_in_until", most=LONGEST.days), "until")
    people = acting_members(actor.tenant_id).filter(user__username=terms.person)
    member = people.select_related("user").first()
    if member is None:
        raise missing("person", "person")
    if member.user_id == actor.user_id:
        raise invalid("stand_in_self", refusal_text("stand_in_self"), "person")
    with transaction.atomic():
        named = StandIn.objects.filter(tenant_id=actor.tenant_id, approver=actor.user_id)
        mine = named.filter(StandIn.still_open(now))
        if mine.count() >= MOST_OPEN:
            raise Refused("too_many_stand_ins", refusal_text("too_many_stand_ins", most=MOST_OPEN))
        row = StandIn.objects.create(
            tenant_id=actor.tenant_id,
            approver_id=actor.user_id,
            person=member.user,
            project=project,
            made_with_id=actor.token_id,
            starts=starts,
            until=terms.until,
            created=now,
            created_by_id=actor.user_id,
        )
        audited(actor, "stand_in.set", row, now, *LOGGED)
    return row


def stand_in_end(*, actor: Actor, stand_in_id: UUID, now: datetime) -> StandIn:
    """Ends a stand-in: by the approver, by the stand-in, or by an admin. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        rows = stand_ins_visible(actor).select_for_update(of=("self",))
        row = rows.filter(id=stand_in_id).first()
        if row is None:
            raise missing("stand-in")
        if row.ended is None and row.until > now:
            row.end(actor.user_id, now)
            row.save(update_fields=["ended", "ended_by"])
            audited(actor, "stand_in.ended", row, now, *LOGGED)
    return row


def stand_ins_visible(actor: Actor) -> QuerySet[StandIn]:
    """Returns the stand-ins that the actor named or is; admins see all of the organisation."""
    rows = StandIn.objects.filter(tenant_id=actor.tenant_id)
    rows = rows.select_related("approver", "person", "project")
    if actor.is_tenant_admin:
        return rows
    if actor.only_project is not None:
        rows = rows.filter(project=actor.only_project)
    return rows.filter(Q(approver=actor.user_id) | Q(person=actor.user_id))


def may_name(actor: Actor) -> bool:
    """Returns whether the actor decides requests, so that somebody can stand in for them."""
    return actor.is_tenant_admin or Role.LEAD in actor.roles.values()


def _project_of(actor: Actor, slug: str) -> Project | None:
    if not may_name(actor):
        raise denied(refusal_text("stand_in_approvers"))
    if not slug:
        require_in_reach(actor, None)
        return None
    project = access_project(actor, slug, "project")
    if not actor.may_lead(project.id):
        raise denied(refusal_text("stand_in_approvers"))
    return project
