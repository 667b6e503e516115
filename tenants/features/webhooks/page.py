"""Pages of webhooks, of tenants and of the platform: the list with a form, and one with its log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from tenants.access import Actor, PlatformActor, led_projects
from tenants.features.webhooks.services import (
    Holder,
    PlatformWebhookTerms,
    ResendTerms,
    WebhookTerms,
    deliveries_resend,
    delivery_resend,
    log_of,
    webhook_change,
    webhook_create,
    webhook_delete,
    webhook_enabled_set,
    webhook_one,
    webhook_secret_rotate,
    webhook_test,
    webhooks_of,
)
from tenants.models import Webhook, WebhookDelivery
from tenants.platform.errors import denied
from tenants.platform.forms.actions import number_text_read
from tenants.platform.forms.confirm import Confirmation
from tenants.rules.event_types import EVENT_TYPES, SITE_TYPES, TEST
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.parts import counted
from tenants.words import refusal_text

GROUP_LABELS = {
    "booking": "Bookings",
    "budget": "Budgets",
    "dispute": "Disputes",
    "price_book": "Prices",
    "node": "Nodes",
    "gpu": "GPUs",
    "policy": "Policy",
    "maintenance": "Maintenance",
    "outage": "Outages of the portal",
    "freeze": "Freezes of decisions",
    "stop": "Stops of new work",
}
"""What events are about, by the first part of their name."""
PAGE_ROWS = 50
MOST_EVENTS = 3
"""Events that a row of the list names."""
KEPT = timedelta(days=30)
_LOST = (WebhookDelivery.State.FAILED, WebhookDelivery.State.DROPPED)


def _base(actor: Holder) -> str:
    return f"/t/{actor.tenant_slug}/settings/webhooks" if isinstance(actor, Actor) else "/ops/webhooks"


def _frame(actor: Holder) -> dict[str, Any]:
    """What both pages need."""
    is_of_platform = isinstance(actor, PlatformActor)
    return {
        "base": _base(actor),
        "is_of_platform": is_of_platform,
        "event_groups": event_groups(SITE_TYPES if is_of_platform else EVENT_TYPES),
    }


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Events to tick under one heading; `all` is the pattern of all of them, also of later ones."""

    label: str
    all: str
    events: list[tuple[str, str]]

    @property
    def values(self) -> list[str]:
        """What can be ticked in it."""
        return [self.all, *(name for name, _ in self.events)]


