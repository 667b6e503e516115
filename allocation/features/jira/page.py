"""Pages of connections to Jira: the list with a form, and one connection with its logs."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from allocation.features.jira.dry_run import JiraDryRunTerms, dry_run, sample_text
from allocation.features.jira.models import JiraConnection, JiraProject
from allocation.features.jira.services import (
    JiraConnectionTerms,
    JiraProjectTerms,
    connection_change,
    connection_create,
    connection_delete,
    connection_one,
    connections_of,
    of_receiver,
    project_remove,
    project_set,
)
from tenants.access import Actor
from tenants.features.webhooks.page import delivery_log, webhook_state
from tenants.features.webhooks.services import (
    delivery_resend,
    webhook_enabled_set,
    webhook_secret_rotate,
    webhook_test,
)
from tenants.models import Project, Tier
from tenants.platform.forms.confirm import Confirmation
from tenants.platform.terms import term, terms
from tenants.web.form_page import Act, form_page

SHOWN_MESSAGES = 30
NEW_PROJECT = {"tier": "standard", "act_of": "book", "request": "{customfield_10050}"}


@terms
class KeyForm:
    """A project of Jira."""

    key: str = term("Key in Jira", example="GPU", max_length=20)


@terms
class ProjectForm(JiraProjectTerms, KeyForm):
    """A project of Jira, and what its issues and sprints ask for."""


def _list_shown(actor: Actor, now: datetime) -> dict[str, Any]:
    return {"rows": [(each, webhook_state(each.receiver)) for each in connections_of(actor)]}


def _one_shown(
    actor: Actor, now: datetime, connection_id: UUID, project: str, state: str, before: str
) -> dict[str, Any]:
    shown = connection_one(actor, connection_id)
    names = {"tenant_id": shown.tenant_id, "connection_id": shown.id}
    return {
        **delivery_log(shown.receiver, state, before),
        "connection": shown,
        "webhook": shown.receiver,
        "state": webhook_state(shown.receiver),
        "address": settings.PUBLIC_URL + reverse("api-jira-intake", kwargs=names),
        "projects": _projects(shown),
        "edited": _edited(shown, project),
        "received": shown.messages.select_related("booking").order_by("-id")[:SHOWN_MESSAGES],
    }


def _projects(shown: JiraConnection) -> list[JiraProject]:
    return list(shown.projects.select_related("project", "owner", "tier", "approver").order_by("key"))


def _edited(shown: JiraConnection, key: str) -> JiraProject | None:
    return next((each for each in _projects(shown) if each.key == key), None)


def _stored(actor: Actor, connection_id: UUID, **_: str) -> dict[str, Any]:
    shown = connection_one(actor, connection_id)
    receiver = shown.receiver
    return {
        "name": receiver.name,
        "url": receiver.url,
        "flavour": shown.flavour,
        "account": shown.account,
        "events": receiver.events,
    }


def _stored_project(actor: Actor, connection_id: UUID, project: str, **_: str) -> dict[str, Any]:
    row = _edited(connection_one(actor, connection_id), project)
    if row is None:
        return NEW_PROJECT
    return {
        **{name: getattr(row, name) for name in JiraProjectTerms.__dataclass_fields__},
        "key": row.key,
        "project": row.project.slug,
        "owner": row.owner.username,
        "tier": row.tier_id,
        "act_of": row.act,
        "sprint": row.sprint_request,
        "approver": row.approver.username if row.approver else "",
    }


def _sample(actor: Actor, connection_id: UUID, **_: str) -> dict[str, str]:
    first = connection_one(actor, connection_id).projects.order_by("key").first()
    return {"sample": sample_text(first.key if first else "GPU")}


def _map(*, actor: Actor, connection_id: UUID, terms: ProjectForm, now: datetime) -> JiraProject:
    key = terms.key.upper()
    return project_set(actor=actor, connection_id=connection_id, key=key, terms=terms, now=now)


def _unmap(*, actor: Actor, connection_id: UUID, terms: KeyForm, now: datetime) -> str:
    project_remove(actor=actor, connection_id=connection_id, key=terms.key, now=now)
    return terms.key


def _question(actor: Actor, connection_id: UUID) -> Confirmation:
    receiver = connection_one(actor, connection_id).receiver
    return Confirmation(
        title=f"Delete {receiver.name}?",
        lost=(
            f"Issues of {receiver.url} ask for nothing and get no comments any more.",
            "Its projects, logs, token and secret are deleted. This can't be undone.",
        ),
        button=f"Delete {receiver.name}",
        back=f"/t/{actor.tenant_slug}/settings/jira/{connection_id}",
    )


_FLAVOURS = {"flavour": lambda _: JiraConnection.Flavour.choices}
_OF_PROJECTS = {
    "act": lambda _: JiraProject.Act.choices,
    "project": lambda actor: Project.objects.filter(tenant_id=actor.tenant_id).values_list("slug", "name"),
    "tier": lambda _: Tier.objects.values_list("slug", "name"),
}
urlpatterns = [
    form_page(
        "settings/jira",
        "jira",
        "jira/list.html",
        _list_shown,
        Act(
            "create",
            connection_create,
            "{row[0].receiver.name} connected. Copy its secret now; it is shown only once.",
            terms=JiraConnectionTerms,
            choices=_FLAVOURS,
            initial=lambda _: {"name": "Jira", "flavour": "cloud"},
            is_shown_once=True,
        ),
    ),
    form_page(
        "settings/jira/<uuid:connection_id>",
        "jira-one",
        "jira/one.html",
        _one_shown,
        Act(
            "change",
            connection_change,
            "Connection saved.",
            terms=JiraConnectionTerms,
            choices=_FLAVOURS,
            initial=_stored,
        ),
        Act(
            "map",
            _map,
            "{row.key} saved.",
            terms=ProjectForm,
            choices=_OF_PROJECTS,
            initial=_stored_project,
        ),
        Act("unmap", _unmap, "{row} removed. Its bookings stay.", terms=KeyForm),
        Act(
            "dry-run",
            dry_run,
            "Tried without any effect. The result is below.",
            terms=JiraDryRunTerms,
            initial=_sample,
            is_shown_once=True,
        ),
        Act("test", of_receiver(webhook_test), "Test queued. Its answer appears in the log of calls."),
        Act("resend", of_receiver(delivery_resend), "Call queued.", key="delivery", key_type=int),
        Act(
            "rotate",
            of_receiver(webhook_secret_rotate),
            "New secret made. The previous one stays valid for 24 hours.",
            is_shown_once=True,
        ),
        Act("on", of_receiver(partial(webhook_enabled_set, is_enabled=True)), "Connection switched on."),
        Act("off", of_receiver(partial(webhook_enabled_set, is_enabled=False)), "Connection switched off."),
        Act("delete", connection_delete, "Connection deleted.", asks=_question, to="jira"),
        queries=("project", "state", "before"),
    ),
]
