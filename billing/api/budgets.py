"""Budgets: the amounts that may be spent in a period at each level, and their use."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.access import access_budget, access_owner, budgets_visible, require_budget_right
from billing.models import Budget, BudgetAlert, Guardrail
from billing.queries import budget_figures_of, would_have_stopped
from billing.rules import BudgetOwner, BudgetTerms, Period, month_after, month_of
from billing.services import (
    MAIN_PERCENT,
    Rung,
    alerts_set,
    budget_labels_set,
    budget_put,
    ladder_set,
    people_named,
)
from billing.words import refusal_text
from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.labels import MAX_REFERENCE, MAX_TEXT, Labels, Reference, labelled
from tenants.platform.rest.fields import Day, Flag, Money, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.services.labs.labs import lab_read

MOST_NAMED = 20
MOST_SHOWN = 200


class BudgetOut(serializers.Serializer[Any]):
    """A budget: `amount` = `spent` + `held` + `left`."""

    id = serializers.UUIDField(source="budget_id")
    level = serializers.ChoiceField(choices=Budget.Level.values)
    lab = serializers.CharField(allow_null=True)
    project = serializers.CharField(allow_null=True, help_text="Null for organisation and lab.")
    campaign = serializers.CharField(allow_null=True)
    person = serializers.CharField(allow_null=True, help_text="Sign-in name.")
    name = serializers.CharField(help_text="Of the organisation, lab, project, campaign or person.")
    starts = serializers.DateField()
    ends = serializers.DateField(help_text="The first day after it.")
    currency = serializers.CharField()
    amount = Money(max_digits=20)
    spent = Money(max_digits=20)
    held = Money(max_digits=20)
    left = Money(max_digits=20, min_value=None)
    warn_percent = serializers.IntegerField(
        help_text="The main alert; from this share on pages show a warning."
    )
    is_hard = serializers.BooleanField(
        help_text="A hard budget refuses bookings that it can't pay; a soft one only warns."
    )
    is_repeated = serializers.BooleanField(help_text="The next period gets a budget of the same amount.")
    rolls_over = serializers.BooleanField(
        help_text="What is left when the period ends is added to the next one."
    )
    labels = Labels(help_text="What it pays has them, too.")
    external_ref = serializers.CharField(help_text="A URL or a ticket's key.")


BUDGETS = page(BudgetOut)


class BudgetQuery(Strict):
    """A filter; without dates the budgets of this and the next month."""

    level = serializers.ChoiceField(choices=Budget.Level.values, required=False)
    lab = Text(required=False, max_length=40)
    project = Text(required=False, max_length=40)
    starts = Day(required=False)
    ends = Day(required=False)
    # Any: the base class has an attribute of this name.
    label: Any = Text(required=False, max_length=MAX_TEXT, help_text="`team=vision`; all of them.")
    external_ref = Text(required=False, max_length=MAX_REFERENCE)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Fills in the default period. Raises ValidationError."""
        this_month = month_of(timezone.now().date())
        starts = given.setdefault("starts", this_month.starts)
        ends = given.setdefault("ends", month_after(month_after(starts)))
        if not starts < ends:
            raise serializers.ValidationError({"ends": [refusal_text("period_backward")]}, code="bad_period")
        return given


class AlertTerms(Strict):
    """An alert: it notifies when `measure` reaches `percent` of the amount, once per crossing."""

    measure = serializers.ChoiceField(choices=Guardrail.Measure.values)
    percent = Whole(min_value=1, max_value=200)
    audience = serializers.ChoiceField(choices=Guardrail.Audience.values, required=False, default="both")
    people = serializers.ListField(
        child=Text(max_length=150),
        required=False,
        max_length=MOST_NAMED,
        help_text="Sign-in names of people who may see the budget; they are notified, too.",
    )


class AmountChange(Strict):
    """A new amount and settings. Settings that are left out stay as they are."""

    amount = Money(max_digits=15, decimal_places=6)
    warn_percent = Whole(
        required=False,
        min_value=1,
        max_value=100,
        help_text="Short for the main alert, at this share of spent and held money.",
    )
    alerts: Any = AlertTerms(
        many=True, required=False, help_text="All alerts. A new budget without them notifies at 80 %."
    )
    is_hard = Flag(required=False)
    is_repeated = Flag(required=False)
    rolls_over = Flag(required=False)


class BudgetChange(AmountChange):
    """A new amount, settings and labels. What is left out stays as it is."""

    labels = Labels(required=False)
    external_ref = Reference(required=False)


