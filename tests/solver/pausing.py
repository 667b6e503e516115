"""Makers for sites on which running work may be paused. Times are seconds from NOON."""

from collections.abc import Iterable
from dataclasses import replace

from solver import Held, Place, Plan, PlannedStart, Request, Snapshot, Tier
from tests.solver.builders import HOUR, NOON, a_held, a_request, a_snapshot, an_ask

GRACE = 120
TIERS = (
    Tier("assured", pausable=False, counts=True, priority=80),
    Tier("standard", pausable=False, counts=True, priority=50),
    Tier("flex", pausable=True, counts=True, priority=30, grace=GRACE, protected=600, pauses=3),
    Tier("spot", pausable=True, counts=False, priority=10, grace=30),
)
PRIORITY = {tier.slug: tier.priority for tier in TIERS}


def running(
    booking: str,
    *places: Place,
    tenant: str = "firm",
    tier: str = "flex",
    since: int = -HOUR,
    ends: int = 6 * HOUR,
    **more: int | None,
) -> tuple[Held, ...]:
    """A whole booking that its owner has had since then; `saved` and `pauses` as wanted."""
    saved = more.get("saved")
    return tuple(
        replace(
            a_held(
                place.gpu,
                starts=since,
                ends=ends,
                profile=place.profile,
                start=place.start,
                size=place.size,
                booking=booking,
                tenant=tenant,
                project=f"{tenant}-p",
                tier=tier,
            ),
            started=True,
            since=NOON + since,
            saved=None if saved is None else NOON + saved,
            pauses=more.get("pauses") or 0,
        )
        for place in places
    )


def a_claim(booking: str = "claim", count: int = 1, *, tier: str = "standard", **more) -> Request:  # type: ignore[no-untyped-def]  # as a_request
    """A booking of the tenant `lab`, by default for one GPU in a tier that is never paused."""
    more = {"tenant": "lab", "priority": PRIORITY[tier], **more}
    ask = more.pop("ask", None) or an_ask(count)
    return replace(a_request(booking, ask, tier=tier, **more), project=f"{more['tenant']}-p")


def a_site(*requests: Request, held: Iterable[Held] = (), **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_snapshot
    """A site with these tiers."""
    return replace(a_snapshot(*requests, held=tuple(held), **more), tiers=TIERS)


def rest_of(rows: Iterable[Held], now: int) -> Request:
    """The request behind a running booking, with what is left of it."""
    rows = tuple(rows)
    row = rows[0]
    return Request(
        booking=row.booking,
        tenant=row.tenant,
        project=row.project,
        tier=row.tier,
        priority=PRIORITY[row.tier],
        submitted=row.starts,
        ask=an_ask(len(rows), profile=row.place.profile),
        duration=row.ends - now,
        earliest=row.starts,
        latest=None,
        fixed=False,
        planned=None,
        pauses=row.pauses,
    )


def notices(plan: Plan) -> dict[str, tuple[str, int]]:
    """The pauses: booking, beneficiary, and seconds from NOON."""
    return {each.booking: (each.beneficiary, each.at - NOON) for each in plan.pauses}


def given(plan: Plan) -> dict[str, tuple[str, int]]:
    """Who starts, "assign" or "wait", and when from NOON."""
    found = {each.booking: ("assign", each.starts - NOON) for each in plan.assigns}
    return found | {each.booking: ("wait", each.starts - NOON) for each in plan.waits}


def rules(plan: Plan) -> dict[str, str]:
    """The rule by which each is paused."""
    return {each.booking: each.reasons[0].code for each in plan.pauses}


def later(site: Snapshot, plan: Plan, now: int) -> Snapshot:
    """The same site with the planned starts of the plan, then."""
    by_booking = {request.booking: request for request in site.requests}
    kept = tuple(
        replace(
            by_booking[row.booking],
            planned=PlannedStart(row.starts, row.ends, row.places, row.strength),
        )
        for row in plan.waits
    )
    return replace(site, now=NOON + now, requests=kept)
