"""Announcements: an operator writes one for some tenants or all, people close its banner."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from tenants.audit import platform_record
from tenants.models import Announcement, AnnouncementDismissal, Tenant, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.members.messages import PeopleMessage, people_message_put
from tenants.words import refusal_text

PUBLISHED = "announcement.published"
LONGEST = timedelta(days=90)
OPEN_MOST = 20
"""Announcements that are shown now or later."""
TEXT_MOST = 400


@dataclass(frozen=True, slots=True)
class AnnouncementTerms:
    """What an operator writes. `tenants` are slugs; without any, everybody sees it."""

    text: str
    level: str
    starts: datetime
    until: datetime
    tenants: Sequence[str] = ()


@transaction.atomic
def announcement_publish(*, operator: User, terms: AnnouncementTerms, now: datetime) -> Announcement:
    """Publishes an announcement; an entry goes into the inbox of everybody who sees it.

    Raises:
        Refused: `text_needed`, `unknown_level`, `bad_window`, `not_found` or
            `too_many_announcements`.
    """
    text = " ".join(terms.text.split())
    _check(terms, text, now)
    tenants = _tenants(terms.tenants)
    made = Announcement.objects.create(
        text=text,
        level=terms.level,
        starts=terms.starts,
        until=terms.until,
        tenants=sorted(each.id for each in tenants) if terms.tenants else [],
        created=now,
        created_by=operator,
    )
    for tenant in tenants:
        message = PeopleMessage(
            kind=PUBLISHED,
            title=f"{made.heading} of the operators",
            text=text,
            path="notifications",
            audience="members",
            until=made.starts if made.starts > now else None,
        )
        people_message_put(tenant.id, message, now)
    _record(operator, "announcement.published", made, now)
    return made


@transaction.atomic
def announcement_withdraw(*, operator: User, announcement_id: UUID, now: datetime) -> Announcement:
    """Takes an announcement off all pages. Raises Refused `not_found` or `announcement_over`."""
    rows = Announcement.objects.select_for_update(of=("self",))
    found = rows.filter(id=announcement_id).first()
    if found is None:
        raise missing("announcement")
    if found.withdrawn_at is not None or found.until <= now:
        raise Refused("announcement_over", refusal_text("announcement_over"))
    found.withdrawn_at = now
    found.save(update_fields=["withdrawn_at"])
    _record(operator, "announcement.withdrawn", found, now)
    return found


def announcement_dismiss(*, user_id: int, announcement_id: UUID, now: datetime) -> None:
    """Closes the banner for the person, for good. Raises Refused `not_found`.

    Call it in a transaction of a tenant that sees it.
    """
    if not Announcement.objects.filter(id=announcement_id).exists():
        raise missing("announcement")
    AnnouncementDismissal.objects.bulk_create(
        [AnnouncementDismissal(announcement_id=announcement_id, user_id=user_id, at=now)],
        ignore_conflicts=True,
    )


def announcements_shown(now: datetime, *, user_id: int | None, tenant_id: UUID | None) -> list[Announcement]:
    """What pages show now to a person, the most urgent first; without those that they closed."""
    rows = Announcement.objects.filter(withdrawn_at=None, starts__lte=now, until__gt=now)
    found = [row for row in rows if not row.tenants or tenant_id in row.tenants]
    if not found:
        return []
    closed = dismissed_of(user_id, [row.id for row in found])
    order = list(Announcement.Level.values)
    found.sort(key=lambda row: (-order.index(row.level), row.starts))
    return [row for row in found if row.id not in closed]


def dismissed_of(user_id: int | None, announcements: Collection[UUID]) -> set[UUID]:
    """Those of the announcements that the person has closed."""
    if user_id is None:
        return set()
    rows = AnnouncementDismissal.objects.filter(user=user_id, announcement__in=announcements)
    return set(rows.values_list("announcement", flat=True))


def _check(terms: AnnouncementTerms, text: str, now: datetime) -> None:
    if not text:
        raise invalid("text_needed", refusal_text("announcement_text"), "text")
    if len(text) > TEXT_MOST:
        raise invalid("text_needed", refusal_text("announcement_long", text_most=TEXT_MOST), "text")
    if terms.level not in Announcement.Level.values:
        raise invalid("unknown_level", refusal_text("announcement_level"), "level")
    if terms.until <= max(terms.starts, now):
        raise invalid("bad_window", refusal_text("announcement_ends"), "until")
    if terms.until - terms.starts > LONGEST:
        raise invalid("bad_window", refusal_text("announcement_days", days=LONGEST.days), "until")
    if Announcement.objects.filter(withdrawn_at=None, until__gt=now).count() >= OPEN_MOST:
        raise Refused(
            "too_many_announcements",
            refusal_text("too_many_announcements", open_most=OPEN_MOST),
        )


def _tenants(slugs: Sequence[str]) -> list[Tenant]:
    if not slugs:
        return list(Tenant.objects.order_by("slug"))
    found = {each.slug: each for each in Tenant.objects.filter(slug__in=slugs)}
    if any(slug not in found for slug in slugs):
        raise missing("tenant", "tenants")
    return [found[slug] for slug in sorted(found)]


def _record(operator: User, action: str, row: Announcement, now: datetime) -> None:
    after = {
        "text": row.text,
        "level": row.level,
        "starts": row.starts.isoformat(),
        "until": row.until.isoformat(),
        "tenants": [str(each) for each in row.tenants],
        "withdrawn": row.withdrawn_at is not None,
    }
    platform_record(operator.pk, action, ("announcement", row.id), now, after=after)