class BudgetNew(BudgetChange):
    """A budget for a period of UTC days [starts, ends): of the organisation, of a lab, of a
    project, or of a campaign or a person in a project."""

    project = Text(max_length=40, required=False, help_text="Left out: the whole organisation.")
    lab = Text(max_length=40, required=False, help_text="Without a project.")
    campaign = Text(max_length=40, required=False)
    person = Text(max_length=150, required=False, help_text="Sign-in name of a member.")
    starts = Day()
    ends = Day()


class Budgets(ApiView):
    """The budgets that the caller may see."""

    queries = {"GET": BudgetQuery}

    @described(
        "list_budgets",
        "Budgets of all levels with spent, held and left",
        answer=BUDGETS,
        query=BudgetQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists budgets by project, level and start."""
        with self.tx():
            budgets = budgets_visible(self.actor).filter(
                starts__lt=self.query["ends"], ends__gt=self.query["starts"]
            )
            if "level" in self.query:
                budgets = budgets.filter(level=self.query["level"])
            if "project" in self.query:
                project = access_project(self.actor, self.query["project"], "project")
                budgets = budgets.filter(project=project)
            if "lab" in self.query:
                lab = lab_read(self.actor, self.query["lab"], "lab")
                budgets = budgets.filter(lab=lab)
            budgets = labelled(budgets, self.query)
            rows = budgets.select_related("lab", "project", "campaign", "person")
            return list_response(budgets_shown(list(rows.order_by("project__slug", "starts", "id"))))

    @described(
        "create_budget",
        "Set a budget for a period (tenant admins; below a project also its leads)",
        answer=BudgetOut,
        status=201,
        request=BudgetNew,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Creates the budget, or changes the one of the period."""
        sent = self.sent(BudgetNew)

        def work() -> Response:
            named = [sent.get(name, "") for name in ("project", "campaign", "person", "lab")]
            owner = access_owner(self.actor, *named)
            period = Period(sent["starts"], sent["ends"])
            return Response(_set(self.actor, owner, period, sent, self.now), status=201)

        return self.once(work)


class BudgetOne(ApiView):
    """One budget."""

    @described("get_budget", "One budget", answer=BudgetOut)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the budget."""
        with self.tx():
            return Response(budgets_shown([access_budget(self.actor, budget_id)])[0])

    @described(
        "set_budget",
        "Change a budget (tenant admins; below a project also its leads)",
        answer=BudgetOut,
        request=BudgetChange,
    )
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Changes the budget."""
        sent = self.sent(BudgetChange)
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            period = Period(budget.starts, budget.ends)
            return Response(_set(self.actor, budget.owner, period, sent, self.now))


class RungOut(Strict):
    """A rung: it acts while `measure` is at least `percent` of the amount."""

    measure = serializers.ChoiceField(choices=Guardrail.Measure.values)
    percent = Whole(min_value=1, max_value=200)
    action = serializers.ChoiceField(choices=Guardrail.Action.values)
    audience = serializers.ChoiceField(choices=Guardrail.Audience.values, required=False, default="both")
    people = serializers.ListField(
        child=Text(max_length=150),
        required=False,
        max_length=MOST_NAMED,
        help_text="Sign-in names of people who may see the budget; they are notified, too.",
    )
    reached_at = serializers.DateTimeField(
        read_only=True, allow_null=True, help_text="Since when it acts; null while it does not."
    )
    would_have_stopped = serializers.IntegerField(
        read_only=True,
        help_text="Bookings of the period that a rung `no_bookings` would have refused so far.",
    )


class LadderOut(Strict):
    """The rungs of a budget, the lowest share first."""

    rungs = RungOut(many=True)


class Ladder(ApiView):
    """The ladder of a budget."""

    @described("get_ladder", "The ladder of a budget", answer=LadderOut)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Describes the rungs."""
        with self.tx():
            return Response(ladder_shown(access_budget(self.actor, budget_id)))

    @described(
        "set_ladder",
        "Replace the ladder of a budget (tenant admins; below a project also its leads)",
        answer=LadderOut,
        request=LadderOut,
    )
    def put(self, request: Request, budget_id: UUID) -> Response:
        """Replaces the rungs."""
        sent = self.sent(LadderOut)
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            require_budget_right(self.actor, budget.owner)
            rungs = rungs_asked(budget, sent["rungs"])
            ladder_set(actor_id=self.actor.user_id, budget=budget, rungs=rungs, now=self.now)
            return Response(ladder_shown(budget))


class AlertOut(serializers.Serializer[Any]):
    """A crossing: the time during which an alert or limit was reached, with the figures of its beginning."""

    id = serializers.IntegerField()
    measure = serializers.ChoiceField(choices=Guardrail.Measure.values)
    percent = serializers.IntegerField()
    action = serializers.ChoiceField(choices=Guardrail.Action.values)
    audience = serializers.ChoiceField(choices=Guardrail.Audience.values)
    people = serializers.ListField(child=serializers.CharField(), help_text="Sign-in names.")
    reached_at = serializers.DateTimeField()
    cleared_at = serializers.DateTimeField(
        allow_null=True, help_text="When the share was lower again, or the rung was removed."
    )
    amount = Money(max_digits=20)
    spent = Money(max_digits=20)
    held = Money(max_digits=20)
    forecast = Money(max_digits=20, allow_null=True)
    unit_cost = Money(max_digits=20, allow_null=True, help_text="Where the spend per unit is limited.")
    unit_most = Money(max_digits=20, allow_null=True)


ALERTS = page(AlertOut)


class BudgetAlerts(ApiView):
    """The history of a budget's alerts and limits."""

    @described("list_budget_alerts", "When alerts and limits of a budget were reached", answer=ALERTS)
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Lists the latest first."""
        with self.tx():
            return list_response(alerts_shown(access_budget(self.actor, budget_id)))


def alerts_shown(budget: Budget) -> list[dict[str, Any]]:
    """The latest crossings as `AlertOut`."""
    rows = list(BudgetAlert.objects.filter(budget=budget)[:MOST_SHOWN])
    names = _names(each.people for each in rows)
    for each in rows:
        each.people = [names[key] for key in each.people if key in names]
    return list(AlertOut(rows, many=True).data)


def rungs_asked(budget: Budget, sent: list[dict[str, Any]], **more: str) -> list[Rung]:
    """The rungs of a body. Raises Refused `unknown_person` for people who may not see the budget."""
    return [Rung(**{**each, **more, "people": people_named(budget, each.get("people", ()))}) for each in sent]


def _names(people: Iterable[list[int]]) -> dict[int, str]:
    """The sign-in names of accounts."""
    wanted = {key for each in people for key in each}
    return dict(User.objects.filter(id__in=wanted).values_list("id", "username")) if wanted else {}


def ladder_shown(budget: Budget) -> dict[str, Any]:
    """The ladder as `LadderOut`."""
    rows = list(Guardrail.objects.filter(budget=budget))
    names = _names(rung.people for rung in rows)
    rungs = [
        {
            "measure": rung.measure,
            "percent": rung.percent,
            "action": rung.action,
            "audience": rung.audience,
            "people": [names[key] for key in rung.people if key in names],
            "reached_at": rung.reached_at,
            "would_have_stopped": would_have_stopped(budget, rung.measure, rung.percent).bookings
            if rung.action == "no_bookings"
            else 0,
        }
        for rung in rows
    ]
    return dict(LadderOut({"rungs": rungs}).data)


def _set(
    actor: Actor, owner: BudgetOwner, period: Period, sent: dict[str, Any], now: datetime
) -> dict[str, Any]:
    require_budget_right(actor, owner)
    names = ("warn_percent", "is_hard", "is_repeated", "rolls_over")
    terms = BudgetTerms(period, sent["amount"], **{name: sent.get(name) for name in names})
    budget = budget_put(actor_id=actor.user_id, owner=owner, terms=terms, now=now)
    alerts_of_body(actor.user_id, budget, sent, now)
    budget_labels_set(
        actor_id=actor.user_id,
        budget=budget,
        labels=sent.get("labels"),
        external_ref=sent.get("external_ref"),
        now=now,
    )
    return budgets_shown([access_budget(actor, budget.id)])[0]


def alerts_of_body(actor_id: int, budget: Budget, sent: dict[str, Any], now: datetime) -> None:
    """Sets the alerts that a body has; a new budget without any notifies at the usual share."""
    if "alerts" in sent:
        alerts = rungs_asked(budget, sent["alerts"], action="notify")
    elif budget.is_new and sent.get("warn_percent") is None:
        alerts = [Rung("committed", MAIN_PERCENT, "notify")]
    else:
        return
    alerts_set(actor_id=actor_id, budget=budget, alerts=alerts, now=now)


def budgets_shown(budgets: list[Budget]) -> list[dict[str, Any]]:
    """The budgets as `BudgetOut`, in order."""
    figures = budget_figures_of(budget.id for budget in budgets)
    return [
        dict(
            BudgetOut(
                {
                    **asdict(figures[budget.id]),
                    "lab": budget.lab.slug if budget.lab else None,
                    "project": budget.project.slug if budget.project else None,
                    "campaign": budget.campaign.slug if budget.campaign else None,
                    "person": budget.person.username if budget.person else None,
                    "labels": budget.labels,
                    "external_ref": budget.external_ref,
                }
            ).data
        )
        for budget in budgets
    ]
