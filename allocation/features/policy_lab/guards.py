"""The guard of a version: figures with bands. When one leaves its band, the version before returns.

A band is an amount, or a part of what the figure was in the same hours a week before.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection

from allocation.models import Decision, Pause, PolicyActivation
from allocation.services.policy.activations import policy_rollback
from allocation.words.refusals import refusal_text
from tenants.models import Tier
from tenants.platform.errors import Refused, invalid
from tenants.platform.terms import term, terms

MOST_FIGURES, MOST_HOURS = 10, 31 * 24
MOST = 10**9
WEEK = timedelta(days=7)
SLOW_MS = 5_000
Name = Literal["wait_p95", "pauses", "slow_decisions"]
# Who waits still has waited until now, at least. Fixed windows wait for nothing.
_WAITS = """
SELECT greatest(0, extract(epoch FROM least(coalesce(f.at, %(until)s), coalesce(b.ended_at, %(until)s))
                             - greatest(b.submitted, b.not_before)))::bigint AS waited
FROM allocation_booking b
LEFT JOIN LATERAL (
  SELECT min(lower(a.period)) AS at FROM allocation_allocation a
  WHERE a.booking_id = b.id AND a.state IN ('active', 'releasing', 'ended')) f ON true
WHERE b.tier_id = %(tier)s AND b.starts IS NULL
  AND greatest(b.submitted, b.not_before) < %(until)s
  AND (f.at >= %(since)s AND f.at < %(until)s
       OR f.at IS NULL AND b.state IN ('requested', 'queued', 'scheduled'))
ORDER BY waited
"""


@terms
class FigureTerms:
    """A figure and its band."""

    figure: Name = term(
        says="`wait_p95` of a tier in seconds, or the number of `pauses` or of `slow_decisions` (over 5 s)"
        " in the last 24 hours."
    )
    tier: str = term(says="Of `wait_p95`.", default="", max_length=40)
    most: int | None = term(says="The band ends here.", default=None, min_value=0, max_value=MOST)
    most_percent: int | None = term(
        says="Or at so many percent of the same time a week before.",
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


def guard_document(found: GuardTerms) -> dict[str, Any]:
    """The guard as it is kept. Raises Refused `bad_guard`."""
    if not 1 <= len(found.figures) <= MOST_FIGURES:
        raise invalid("bad_guard", refusal_text("guard_figures", most=MOST_FIGURES), "guard")
    for each in found.figures:
        if (each.most is None) == (each.most_percent is None):
            raise invalid("bad_guard", refusal_text("guard_band"), "guard")
        if each.figure == "wait_p95" and not each.tier:
            raise invalid("bad_guard", refusal_text("guard_tier_missing"), "guard")
        if each.tier and not Tier.objects.filter(slug=each.tier).exists():
            raise invalid("bad_guard", refusal_text("guard_tier", tier=each.tier), "guard")
    names = ("figure", "tier", "most", "most_percent")
    figures = [{name: getattr(each, name) for name in names} for each in found.figures]
    return {"hours": found.hours, "figures": figures}


def guard_check(now: datetime) -> str:
    """Takes the live version back if a figure has left its band; returns why, or nothing."""
    made = _guarded(now)
    if made is None or made.ended_at is None:
        return ""
    for figure in made.guard["figures"]:
        why = _left(figure, made.ended_at, now)
        if why:
            try:
                policy_rollback(now=now, operator_id=None, reason=f"Guard: {why}", is_by_guard=True)
            except Refused:
                # Somebody has put another version into force meanwhile.
                return ""
            return why
    return ""


def _guarded(now: datetime) -> PolicyActivation | None:
    """The activation of the live version, while its guard watches."""
    made = PolicyActivation.objects.filter(version__state="live", state=PolicyActivation.State.DONE)
    last = made.order_by("-id").first()
    if last is None or not last.guard or last.ended_at is None:
        return None
    return last if now < last.ended_at + timedelta(hours=last.guard["hours"]) else None


def _left(figure: Mapping[str, Any], since: datetime, now: datetime) -> str:
    """What is wrong with a figure, in words."""
    begin = max(since, now - timedelta(days=1))
    measure = _FIGURES[figure["figure"]]
    value = measure(figure, begin, now)
    most = figure["most"]
    if most is None:
        before = measure(figure, begin - WEEK, now - WEEK)
        if before is None:
            return ""
        most = before * figure["most_percent"] // 100
    if value is None or value <= most:
        return ""
    of = f" of {figure['tier']}" if figure["tier"] else ""
    return f"{figure['figure']}{of} is {value}, its band ends at {most}."


def _wait_p95(figure: Mapping[str, Any], since: datetime, until: datetime) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, {"tier": figure["tier"], "since": since, "until": until})
        waits = [row[0] for row in cursor.fetchall()]
    return waits[-(-len(waits) * 95 // 100) - 1] if waits else None


def _pauses(figure: Mapping[str, Any], since: datetime, until: datetime) -> int:
    return Pause.objects.filter(emptied_at__gte=since, emptied_at__lt=until).count()


def _slow(figure: Mapping[str, Any], since: datetime, until: datetime) -> int:
    return Decision.objects.filter(at__gte=since, at__lt=until, solve_ms__gt=SLOW_MS).count()


_FIGURES: Mapping[str, Callable[[Mapping[str, Any], datetime, datetime], int | None]] = {
    "wait_p95": _wait_p95,
    "pauses": _pauses,
    "slow_decisions": _slow,
}
