"""The page of one budget: its figures, its alerts and its limits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.timezone import localtime
from django.views.decorators.http import require_http_methods

from allocation.queries.bookings.money.forecasts import forecast_today
from allocation.queries.bookings.rung_effects import restrained_now
from allocation.web.money.budget_chart import budget_chart, budget_day, budget_days_csv
from allocation.web.money.forecasts import forecast_words
from allocation.web.parts.times import dated
from allocation.words.refusals import refusal_text
from billing.access import access_budget, people_of, require_budget_right
from billing.models import Budget, Guardrail
from billing.queries import (
    budget_figures_of,
    open_holds,
    reached,
    would_have_stopped,
)
from billing.rules import money_text, period_text
from billing.services import Rung, alerts_set, budget_labels_set, ladder_set
from billing.services.guardrails import MEASURED
from billing.web.alerts import (
    AlertForm,
    alerts_read,
    condition_text,
    form_of_budget,
    history_of,
    notified_text,
)
from billing.web.budget_bar import budget_bar
from tenants.access import Actor
from tenants.models import User
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.platform.labels import labels_read, labels_text
from tenants.web.frame import tenant_page

ACTS_NOW = {
    "approval": "New bookings wait for an approval from now on.",
    "cheaper": "Waiting work on several classes takes the cheapest of them from now on.",
    "no_borrowing": "From now on bookings start only on GPUs within guarantees.",
    "pause": "From now on no booking starts, and what can be paused gets its notice.",
    "no_bookings": "New bookings are refused from now on.",
    "drain": "From now on no booking starts.",
}
STAYS = {
    "cheaper": "What runs stays, and so does work on one class. With a deadline, work takes the"
    " cheapest class that meets it in any case.",
    "no_borrowing": "What runs stays. Organisations without guarantees borrow nothing and notice nothing.",
    "pause": "What its tier never pauses runs to its end. A pause credits nothing, and its grace"
    " period is charged. Paused bookings resume by themselves.",
    "approval": "Bookings that are made already, and their extensions, stay.",
    "no_bookings": "Bookings that are made already, and their extensions, stay.",
    "drain": "What runs stays. Planned starts are given up; fixed windows wait, at no cost.",
}


UNTYPED = {"percent": "95", "audience": "both"}
LIMITS = [each for each in Guardrail.Action.choices if each[0] != Guardrail.Action.NOTIFY]


@dataclass(frozen=True, slots=True)
class RungRow:
    """A rung as the page shows it."""

    rung: Guardrail
    acts: bool
    effect: str
    notified: str

    @property
    def is_alert(self) -> bool:
        """Whether it only notifies."""
        return self.rung.action == Guardrail.Action.NOTIFY

    @property
    def condition(self) -> str:
        """When it acts, in words."""
        return condition_text(self.rung.measure, self.rung.percent).capitalize()


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def budget_one(request: HttpRequest, actor: Actor, budget_id: UUID) -> HttpResponse:
    """Shows the budget; POST saves its alerts or labels, or adds or removes a limit."""
    budget = access_budget(actor, budget_id)
    if request.method != "POST":
        return _page(request, actor, budget, None)
    require_budget_right(actor, budget.owner)
    try:
        if "labels" in request.POST:
            return _labelled(request, actor, budget)
        if "save_alerts" in request.POST:
            alerts = alerts_read(request.POST, budget)
            alerts_set(actor_id=actor.user_id, budget=budget, alerts=alerts, now=timezone.now())
            messages.success(request, alerts_said(alerts))
            return redirect(_address(actor, budget))
        rungs, said = ladder_changed(budget, request.POST)
        if "add" in request.POST and CONFIRMED_FIELD not in request.POST:
            question = rung_question(_address(actor, budget), budget, rungs[-1])
            if question is not None:
                return confirm_page(request, question)
        ladder_set(actor_id=actor.user_id, budget=budget, rungs=rungs, now=timezone.now())
    except Refused as refusal:
        return _page(request, actor, budget, refusal)
    messages.success(request, said)
    return redirect(_address(actor, budget))


def _labelled(request: HttpRequest, actor: Actor, budget: Budget) -> HttpResponse:
    labels = labels_read(request.POST.get("labels", ""))
    reference = request.POST.get("external_ref", "").strip()
    budget_labels_set(
        actor_id=actor.user_id,
        budget=budget,
        labels=labels,
        external_ref=reference,
        now=timezone.now(),
    )
    messages.success(request, "Saved the labels.")
    return redirect(_address(actor, budget))


def _address(actor: Actor, budget: Budget) -> str:
    return reverse("budget", args=[actor.tenant_slug, budget.id])


def ladder_changed(budget: Budget, form: QueryDict) -> tuple[list[Rung], str]:
    """The new ladder and the message about it."""
    rows = list(Guardrail.objects.filter(budget=budget))
    kept = [row for row in rows if str(row.id) != form.get("remove", "")]
    if "add" not in form and len(kept) == len(rows):
        raise missing("limit")
    rungs = [Rung(row.measure, row.percent, row.action, row.audience, tuple(row.people)) for row in kept]
    if "add" not in form:
        return rungs, "Removed the limit."
    rungs.append(_typed(form))
    return rungs, "Added the limit."


def alerts_said(alerts: Sequence[Rung]) -> str:
    """The message after alerts were saved."""
    if not alerts:
        return "Saved: this budget sends no alerts."
    shares = ", ".join(condition_text(each.measure, each.percent) for each in alerts)
    return f"Saved: alerts at {shares}."


def _typed(form: QueryDict) -> Rung:
    percent = form.get("percent", "").strip().removesuffix("%").strip()
    if not (percent.isascii() and percent.isdigit() and len(percent) < 4):
        raise invalid("bad_percent", refusal_text("percent_200"), "percent")
    return Rung(
        measure=_chosen(form, "measure", Guardrail.Measure.values),
        percent=int(percent),
        action=_chosen(form, "action", Guardrail.Action.values),
        audience=_chosen(form, "audience", Guardrail.Audience.values),
    )


def _chosen(form: QueryDict, name: str, values: list[str]) -> str:
    value = str(form.get(name, ""))
    if value not in values:
        raise invalid("unknown_choice", refusal_text("one_of_values"), name)
    return value


def rung_question(back: str, budget: Budget, rung: Rung) -> Confirmation | None:
    """What a rung would stop; None for one that only notifies."""
    if rung.action == Guardrail.Action.NOTIFY or not 1 <= rung.percent <= 200:
        return None
    figures = budget_figures_of([budget.id])[budget.id]
    share = figures.share_of(rung.measure)
    acts = share >= rung.percent
    label = str(Guardrail.Action(rung.action).label)
    return Confirmation(
        title=f"{label} from {rung.percent} % on?",
        lost=(
            f"{figures.name}, {period_text(figures.period)}: {share:.0f} % {MEASURED[rung.measure]} now.",
            ACTS_NOW[rung.action] if acts else "It does nothing now, and acts at this share.",
            _effect(rung.action, budget, rung.measure, rung.percent, figures.currency),
            STAYS[rung.action],
            "It goes back by itself when the share is lower.",
        ),
        button="Add the limit",
        back=back,
        keep="Don't add it",
    )


def _effect(action: str, budget: Budget, measure: str, percent: int, currency: str) -> str:
    """What the rung would have done with new bookings of the period so far."""
    done = {"no_bookings": "stopped", "approval": "asked for an approval of"}.get(action)
    if done is None:
        return _concerned(action, budget, currency)
    stopped = would_have_stopped(budget, measure, percent)
    if not stopped.bookings or stopped.first is None:
        return f"In this period it would have {done} no booking so far."
    noun = "booking" if stopped.bookings == 1 else "bookings"
    return (
        f"In this period it would have {done} {stopped.bookings} {noun} of"
        f" {money_text(stopped.amount, currency)}, the first on {dated(stopped.first)}."
    )


def _concerned(action: str, budget: Budget, currency: str) -> str:
    """What the rung would do now with bookings that are made already."""
    now = restrained_now(budget, timezone.now())
    if action == Guardrail.Action.NO_BORROWING:
        return f"Of {_bookings(now.waiting)} not started, {now.borrowing} would give up borrowed GPUs."
    if action == Guardrail.Action.CHEAPER:
        return f"It would move {_bookings(now.choosing)} to the cheapest of several classes."
    if action == Guardrail.Action.DRAIN:
        held = money_text(open_holds(budget).amount, currency)
        return f"It would keep {_bookings(now.waiting)} from starting; {held} is held."
    if action == Guardrail.Action.PAUSE:
        stays = now.running - now.pausable
        return (
            f"It would pause {_bookings(now.pausable)} and keep {now.waiting} from starting;"
            f" {stays} would run on."
        )
    return ""


def _bookings(count: int) -> str:
    return f"{count} booking" if count == 1 else f"{count} bookings"


def label_fields(
    labels: dict[str, str], external_ref: str, request: HttpRequest, refusal: Refused | None
) -> dict[str, object]:
    """The values of the form of labels, and its refusal."""
    is_mine = refusal is not None and "labels" in request.POST
    typed = request.POST
    return {
        "labels": typed.get("labels", "") if is_mine else labels_text(labels),
        "external_ref": typed.get("external_ref", "") if is_mine else external_ref,
        "refusal": refusal if is_mine else None,
    }


def ladder_context(request: HttpRequest, budget: Budget, refusal: Refused | None) -> dict[str, object]:
    """What the part with alerts and limits shows: the rungs, and the forms with what was typed."""
    figures = budget_figures_of([budget.id])[budget.id]
    rungs = list(Guardrail.objects.filter(budget=budget))
    named = User.objects.filter(id__in={key for rung in rungs for key in rung.people})
    names = {each.pk: each.display_name for each in named}
    rows = [
        RungRow(
            rung=rung,
            acts=reached(rung, figures),
            effect=_effect(rung.action, budget, rung.measure, rung.percent, figures.currency),
            notified=notified_text(rung, names),
        )
        for rung in rungs
    ]
    of_alerts = request.POST if refusal is not None and "save_alerts" in request.POST else None
    alert_form = form_of_budget(budget, of_alerts, people_of(budget))
    alerts = [row for row in rows if row.is_alert]
    notes = {f"{row.rung.measure}-{row.rung.percent}": _alert_note(row, alert_form) for row in alerts}
    ticks = [replace(each, note=notes.get(each.value, "")) for each in alert_form.alerts]
    is_typed = refusal is not None and "percent" in request.POST
    return {
        "rows": rows,
        "refusal": refusal if of_alerts is None else None,
        "alert_refusal": refusal if of_alerts is not None else None,
        "alert_form": replace(alert_form, alerts=ticks),
        "crossings": history_of(budget, figures.currency),
        "typed": request.POST if is_typed else UNTYPED,
        "measures": [
            each
            for each in Guardrail.Measure.choices
            if figures.unit_limit or each[0] != Guardrail.Measure.UNIT_COST
        ],
        "actions": LIMITS,
        "audiences": Guardrail.Audience.choices,
    }


def _alert_note(row: RungRow, form: AlertForm) -> str:
    """Whether an alert is reached, and who is notified where the form can't say it for all."""
    found = "not reached"
    if row.acts:
        at = localtime(row.rung.reached_at) if row.rung.reached_at else None
        found = f"reached on {at.day} {at:%b, %H:%M}" if at else "reached"
    return f"{found}, notifies {row.notified}" if form.is_mixed else found


