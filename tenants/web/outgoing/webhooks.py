"""Pages of webhooks, of tenants and of the platform: the list with a form, and one with its log."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor, PlatformActor
from tenants.models import Project, User, Webhook, WebhookDelivery
from tenants.platform.errors import denied, missing
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.labels import labels_read, labels_text
from tenants.rules.event_types import EVENT_TYPES, SITE_TYPES, TEST
from tenants.services.outgoing.webhooks import (
    Holder,
    WebhookTerms,
    deliveries_resend,
    delivery_resend,
    log_of,
    may_have_webhooks,
    platform_actor,
    webhook_change,
    webhook_create,
    webhook_delete,
    webhook_enabled_set,
    webhook_one,
    webhook_secret_rotate,
    webhook_test,
    webhooks_of,
)
from tenants.web.frame import operator_page, tenant_page
from tenants.web.parts import counted
from tenants.words import refusal_text

PAGE_ROWS = 50
_LOST = (WebhookDelivery.State.FAILED, WebhookDelivery.State.DROPPED)
_ANY_PROJECT = "All projects"


@dataclass(frozen=True, slots=True)
class WebhookRow:
    """A webhook in the list, with its latest failure if it does not work."""

    webhook: Webhook
    state: str


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt: `result` is the status or the error."""

    at: datetime
    result: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery in the log. `about` is the hardware of an event that is of no booking."""

    delivery: WebhookDelivery
    booking: str
    about: str
    attempts: tuple[AttemptRow, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Whose webhooks the pages show: who acts for them, and the address of the list."""

    holder: Holder
    base: str
    events: Collection[str]
    typed: str
    projects: Sequence[tuple[str, str]] = ()

    def shown(self) -> dict[str, Any]:
        """Returns what both pages need."""
        return {
            "base": self.base,
            "is_of_platform": isinstance(self.holder, PlatformActor),
            "projects": self.projects,
            "catalogue": [(name, EVENT_TYPES[name]) for name in self.events],
        }


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def webhooks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Lists webhooks and creates them. The secret of a new one is shown only once."""
    if not may_have_webhooks(actor):
        raise denied(refusal_text("webhook_owners"))
    return _list_page(request, _of_tenant(actor))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def webhook(request: HttpRequest, actor: Actor, webhook_id: UUID) -> HttpResponse:
    """Shows one webhook with its log, and carries out what its buttons say."""
    return _one_page(request, _of_tenant(actor), webhook_id)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_webhooks(request: HttpRequest, operator: User) -> HttpResponse:
    """Lists the platform's webhooks and creates them."""
    return _list_page(request, _of_platform(operator))


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_webhook(request: HttpRequest, operator: User, webhook_id: UUID) -> HttpResponse:
    """Shows one webhook of the platform with its log, and carries out what its buttons say."""
    return _one_page(request, _of_platform(operator), webhook_id)


def _of_tenant(actor: Actor) -> Place:
    base = f"/t/{actor.tenant_slug}/settings/webhooks"
    return Place(actor, base, tuple(EVENT_TYPES), "booking.*", _projects(actor))


def _of_platform(operator: User) -> Place:
    return Place(platform_actor(operator), "/ops/webhooks", SITE_TYPES, "node.*, gpu.*")


def _list_page(request: HttpRequest, place: Place) -> HttpResponse:
    made: list[tuple[Webhook, str]] = []
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {"create": lambda form: _create(place.holder, form, made)})
    context = {
        **place.shown(),
        "rows": [WebhookRow(each, webhook_state(each)) for each in webhooks_of(place.holder)],
        "made": made[0] if made else None,
        "refusal": refusal,
        "typed": request.POST if refusal else {"events": place.typed},
    }
    status = 422 if refusal else 200
    return render(request, "tenants/webhooks/list.html", context, status=status)


