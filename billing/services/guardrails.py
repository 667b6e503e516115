"""The ladder of a budget: what happens while a share of its amount is used."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from billing.access import people_of
from billing.models import Budget, BudgetAlert, Guardrail
from billing.platform_limits import platform_rungs, platform_stopped
from billing.queries import OWNERS, BudgetFigures, budget_figures_of, reached
from billing.rules import midnight, period_text
from billing.services.holding.shares import BudgetShare
from billing.services.holding.shortages import RAISERS, budget_subject
from billing.words import refusal_text
from tenants.audit import audit_record
from tenants.failures import each_apart
from tenants.models import Project
from tenants.outbox import outbox_add
from tenants.platform.database.compiled import Compiled
from tenants.platform.errors import Refused, invalid
from tenants.platform.reference import by_version

MOST_RUNGS = 12
REACHED = "budget.threshold_reached"
CLEARED = "budget.threshold_cleared"
# What rungs do with bookings that are made already, from the strongest.
OF_UNITS = (Guardrail.Action.NOTIFY, Guardrail.Action.PAUSE)
"""What a rung of the spend per unit of progress can do."""
RESTRAINTS = (
    Guardrail.Action.PAUSE,
    Guardrail.Action.DRAIN,
    Guardrail.Action.NO_BORROWING,
    Guardrail.Action.CHEAPER,
)
# Under these nothing starts.
STOPPING = (Guardrail.Action.PAUSE, Guardrail.Action.DRAIN)


MEASURED = {
    "spent": "spent",
    "committed": "spent or held",
    "forecast": "spent or forecast to be",
    "unit_cost": "of the most spend per unit of progress",
}
"""What a share of a budget is, as the end of a sentence."""
USED = (Guardrail.Measure.SPENT, Guardrail.Measure.COMMITTED)
"""What is used already, and not only expected."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung as a person sets it."""

    measure: str
    percent: int
    action: str
    audience: str = "both"
    people: tuple[int, ...] = ()
    """Accounts that are notified, too; `people_named` has checked them."""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes two rungs the same."""
        return self.measure, self.percent, self.action


def ladder_set(*, actor_id: int | None, budget: Budget, rungs: Collection[Rung], now: datetime) -> None:
    """Replaces the budget's ladder. The caller has checked the actor's right.

    Raises:
        Refused: `bad_percent`, `nobody_named`, `rung_twice`, `too_many_rungs` or `unit_rung`.
    """
    _rungs_check(rungs)
    of_units = [rung for rung in rungs if rung.measure == Guardrail.Measure.UNIT_COST]
    if any(budget.unit_most is None or rung.action not in OF_UNITS for rung in of_units):
        raise invalid("unit_rung", refusal_text("unit_rung"), "measure")
    if budget.tenant_id is None and any(each.action == Guardrail.Action.APPROVAL for each in rungs):
        raise invalid("unknown_choice", refusal_text("operators_approve_nothing"), "action")
    wanted = {rung.key: rung for rung in rungs}
    with transaction.atomic():
        before = list(Guardrail.objects.select_for_update().filter(budget=budget))
        for row in before:
            rung = wanted.pop((row.measure, row.percent, row.action), None)
            if rung is None:
                alert_end(row, now)
                row.delete()
            elif (rung.audience, list(rung.people)) != (row.audience, row.people):
                row.audience, row.people = rung.audience, list(rung.people)
                row.save(update_fields=["audience", "people"])
        Guardrail.objects.bulk_create(
            Guardrail(
                tenant_id=budget.tenant_id,
                budget=budget,
                measure=rung.measure,
                percent=rung.percent,
                action=rung.action,
                audience=rung.audience,
                people=list(rung.people),
            )
            for rung in wanted.values()
        )
        _main_alert_keep(budget, rungs)
        audit_record(
            tenant_id=budget.tenant_id,
            actor_id=actor_id,
            action="budget.ladder",
            target=("budget", budget.id),
            now=now,
            detail={"before": _named(before), "after": _named(rungs)},
        )
        changed, figures = _changed(list(Guardrail.objects.filter(budget=budget)))
        for each in changed:
            _turn(each, figures, now)


def _main_alert_keep(budget: Budget, rungs: Iterable[Rung]) -> None:
    """Makes `warn_percent` the share of an alert again if its own was removed: that of the last one before
    everything is used. Without alerts it stays, and pages show it."""
    shares = {
        each.percent for each in rungs if each.action == Guardrail.Action.NOTIFY and each.measure in USED
    }
    below = {each for each in shares if each <= 100}
    if below and budget.warn_percent not in below:
        budget.warn_percent = max(below - {100}, default=100)
        budget.save(update_fields=["warn_percent"])


def _named(rungs: Iterable[Rung | Guardrail]) -> dict[str, list[str]]:
    """The rungs as the log has them."""
    return {"rungs": [f"{each.measure} {each.percent} {each.action}" for each in rungs]}


_current = Compiled(lambda now, _: Guardrail.objects.filter(budget__ends__gt=now.date()))


def guardrails_evaluate(now: datetime) -> int:
    """Marks the rungs that act from now on and those that stop; returns how many changed.

    Each change is an event in the outbox. Safe to run twice, and for several at once.
    """
    changed, figures = _changed(_current(now))
    return each_apart("ladders", changed, lambda rung: _turn(rung, figures, now), now)


def rungs_of_holds(parts: Iterable[BudgetShare]) -> list[Guardrail]:
    """Returns the rungs that do more than notify, of all budgets that count these shares.

    Call it after the holds of new bookings are written: their accounts are locked then, so no other
    booking can pass a rung at the same moment.
    """
    found: dict[UUID, set[UUID]] = defaultdict(set)
    for part in parts:
        if part.budget.tenant_id is not None:
            found[part.budget.tenant_id] |= _ids(part)
    return [
        rung
        for tenant_id, budgets in found.items()
        for rung in _rungs_read(tenant_id)
        if rung.budget_id in budgets
    ]


@by_version
def _rungs_read(tenant_id: UUID) -> tuple[Guardrail, ...]:
    """The rungs of the tenant and of the platform that do more than notify."""
    rows = Guardrail.objects.filter(tenant_id=tenant_id).exclude(action=Guardrail.Action.NOTIFY)
    above = [rung for rung in platform_rungs() if rung.action != Guardrail.Action.NOTIFY]
    return (*rows.select_related("budget"), *above)


def bookings_stopped(parts: Iterable[BudgetShare], rungs: Iterable[Guardrail]) -> Refused | None:
    """Returns the refusal of a new booking by one of the rungs; None without one.

    Its own holds, which are written, don't count.
    """
    shares = list(parts)
    budgets = {each.id: each for part in shares for each in (part.budget, *part.limits)}
    stopping = [rung for rung in rungs if rung.action == Guardrail.Action.NO_BOOKINGS]
    for rung, effect in _reached(shares, stopping):
        own = _own(shares, rung)
        return _stopped(rung, budgets[rung.budget_id], effect, own)
    names = {name for part in shares for name in _ids(part)}
    is_above = any(rung.budget_id in names and _acts_above(rung) for rung in stopping)
    return platform_stopped() if is_above else None


def rungs_asking(
    parts: Iterable[BudgetShare], rungs: Iterable[Guardrail]
) -> list[tuple[Guardrail, BudgetFigures]]:
    """Returns the reached rungs that ask for an approval of these new shares, which don't count."""
    return _reached(list(parts), [rung for rung in rungs if rung.action == Guardrail.Action.APPROVAL])


