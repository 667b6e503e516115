"""Connections to Jira and the mapping of their projects. Tenant admins make them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.jira.models import JiraConnection, JiraProject
from allocation.features.jira.rules import PROJECT_KEY
from allocation.rules.ask import MAX_TEXT_LENGTH
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project, require_tenant_admin
from tenants.audit import actor_record
from tenants.features.webhooks.services import (
    WebhookTerms,
    webhook_change,
    webhook_create,
    webhook_delete,
)
from tenants.models import Membership, Role, Tier, Webhook
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import number_text_read
from tenants.platform.labels import Labels, labels_check
from tenants.platform.rest.fields import Text
from tenants.platform.terms import term, terms
from tenants.rules.event_types import EVENT_TYPES
from tenants.services.credentials.seals import token_seal

JIRA = Webhook.Kind.JIRA
MAX_PROJECTS = 100
STATUS_LENGTH_MAX = 60
# States of bookings that a transition of the issue can follow.
FOLLOWED = (
    State.AWAITING_APPROVAL,
    State.SCHEDULED,
    State.ACTIVE,
    State.PAUSED,
    State.ENDED,
    State.REFUSED,
    State.REJECTED,
    State.EXPIRED,
    State.CANCELLED,
    State.FAILED,
)
_COMMENTED = (
    "approval_requested approved declined approval_expired scheduled delayed started "
    "pause_notified paused resumed refused expired cancelled ended no_show broken_off failed"
)
COMMENTED = tuple(name for each in _COMMENTED.split() if (name := f"booking.{each}") in EVENT_TYPES)
"""Events that issues get comments about, unless the connection names others."""


def _request(text: str, *, param: str) -> str:
    if not 1 <= len(text) <= MAX_TEXT_LENGTH:
        raise invalid("missing_field", refusal_text("jira_request_missing"), param)
    return text


def _pairs(text: str, *, param: str) -> dict[str, str]:
    parts = (each.partition("=") for each in text.split(",") if each.strip())
    return {key.strip(): value.strip() for key, _, value in parts}


def _board(text: str, *, param: str) -> int:
    number = number_text_read(text)
    if number is None:
        raise invalid("not_a_number", refusal_text("board_number"), param)
    return number


@terms
class JiraConnectionTerms:
    """A Jira site and the account that comments."""

    name: str = term("Name", max_length=80)
    url: str = term(
        "Address",
        "Of the site, such as https://example.atlassian.net, or https://issues.example.org/jira.",
        asks="url",
        says="`https://example.atlassian.net`.",
        max_length=300,
    )
    flavour: str = term("Jira", body=serializers.ChoiceField(JiraConnection.Flavour.values))
    account: str = term(
        "Account",
        "E-mail address of the account that comments. Cloud only.",
        says="Cloud only.",
        default="",
        max_length=254,
        allow_blank=True,
    )
    token: str = term(
        "Token",
        asks="secret",
        says="Without one a change keeps the stored token, unless the address changes.",
        default="",
        max_length=1000,
        allow_blank=True,
    )
    events: Sequence[str] = term(
        "Comments about",
        "Names of events, separated by commas.",
        says="Events that issues get comments about.",
        default=COMMENTED,
        min_length=1,
        max_length=40,
        child_kwargs={"max_length": 60},
    )


@terms
class JiraProjectTerms:
    """What issues and sprints of a Jira project ask for."""

    project: str = term("In project", max_length=40)
    owner: str = term(
        "As",
        "Sign-in name of the person whose bookings they are. "
        "Quota, budget and rights are those of this person.",
        says="Sign-in name of the person whose bookings they are.",
        max_length=150,
    )
    tier: str = term("Tier", max_length=40)
    act: Literal["book", "quote"] = term("An issue", name="act_of")
    request: str = term(
        "Request",
        "As in the search field, with fields of the issue in braces: 2 h100 6h, or {customfield_10050}.",
        reads=_request,
        says="`2 h100 6h`, or `{customfield_10050}`.",
        max_length=200,
    )
    labels: Mapping[str, str] | None = term(
        "Labels",
        "Optional: labels of the bookings, such as team=vision.",
        default=None,
        body=Labels(required=False, default=dict),
    )
    transitions: Mapping[str, str] | None = term(
        "Statuses",
        f"Optional: active=In Progress, ended=Done. States: {', '.join(FOLLOWED)}.",
        reads=_pairs,
        default=None,
        body=serializers.DictField(
            child=Text(max_length=60),
            required=False,
            default=dict,
            help_text="State of the booking to status of the issue: `active` to `In Progress`.",
        ),
    )
    board: int | None = term(
        "Board",
        "Optional: its number, to book for sprints.",
        reads=_board,
        default=None,
    )
    sprint_request: str = term(
        "A sprint",
        "Such as 4 h100 {remaining}, until the end of the sprint.",
        name="sprint",
        default="",
        max_length=200,
        allow_blank=True,
    )
    approver: str = term(
        "Decides",
        "Optional: sign-in name of the lead or admin in whose name the statuses decide approvals.",
        says="Sign-in name of the lead or admin in whose name Jira decides approvals.",
        default="",
        max_length=150,
        allow_blank=True,
    )
    approve_status: str = term(
        "Approves",
        "Optional: the status of an issue that approves its booking, such as Approved.",
        says="The status of an issue that approves its booking.",
        default="",
        max_length=60,
        allow_blank=True,
    )
    decline_status: str = term(
        "Declines",
        "Optional: the status that declines it, such as Rejected.",
        default="",
        max_length=60,
        allow_blank=True,
    )


def connections_of(actor: Actor) -> QuerySet[JiraConnection]:
    """Returns the connections of the tenant. Raises Refused `not_allowed`."""
    require_tenant_admin(actor)
    found = JiraConnection.objects.filter(tenant_id=actor.tenant_id).select_related("receiver")
    return found.order_by("receiver__created", "id")


def connection_one(actor: Actor, connection_id: UUID, *, is_locked: bool = False) -> JiraConnection:
    """Returns a connection. Raises Refused `not_found` or `not_allowed`."""
    if not actor.is_tenant_admin:
        raise missing("connection")
    rows = connections_of(actor).filter(id=connection_id)
    found = (rows.select_for_update(of=("self",)) if is_locked else rows).first()
    if found is None:
        raise missing("connection")
    return found


@transaction.atomic
def connection_create(
    *, actor: Actor, terms: JiraConnectionTerms, now: datetime
) -> tuple[JiraConnection, str]:
    """Creates a connection; returns it with the secret of its messages, which is not stored.

    Raises:
        Refused: `not_allowed`, `bad_name`, `bad_url`, `unknown_event`, `missing_field`,
            `unknown_choice` or `too_many_webhooks`.
    """
    require_tenant_admin(actor)
    _check(terms, has_token=False)
    receiver, secret = webhook_create(actor=actor, terms=_receiver(terms), now=now, kind=JIRA)
    connection = JiraConnection.objects.create(
        tenant_id=actor.tenant_id,
        receiver=receiver,
        flavour=terms.flavour,
        account=_account(terms),
        sealed_token=token_seal(actor.tenant_id, terms.token),
    )
    return connection, secret


@transaction.atomic
def connection_change(
    *, actor: Actor, connection_id: UUID, terms: JiraConnectionTerms, now: datetime
) -> JiraConnection:
    """Changes a connection. Without a token it keeps its own, unless the address is another one.

    Raises:
        Refused: As for `connection_create`.
    """
    connection = connection_one(actor, connection_id, is_locked=True)
    # An admin who can change the address must not be able to send the stored token elsewhere.
    is_same = connection.receiver.url == _receiver(terms).url
    _check(terms, has_token=is_same)
    connection.receiver = webhook_change(
        actor=actor, webhook_id=connection.receiver_id, terms=_receiver(terms), now=now, kind=JIRA
    )
    is_other_account = bool(terms.token) or connection.account != _account(terms)
    connection.flavour, connection.account = terms.flavour, _account(terms)
    if terms.token:
        connection.sealed_token = token_seal(actor.tenant_id, terms.token)
    connection.save()
    if actor.token_id is not None and is_other_account:
        # Another account at the same address ends with the token that set it, as another address does.
        Webhook.objects.filter(id=connection.receiver_id).update(made_with_id=actor.token_id)
    return connection


@transaction.atomic
def connection_delete(*, actor: Actor, connection_id: UUID, now: datetime) -> None:
    """Deletes a connection with its projects and logs. Raises Refused `not_found`."""
    connection = connection_one(actor, connection_id, is_locked=True)
    webhook_delete(actor=actor, webhook_id=connection.receiver_id, now=now, kind=JIRA)


@transaction.atomic
def project_set(
    *, actor: Actor, connection_id: UUID, key: str, terms: JiraProjectTerms, now: datetime
) -> JiraProject:
    """Creates or replaces the mapping of a Jira project. Ends with the token that set it.

    Raises:
        Refused: `not_found`, `unknown_choice`, `missing_field`, `bad_label`, `board_taken` or
            `too_many_projects`; `param` names the field.
    """
    connection = connection_one(actor, connection_id, is_locked=True)
    values = {**_project_values(actor, key, terms), "made_with_id": actor.token_id}
    others = connection.projects.exclude(key=key)
    if others.count() >= MAX_PROJECTS:
        raise Refused("too_many_projects", refusal_text("too_many_projects", max_projects=MAX_PROJECTS))
    if terms.board is not None and others.filter(board=terms.board).exists():
        raise invalid("board_taken", refusal_text("board_taken"), "board")
    found, _ = JiraProject.objects.update_or_create(
        tenant_id=actor.tenant_id, connection=connection, key=key, defaults=values
    )
    _record(actor, "jira.project_set", connection, found, now)
    return found


@transaction.atomic
def project_remove(*, actor: Actor, connection_id: UUID, key: str, now: datetime) -> None:
    """Removes the mapping of a Jira project. Its bookings stay. Raises Refused `not_found`."""
    connection = connection_one(actor, connection_id, is_locked=True)
    found = connection.projects.filter(key=key).first()
    if found is None:
        raise missing("project")
    _record(actor, "jira.project_removed", connection, found, now)
    found.delete()


def of_receiver(command: Callable[..., Any], **more: object) -> Callable[..., Any]:
    """Makes a command of webhooks one of the connection's receiver."""

    def run(*, actor: Actor, connection_id: UUID, **sent: object) -> object:
        receiver = connection_one(actor, connection_id).receiver_id
        return command(actor=actor, webhook_id=receiver, kind=JIRA, **more, **sent)

    return run


