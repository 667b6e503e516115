"""The operators' page of overrides: what organisations ask for beyond the platform's limits."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Override
from allocation.services.overrides.amounts import amount_editable, amount_typed, amount_words
from allocation.services.overrides.decisions import (
    USUAL,
    Grant,
    override_decline_by_operator,
    override_end_by_operator,
    override_grant_by_operator,
)
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class OpenOverride:
    """One request or override, in words."""

    row: Override
    what: str
    amount: str
    until: str
    is_mine: bool


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.RULES)
def ops_overrides(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows requests to operators, and all overrides in force; POST grants, declines or ends."""
    refusal, now = None, timezone.now()
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "grant": lambda form: _grant(operator, form, now),
            "decline": lambda form: _decline(operator, form, now),
            "end": lambda form: _end(operator, form, now),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-overrides")
    rows = Override.objects.select_related(
        "tenant", "project", "gpu_class", "tier", "booking", "asked_by", "decided_by", "budget"
    )
    waiting = rows.filter(state=Override.State.ASKED, decider=Override.Decider.OPERATOR)
    dated = Q(until=None, is_once=True) | Q(until__gt=now)
    in_force = rows.filter(dated, state=Override.State.GRANTED).order_by("until", "id")
    context = {
        "waiting": [_shown(each, operator, now) for each in waiting.order_by("asked")[:MOST_SHOWN]],
        "in_force": [_shown(each, operator, now) for each in in_force[:MOST_SHOWN]],
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_overrides.html", context, status=status)


def _grant(operator: User, form: QueryDict, now: datetime) -> str:
    key = id_read(form, "override", "request")
    row = Override.objects.filter(id=key).first()
    amount = amount_typed(Override.Kind(row.kind), form.get("amount", "")) if row else None
    grant = Grant(amount, _day_end(form), answer=form.get("reason", ""))
    found = override_grant_by_operator(operator=operator, override_id=key, grant=grant, now=now)
    return f"Granted: {amount_words(found)}."


def _decline(operator: User, form: QueryDict, now: datetime) -> str:
    key, reason = id_read(form, "override", "request"), form.get("reason", "")
    override_decline_by_operator(operator=operator, override_id=key, reason=reason, now=now)
    return "Declined. The person reads your reason."


def _end(operator: User, form: QueryDict, now: datetime) -> str:
    key = id_read(form, "override", "request")
    override_end_by_operator(operator=operator, override_id=key, now=now)
    return "Ended. Running work stays; planned starts are judged anew."


def _day_end(form: QueryDict) -> datetime | None:
    """The end of the typed day, in UTC."""
    text = form.get("until", "").strip()
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise invalid("bad_until", refusal_text("day_example"), "until") from None
    return datetime.combine(day + timedelta(days=1), time(), ZoneInfo("UTC"))


def _shown(row: Override, operator: User, now: datetime) -> OpenOverride:
    return OpenOverride(
        row=row,
        what=amount_words(row),
        amount=amount_editable(row),
        until=f"{row.until or now + USUAL:%Y-%m-%d}",
        is_mine=row.asked_by_id == operator.pk,
    )


urlpatterns = [path("ops/overrides", ops_overrides, name="ops-overrides")]
