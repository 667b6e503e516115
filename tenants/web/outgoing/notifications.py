"""The inbox of notifications, and the page on which people choose them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from tenants.access import Actor
from tenants.models import ChatChannel, Notification, NotificationSettings, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.platform.rest.pagination import LIMIT_DEFAULT, page_of
from tenants.queries import notification_settings_of, notifications_of
from tenants.rules.notifications import (
    MAIL_CHOICES,
    TYPE_OF_KIND,
    TYPES,
    URGENT,
    Choice,
    MailChoice,
    NotificationType,
    choice_of,
)
from tenants.services.notifications import (
    NotificationTerms,
    clock_read,
    mails_stop,
    notification_mark,
    notification_settings_set,
    notifications_mark_read,
    stop_token_read,
)
from tenants.web.frame import tenant_page
from tenants.web.parts import counted
from tenants.words import refusal_text

ICONS = {
    "pause": "pause",
    "no_show": "warn",
    "booked": "cal",
    "ending": "clock",
    "access": "shield",
    "token": "tag",
    "webhook": "link",
    "start": "play",
    "plan": "clock",
    "run": "repeat",
    "hardware": "wrench",
    "refused": "block",
    "array": "list",
    "waitlist": "ok",
    "approval": "check",
    "to_approve": "check",
    "budget": "coin",
    "policy_hook": "shield",
    "announcement": "log",
    "hand_over": "people",
    "message": "people",
}


# Entries of a type on a day that become one line, and names in it.
FEWEST = 3
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the inbox."""

    of: Notification
    icon: str
    is_urgent: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Entries of one type on a day, as one line: `Starts (7)` with the names of what they are about."""

    title: str
    names: str
    icon: str
    unread: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the inbox: first what is urgent and what is alone, then the groups."""

    on: date
    entries: tuple[Entry, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A row of the preferences."""

    of: NotificationType
    choice: Choice


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def inbox_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the inbox by day, and marks entries. A GET changes nothing."""
    if request.method == "POST":
        return _act(request, actor)
    rows = notifications_of(actor.tenant_id, actor.user_id)
    only_unread = request.GET.get("show") == "unread"
    query: dict[str, object] = {"limit": LIMIT_DEFAULT}
    if request.GET.get("cursor"):
        query |= {"cursor": request.GET["cursor"][:500]}
    found, following = page_of(
        rows.filter(read=None) if only_unread else rows,
        keys=("-at", "-id"),
        query=query,
        scope=f"inbox:{actor.tenant_id}:{actor.user_id}",
    )
    days = [
        _day(day, [_entry(each) for each in entries])
        for day, entries in groupby(found, key=lambda each: timezone.localtime(each.at).date())
    ]
    unread = rows.filter(read=None).count()
    ending = "" if unread == 1 else "s"
    context = {
        "heading": f"{unread} unread notification{ending}" if unread else "Notifications",
        "days": days,
        "today": timezone.localdate(),
        "only_unread": only_unread,
        "unread_count": unread,
        "following": following,
        "is_first": "cursor" not in query,
    }
    return render(request, "tenants/notifications/inbox.html", context)


@require_safe
@tenant_page
def bell(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the bell of the top bar alone, for pages that stay open."""
    return render(request, "parts/bell.html")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def notification_settings_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows and stores the choices per event, the quiet hours and the daily mail."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {"save": lambda form: _save(actor, form)})
        if refusal is None:
            return redirect("notification-settings", tenant=actor.tenant_slug)
    row = notification_settings_of(actor.tenant_id, actor.user_id)
    typed = request.POST if refusal else None
    times = {"quiet_from": row.quiet_from, "quiet_until": row.quiet_until, "daily_at": row.daily_at}
    context = {
        "rows": [ChoiceRow(kind, _shown(typed, row, name)) for name, kind in TYPES.items()],
        "mail_choices": MAIL_CHOICES.items(),
        "times": {
            name: typed.get(name, "") if typed else (f"{value:%H:%M}" if value else "")
            for name, value in times.items()
        },
        "has_chat": ChatChannel.objects.filter(tenant_id=actor.tenant_id, user=actor.user_id).exists(),
        "me": User.objects.get(id=actor.user_id),
        "refusal": refusal,
    }
    return render(request, "tenants/notifications/settings.html", context, status=422 if refusal else 200)


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def mails_end(request: HttpRequest, token: str) -> HttpResponse:
    """Asks whether to end the mails of a type, by the address in one of them; POST ends them. A GET changes
    nothing."""
    is_ended = request.method == "POST" and mails_stop(token, timezone.now())
    found = stop_token_read(token)
    title = TYPES[found[2]].label if found else ""
    context = {"is_ended": is_ended, "title": title}
    return render(request, "tenants/notifications/end.html", context, status=200 if found else 404)


def _act(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Opens an entry, which marks it, or marks entries; a refusal is a page of its own."""
    form, now = request.POST, timezone.now()
    if form.get("act") == "open":
        found = notification_mark(
            actor=actor, notification_id=id_read(form, "id", "notification"), is_read=True, now=now
        )
        return redirect(f"/t/{actor.tenant_slug}/{found.path}")
    refusal = form_action_run(
        request,
        {
            "unread": lambda form: _unread(actor, form),
            "all-read": lambda _: _all_read(actor),
        },
    )
    if refusal is not None:
        raise refusal
    return redirect("notifications", tenant=actor.tenant_slug)


def _unread(actor: Actor, form: QueryDict) -> str:
    own = id_read(form, "id", "notification")
    notification_mark(actor=actor, notification_id=own, is_read=False, now=timezone.now())
    return "Marked as unread."


def _all_read(actor: Actor) -> str:
    marked = notifications_mark_read(actor=actor, now=timezone.now())
    return f"{counted(marked, 'notification')} marked as read."


def _entry(row: Notification) -> Entry:
    kind = TYPE_OF_KIND.get(row.kind)
    return Entry(row, ICONS.get(kind.name if kind else "", "bell"), row.kind in URGENT)


def _day(on: date, entries: Sequence[Entry]) -> Day:
    """The entries of a day; FEWEST of a type or more are one line, unless they are urgent."""
    of_type: dict[str, list[Entry]] = {}
    for entry in entries:
        kind = TYPE_OF_KIND.get(entry.of.kind)
        if kind is not None and not entry.is_urgent:
            of_type.setdefault(kind.name, []).append(entry)
    groups = [_group(TYPES[name], rows) for name, rows in of_type.items() if len(rows) >= FEWEST]
    grouped = {entry.of.id for group in groups for entry in group.entries}
    alone = [entry for entry in entries if entry.of.id not in grouped]
    return Day(on, tuple(sorted(alone, key=lambda each: not each.is_urgent)), tuple(groups))


def _group(kind: NotificationType, entries: Sequence[Entry]) -> Group:
    names = [each.of.title.removesuffix(kind.outcomes[each.of.kind]).strip() for each in entries]
    more = len(names) - MOST_NAMED
    return Group(
        title=f"{kind.label} ({len(entries)})",
        names=", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else ""),
        icon=entries[0].icon,
        unread=sum(each.of.read is None for each in entries),
        entries=tuple(entries),
    )


def _save(actor: Actor, form: QueryDict) -> str:
    daily_at = clock_read(form.get("daily_at", ""), "daily_at")
    if daily_at is None:
        raise invalid("bad_clock", refusal_text("clock_example"), "daily_at")
    terms = NotificationTerms(
        choices={name: _typed(form, name) for name in TYPES},
        quiet_from=clock_read(form.get("quiet_from", ""), "quiet_from"),
        quiet_until=clock_read(form.get("quiet_until", ""), "quiet_until"),
        daily_at=daily_at,
    )
    notification_settings_set(actor=actor, terms=terms, now=timezone.now())
    return "Notifications saved."


def _typed(form: QueryDict, name: str) -> Choice:
    """The choice in the form. A type that always goes to the inbox has no box there."""
    mail = _mail_typed(form, name)
    if mail is None:
        raise Refused("unknown_choice", refusal_text("mail_choice"), "invalid", f"mail-{name}")
    is_in_app = f"in_app-{name}" in form or not TYPES[name].is_optional
    return Choice(is_in_app, mail, f"chat-{name}" in form)


def _shown(form: QueryDict | None, row: NotificationSettings, name: str) -> Choice:
    """What the page shows: a refused form as it was sent, as far as it can be shown."""
    stored = choice_of(row.choices, name)
    if form is None:
        return stored
    is_in_app = f"in_app-{name}" in form or not TYPES[name].is_optional
    return Choice(is_in_app, _mail_typed(form, name) or stored.mail, f"chat-{name}" in form)


def _mail_typed(form: QueryDict, name: str) -> MailChoice | None:
    return next((mail for mail in MAIL_CHOICES if form.get(f"mail-{name}") == mail), None)


urlpatterns = [
    path("notifications/end/<str:token>", mails_end, name="mails-end"),
    path("t/<slug:tenant>/notifications", inbox_page, name="notifications"),
    path("t/<slug:tenant>/notifications/bell", bell, name="notification-bell"),
    path(
        "t/<slug:tenant>/notifications/settings",
        notification_settings_page,
        name="notification-settings",
    ),
]
