"""Calendar feeds: secret addresses that are created, revoked and looked up."""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from allocation.models import CalendarFeed
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, actor_of
from tenants.audit import actor_record
from tenants.models import GpuClass
from tenants.platform.errors import Refused, invalid, missing

MOST_FEEDS = 20
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_BYTES = 32


@dataclass(frozen=True, slots=True)
class FeedFound:
    """The feed of an address: its owner as a member of the tenant, and its content."""

    actor: Actor
    project_id: UUID | None
    gpu_class: str | None


def feed_make(*, actor: Actor, what: str, now: datetime) -> tuple[CalendarFeed, str]:
    """Creates a calendar of `mine`, `project:SLUG` or `pool:CLASS`. Returns it with its token,
    which is not stored.

    Raises:
        Refused: `unknown_calendar`, `not_found` (a project) or `too_many_calendars`.
    """
    kind, _, name = what.partition(":")
    project = access_project(actor, name, "what") if kind == "project" else None
    gpu_class = GpuClass.objects.filter(slug=name).first() if kind == "pool" else None
    if (kind == "pool" and gpu_class is None) or kind not in ("mine", "project", "pool"):
        raise invalid("unknown_calendar", refusal_text("unknown_calendar"), "what")
    live = CalendarFeed.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id, revoked=None)
    if live.count() >= MOST_FEEDS:
        raise Refused("too_many_calendars", refusal_text("too_many_calendars", most_feeds=MOST_FEEDS))
    clear = secrets.token_urlsafe(_BYTES)
    feed = CalendarFeed.objects.create(
        tenant_id=actor.tenant_id,
        owner_id=actor.user_id,
        project=project,
        gpu_class=gpu_class,
        digest=_digest(clear),
        created=now,
    )
    _audit(actor, "calendar.made", feed.id, now)
    return feed, clear


def feed_revoke(*, actor: Actor, feed_id: UUID, now: datetime) -> None:
    """Revokes a calendar of the actor. Idempotent.

    Raises:
        Refused: `not_found`.
    """
    mine = CalendarFeed.objects.filter(tenant_id=actor.tenant_id, owner_id=actor.user_id, id=feed_id)
    if mine.filter(revoked=None).update(revoked=now):
        _audit(actor, "calendar.revoked", feed_id, now)
    elif not mine.exists():
        raise missing("calendar")


def feed_find(token: str) -> FeedFound | None:
    """The feed of a token; None if it is unknown or revoked, or its owner has lost access.

    Works without a tenant in the session.
    """
    if not TOKEN.fullmatch(token):
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT owner_id, tenant_slug, feed_project_id, gpu_class,"
            " tenant_id, project_id, role, person, time_zone FROM portal_feed(%s)",
            [_digest(token)],
        )
        rows = cursor.fetchall()
    if not rows:
        return None
    owner_id, tenant_slug, project_id, gpu_class = rows[0][:4]
    actor = actor_of(owner_id, tenant_slug, [row[4:] for row in rows])
    if project_id is not None and actor.role_in(project_id) is None:
        return None
    return FeedFound(actor, project_id, gpu_class)


def _audit(actor: Actor, action: str, feed_id: UUID, now: datetime) -> None:
    actor_record(actor, action, ("calendar", feed_id), now)


def _digest(clear: str) -> bytes:
    # A plain hash is enough for 256 random bits.
    return hashlib.sha256(clear.encode()).digest()
