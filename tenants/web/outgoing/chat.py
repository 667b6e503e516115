"""Chat channels of a person and of projects, with their log."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import ChatMessage, Project
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.rules.chat import SERVICES
from tenants.rules.notifications import TYPES
from tenants.services.outgoing.chat import (
    PROJECT_TYPES,
    ChatTerms,
    chat_channel_create,
    chat_channel_delete,
    chat_channel_test,
    chat_channels_of,
)
from tenants.web.frame import tenant_page

LOG_ROWS = 50


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def chat(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the channels and their log; adds, tests and deletes one."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(
            request,
            {
                "create": lambda form: _create(actor, form),
                "test": lambda form: _test(actor, form),
                "delete": lambda form: _delete(actor, form),
            },
        )
        if refusal is None:
            return redirect("chat", tenant=actor.tenant_slug)
    channels = list(chat_channels_of(actor))
    log = ChatMessage.objects.filter(tenant_id=actor.tenant_id, channel__in=[each.id for each in channels])
    context = {
        "channels": [(each, _events_words(each.events)) for each in channels],
        "log": log.select_related("channel").order_by("-id")[:LOG_ROWS],
        "services": sorted({(each.name, each.example) for each in SERVICES.values()}),
        "projects": _projects(actor),
        "types": [(name, TYPES[name].label) for name in PROJECT_TYPES],
        "typed": request.POST if refusal else {},
        "chosen": request.POST.getlist("events") if refusal else ("hardware", "refused", "budget"),
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "tenants/chat/page.html", context, status=status)


def _create(actor: Actor, form: QueryDict) -> str:
    terms = ChatTerms(
        name=form.get("name", "").strip(),
        url=form.get("url", "").strip(),
        project=form.get("project") or None,
        events=form.getlist("events"),
    )
    made = chat_channel_create(actor=actor, terms=terms, now=timezone.now())
    chat_channel_test(actor=actor, channel_id=made.id, now=timezone.now())
    return f"{made.name} added. A test message is on its way; its outcome is in the log."


def _test(actor: Actor, form: QueryDict) -> str:
    chat_channel_test(actor=actor, channel_id=_id(form), now=timezone.now())
    return "Test message queued. Its outcome is in the log."


def _delete(actor: Actor, form: QueryDict) -> str:
    chat_channel_delete(actor=actor, channel_id=_id(form), now=timezone.now())
    return "Channel deleted."


def _id(form: QueryDict) -> UUID:
    return id_read(form, "channel", "chat channel")


def _events_words(events: list[str]) -> str:
    return ", ".join(TYPES[name].label for name in events if name in TYPES)


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id).order_by("name", "id")
    led = [(each.slug, each.name) for each in rows if actor.may_lead(each.id)]
    return [("", "Me"), *led]


urlpatterns = [path("t/<slug:tenant>/settings/chat", chat, name="chat")]