def restraint_at(parts: Iterable[BudgetShare], rungs: Iterable[Guardrail], now: datetime) -> str:
    """Returns the strongest acting restraint on bookings of the budgets; empty without one."""
    budgets = {name for part in parts for name in _ids(part)}
    today = now.astimezone(UTC).date()
    acting = {
        rung.action
        for rung in rungs
        if rung.reached_at and rung.budget_id in budgets and rung.budget.ends > today
        if rung.budget.starts <= today
    }
    return next((each for each in RESTRAINTS if each in acting), "")


def restraints_of(
    project: Project, person_id: int, campaign_id: UUID | None, now: datetime
) -> frozenset[str]:
    """Returns the restraints that act on bookings of the person in the project, for quotes."""
    return frozenset(
        rung.action
        for rung in rungs_at(project, person_id, campaign_id, now)
        if rung.action in RESTRAINTS and rung.reached_at is not None
    )


def new_bookings_refusal(
    project: Project, person_id: int, campaign_id: UUID | None, starts: datetime
) -> Refused | None:
    """Returns the refusal that a new booking of the person would get from a ladder, for quotes."""
    rungs = [
        rung
        for rung in rungs_at(project, person_id, campaign_id, starts)
        if rung.action == Guardrail.Action.NO_BOOKINGS
    ]
    if not rungs:
        return None
    figures = budget_figures_of({rung.budget_id for rung in rungs if rung.tenant_id})
    for rung in rungs:
        if rung.tenant_id and reached(rung, figures[rung.budget_id]):
            return _stopped(rung, rung.budget, figures[rung.budget_id], Decimal(0))
    return platform_stopped() if any(map(_acts_above, rungs)) else None


