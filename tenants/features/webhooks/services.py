"""Writes webhooks: made by admins for a tenant, by leads for a project, by operators for the
platform."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from tenants.access import Actor, PlatformActor, access_project
from tenants.audit import audit_record, platform_record
from tenants.models import Project, Webhook, WebhookDelivery
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.labels import Labels, labels_check
from tenants.platform.terms import term, terms
from tenants.rules.event_types import EVENT_TYPES, SITE_TYPES, TEST, patterns_unknown
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.input_values import name_read
from tenants.services.outgoing.secrets import salt_new, secret_of
from tenants.services.outgoing.targets import target_address
from tenants.words import fault_text, refusal_text

MAX_WEBHOOKS = 50
MAX_PATTERNS = 40
MAX_RESENT = 1_000
"""Messages that are sent again at once."""
OVERLAP = timedelta(hours=24)
"""After a rotation messages carry the signatures of both secrets for this long."""
SWITCHED_OFF = "Switched off by {}."
Holder = Actor | PlatformActor
"""Who acts for the webhooks: a member of a tenant, or an operator for the platform."""


@terms
class PlatformWebhookTerms:
    """What a webhook of the platform receives, and where."""

    name: str = term("Name", default="Webhook", max_length=80)
    url: str = term(
        "Address",
        "HTTPS on port 443 or 8443, and a public address unless the setting WEBHOOK_ALLOW has its network.",
        asks="url",
        says="`https://…`, port 443 or 8443.",
        max_length=500,
    )
    events: Sequence[str] = term(
        "Events",
        "Names or groups, separated by commas: node.unreachable, gpu.*, maintenance.*, or * for all.",
        says="Names such as `node.unreachable`, groups such as `maintenance.*`, or `*`.",
        min_length=1,
        max_length=40,
        child_kwargs={"max_length": 60},
    )


@terms
class WebhookTerms(PlatformWebhookTerms):
    """What a webhook receives, and where."""

    url: str = term(
        "Address",
        "HTTPS on port 443 or 8443, and a public address unless your operator allows others.",
        asks="url",
        says="`https://…`, port 443 or 8443.",
        max_length=500,
    )
    events: Sequence[str] = term(
        "Events",
        "Names or groups, separated by commas: booking.started, booking.ended, or booking.* for all.",
        says="Names such as `booking.started`, groups such as `booking.*`, or `*`.",
        min_length=1,
        max_length=40,
        child_kwargs={"max_length": 60},
    )
    labels: Mapping[str, str] | None = term(
        "Labels",
        "Optional: only events of bookings that have all of these labels, such as team=vision, run=7.",
        default=None,
        body=Labels(
            required=False,
            default=dict,
            help_text="Only events of bookings that have all of these labels.",
        ),
    )
    project: str | None = term(
        "Events of",
        says="Null: events of all projects, for the tenant's admins only.",
        default=None,
        max_length=40,
    )


@terms
class WebhookSwitchTerms:
    """Whether messages are sent."""

    body_name = "WebhookSwitch"
    is_enabled: bool = term()


@terms
class ResendTerms:
    """Which messages to send again."""

    since: datetime = term(says="Messages that were queued at this time or later.")
    states: Sequence[Literal["failed", "dropped"]] = term(
        says="`failed`, `dropped` or both.", default=("failed", "dropped"), allow_empty=False
    )


def webhooks_of(actor: Holder, kind: str = Webhook.Kind.WEBHOOK) -> QuerySet[Webhook]:
    """Returns the webhooks that the actor may see and change, or the trackers of a `kind`."""
    found = _all_of(actor).filter(kind=kind).select_related("project")
    if isinstance(actor, Actor) and not actor.is_tenant_admin:
        led = [project for project in actor.roles if actor.may_lead(project)]
        found = found.filter(project__in=led)
    return found.order_by("created", "id")


def _all_of(actor: Holder) -> QuerySet[Webhook]:
    if isinstance(actor, PlatformActor):
        return Webhook.objects.filter(tenant=None)
    return Webhook.objects.filter(tenant_id=actor.tenant_id)


def webhook_one(
    actor: Holder,
    webhook_id: UUID,
    *,
    kind: str = Webhook.Kind.WEBHOOK,
    is_locked: bool = False,
) -> Webhook:
    """Returns a webhook of the actor. Raises Refused `not_found`."""
    rows = webhooks_of(actor, kind).filter(id=webhook_id)
    found = (rows.select_for_update(of=("self",)) if is_locked else rows).first()
    if found is None:
        raise missing("webhook")
    return found


@transaction.atomic
def webhook_create(
    *, actor: Holder, terms: PlatformWebhookTerms, now: datetime, kind: str = Webhook.Kind.WEBHOOK
) -> tuple[Webhook, str]:
    """Creates a webhook; returns it with its secret, which is not stored. Made with a token, it
    ends with the token.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_name`, `bad_url`, `unknown_event` or
            `too_many_webhooks`.
    """
    values = _values(actor, terms)
    if _all_of(actor).count() >= MAX_WEBHOOKS:
        raise Refused("too_many_webhooks", refusal_text("too_many_webhooks", max_webhooks=MAX_WEBHOOKS))
    webhook = Webhook.objects.create(
        tenant_id=actor.tenant_id,
        kind=kind,
        created=now,
        created_by_id=actor.user_id,
        made_with_id=actor.token_id,
        salt=salt_new(),
        **values,
    )
    _record(actor, "webhook.created", webhook, now)
    return webhook, secret_of(webhook.salt) or ""


@transaction.atomic
def webhook_change(
    *,
    actor: Holder,
    webhook_id: UUID,
    terms: PlatformWebhookTerms,
    now: datetime,
    kind: str = Webhook.Kind.WEBHOOK,
) -> Webhook:
    """Changes a webhook. Messages that wait go to the new address.

    Raises:
        Refused: As for `webhook_create`.
    """
    webhook = webhook_one(actor, webhook_id, kind=kind, is_locked=True)
    before = _facts(webhook)
    if actor.token_id is not None and terms.url != webhook.url:
        webhook.made_with_id = actor.token_id
    for name, value in _values(actor, terms).items():
        setattr(webhook, name, value)
    webhook.save()
    _record(actor, "webhook.changed", webhook, now, before)
    return webhook


@transaction.atomic
def webhook_enabled_set(
    *,
    actor: Holder,
    webhook_id: UUID,
    is_enabled: bool,
    now: datetime,
    kind: str = Webhook.Kind.WEBHOOK,
) -> Webhook:
    """Switches a webhook on or off; messages that wait are dropped when it goes off. Who switches
    one on is responsible for it from then on: in a browser it stays, with a token it ends with it.

    Raises:
        Refused: `not_found`.
    """
    webhook = webhook_one(actor, webhook_id, kind=kind, is_locked=True)
    if is_enabled and webhook.disabled_at is not None:
        before = _facts(webhook)
        # The last delivery counts again from now: a failing webhook is not switched off at once.
        webhook.disabled_at, webhook.disabled_reason = None, ""
        webhook.last_delivered = now
        webhook.made_with_id = actor.token_id
        webhook.save()
        _record(actor, "webhook.enabled", webhook, now, before)
    elif not is_enabled and webhook.disabled_at is None:
        before = _facts(webhook)
        webhook_disable(webhook, SWITCHED_OFF.format(actor.name)[:200], now)
        _record(actor, "webhook.disabled", webhook, now, before)
    return webhook


def webhook_disable(webhook: Webhook, reason: str, now: datetime) -> None:
    """Switches the webhook off and drops the messages that wait."""
    webhook.disabled_at, webhook.disabled_reason = now, reason
    webhook.save(update_fields=["disabled_at", "disabled_reason"])
    webhook.deliveries.filter(state=WebhookDelivery.State.PENDING).update(
        state=WebhookDelivery.State.DROPPED, settled=now
    )


@transaction.atomic
def webhook_delete(
    *, actor: Holder, webhook_id: UUID, now: datetime, kind: str = Webhook.Kind.WEBHOOK
) -> None:
    """Deletes a webhook with its log. Raises Refused `not_found`."""
    webhook = webhook_one(actor, webhook_id, kind=kind, is_locked=True)
    _record(actor, "webhook.deleted", webhook, now, _facts(webhook))
    webhook.delete()


@transaction.atomic
def webhook_secret_rotate(
    *, actor: Holder, webhook_id: UUID, now: datetime, kind: str = Webhook.Kind.WEBHOOK
) -> tuple[Webhook, str]:
    """Gives the webhook a new secret; returns both. The previous one signs, too, for 24 hours.

    Raises:
        Refused: `not_found`.
    """
    webhook = webhook_one(actor, webhook_id, kind=kind, is_locked=True)
    before = _facts(webhook)
    webhook.previous_salt, webhook.previous_until = webhook.salt, now + OVERLAP
    webhook.salt = salt_new()
    webhook.made_with_id = actor.token_id or webhook.made_with_id
    webhook.save(update_fields=["salt", "previous_salt", "previous_until", "made_with"])
    _record(actor, "webhook.rotated", webhook, now, before)
    return webhook, secret_of(webhook.salt) or ""


@transaction.atomic
def webhook_test(
    *, actor: Holder, webhook_id: UUID, now: datetime, kind: str = Webhook.Kind.WEBHOOK
) -> WebhookDelivery:
    """Queues a test message. Raises Refused `not_found` or `webhook_disabled`."""
    webhook = _enabled(actor, webhook_id, kind)
    return WebhookDelivery.objects.create(
        tenant_id=webhook.tenant_id,
        webhook=webhook,
        key=uuid.uuid4(),
        type=TEST,
        content=None if kind == Webhook.Kind.WEBHOOK else {"act": "test"},
        created=now,
        due=now,
    )


@transaction.atomic
def delivery_resend(
    *,
    actor: Holder,
    webhook_id: UUID,
    delivery_id: int,
    now: datetime,
    kind: str = Webhook.Kind.WEBHOOK,
) -> WebhookDelivery:
    """Sends a message again, with the same id: a waiting one now, a settled one as a new delivery.

    Raises:
        Refused: `not_found` or `webhook_disabled`.
    """
    webhook = _enabled(actor, webhook_id, kind)
    found = webhook.deliveries.select_for_update().filter(id=delivery_id).first()
    if found is None:
        raise missing("delivery")
    if found.state == WebhookDelivery.State.PENDING:
        found.due = now
        found.save(update_fields=["due"])
        return found
    made = _again(found, now)
    made.save(force_insert=True)
    return made


@transaction.atomic
def deliveries_resend(*, actor: Holder, webhook_id: UUID, terms: ResendTerms, now: datetime) -> int:
    """Sends all failed or dropped messages since a time again, in their order; returns how many.

    A message that was sent again already, and waits or was delivered, is left out.

    Raises:
        Refused: `not_found`, `webhook_disabled` or `too_many_messages`.
    """
    webhook = _enabled(actor, webhook_id, Webhook.Kind.WEBHOOK)
    later = webhook.deliveries.filter(key=OuterRef("key"), id__gt=OuterRef("id"))
    found = webhook.deliveries.filter(state__in=terms.states, created__gte=terms.since).exclude(type=TEST)
    rows = list(found.filter(~Exists(later)).order_by("id")[: MAX_RESENT + 1])
    if len(rows) > MAX_RESENT:
        raise Refused(
            "too_many_messages",
            refusal_text("too_many_messages", max_resent=f"{MAX_RESENT:,}"),
            "invalid",
            "since",
            numbers={"most": MAX_RESENT},
        )
    WebhookDelivery.objects.bulk_create([_again(each, now) for each in rows])
    if rows:
        audit_record(
            tenant_id=actor.tenant_id,
            actor_id=actor.user_id,
            action="webhook.resent",
            target=("webhook", webhook.id),
            now=now,
            detail={"name": webhook.name, "before": {}, "after": {"messages": len(rows)}},
        )
    return len(rows)


def _again(found: WebhookDelivery, now: datetime) -> WebhookDelivery:
    return WebhookDelivery(
        tenant_id=found.tenant_id,
        webhook_id=found.webhook_id,
        event_id=found.event_id,
        key=found.key,
        type=found.type,
        content=found.content,
        created=now,
        due=now,
    )


def _enabled(actor: Holder, webhook_id: UUID, kind: str) -> Webhook:
    webhook = webhook_one(actor, webhook_id, kind=kind, is_locked=True)
    if webhook.disabled_at is not None:
        raise Refused("webhook_disabled", refusal_text("webhook_disabled"))
    return webhook


def _values(actor: Holder, terms: PlatformWebhookTerms) -> dict[str, object]:
    """Returns the checked fields of the row. Raises Refused."""
    patterns = list(dict.fromkeys(terms.events))
    if not 1 <= len(patterns) <= MAX_PATTERNS:
        raise invalid("unknown_event", refusal_text("webhook_events", max_patterns=MAX_PATTERNS), "events")
    names = EVENT_TYPES if isinstance(actor, Actor) else SITE_TYPES
    if unknown := patterns_unknown(patterns, names):
        raise invalid("unknown_event", refusal_text("unknown_event", event=f"{unknown[0][:60]!r}"), "events")
    values: dict[str, object] = {"name": name_read(terms.name), "url": _url(terms.url), "events": patterns}
    if isinstance(actor, Actor) and isinstance(terms, WebhookTerms):
        values |= {"project": _project(actor, terms.project), "labels": labels_check(terms.labels or {})}
    return values


def _project(actor: Actor, slug: str | None) -> Project | None:
    if not slug:
        if not actor.is_tenant_admin:
            raise denied(refusal_text("webhook_admins_only"))
        return None
    project = access_project(actor, slug, "project")
    if not actor.may_lead(project.id):
        raise denied(refusal_text("project_leads_only"))
    return project


def _url(text: str) -> str:
    try:
        target_address(target_read(text))
    except BadTarget as fault:
        raise invalid("bad_url", fault_text(fault), "url") from None
    return text


def _record(
    actor: Holder,
    action: str,
    webhook: Webhook,
    now: datetime,
    before: Mapping[str, object] | None = None,
) -> None:
    """Writes to the tenant's log what the webhook is, and to the platform's log what changed."""
    facts, target = _facts(webhook), ("webhook", webhook.id)
    if isinstance(actor, Actor):
        shown = ("name", "url", "events", "labels")
        audit_record(
            tenant_id=actor.tenant_id,
            actor_id=actor.user_id,
            action=action,
            target=target,
            now=now,
            detail={name: facts[name] for name in shown},
        )
        return
    platform_record(
        operator_id=actor.user_id,
        action=action,
        target=target,
        now=now,
        before=before,
        after={} if action == "webhook.deleted" else facts,
    )


def _facts(webhook: Webhook) -> dict[str, object]:
    until = webhook.previous_until
    return {
        "name": webhook.name,
        "url": webhook.url.partition("?")[0],
        "events": list(webhook.events),
        "labels": webhook.labels,
        "is_enabled": webhook.disabled_at is None,
        "previous_secret_until": until.isoformat() if until else None,
    }


def log_of(webhook: Webhook, only: str = "") -> QuerySet[WebhookDelivery]:
    """Returns the deliveries of a webhook, those in state `only` if given."""
    wanted = Q(state=only) if only else Q()
    return webhook.deliveries.filter(wanted).select_related("event")
