"""Pages of connections to Jira: the list with a form, and one connection with its logs."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import JiraConnection, JiraProject
from allocation.services.jira.connections import (
    FOLLOWED,
    JIRA,
    ConnectionTerms,
    ProjectTerms,
    connection_change,
    connection_create,
    connection_delete,
    connection_one,
    connections_of,
    project_remove,
    project_set,
)
from allocation.services.jira.dry_run import DryRun, dry_run, sample_read, sample_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.features.webhooks.page import delivery_log, webhook_state
from tenants.features.webhooks.services import (
    delivery_resend,
    webhook_enabled_set,
    webhook_secret_rotate,
    webhook_test,
)
from tenants.models import Project, Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.labels import labels_read, labels_text
from tenants.rules.event_types import EVENT_TYPES
from tenants.web.frame import tenant_page

SHOWN_MESSAGES = 30
NEW_CONNECTION = {"name": "Jira", "flavour": "cloud"}
NEW_PROJECT = {"tier": "standard", "act_of": "book", "request": "{customfield_10050}"}


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def connections(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Lists connections and creates them. The secret of a new one is shown only once."""
    made: list[tuple[JiraConnection, str]] = []
    refusal = None
    rows = connections_of(actor)
    if request.method == "POST":
        refusal = form_action_run(request, {"create": lambda form: _create(actor, form, made)})
    context = {
        "rows": [{"connection": each, "state": webhook_state(each.receiver)} for each in rows],
        "made": made[0] if made else None,
        "refusal": refusal,
        "typed": request.POST if refusal else NEW_CONNECTION,
        "flavours": JiraConnection.Flavour.choices,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/jira/list.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def connection(request: HttpRequest, actor: Actor, connection_id: UUID) -> HttpResponse:
    """Shows one connection with its projects and logs, and carries out what its buttons say."""
    shown = connection_one(actor, connection_id)
    secrets: list[str] = []
    tried: list[DryRun] = []
    refusal = None
    if request.method == "POST":
        if (question := _question(actor, shown, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, _actions(actor, shown, secrets, tried))
        if refusal is None and request.POST.get("act") == "delete":
            return redirect("jira", tenant=actor.tenant_slug)
        if refusal is None and not secrets and not tried:
            return redirect("jira-one", tenant=actor.tenant_slug, connection_id=connection_id)
        shown = connection_one(actor, connection_id)
    context = {
        **delivery_log(shown.receiver, request.GET.get("state", ""), request.GET.get("before", "")),
        **_forms(actor, shown, request, refusal),
        "connection": shown,
        "webhook": shown.receiver,
        "state": webhook_state(shown.receiver),
        "address": _address(shown),
        "secret": secrets[0] if secrets else "",
        "refusal": refusal,
        "tried": tried[0] if tried else None,
        "received": shown.messages.select_related("booking").order_by("-id")[:SHOWN_MESSAGES],
    }
    return render(request, "allocation/jira/one.html", context, status=422 if refusal else 200)


def _address(shown: JiraConnection) -> str:
    names = {"tenant_id": shown.tenant_id, "connection_id": shown.id}
    return settings.PUBLIC_URL + reverse("api-jira-messages", kwargs=names)


def _forms(
    actor: Actor, shown: JiraConnection, request: HttpRequest, refusal: Refused | None
) -> dict[str, Any]:
    """Returns the values of the forms: what was typed where it was refused, else what is stored."""
    rows = shown.projects.select_related("project", "owner", "tier").order_by("key")
    wrong = request.POST.get("act", "") if refusal else ""
    edited = rows.filter(key=request.GET.get("project", "")[:20]).first()
    first = rows.first()
    sample = request.POST.get("sample") or sample_text(first.key if first else "GPU")
    return {
        "projects": rows,
        "edited": edited,
        "typed": request.POST if wrong == "change" else _stored(shown),
        "mapped": request.POST if wrong == "map" else _stored_project(edited),
        "sample": sample,
        "flavours": JiraConnection.Flavour.choices,
        "acts": JiraProject.Act.choices,
        "tiers": list(Tier.objects.values_list("slug", "name")),
        "own_projects": list(Project.objects.filter(tenant_id=actor.tenant_id).values_list("slug", "name")),
        "followed": ", ".join(FOLLOWED),
        "catalogue": EVENT_TYPES.items(),
    }


def _stored(shown: JiraConnection) -> dict[str, str]:
    return {
        "name": shown.receiver.name,
        "url": shown.receiver.url,
        "flavour": shown.flavour,
        "account": shown.account,
        "events": ", ".join(shown.receiver.events),
    }


def _stored_project(row: JiraProject | None) -> dict[str, str]:
    if row is None:
        return NEW_PROJECT
    return {
        "key": row.key,
        "project": row.project.slug,
        "owner": row.owner.username,
        "tier": row.tier_id,
        "act_of": row.act,
        "request": row.request,
        "labels": labels_text(row.labels),
        "transitions": labels_text(row.transitions),
        "board": "" if row.board is None else str(row.board),
        "sprint": row.sprint_request,
        "approver": row.approver.username if row.approver else "",
        "approve_status": row.approve_status,
        "decline_status": row.decline_status,
    }


def _actions(
    actor: Actor, shown: JiraConnection, secrets: list[str], tried: list[DryRun]
) -> Mapping[str, FormAction]:
    receiver = shown.receiver_id

    def act(service: Callable[..., Any], sentence: str, **more: object) -> FormAction:
        def run(_: QueryDict) -> str:
            service(actor=actor, webhook_id=receiver, now=timezone.now(), kind=JIRA, **more)
            return sentence

        return run

    return {
        "change": lambda form: _change(actor, shown, form),
        "map": lambda form: _map(actor, shown, form),
        "unmap": lambda form: _unmap(actor, shown, form),
        "dry-run": lambda form: _dry_run(shown, form, tried, timezone.now()),
        "test": act(webhook_test, "Test queued. Its answer appears in the log of calls."),
        "resend": lambda form: _resend(actor, receiver, form),
        "rotate": lambda _: _rotate(actor, receiver, secrets),
        "on": act(webhook_enabled_set, "Connection switched on.", is_enabled=True),
        "off": act(webhook_enabled_set, "Connection switched off.", is_enabled=False),
        "delete": lambda _: _delete(actor, shown),
    }


def _terms(form: QueryDict) -> ConnectionTerms:
    events = form.get("events", "").replace("\n", ",").split(",")
    return ConnectionTerms(
        name=form.get("name", ""),
        url=form.get("url", "").strip(),
        flavour=form.get("flavour", ""),
        account=form.get("account", "").strip()[:254],
        token=form.get("token", "").strip()[:1000],
        events=tuple(each.strip() for each in events if each.strip()),
    )


def _create(actor: Actor, form: QueryDict, made: list[tuple[JiraConnection, str]]) -> str:
    terms = _terms(form)
    made.append(connection_create(actor=actor, terms=terms, now=timezone.now()))
    return f"{made[0][0].receiver.name} connected. Copy its secret now; it is shown only once."


def _change(actor: Actor, shown: JiraConnection, form: QueryDict) -> str:
    terms = _terms(form)
    connection_change(actor=actor, connection_id=shown.id, terms=terms, now=timezone.now())
    return "Connection saved."


def _map(actor: Actor, shown: JiraConnection, form: QueryDict) -> str:
    terms = ProjectTerms(
        key=form.get("key", "").strip().upper(),
        project=form.get("project", ""),
        owner=form.get("owner", "").strip(),
        tier=form.get("tier", ""),
        act=form.get("act_of", ""),
        request=form.get("request", "").strip(),
        labels=labels_read(form.get("labels", "")),
        transitions=_pairs(form.get("transitions", "")),
        board=_board(form.get("board", "").strip()),
        sprint_request=form.get("sprint", "").strip(),
        approver=form.get("approver", "").strip(),
        approve_status=form.get("approve_status", "").strip(),
        decline_status=form.get("decline_status", "").strip(),
    )
    project_set(actor=actor, connection_id=shown.id, terms=terms, now=timezone.now())
    return f"{terms.key} saved."


def _pairs(text: str) -> dict[str, str]:
    parts = (each.partition("=") for each in text.split(",") if each.strip())
    return {key.strip(): value.strip() for key, _, value in parts}


def _board(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise invalid("not_a_number", refusal_text("board_number"), "board")
    return int(text)


def _unmap(actor: Actor, shown: JiraConnection, form: QueryDict) -> str:
    key = form.get("key", "")
    project_remove(actor=actor, connection_id=shown.id, key=key, now=timezone.now())
    return f"{key} removed. Its bookings stay."


def _dry_run(shown: JiraConnection, form: QueryDict, tried: list[DryRun], now: datetime) -> str:
    tried.append(dry_run(shown, sample_read(form.get("sample", "")), now))
    return "Tried without any effect. The result is below."


def _resend(actor: Actor, receiver: UUID, form: QueryDict) -> str:
    number = form.get("delivery", "")
    if not (number.isascii() and number.isdigit()) or len(number) > 18:
        raise missing("delivery", "delivery")
    delivery_resend(actor=actor, webhook_id=receiver, delivery_id=int(number), now=timezone.now(), kind=JIRA)
    return "Call queued."


def _rotate(actor: Actor, receiver: UUID, secrets: list[str]) -> str:
    now = timezone.now()
    _, secret = webhook_secret_rotate(actor=actor, webhook_id=receiver, now=now, kind=JIRA)
    secrets.append(secret)
    return "New secret made. The previous one stays valid for 24 hours."


def _delete(actor: Actor, shown: JiraConnection) -> str:
    connection_delete(actor=actor, connection_id=shown.id, now=timezone.now())
    return "Connection deleted."


def _question(actor: Actor, shown: JiraConnection, form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before a connection is deleted."""
    if CONFIRMED_FIELD in form or form.get("act") != "delete":
        return None
    name = shown.receiver.name
    return Confirmation(
        title=f"Delete {name}?",
        lost=(
            f"Issues of {shown.receiver.url} ask for nothing and get no comments any more.",
            "Its projects, logs, token and secret are deleted. This can't be undone.",
        ),
        button=f"Delete {name}",
        back=f"/t/{actor.tenant_slug}/settings/jira/{shown.id}",
    )


urlpatterns = [
    path("t/<slug:tenant>/settings/jira", connections, name="jira"),
    path("t/<slug:tenant>/settings/jira/<uuid:connection_id>", connection, name="jira-one"),
]