def _receiver(terms: JiraConnectionTerms) -> WebhookTerms:
    return WebhookTerms(name=terms.name, url=terms.url.rstrip("/"), events=terms.events or COMMENTED)


def _account(terms: JiraConnectionTerms) -> str:
    return terms.account if terms.flavour == JiraConnection.Flavour.CLOUD else ""


def _check(terms: JiraConnectionTerms, *, has_token: bool) -> None:
    if terms.flavour not in JiraConnection.Flavour.values:
        raise invalid("unknown_choice", refusal_text("jira_edition"), "flavour")
    if "?" in terms.url:
        raise invalid("bad_url", refusal_text("jira_url_query"), "url")
    if terms.flavour == JiraConnection.Flavour.CLOUD and not terms.account:
        raise invalid("missing_field", refusal_text("jira_mail_missing"), "account")
    if not terms.token and not has_token:
        raise invalid("missing_field", refusal_text("jira_token_missing"), "token")


def _project_values(actor: Actor, key: str, terms: JiraProjectTerms) -> dict[str, object]:
    if not PROJECT_KEY.fullmatch(key):
        raise invalid("unknown_choice", refusal_text("jira_project_key"), "key")
    if terms.act not in JiraProject.Act.values:
        raise invalid("unknown_choice", refusal_text("jira_action"), "act")
    tier = Tier.objects.filter(slug=terms.tier).first()
    if tier is None:
        raise invalid("not_found", refusal_text("no_such_tier"), "tier")
    if (terms.board is None) != (not terms.sprint_request):
        raise invalid("missing_field", refusal_text("jira_board_missing"), "board")
    project = access_project(actor, terms.project, "project")
    owner_id = _owner(actor, terms.owner, project.id)
    return {
        **_decisions(actor, terms, owner_id),
        "project": project,
        "owner_id": owner_id,
        "tier": tier,
        "act": terms.act,
        "request": _request(terms.request, param="request"),
        "labels": labels_check(terms.labels or {}),
        "transitions": _transitions(terms.transitions or {}),
        "board": terms.board,
        "sprint_request": _request(terms.sprint_request, param="sprint") if terms.board else "",
    }


