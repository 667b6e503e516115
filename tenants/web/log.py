"""The audit logs as pages and CSV: the platform's for operators, a tenant's for its admins."""

import csv
import io
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from tenants.access import Actor, PlatformActor
from tenants.models import AuditEntry, User
from tenants.platform.costly import costly
from tenants.platform.text import csv_plain
from tenants.rules.audit_words import ACTIONS, Change, Labels, changes_of, object_name, with_labels
from tenants.rules.operator_roles import Area
from tenants.services.sealed_log.search import (
    SYSTEM,
    LogFilter,
    log_detail,
    log_entries,
    log_kinds,
    log_labels,
    log_names,
    log_page,
    log_people,
    seal_state,
    verified_last,
)
from tenants.web.frame import operator_page, tenant_page
from tenants.web.list_menu import list_menus

MOST_EXPORTED = 10_000
COLUMNS = ("time", "who", "action", "kind", "object", "before", "after", "detail", "address")
# The page of each kind of object in the platform's log; `{}` is its id.
OPS_LINKS = {
    "clock": "/ops/fleet",
    "compaction_order": "/ops/compaction",
    "announcement": "/ops/announcements",
    "budget": "/ops/budgets/{}",
    "decision": "/ops/decisions/{}",
    "dispute": "/ops/disputes",
    "override": "/ops/overrides",
    "maintenance": "/ops/maintenance",
    "node": "/ops/fleet/{}",
    "policy": "/ops/policy",
    "price_book": "/ops/prices",
    "price_draft": "/ops/prices/drafts/{}",
    "quota": "/ops/quotas",
    "tenant": "/ops/tenants#tenant-{}",
    "tier": "/ops/tiers#tier-{}",
    "workload": "/ops/speeds",
}
TENANT_LINKS = {
    "array": "arrays/{}",
    "booking": "bookings/{}",
    "budget": "budgets",
    "invitation": "people",
    "membership": "people",
    "policy_hook": "settings/policy-hook",
    "price_book": "prices",
    "project": "people",
    "quota": "quotas",
    "tier": "tiers",
}


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log entry; `words` are the text before and after the object's name, `account` the sign-in name."""

    at: datetime
    who: str
    account: str
    words: tuple[str, str]
    name: str
    href: str
    changes: tuple[Change, ...]
    address: str

    @property
    def sentence(self) -> SafeString:
        """Returns the action as text; the object's name links to its page if there is one."""
        before, behind = self.words
        name = self.name
        if name and self.href:
            name = format_html('<a class="link" href="{}">{}</a>', self.href, name)
        return format_html("{}{}{}", before, name, behind)


@dataclass(frozen=True, slots=True)
class LogNames:
    """The sign-in names and the names of people by account, and the names of classes, tiers and projects."""

    accounts: Mapping[int, str]
    people: Mapping[int, str]
    labels: Labels


class LogForm(forms.Form):
    """The filter of a log. Days are in the reader's time zone."""

    who = forms.CharField(required=False, max_length=150)
    kind = forms.CharField(required=False, max_length=40)
    about = forms.CharField(required=False, max_length=64)
    since = forms.DateField(required=False)
    until = forms.DateField(required=False)

    def wanted(self, own: int | None = None) -> LogFilter:
        """Returns the filter; invalid fields are ignored. `own`: only acts of this account."""
        said = self.cleaned_data
        until: date | None = said.get("until")
        return LogFilter(
            own_id=own,
            actor=said.get("who", "").strip(),
            kind=said.get("kind", ""),
            about=said.get("about", "").strip(),
            since=midnight(said.get("since")),
            until=midnight(until + timedelta(days=1)) if until and until < date.max else None,
        )