def _page(request: HttpRequest, actor: Actor, budget: Budget, refusal: Refused | None) -> HttpResponse:
    figures = budget_figures_of([budget.id])[budget.id]
    try:
        require_budget_right(actor, budget.owner)
        may_edit = True
    except Refused:
        may_edit = False
    return render(
        request,
        "billing/budget.html",
        {
            "budget": budget,
            "figures": figures,
            "bar": budget_bar(figures),
            "forecast": forecast_words(forecast_today(budget, timezone.now())),
            "period_text": period_text(figures.period),
            "may_edit": may_edit,
            "label_fields": label_fields(budget.labels, budget.external_ref, request, refusal),
            **ladder_context(request, budget, None if "labels" in request.POST else refusal),
            **budget_chart(budget, actor.tenant_slug),
            "back": f"{reverse('budgets', args=[actor.tenant_slug])}?month={budget.starts:%Y-%m}",
        },
        status=422 if refusal else 200,
    )


urlpatterns = [
    path("t/<slug:tenant>/budgets/<uuid:budget_id>", budget_one, name="budget"),
    path("t/<slug:tenant>/budgets/<uuid:budget_id>/days.csv", budget_days_csv, name="budget-days"),
    path("t/<slug:tenant>/budgets/<uuid:budget_id>/days/<str:day>", budget_day, name="budget-day"),
]