def rungs_at(project: Project, person_id: int, campaign_id: UUID | None, at: datetime) -> Iterator[Guardrail]:
    """Yields the rungs of the budgets in which a booking of the person counts that day."""
    day = at.astimezone(UTC).date()
    mine = {
        "project_id": (None, project.id),
        "lab_id": (None, project.lab_id),
        "campaign_id": (None, campaign_id),
        "person_id": (None, person_id),
    }
    for rung in _rungs_read(project.tenant_id):
        budget = rung.budget
        if budget.starts <= day < budget.ends and all(
            getattr(budget, name) in values for name, values in mine.items()
        ):
            yield rung


def restraining_rungs(now: datetime) -> list[Guardrail]:
    """Returns the rungs that restrain bookings now, of budgets whose period contains today."""
    return list(rungs_acting(now).select_related(*(f"budget__{each}" for each in OWNERS)))


def rungs_acting(now: datetime) -> QuerySet[Guardrail]:
    """The rows of the rungs that restrain bookings now."""
    today = now.astimezone(UTC).date()
    return Guardrail.objects.filter(
        action__in=RESTRAINTS,
        reached_at__isnull=False,
        budget__starts__lte=today,
        budget__ends__gt=today,
    )


def _reached(
    shares: Sequence[BudgetShare], rungs: Sequence[Guardrail]
) -> list[tuple[Guardrail, BudgetFigures]]:
    """The rungs that are reached without these shares, with the figures of their budgets."""
    names = {name for part in shares for name in _ids(part)}
    mine = [rung for rung in rungs if rung.budget_id in names and rung.tenant_id]
    figures = budget_figures_of({rung.budget_id for rung in mine}) if mine else {}
    return [
        (rung, figures[rung.budget_id])
        for rung in mine
        if reached(rung, figures[rung.budget_id], without=_own(shares, rung))
    ]


def _acts_above(rung: Guardrail) -> bool:
    """Whether a rung of the platform acts: by its mark, because its figures are not for tenants."""
    return rung.tenant_id is None and rung.reached_at is not None


def _own(shares: Iterable[BudgetShare], rung: Guardrail) -> Decimal:
    return sum((part.amount for part in shares if rung.budget_id in _ids(part)), Decimal(0))


def ladder_copy(source: Budget, target: Budget) -> None:
    """Gives the budget of the next period the same ladder, main alert and limit of units."""
    for name in ("warn_percent", "unit_most", "unit_count", "unit"):
        setattr(target, name, getattr(source, name))
    target.save(update_fields=["warn_percent", "unit_most", "unit_count", "unit"])
    Guardrail.objects.bulk_create(
        Guardrail(
            tenant_id=target.tenant_id,
            budget=target,
            measure=row.measure,
            percent=row.percent,
            action=row.action,
            audience=row.audience,
            people=row.people,
        )
        for row in Guardrail.objects.filter(budget=source)
    )


def approval_needed(rung: Guardrail, effect: BudgetFigures) -> Refused:
    """Returns the refusal of a change that a new booking would need an approval for."""
    raiser, owner = RAISERS[effect.level]
    return Refused(
        "approval_needed",
        refusal_text("approval_needed", budget=effect.name, percent=rung.percent, raiser=raiser),
        "conflict",
        param="request",
        rule="R10",
        owner=owner,
        frees_at=midnight(effect.ends),
    )


def _ids(part: BudgetShare) -> set[UUID]:
    return {part.budget.id, *(each.id for each in part.limits)}


def _rungs_check(rungs: Collection[Rung]) -> None:
    if len(rungs) > MOST_RUNGS:
        raise invalid("too_many_rungs", refusal_text("too_many_rungs", most_rungs=MOST_RUNGS), "rungs")
    if any(not 1 <= rung.percent <= 200 for rung in rungs):
        raise invalid("bad_percent", refusal_text("rung_percent"), "percent")
    if any(rung.action not in Guardrail.Action.values for rung in rungs):
        raise invalid("unknown_choice", refusal_text("unknown_rung"), "action")
    if any(rung.audience == Guardrail.Audience.PEOPLE and not rung.people for rung in rungs):
        raise invalid("nobody_named", refusal_text("nobody_named"), "people")
    if len({rung.key for rung in rungs}) < len(rungs):
        raise invalid("rung_twice", refusal_text("rung_twice"), "percent")