def _decisions(actor: Actor, terms: JiraProjectTerms, owner_id: int) -> dict[str, object]:
    """In whose name statuses of issues decide approvals, and which do."""
    statuses = (terms.approve_status, terms.decline_status)
    if not terms.approver:
        if any(statuses):
            raise invalid("missing_field", refusal_text("jira_decider_missing"), "approver")
        return {"approver_id": None, "approve_status": "", "decline_status": ""}
    approver = (
        Membership.objects.filter(
            tenant_id=actor.tenant_id,
            user__username=terms.approver,
            role__in=[Role.LEAD, Role.TENANT_ADMIN],
        )
        .values_list("user_id", flat=True)
        .first()
    )
    if approver is None:
        raise invalid("not_found", refusal_text("not_an_approver"), "approver")
    if approver == owner_id:
        raise invalid("own_approver", refusal_text("own_approver"), "approver")
    if statuses[0] and statuses[0].casefold() == statuses[1].casefold():
        raise invalid("unknown_choice", refusal_text("jira_decline_status"), "decline_status")
    return {
        "approver_id": approver,
        "approve_status": terms.approve_status[:STATUS_LENGTH_MAX],
        "decline_status": terms.decline_status[:STATUS_LENGTH_MAX],
    }


def _owner(actor: Actor, username: str, project_id: UUID) -> int:
    """Returns the account of a person who can book in the project."""
    rows = Membership.objects.filter(tenant_id=actor.tenant_id, user__username=username)
    for row in rows:
        if row.project_id in (None, project_id) and row.role != "viewer":
            return row.user_id
    raise invalid("not_found", refusal_text("jira_person_missing"), "owner")


def _transitions(given: Mapping[str, str]) -> dict[str, str]:
    unknown = [each for each in given if each not in set(FOLLOWED)]
    if unknown or not all(1 <= len(each) <= STATUS_LENGTH_MAX for each in given.values()):
        names = ", ".join(FOLLOWED)
        raise invalid("unknown_choice", refusal_text("jira_transition", names=names), "transitions")
    return dict(given)


def _record(
    actor: Actor, action: str, connection: JiraConnection, project: JiraProject, now: datetime
) -> None:
    detail = {
        "name": connection.receiver.name,
        "key": project.key,
        "project": project.project.slug,
        "request": project.request,
    }
    actor_record(actor, action, ("jira", connection.id), now, detail)
