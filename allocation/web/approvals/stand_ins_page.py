"""The page of stand-ins: people who decide for an approver."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import StandIn
from allocation.services.approvals.stand_ins import (
    StandInTerms,
    may_name,
    stand_in_end,
    stand_in_set,
    stand_ins_visible,
)
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from tenants.access import Actor, acting_members
from tenants.models import Project, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.web.frame import tenant_page, zone_of
from tenants.web.parts import Field

MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class StandInRow:
    """One stand-in, in words."""

    row: StandIn
    person: str
    approver: str
    scope: str
    when: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def stand_ins_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows stand-ins that are in force or begin later. Approvers name and end them."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "name": lambda form: _name(actor, form),
            "end": lambda form: _end(actor, form),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("stand-ins", tenant=actor.tenant_slug)
    ctx = page_context(actor, timezone.now())
    rows = stand_ins_visible(actor).filter(ended=None, until__gt=ctx.now)
    context = {
        "rows": [_row(row, ctx) for row in rows.order_by("starts", "id")[:MOST_SHOWN]],
        "form": _form(actor, request.POST, refusal) if may_name(actor) else None,
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/approvals/stand_ins.html", context, status=status)


def _name(actor: Actor, form: QueryDict) -> str:
    until = _day(actor, form, "until")
    if until is None:
        raise invalid("bad_until", refusal_text("last_day_missing"), "until")
    terms = StandInTerms(
        person=form.get("person", ""),
        starts=_day(actor, form, "starts"),
        until=until + timedelta(days=1),
        project=form.get("project", ""),
    )
    row = stand_in_set(actor=actor, terms=terms, now=timezone.now())
    return f"{row.person.display_name} decides for you in that time."


def _end(actor: Actor, form: QueryDict) -> str:
    key = id_read(form, "stand_in", "stand-in")
    row = stand_in_end(actor=actor, stand_in_id=key, now=timezone.now())
    return f"{row.person.display_name} does not decide for {row.approver.display_name} any more."


def _day(actor: Actor, form: QueryDict, name: str) -> datetime | None:
    """The beginning of the typed day in the reader's zone; None without one."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise invalid("bad_until", refusal_text("day_example"), name) from None
    return datetime.combine(day, time(), zone_of(actor.time_zone))


def _row(row: StandIn, ctx: PageContext) -> StandInRow:
    starts, until = (moment_words(each, ctx.zone, ctx.now) for each in (row.starts, row.until))
    return StandInRow(
        row=row,
        person=row.person.display_name,
        approver=row.approver.display_name,
        scope=row.project.name if row.project else "All requests",
        when=f"until {until}" if row.starts <= ctx.now else f"{starts} until {until}",
    )


def _form(actor: Actor, sent: QueryDict, refusal: Refused | None) -> dict[str, Any]:
    """The form of a new stand-in: empty, or as typed when it was refused."""
    typed = sent if refusal is not None and sent.get("act") == "name" else QueryDict()

    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
        is_wrong = refusal is not None and refusal.param == name
        error = refusal.sentence if refusal is not None and is_wrong else ""
        value = typed.get(name, "")
        return Field(
            name, label, value, hint=hint, error=error, required=False, id=f"new-{name}", **more
        )

    rows = acting_members(actor.tenant_id)
    others = User.objects.filter(id__in=rows.exclude(user=actor.user_id).values("user"))
    people = [
        (each.username, each.display_name) for each in others.order_by("first_name", "username")
    ]
    led = [
        (each.slug, each.name)
        for each in Project.objects.filter(tenant_id=actor.tenant_id, is_open=True)
        if actor.may_lead(each.id)
    ]
    return {
        "person": field("person", "Person", choices=people),
        "project": field("project", "For requests in", choices=[("", "All that I decide"), *led]),
        "fields": [
            field("starts", "First day (optional)", "Else from now on.", type="date"),
            field("until", "Last day", type="date"),
        ],
    }


urlpatterns = [path("t/<slug:tenant>/approvals/stand-ins", stand_ins_page, name="stand-ins")]