@require_safe
@operator_page(Area.LOG)
def ops_log(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the platform's log; `who`, `kind`, `about`, `since`, `until` filter, `after` pages."""
    context = _context(request, None) | {"verified": verified_last(), "base": "/ops/log"}
    context["list_menus"] = list_menus(request, PlatformActor.of(operator), "log")
    return render(request, "tenants/log.html", context)


@costly("export")
@require_safe
@operator_page(Area.LOG)
def ops_log_csv(request: HttpRequest, operator: User) -> HttpResponse:
    """Exports the log as CSV."""
    return _csv(request, None, "platform")


@require_safe
@tenant_page
def log(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the tenant's log to its admins; to everybody else their own acts."""
    own = None if actor.is_tenant_admin else actor.user_id
    context = _context(request, actor.tenant_id, f"/t/{actor.tenant_slug}/", own)
    context |= {"base": f"/t/{actor.tenant_slug}/log", "list_menus": list_menus(request, actor, "log")}
    return render(request, "tenants/log.html", context)


@costly("export")
@require_safe
@tenant_page
def log_csv(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Exports the same entries as CSV."""
    own = None if actor.is_tenant_admin else actor.user_id
    return _csv(request, actor.tenant_id, actor.tenant_slug, own)


def log_lines(
    tenant_id: UUID | None, since: datetime, without: Collection[str], most: int, base: str
) -> list[LogRow]:
    """The newest entries of a log, without those of these kinds of objects; `base` is the address of the
    tenant's pages."""
    entries = (
        log_entries(tenant_id, LogFilter(since=since))
        .filter(action__in=ACTIONS)
        .exclude(object_kind__in=without)
    )
    rows = list(entries[:most])
    names = LogNames(log_names(rows), log_people(rows), log_labels(tenant_id))
    return [_row(entry, names, base) for entry in rows]


def _context(
    request: HttpRequest, tenant_id: UUID | None, base: str = "", own: int | None = None
) -> dict[str, Any]:
    form = LogForm(request.GET)
    form.is_valid()
    page = log_page(log_entries(tenant_id, form.wanted(own)), request.GET.get("after", ""))
    names = LogNames(log_names(page.entries), log_people(page.entries), log_labels(tenant_id))
    asked = {name: form.data.get(name, "") for name in form.fields if form.data.get(name)}
    return {
        "form": form,
        "asked": {name: form.data.get(name, "") for name in form.fields},
        "rows": (rows := [_row(entry, names, base) for entry in page.entries]),
        "has_addresses": any(row.address for row in rows),
        "is_own": own is not None,
        "kinds": [
            ("", "All kinds"),
            *((kind, kind.replace("_", " ")) for kind in log_kinds(tenant_id)),
        ],
        "errors": dict.fromkeys(form.errors, "Enter a date as 2026-11-22."),
        "example": "BK-2041" if tenant_id else "gpu-a1-01",
        "seal": seal_state(tenant_id) if own is None else None,
        "csv": f".csv?{urlencode(asked)}",
        "first": f"?{urlencode(asked)}" if request.GET.get("after") else "",
        "next": f"?{urlencode(asked | {'after': page.next_cursor})}" if page.next_cursor else "",
        "is_filtered": bool(asked),
    }


def _row(entry: AuditEntry, names: LogNames, base: str) -> LogRow:
    before, _, behind = ACTIONS.get(entry.action, f"{entry.action}: {{object}}").partition("{object}")
    has_object = "{object}" in ACTIONS.get(entry.action, "{object}")
    detail = with_labels(log_detail(entry, names.accounts), names.labels)
    name = object_name(entry.object_kind, entry.object_id, detail, names.labels) if has_object else ""
    if entry.object_kind == "user" and name.isdecimal():
        name = names.accounts.get(int(name), name)
    return LogRow(
        at=entry.at,
        who=_who(entry, names.people),
        account=names.accounts.get(entry.actor_id or 0, ""),
        words=(before, behind),
        name=name,
        href=_href(entry, name, base),
        changes=tuple(changes_of(detail, timezone.get_current_timezone(), names.labels.cores)),
        address=str(entry.detail.get("address", "")),
    )


def _who(entry: AuditEntry, names: Mapping[int, str]) -> str:
    if entry.actor_id is None and entry.action == "operator.created":
        return "The set-up"
    if entry.actor_id is None:
        return "Somebody" if entry.object_kind == "user" else SYSTEM
    # The tenant never learns the name of a person who declines.
    is_declined = entry.action == "invitation.declined"
    unnamed = "The invited person" if is_declined else "The platform's operator"
    return names.get(entry.actor_id, unnamed)


def _href(entry: AuditEntry, name: str, base: str) -> str:
    if not base:
        return OPS_LINKS.get(entry.object_kind, "").format(entry.object_id)
    address = TENANT_LINKS.get(entry.object_kind)
    return "" if address is None else base + address.format(name)


def _csv(request: HttpRequest, tenant_id: UUID | None, name: str, own: int | None = None) -> HttpResponse:
    form = LogForm(request.GET)
    form.is_valid()
    entries = list(log_entries(tenant_id, form.wanted(own))[:MOST_EXPORTED])
    names, labels = log_names(entries), log_labels()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([csv_plain(cell) for cell in _cells(entry, names, labels)] for entry in entries)
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="log-{name}.csv"'
    return response


def _cells(entry: AuditEntry, names: Mapping[int, str], labels: Labels) -> Iterator[str]:
    yield entry.at.isoformat()
    yield _who(entry, names)
    name = labels.of(entry.object_kind).get(entry.object_id, entry.object_id)
    yield from (entry.action, entry.object_kind, name)
    kept = with_labels(log_detail(entry, names), labels)
    for part in ("before", "after"):
        yield _json(kept.pop(part, None))
    address = str(kept.pop("address", ""))
    yield from (_json(kept), address)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else ""


def midnight(day: date | None) -> datetime | None:
    """Returns the start of the reader's day; None outside the supported calendar."""
    if day is None or not date(1970, 1, 2) <= day <= date(9999, 12, 30):
        return None
    return timezone.make_aware(datetime(day.year, day.month, day.day))  # noqa: DTZ001 (made aware)