def event_groups(names: Iterable[str]) -> list[EventGroup]:
    """The events by what they are about, in the order of the catalogue."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        found.setdefault(name.partition(".")[0], []).append((name, EVENT_TYPES[name]))
    return [EventGroup(GROUP_LABELS[subject], f"{subject}.*", rows) for subject, rows in found.items()]


def _events_offered(actor: Holder) -> list[tuple[str, str]]:
    """What the form may tick: the groups, their events, and everything."""
    names = SITE_TYPES if isinstance(actor, PlatformActor) else EVENT_TYPES
    groups = event_groups(names)
    return [("*", ""), *((value, "") for group in groups for value in group.values)]


def _list_shown(actor: Holder, now: datetime) -> dict[str, Any]:
    if isinstance(actor, Actor) and not actor.leads_any:
        raise denied(refusal_text("webhook_owners"))
    rows = [(each, webhook_state(each), event_words(each.events)) for each in webhooks_of(actor)]
    return {**_frame(actor), "rows": rows}


def event_words(patterns: Iterable[str]) -> str:
    """Events in words: `everything`, or `all of bookings, GPU failed and 2 more`."""
    found = [_pattern_words(each) for each in patterns]
    more = f" and {len(found) - MOST_EVENTS} more" if len(found) > MOST_EVENTS else ""
    return ", ".join(found[:MOST_EVENTS]) + more


def _pattern_words(pattern: str) -> str:
    subject, _, kind = pattern.partition(".")
    if pattern == "*":
        return "everything"
    if kind == "*":
        label = GROUP_LABELS.get(subject, subject)
        return f"everything about {label if label[:2].isupper() else label[0].lower() + label[1:]}"
    return EVENT_TYPES.get(pattern, pattern)


def _one_shown(actor: Holder, now: datetime, webhook_id: UUID, state: str, before: str) -> dict[str, Any]:
    webhook = webhook_one(actor, webhook_id)
    return {
        **_frame(actor),
        **delivery_log(webhook, state, before),
        "webhook": webhook,
        "state": webhook_state(webhook),
    }


def webhook_state(webhook: Webhook) -> str:
    """Returns `off`, `failing` (the oldest waiting message was tried and failed) or `on`."""
    if webhook.disabled_at is not None:
        return "off"
    waiting = webhook.deliveries.filter(state=WebhookDelivery.State.PENDING, claimed_until=None)
    return "failing" if waiting.filter(tries__gt=0).exists() else "on"


def delivery_log(webhook: Webhook, state: str, before: str) -> dict[str, Any]:
    """Returns the rows of the log, the state that is chosen, and where older rows begin."""
    only = state if state in WebhookDelivery.State.values else ""
    rows = log_of(webhook, only).order_by("-id")
    if (number := number_text_read(before)) is not None:
        rows = rows.filter(id__lt=number)
    found = list(rows[: PAGE_ROWS + 1])
    return {
        "log": [_row(each) for each in found[:PAGE_ROWS]],
        "older": found[PAGE_ROWS - 1].id if len(found) > PAGE_ROWS else None,
        "only": only,
        "lost": webhook.deliveries.filter(state__in=_LOST).exclude(type=TEST).count(),
        "states": [("", "All"), *WebhookDelivery.State.choices],
    }


def _row(delivery: WebhookDelivery) -> dict[str, Any]:
    """A delivery with its booking, or the hardware that its event is about."""
    data = delivery.event.data if delivery.event else {}
    place = data.get("node", {}).get("name") or data.get("gpu", {}).get("node")
    return {
        "delivery": delivery,
        "booking": data.get("booking", {}).get("number", ""),
        "about": place or data.get("maintenance", {}).get("where") or data.get("stop", {}).get("name", ""),
        "attempts": [each | {"at": datetime.fromisoformat(each["at"])} for each in delivery.attempts],
    }


def _stored(actor: Holder, webhook_id: UUID, **_: str) -> dict[str, Any]:
    webhook = webhook_one(actor, webhook_id)
    project = webhook.project.slug if webhook.project else ""
    return {name: getattr(webhook, name) for name in ("name", "url", "events", "labels")} | {
        "project": project
    }


def _projects(actor: Actor) -> list[tuple[str, str]]:
    return [
        *([("", "All projects")] if actor.is_tenant_admin else []),
        *led_projects(actor, with_closed=True),
    ]


def _all_resend(*, actor: Holder, webhook_id: UUID, now: datetime) -> int:
    terms = ResendTerms(since=now - KEPT)
    return deliveries_resend(actor=actor, webhook_id=webhook_id, terms=terms, now=now)


def _delete_question(actor: Holder, webhook_id: UUID) -> Confirmation:
    webhook, waiting = _waiting(actor, webhook_id)
    return Confirmation(
        title=f"Delete {webhook.name}?",
        lost=(
            f"{webhook.url} receives nothing any more. Waiting messages: {waiting}.",
            "Its log and its secret are deleted. This can't be undone.",
        ),
        button=f"Delete {webhook.name}",
        back=f"{_base(actor)}/{webhook.id}",
    )


def _off_question(actor: Holder, webhook_id: UUID) -> Confirmation | None:
    """Returns the confirmation before messages that wait are dropped."""
    webhook, waiting = _waiting(actor, webhook_id)
    if not waiting:
        return None
    return Confirmation(
        title=f"Switch off {webhook.name}?",
        lost=(f"Waiting messages that are dropped: {waiting}. You can send each again from the log.",),
        button=f"Switch off {webhook.name}",
        back=f"{_base(actor)}/{webhook.id}",
        keep="Keep it on",
    )


def _waiting(actor: Holder, webhook_id: UUID) -> tuple[Webhook, int]:
    webhook = webhook_one(actor, webhook_id)
    return webhook, webhook.deliveries.filter(state=WebhookDelivery.State.PENDING).count()


def _create(terms: type[PlatformWebhookTerms], events: tuple[str, ...], **more: Any) -> Act:  # noqa: ANN401
    return Act(
        "create",
        webhook_create,
        "{row[0].name} created. Copy its secret now; it is shown only once.",
        terms=terms,
        initial=lambda _: {"name": "", "events": events},
        is_shown_once=True,
        **more,
    )


def _acts(terms: type[PlatformWebhookTerms], listed: str, **more: Any) -> tuple[Act, ...]:  # noqa: ANN401
    """The commands of the page of one webhook."""
    off = partial(webhook_enabled_set, is_enabled=False)
    return (
        Act("change", webhook_change, "Webhook saved.", terms=terms, initial=_stored, **more),
        Act("test", webhook_test, "Test message queued. Its answer appears in the log."),
        Act("resend", delivery_resend, "Message queued.", key="delivery", key_type=int),
        Act("resend-all", _all_resend, lambda count: f"{counted(count, 'message')} queued again."),
        Act(
            "rotate",
            webhook_secret_rotate,
            "New secret made. The previous one stays valid for 24 hours.",
            is_shown_once=True,
        ),
        Act("on", partial(webhook_enabled_set, is_enabled=True), "Webhook switched on."),
        Act("off", off, "Webhook switched off.", asks=_off_question),
        Act("delete", webhook_delete, "Webhook deleted.", asks=_delete_question, to=listed),
    )


_EVENTS = {"events": _events_offered}
_CHOICES = {"project": _projects, **_EVENTS}
urlpatterns = [
    form_page(
        "settings/webhooks",
        "webhooks",
        "webhooks/list.html",
        _list_shown,
        _create(WebhookTerms, ("booking.*",), choices=_CHOICES),
    ),
    form_page(
        "settings/webhooks/<uuid:webhook_id>",
        "webhook",
        "webhooks/one.html",
        _one_shown,
        *_acts(WebhookTerms, "webhooks", choices=_CHOICES),
        queries=("state", "before"),
    ),
    operator_form_page(
        "webhooks",
        "ops-webhooks",
        "webhooks/list.html",
        _list_shown,
        _create(PlatformWebhookTerms, ("node.*", "gpu.*"), choices=_EVENTS),
        area=Area.SYSTEM,
    ),
    operator_form_page(
        "webhooks/<uuid:webhook_id>",
        "ops-webhook",
        "webhooks/one.html",
        _one_shown,
        *_acts(PlatformWebhookTerms, "ops-webhooks", choices=_EVENTS),
        area=Area.SYSTEM,
        queries=("state", "before"),
    ),
]
