"""Chat channels: a person's own, and those of projects for their leads."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from rest_framework import serializers

from tenants.access import Actor, access_project, require_in_reach
from tenants.audit import actor_record
from tenants.models import ChatChannel, ChatMessage, Project
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms
from tenants.rules.chat import SERVICES, URL_LENGTH_MAX, BadChatUrl, scheme_read
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.credentials.seals import token_seal
from tenants.services.input_values import name_read
from tenants.services.outgoing.targets import target_address
from tenants.words import fault_text, refusal_text

TASK = "chat.send"
TEST = "chat.test"
MAX_OWN, MAX_OF_TENANT = 5, 200
RETENTION = timedelta(days=30)
# What a channel of a project can get: what concerns its bookings or its budget.
PROJECT_TYPES = (
    "booked",
    "start",
    "ending",
    "plan",
    "run",
    "pause",
    "no_show",
    "hardware",
    "refused",
    "array",
    "budget",
)


@terms
class ChatChannelTerms:
    """A channel of a chat service."""

    name: str = term("Name", "Optional", default="", max_length=80, allow_blank=True)
    url: str = term(
        "Address",
        "It is stored encrypted and not shown again.",
        example="slack://A/B/C/#channel",
        says="As `slack://TokenA/TokenB/TokenC/#channel`.",
        max_length=URL_LENGTH_MAX,
    )
    project: str | None = term(
        "For", says="A project that you lead; null: your own channel.", default=None, max_length=40
    )
    events: Sequence[str] = term(
        "Events of a project's channel",
        default=(),
        body=serializers.ListField(
            child=serializers.ChoiceField(choices=PROJECT_TYPES),
            required=False,
            default=list,
            help_text="What a project's channel gets; your own gets what you chose.",
        ),
    )


def chat_channels_of(actor: Actor) -> QuerySet[ChatChannel]:
    """The actor's own channels, and those of projects that the actor leads."""
    led = Q(project__isnull=False)
    if not actor.is_tenant_admin:
        led = Q(project__in=[each for each in actor.roles if actor.may_lead(each)])
    rows = ChatChannel.objects.filter(tenant_id=actor.tenant_id)
    own = Q(user=actor.user_id) if actor.only_project is None else Q(id__in=[])
    return rows.filter(own | led).select_related("project")


def chat_channel_one(actor: Actor, channel_id: UUID) -> ChatChannel:
    """Returns a channel of the actor. Raises Refused `not_found`."""
    found = chat_channels_of(actor).filter(id=channel_id).first()
    if found is None:
        raise missing("chat channel")
    return found


@transaction.atomic
def chat_channel_create(*, actor: Actor, terms: ChatChannelTerms, now: datetime) -> ChatChannel:
    """Creates a channel. Its address is stored encrypted and never shown again. Made with a token,
    it ends with the token.

    Raises:
        Refused: `bad_url`, `bad_name`, `not_found`, `not_allowed`, `unknown_event` or
            `too_many_channels`.
    """
    service = _service(terms.url)
    project = _project(actor, terms.project)
    if project is not None and (unknown := set(terms.events) - set(PROJECT_TYPES)):
        known = ", ".join(PROJECT_TYPES)
        raise invalid(
            "unknown_event",
            refusal_text("unknown_chat_event", event=min(unknown)[:40], known=known),
            "events",
        )
    _count_check(actor, project)
    made = ChatChannel.objects.create(
        tenant_id=actor.tenant_id,
        user_id=None if project else actor.user_id,
        project=project,
        name=name_read(terms.name or SERVICES[service].name),
        service=service,
        sealed=token_seal(actor.tenant_id, terms.url),
        events=[name for name in PROJECT_TYPES if name in terms.events] if project else [],
        created=now,
        created_by_id=actor.user_id,
        made_with_id=actor.token_id,
    )
    _record(actor, "chat_channel.created", made, now)
    return made


@transaction.atomic
def chat_channel_delete(*, actor: Actor, channel_id: UUID, now: datetime) -> None:
    """Deletes a channel with its log. Raises Refused `not_found`."""
    found = chat_channel_one(actor, channel_id)
    _record(actor, "chat_channel.deleted", found, now)
    found.delete()


@transaction.atomic
def chat_channel_test(*, actor: Actor, channel_id: UUID, now: datetime) -> ChatMessage:
    """Queues a test message, which is tried once. Raises Refused `not_found`."""
    found = chat_channel_one(actor, channel_id)
    made = ChatMessage.objects.create(
        tenant_id=actor.tenant_id,
        channel=found,
        kind=TEST,
        title="A test of the GPU portal",
        text=f"{actor.name} tests the channel {found.name}.",
        path="settings/chat",
        created=now,
        due=now,
    )
    task_request(TASK)
    return made


def chat_sweep(now: datetime) -> int:
    """Removes messages after a month; returns how many."""
    old = ChatMessage.objects.filter(created__lt=now - RETENTION)
    return old.exclude(state=ChatMessage.State.PENDING).delete()[0]


def _service(url: str) -> str:
    """The service of a complete address. Raises Refused `bad_url`."""
    # It loads all its services, which takes a second and 30 MB: only who adds a channel pays it.
    from apprise import Apprise  # noqa: PLC0415

    try:
        service = scheme_read(url)
        if SERVICES[service].is_own:
            _host_check(url, service)
    except (BadChatUrl, BadTarget) as fault:
        raise invalid("bad_url", fault_text(fault), "url") from None
    if Apprise.instantiate(url, suppress_exceptions=True) is None:
        example = SERVICES[service].example
        raise invalid("bad_url", refusal_text("chat_url_incomplete", example=example), "url")
    return service


def _host_check(url: str, service: str) -> None:
    """Checks the server now, so that the form says what is wrong; each connection is checked."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise BadTarget("address_invalid") from None
    scheme = "https" if service.endswith("s") else "http"
    target_address(target_read(f"{scheme}://{host}{f':{port}' if port else ''}/"))


def _project(actor: Actor, slug: str | None) -> Project | None:
    if not slug:
        require_in_reach(actor, None)
        return None
    project = access_project(actor, slug, "project")
    if not actor.may_lead(project.id):
        raise denied(refusal_text("project_leads_only"))
    return project


def _count_check(actor: Actor, project: Project | None) -> None:
    rows = ChatChannel.objects.filter(tenant_id=actor.tenant_id)
    most = MAX_OF_TENANT if project else MAX_OWN
    rows = rows.filter(user=None) if project else rows.filter(user=actor.user_id)
    if rows.count() >= most:
        raise Refused("too_many_channels", refusal_text("too_many_channels", most=most))


def _record(actor: Actor, action: str, row: ChatChannel, now: datetime) -> None:
    detail = {"name": row.name, "service": row.service, "events": list(row.events)}
    actor_record(actor, action, ("chat_channel", row.id), now, detail)