def _one_page(request: HttpRequest, place: Place, webhook_id: UUID) -> HttpResponse:
    shown = webhook_one(place.holder, webhook_id)
    secrets: list[str] = []
    refusal = None
    if request.method == "POST":
        if (question := _question(place.base, shown, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, _actions(place.holder, webhook_id, secrets))
        if refusal is None and request.POST.get("act") == "delete":
            return redirect(place.base)
        if refusal is None and not secrets:
            return redirect(f"{place.base}/{webhook_id}")
        shown = webhook_one(place.holder, webhook_id)
    context = {
        **place.shown(),
        **delivery_log(shown, request.GET),
        "webhook": shown,
        "state": webhook_state(shown),
        "secret": secrets[0] if secrets else "",
        "refusal": refusal,
        "typed": request.POST
        if refusal and request.POST.get("act") == "change"
        else {
            "name": shown.name,
            "url": shown.url,
            "events": ", ".join(shown.events),
            "labels": labels_text(shown.labels),
            "project": shown.project.slug if shown.project else "",
        },
    }
    return render(request, "tenants/webhooks/one.html", context, status=422 if refusal else 200)


def _actions(actor: Holder, webhook_id: UUID, secrets: list[str]) -> Mapping[str, FormAction]:
    def act(service: Callable[..., Any], sentence: str, **more: object) -> FormAction:
        def run(_: QueryDict) -> str:
            service(actor=actor, webhook_id=webhook_id, now=timezone.now(), **more)
            return sentence

        return run

    return {
        "change": lambda form: _change(actor, webhook_id, form),
        "test": act(webhook_test, "Test message queued. Its answer appears in the log."),
        "resend": lambda form: _resend(actor, webhook_id, form),
        "resend-all": lambda _: _resend_all(actor, webhook_id),
        "rotate": lambda _: _rotate(actor, webhook_id, secrets),
        "on": act(webhook_enabled_set, "Webhook switched on.", is_enabled=True),
        "off": act(webhook_enabled_set, "Webhook switched off.", is_enabled=False),
        "delete": act(webhook_delete, "Webhook deleted."),
    }


def _terms(form: QueryDict) -> WebhookTerms:
    events = form.get("events", "").replace("\n", ",").split(",")
    return WebhookTerms(
        name=form.get("name", ""),
        url=form.get("url", "").strip(),
        events=[each.strip() for each in events if each.strip()],
        project=form.get("project") or None,
        labels=labels_read(form.get("labels", "")),
    )


def _create(actor: Holder, form: QueryDict, made: list[tuple[Webhook, str]]) -> str:
    made.append(webhook_create(actor=actor, terms=_terms(form), now=timezone.now()))
    return f"{made[0][0].name} created. Copy its secret now; it is shown only once."


def _change(actor: Holder, webhook_id: UUID, form: QueryDict) -> str:
    webhook_change(actor=actor, webhook_id=webhook_id, terms=_terms(form), now=timezone.now())
    return "Webhook saved."


def _resend(actor: Holder, webhook_id: UUID, form: QueryDict) -> str:
    number = form.get("delivery", "")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise missing("delivery", "delivery")
    delivery_resend(actor=actor, webhook_id=webhook_id, delivery_id=int(number), now=timezone.now())
    return "Message queued."


def _resend_all(actor: Holder, webhook_id: UUID) -> str:
    now = timezone.now()
    count = deliveries_resend(
        actor=actor,
        webhook_id=webhook_id,
        since=now - timedelta(days=30),
        states=_LOST,
        now=now,
    )
    return f"{counted(count, 'message')} queued again."


def _rotate(actor: Holder, webhook_id: UUID, secrets: list[str]) -> str:
    _, secret = webhook_secret_rotate(actor=actor, webhook_id=webhook_id, now=timezone.now())
    secrets.append(secret)
    return "New secret made. The previous one stays valid for 24 hours."


def _question(base: str, webhook: Webhook, form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before a webhook is deleted, or switched off while messages wait."""
    if CONFIRMED_FIELD in form or form.get("act") not in ("delete", "off"):
        return None
    waiting = webhook.deliveries.filter(state=WebhookDelivery.State.PENDING).count()
    back = f"{base}/{webhook.id}"
    if form.get("act") == "delete":
        return Confirmation(
            title=f"Delete {webhook.name}?",
            lost=(
                f"{webhook.url} receives nothing any more. Waiting messages: {waiting}.",
                "Its log and its secret are deleted. This can't be undone.",
            ),
            button=f"Delete {webhook.name}",
            back=back,
        )
    if not waiting:
        return None
    return Confirmation(
        title=f"Switch off {webhook.name}?",
        lost=(f"Waiting messages that are dropped: {waiting}. You can send each again from the log.",),
        button=f"Switch off {webhook.name}",
        back=back,
        keep="Keep it on",
    )


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    led = [(each.slug, each.name) for each in rows if actor.may_lead(each.id)]
    return [("", _ANY_PROJECT), *led] if actor.is_tenant_admin else led


def webhook_state(webhook: Webhook) -> str:
    """Returns `off`, `failing` (the oldest waiting message was tried and failed) or `on`."""
    if webhook.disabled_at is not None:
        return "off"
    waiting = webhook.deliveries.filter(state=WebhookDelivery.State.PENDING, claimed_until=None)
    return "failing" if waiting.filter(tries__gt=0).exists() else "on"


def delivery_log(webhook: Webhook, query: QueryDict) -> dict[str, Any]:
    """Returns the rows of the log, the state that is chosen, and where older rows begin."""
    only = query.get("state", "")
    only = only if only in WebhookDelivery.State.values else ""
    rows = log_of(webhook, only).order_by("-id")
    before = query.get("before", "")
    if before.isascii() and before.isdigit() and len(before) <= 18:
        rows = rows.filter(id__lt=int(before))
    found = list(rows[: PAGE_ROWS + 1])
    return {
        "log": [_row(each) for each in found[:PAGE_ROWS]],
        "older": found[PAGE_ROWS - 1].id if len(found) > PAGE_ROWS else None,
        "only": only,
        "lost": webhook.deliveries.filter(state__in=_LOST).exclude(type=TEST).count(),
        "states": [("", "All"), *WebhookDelivery.State.choices],
    }


def _row(delivery: WebhookDelivery) -> DeliveryRow:
    data = delivery.event.data if delivery.event else {}
    place = data.get("node", {}).get("name") or data.get("gpu", {}).get("node")
    return DeliveryRow(
        delivery=delivery,
        booking=data.get("booking", {}).get("number", ""),
        about=place or data.get("maintenance", {}).get("where") or data.get("stop", {}).get("name", ""),
        attempts=tuple(
            AttemptRow(
                at=datetime.fromisoformat(each["at"]),
                result=each["error"] or str(each["status"]),
                milliseconds=each["milliseconds"],
            )
            for each in delivery.attempts
        ),
    )


urlpatterns = [
    path("t/<slug:tenant>/settings/webhooks", webhooks, name="webhooks"),
    path("t/<slug:tenant>/settings/webhooks/<uuid:webhook_id>", webhook, name="webhook"),
    path("ops/webhooks", ops_webhooks, name="ops-webhooks"),
    path("ops/webhooks/<uuid:webhook_id>", ops_webhook, name="ops-webhook"),
]
