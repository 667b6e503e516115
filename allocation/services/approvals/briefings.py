"""What an approver reads before a decision, and the asker, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import Approval, CounterOffer
from allocation.queries.bookings.approvals import (
    NO_HISTORY,
    PersonHistory,
    dates_of_series,
    histories_of,
)
from allocation.services.approvals.alternatives import Alternative, alternative_of
from allocation.services.approvals.effects import Effect, approval_effects


@dataclass(frozen=True, slots=True)
class Briefing:
    """The effect of an approval now, what needs none, the asker's history, and the open
    counter-offer."""

    effect: Effect | None = None
    alternative: Alternative | None = None
    history: PersonHistory = NO_HISTORY
    counter: CounterOffer | None = None


def briefing_of(approval: Approval, now: datetime, *, is_system: bool = False) -> Briefing:
    """Returns the briefing of one request. Runs inside a transaction of its organisation, or with
    `is_system` as a program that sees every one."""
    return briefings_of([approval], now, [approval], is_system=is_system)[approval.id]


def briefings_of(
    approvals: Sequence[Approval],
    now: datetime,
    with_effects: Sequence[Approval],
    *,
    is_system: bool = False,
) -> Mapping[UUID, Briefing]:
    """Returns the briefings of requests; effects and alternatives of those `with_effects` that wait."""
    histories = histories_of(approvals, now)
    waiting = [each for each in with_effects if each.state == Approval.State.OPEN]
    dates = dates_of_series(approvals)
    groups = [dates.get(each.id, [each]) for each in waiting]
    found = zip(waiting, approval_effects(groups, now, is_system=is_system), strict=True)
    effects = {each.id: effect for each, effect in found}
    offers = CounterOffer.objects.filter(approval__in=approvals, state=CounterOffer.State.OPEN)
    counters = {each.approval_id: each for each in offers.select_related("person")}
    return {
        each.id: Briefing(
            effects.get(each.id),
            alternative_of(each, now) if each.id in effects else None,
            histories.get((each.project_id, each.asker_id), NO_HISTORY),
            counters.get(each.id),
        )
        for each in approvals
    }