def _changed(
    rungs: Sequence[Guardrail],
) -> tuple[list[Guardrail], Mapping[UUID, BudgetFigures]]:
    """The rungs that are reached, or no longer, since they were last looked at, and the figures of
    their budgets."""
    figures = budget_figures_of(sorted({rung.budget_id for rung in rungs}))
    changed = [
        rung for rung in rungs if reached(rung, figures[rung.budget_id]) != (rung.reached_at is not None)
    ]
    return changed, figures


def _turn(rung: Guardrail, figures: Mapping[UUID, BudgetFigures], now: datetime) -> bool:
    """Marks one rung and announces it, once if several evaluate at the same time; returns whether
    it changes."""
    effect = figures[rung.budget_id]
    acts = rung.reached_at is None
    with transaction.atomic():
        mine = Guardrail.objects.filter(id=rung.id, reached_at__isnull=acts)
        if not mine.update(reached_at=now if acts else None):
            return True
        kind, payload = REACHED if acts else CLEARED, _payload(rung, effect)
        if acts:
            alert_begin(rung, effect, payload["people"], now)
        else:
            alert_end(rung, now)
        outbox_add(tenant_id=rung.tenant_id, kind=kind, payload=payload, now=now)
        if rung.tenant_id is None:
            audit_record(
                tenant_id=None,
                actor_id=None,
                action=kind,
                target=("budget", effect.budget_id),
                now=now,
                detail=payload,
            )
    return True


def _payload(rung: Guardrail, effect: BudgetFigures) -> dict[str, Any]:
    # Who has left, or may not see the budget any more, gets no figures of it.
    named = people_of(rung.budget).filter(id__in=rung.people) if rung.people else ()
    people = sorted(each.pk for each in named)
    is_lost = rung.audience == Guardrail.Audience.PEOPLE and not people
    return {
        "budget": str(effect.budget_id),
        "project": str(effect.project_id) if effect.project_id else None,
        "level": effect.level,
        "name": effect.name,
        "starts": effect.starts.isoformat(),
        "ends": effect.ends.isoformat(),
        "measure": rung.measure,
        "percent": rung.percent,
        "action": rung.action,
        "audience": Guardrail.Audience.ADMINS.value if is_lost else rung.audience,
        "people": people,
        "currency": effect.currency,
        **_units_payload(effect),
        **{name: str(getattr(effect, name)) for name in ("amount", "spent", "held", "left")},
    }


def _units_payload(effect: BudgetFigures) -> dict[str, str]:
    """What is said of the spend per unit of progress where that is limited."""
    limit, cost = effect.unit_limit, effect.unit_cost
    if limit is None or cost is None:
        return {}
    return {"units": limit.units, "unit_most": str(limit.most), "unit_cost": str(cost)}


def _stopped(rung: Guardrail, budget: Budget, effect: BudgetFigures, own: Decimal) -> Refused:
    raiser, owner = RAISERS[effect.level]
    share = effect.share_of(rung.measure, without=own)
    return Refused(
        "bookings_stopped",
        refusal_text(
            "bookings_stopped",
            budget=budget_subject(effect, budget),
            share=f"{share:.0f}",
            period=period_text(effect.period),
            measured=MEASURED[rung.measure],
            percent=rung.percent,
            raiser=raiser,
        ),
        "budget",
        param="request",
        rule="R10",
        owner=owner,
        frees_at=midnight(effect.ends),
        numbers={
            "level": effect.level,
            "budget": str(effect.budget_id),
            "measure": rung.measure,
            "percent": rung.percent,
            "share": f"{share:.2f}",
        },
    )


def alert_begin(rung: Guardrail, figures: BudgetFigures, people: Sequence[int], now: datetime) -> None:
    """Writes that the rung was reached. The database refuses a second row until it was left."""
    BudgetAlert.objects.create(
        tenant_id=rung.tenant_id,
        budget_id=rung.budget_id,
        measure=rung.measure,
        percent=rung.percent,
        action=rung.action,
        audience=rung.audience,
        people=list(people),
        reached_at=now,
        amount=figures.amount,
        spent=figures.spent,
        held=figures.held,
        forecast=figures.forecast,
        unit_cost=figures.unit_cost if figures.unit_limit else None,
        unit_most=figures.unit_limit.most if figures.unit_limit else None,
    )


def alert_end(rung: Guardrail, now: datetime) -> None:
    """Writes that the rung was left, or removed."""
    BudgetAlert.objects.filter(
        budget_id=rung.budget_id,
        measure=rung.measure,
        percent=rung.percent,
        action=rung.action,
        cleared_at=None,
    ).update(cleared_at=now)
