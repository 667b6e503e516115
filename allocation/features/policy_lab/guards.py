"""The guard of a version: figures with bands. When one leaves its band, the version before returns.

A band ends at an amount, at a part of what the figure was in the same hours a week before, or at a part
of what a trial of the version forecast for a day.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from allocation.features.policy_lab.guard_figures import Name, Span, forecast, measured
from allocation.features.policy_lab.models import PolicyTrial
from allocation.models import PolicyActivation
from allocation.services.policy.activations import policy_rollback
from allocation.services.policy.parts import part_names
from allocation.words.refusals import refusal_text
from tenants.models import Tier
from tenants.platform.errors import Refused, invalid
from tenants.platform.terms import term, terms
from tenants.services.members.messages import PeopleMessage, people_message_put

MOST_FIGURES, MOST_HOURS = 10, 31 * 24
MOST = 10**9
WEEK = timedelta(days=7)
RETURNED = "policy_guard.returned"
BANDS = ("most", "most_percent", "most_percent_of_trial")
LABELS: Mapping[str, str] = {
    "wait_p95": "the wait of 19 in 20, in seconds",
    "pauses": "the number of pauses",
    "guarantees_missed": "the number of missed guarantees",
    "spend": "the spend",
    "slow_decisions": "the number of decisions over 5 s",
}


@terms
class FigureTerms:
    """A figure and its bands, of which it may leave none."""

    figure: Name = term(
        says="Of the last 24 hours: `wait_p95` of a tier in seconds, the number of `pauses`, of"
        " `guarantees_missed` (begun 15 minutes late), the `spend`, or the number of `slow_decisions`"
        " (over 5 s)."
    )
    tier: str = term(says="Of `wait_p95`.", default="", max_length=40)
    most: int | None = term(says="The band ends here.", default=None, min_value=0, max_value=MOST)
    most_percent: int | None = term(
        says="It ends at so many percent of the same time a week before.",
        default=None,
        min_value=1,
        max_value=MOST,
    )
    most_percent_of_trial: int | None = term(
        says="It ends at so many percent of what the newest trial of the version forecast for a day.",
        default=None,
        min_value=1,
        max_value=MOST,
    )


@terms
class GuardTerms:
    """What takes a version back by itself."""

    figures: Sequence[FigureTerms] = term()
    hours: int = term(
        says="For so long after it went into force.", default=24, min_value=1, max_value=MOST_HOURS
    )


def guard_document(found: GuardTerms, number: int) -> dict[str, Any]:
    """The guard of a version as it is kept, with what its trial forecast. Raises Refused `bad_guard`."""
    if not 1 <= len(found.figures) <= MOST_FIGURES:
        raise _bad("guard_figures", most=MOST_FIGURES)
    return {"hours": found.hours, "figures": [_figure(each, number) for each in found.figures]}


def _figure(found: FigureTerms, number: int) -> dict[str, Any]:
    if all(getattr(found, band) is None for band in BANDS):
        raise _bad("guard_band")
    if found.figure == "wait_p95" and not found.tier:
        raise _bad("guard_tier_missing")
    if found.tier and not Tier.objects.filter(slug=found.tier).exists():
        raise _bad("guard_tier", tier=found.tier)
    figure = {name: getattr(found, name) for name in ("figure", "tier", *BANDS)}
    if found.most_percent_of_trial is None:
        return figure
    done = PolicyTrial.objects.filter(candidate=number, state=PolicyTrial.State.DONE, fleet={})
    trial = done.order_by("-finished_at").first()
    amount = None if trial is None or trial.report is None else forecast(figure, trial.report)
    if trial is None or amount is None:
        raise _bad("guard_trial", figure=LABELS[found.figure])
    return figure | {"trial": str(trial.pk), "forecast": amount}


def _bad(sentence: str, **values: object) -> Refused:
    return invalid("bad_guard", refusal_text(sentence, **values), "guard")


def guard_check(now: datetime) -> str:
    """Takes the live version back if a figure has left its band; returns why, or nothing."""
    made = _guarded(now)
    if made is None or made.ended_at is None:
        return ""
    why = next(_left(made, made.ended_at, now), "")
    if not why:
        return ""
    try:
        with transaction.atomic():
            back = policy_rollback(now=now, operator_id=None, reason=f"Guard: {why}", is_by_guard=True)
            _notify(made, back, why, now)
    except Refused:
        # Somebody has put another version into force meanwhile.
        return ""
    return why


def _guarded(now: datetime) -> PolicyActivation | None:
    """The activation of the live version, while its guard watches."""
    made = PolicyActivation.objects.filter(in_force__state="live", state=PolicyActivation.State.DONE)
    last = made.order_by("-id").first()
    if last is None or not last.guard or last.ended_at is None:
        return None
    return last if now < last.ended_at + timedelta(hours=last.guard["hours"]) else None


def _left(made: PolicyActivation, since: datetime, now: datetime) -> Iterator[str]:
    """Yields what is wrong with each figure that has left a band, in words."""
    begin = max(since, now - timedelta(days=1))
    span = Span(begin, now, made.classes, made.tenants)
    where = part_names({"classes": made.classes, "tenants": made.tenants})
    for figure in made.guard["figures"]:
        value = measured(figure, span)
        if value is None:
            continue
        for most, than in _bands(figure, span):
            if value > most:
                of = f" of {figure['tier']}" if figure["tier"] else ""
                there = f" in {where}" if where else ""
                yield f"{figure['figure']}{of}{there} is {value}, its band ends at {most}{than}."
                break


def _bands(figure: Mapping[str, Any], span: Span) -> Iterator[tuple[int, str]]:
    """Yields where each band ends, and how that is found."""
    if figure["most"] is not None:
        yield figure["most"], ""
    if figure["most_percent"] is not None:
        earlier = Span(span.since - WEEK, span.until - WEEK, span.classes, span.tenants)
        before = measured(figure, earlier)
        if before is not None:
            percent = figure["most_percent"]
            yield before * percent // 100, f", {percent} % of {before} a week before"
    if figure.get("most_percent_of_trial") is not None:
        percent, amount = figure["most_percent_of_trial"], figure["forecast"]
        yield amount * percent // 100, f", {percent} % of the {amount} that its trial forecast"


def _notify(made: PolicyActivation, back: PolicyActivation, why: str, now: datetime) -> None:
    """Notifies the operators, among them the author, in the caller's transaction."""
    message = PeopleMessage(
        kind=RETURNED,
        title=f"Policy version {made.version_id} was taken back",
        text=f"Its guard: {why} Version {back.in_force_id} is in force again.",
        path=f"/ops/policy/versions/{made.version_id}",
        audience="operators",
        people=[],
    )
    people_message_put(None, message, now)
