"""Calendar feeds: secret addresses that are created, revoked and looked up."""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from allocation.features.calendars.models import CalendarFeed
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, actor_of
from tenants.audit import audited
from tenants.models import GpuClass, set_by_valid_token
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

MOST_FEEDS = 20
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_BYTES = 32


@dataclass(frozen=True, slots=True)
class FeedFound:
    """The feed of an address: its owner as a member of the tenant, and its content."""

    actor: Actor
    project_id: UUID | None
    gpu_class: str | None


@terms
class CalendarTerms:
    """What a new calendar shows: `mine`, `project:SLUG` or `pool:CLASS`."""

    what: str = term(
        "Contents",
        "If you lose access to bookings, they disappear from the calendar.",
        says="`mine`, `project:folding` or `pool:h100`.",
        max_length=60,
    )


def feeds_of(actor: Actor, now: datetime) -> QuerySet[CalendarFeed]:
    """Returns the actor's calendars in force."""
    rows = CalendarFeed.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id, revoked=None)
    return rows.filter(set_by_valid_token(now)).select_related("project", "gpu_class")


def feed_make(*, actor: Actor, terms: CalendarTerms, now: datetime) -> CalendarFeed:
    """Creates a calendar. Only this object has its `address`, whose token is not stored.

    Raises:
        Refused: `unknown_calendar`, `not_found` (a project) or `too_many_calendars`.
    """
    kind, _, name = terms.what.partition(":")
    project = access_project(actor, name, "what") if kind == "project" else None
    gpu_class = GpuClass.objects.filter(slug=name).first() if kind == "pool" else None
    is_known = terms.what == "mine" if kind == "mine" else kind in ("project", "pool")
    if (kind == "pool" and gpu_class is None) or not is_known:
        raise invalid("unknown_calendar", refusal_text("unknown_calendar"), "what")
    if feeds_of(actor, now).count() >= MOST_FEEDS:
        raise Refused("too_many_calendars", refusal_text("too_many_calendars", most_feeds=MOST_FEEDS))
    clear = secrets.token_urlsafe(_BYTES)
    feed = CalendarFeed.objects.create(
        tenant_id=actor.tenant_id,
        owner_id=actor.user_id,
        project=project,
        gpu_class=gpu_class,
        digest=_digest(clear),
        made_with_id=actor.token_id,
        created=now,
    )
    audited(actor, "calendar.made", feed, now)
    feed.address = f"{settings.PUBLIC_URL}/calendar/{clear}.ics"
    return feed


def feed_revoke(*, actor: Actor, calendar_id: UUID, now: datetime) -> CalendarFeed:
    """Revokes a calendar of the actor. Idempotent.

    Raises:
        Refused: `not_found`.
    """
    rows = CalendarFeed.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id, id=calendar_id)
    feed = rows.select_related("project", "gpu_class").select_for_update(of=("self",)).first()
    if feed is None:
        raise missing("calendar")
    if feed.revoked is None:
        feed.revoked = now
        feed.save(update_fields=["revoked"])
        audited(actor, "calendar.revoked", feed, now)
    return feed


def feed_find(token: str, now: datetime) -> FeedFound | None:
    """The feed of a token; None if it is unknown or revoked, if its owner has lost access, or if the
    API token that made it has ended.

    Works without a tenant in the session.
    """
    if not TOKEN.fullmatch(token):
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT owner_id, tenant_slug, feed_project_id, gpu_class,"
            " tenant_id, project_id, role, person, time_zone FROM portal_feed(%s, %s)",
            [_digest(token), now],
        )
        rows = cursor.fetchall()
    if not rows:
        return None
    owner_id, tenant_slug, project_id, gpu_class = rows[0][:4]
    actor = actor_of(owner_id, tenant_slug, [row[4:] for row in rows])
    if project_id is not None and actor.role_in(project_id) is None:
        return None
    return FeedFound(actor, project_id, gpu_class)


def _digest(clear: str) -> bytes:
    # A plain hash is enough for 256 random bits.
    return hashlib.sha256(clear.encode()).digest()
