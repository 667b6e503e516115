"""The form of a budget's alerts: shares to tick, and who is notified."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import QueryDict

from billing.models import Budget, BudgetAlert, Guardrail
from billing.rules import money_text
from billing.services import Rung, people_named
from billing.services.guardrails import USED
from billing.words import refusal_text
from tenants.models import User
from tenants.platform.errors import invalid

OFFERED = (("committed", 50), ("committed", 80), ("committed", 100), ("forecast", 100))
FIRST = {"committed-80", "committed-100", "forecast-100"}
"""What the form for a new budget has ticked."""
MOST_TICKS = 60
MOST_SHOWN = 20
WHEN = {
    "spent": "{percent} % spent",
    "committed": "{percent} % spent or held",
    "forecast": "{percent} % forecast by the end",
    "unit_cost": "{percent} % of the most spend per unit",
}
AUDIENCES = {
    "leads": "project leads",
    "admins": "admins",
    "both": "project leads and admins",
    "people": "only the people named",
}
DONE = {
    "notify": "Notified",
    "approval": "New bookings asked for an approval",
    "cheaper": "Waiting work took its cheapest class",
    "no_borrowing": "Nothing started on borrowed GPUs",
    "no_bookings": "New bookings were refused",
    "drain": "Nothing started",
    "pause": "What ran was paused",
}


@dataclass(frozen=True, slots=True)
class Tick:
    """A choice of the form."""

    value: str
    label: str
    is_on: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class AlertForm:
    """The fields of the alerts: `people` is empty where too many could be ticked."""

    alerts: Sequence[Tick]
    audience: str
    people: Sequence[Tick]
    named: str
    """Sign-in names as text, where nobody can be ticked."""
    is_mixed: bool = False
    """Whether the alerts have different recipients, which one form makes the same."""
    is_of_platform: bool = False
    percent: str = ""

    @property
    def audiences(self) -> list[tuple[str, str]]:
        """The choices of roles."""
        return [(value, text.capitalize()) for value, text in AUDIENCES.items()]


def condition_text(measure: str, percent: int) -> str:
    """When an alert or limit acts: `80 % spent or held`."""
    return WHEN[measure].format(percent=percent)


def form_of_new(form: QueryDict | None, people: "QuerySet[User]") -> AlertForm:
    """The form for a new budget; `people` are those of the organisation."""
    chosen = set(form.getlist("alerts")) if form is not None else FIRST
    names = _names(form) if form is not None else []
    return _form(OFFERED, chosen, form.get("audience", "both") if form is not None else "both", people, names)


def form_of_budget(budget: Budget, typed: QueryDict | None, people: "QuerySet[User]") -> AlertForm:
    """The form for the alerts of a budget, as they are or as they were typed."""
    rows = list(Guardrail.objects.filter(budget=budget, action=Guardrail.Action.NOTIFY))
    kinds = sorted({*OFFERED, *((row.measure, row.percent) for row in rows)})
    if typed is not None:
        form = _form(kinds, set(typed.getlist("alerts")), typed.get("audience", ""), people, _names(typed))
    else:
        named = User.objects.filter(id__in={key for row in rows for key in row.people})
        chosen = {_value(row.measure, row.percent) for row in rows}
        audience = rows[0].audience if rows else "both"
        form = _form(kinds, chosen, audience, people, [each.username for each in named])
    return AlertForm(
        form.alerts,
        form.audience,
        form.people,
        form.named,
        len({(row.audience, tuple(row.people)) for row in rows}) > 1,
        budget.tenant_id is None,
        typed.get("alert_percent", "") if typed is not None else "",
    )


def alerts_read(form: QueryDict, budget: Budget) -> list[Rung]:
    """The alerts as they are ticked, with one more share if it is typed.

    Raises:
        Refused: `bad_percent`, `unknown_choice` or `unknown_person`.
    """
    kinds = [_kind(value) for value in form.getlist("alerts")]
    if text := form.get("alert_percent", "").strip().removesuffix("%").strip():
        if not (text.isascii() and text.isdigit() and len(text) < 4):
            raise invalid("bad_percent", refusal_text("rung_percent"), "alert_percent")
        kinds.append(("committed", int(text)))
    audience = form.get("audience", "both")
    if audience not in AUDIENCES:
        raise invalid("unknown_choice", refusal_text("unknown_rung"), "audience")
    people = people_named(budget, _names(form))
    return [Rung(*each, "notify", audience, people) for each in dict.fromkeys(kinds)]


def budgets_with_main_alert(budgets: Iterable[UUID]) -> set[UUID]:
    """Those of the budgets that notify at their `warn_percent`."""
    rows = Guardrail.objects.filter(
        budget__in=list(budgets), action=Guardrail.Action.NOTIFY, percent=F("budget__warn_percent")
    )
    of_money = rows.filter(measure__in=USED)
    return set(of_money.values_list("budget_id", flat=True))


@dataclass(frozen=True, slots=True)
class Crossing:
    """A row of the history."""

    alert: BudgetAlert
    when: str
    done: str
    notified: str
    figures: str


def history_of(budget: Budget, currency: str) -> list[Crossing]:
    """The latest crossings of the budget's alerts and limits."""
    rows = list(BudgetAlert.objects.filter(budget=budget)[:MOST_SHOWN])
    wanted = {key for each in rows for key in each.people}
    names = {each.pk: each.display_name for each in User.objects.filter(id__in=wanted)} if wanted else {}
    return [
        Crossing(
            each,
            condition_text(each.measure, each.percent),
            DONE[each.action],
            notified_text(each, names),
            _figures(each, currency),
        )
        for each in rows
    ]


def notified_text(row: BudgetAlert | Guardrail, names: Mapping[int, str]) -> str:
    """Who is notified: `project leads and admins, Mara Lindqvist`."""
    if row.tenant_id is None:
        return "operators"
    roles = "" if row.audience == "people" else AUDIENCES[row.audience]
    return ", ".join(filter(None, (roles, *(names[key] for key in row.people if key in names))))


def _figures(row: BudgetAlert, currency: str) -> str:
    if row.measure == Guardrail.Measure.UNIT_COST and row.unit_cost is not None and row.unit_most is not None:
        return f"{money_text(row.unit_cost, currency)} of at most {money_text(row.unit_most, currency)}"
    used = f"{money_text(row.spent, currency)} spent, {money_text(row.held, currency)} held"
    return f"{used} of {money_text(row.amount, currency)}"


def _form(
    kinds: Iterable[tuple[str, int]],
    chosen: set[str],
    audience: str,
    people: "QuerySet[User]",
    names: Sequence[str],
) -> AlertForm:
    found = list(people.order_by("first_name", "last_name", "username")[: MOST_TICKS + 1])
    ticks = [Tick(each.username, each.display_name, each.username in names) for each in found]
    return AlertForm(
        [Tick(value, condition_text(*kind), value in chosen) for kind in kinds for value in [_value(*kind)]],
        audience,
        ticks if len(found) <= MOST_TICKS else (),
        ", ".join(names),
    )


def _value(measure: str, percent: int) -> str:
    return f"{measure}-{percent}"


def _kind(value: str) -> tuple[str, int]:
    measure, _, percent = value.partition("-")
    if measure not in WHEN or not (percent.isascii() and percent.isdigit() and len(percent) < 4):
        raise invalid("unknown_choice", refusal_text("unknown_rung"), "alerts")
    return measure, int(percent)


def _names(form: QueryDict) -> list[str]:
    """The sign-in names, ticked or typed with commas between them."""
    typed = (part.strip() for text in form.getlist("people") for part in text.split(","))
    return [each for each in dict.fromkeys(typed) if each]
