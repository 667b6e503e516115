"""What a person may have booked in a tier at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID, uuid4

from django.db import connection

from allocation.models import Booking, Override
from allocation.queries.fleet.catalogue import ask_units, units_at_once
from allocation.rules.ask import AskDocument
from allocation.rules.states import TERMINAL
from allocation.rules.tier_limits import Limit
from allocation.services.bookings.checks.admission import Asker, admitted
from allocation.services.bookings.checks.remedies import with_remedies
from allocation.services.bookings.checks.tiers import TierUse
from allocation.services.overrides.use import MoreOfPerson, more_of_person
from allocation.services.record.refusals import refusal
from allocation.words.refusals import refusal_text
from billing.rules import UNITS_PER_GPU
from tenants.platform.errors import Refused


@dataclass(frozen=True, slots=True)
class PersonUse:
    """What a person has booked in a tier: bookings that are not over, and their GPUs."""

    bookings: int
    gpus: Decimal


def open_refusals(rows: Mapping[UUID, Booking], uses: Mapping[UUID, TierUse]) -> dict[UUID, Refused]:
    """Returns which new bookings of one person a tier's limits for a person refuse, and why.

    The person is locked until the end of the transaction, so two requests count each other.
    """
    refused: dict[UUID, Refused] = {}
    for slug in sorted({row.tier_id for row in rows.values()}):
        mine = {key: row for key, row in rows.items() if row.tier_id == slug}
        refused |= _refused_in_tier(mine, uses[next(iter(mine))])
    return refused


def with_open_remedies(
    refused: Refused, row: Booking, others: Mapping[UUID, Booking], asker: Asker, use: TierUse
) -> Refused:
    """Returns the refusal of a new booking with fewer GPUs and the tiers that would work: each is
    admitted, and tried by the limits for a person together with the other new bookings."""
    key = uuid4()

    def try_it(tier: str, ask: AskDocument) -> None:
        found = admitted(use.project, tier, ask, use.now, asker)
        other = Booking(
            id=key,
            tenant_id=row.tenant_id,
            project=use.project,
            owner_id=row.owner_id,
            tier=found.tier,
            ask=found.ask.to_json(),
            array_id=row.array_id,
        )
        same = {each: booking for each, booking in others.items() if booking.tier_id == tier}
        again = open_refusals({**same, key: other}, dict.fromkeys([*same, key], found.use))
        if key in again:
            raise again[key]

    return with_remedies(refused, AskDocument.from_json(row.ask), row.tier_id, try_it)


def elements_within(rows: Sequence[Booking], use: TierUse) -> tuple[Sequence[Booking], Refused | None]:
    """Returns the new elements of an array that a person's limit of GPUs allows now, and the
    refusal of the next one. The array itself is one booking, which was counted as it was asked for.
    """
    gpus = use.limits.most_gpus
    if not rows or gpus.value is None:
        return rows, None
    found, most = _open_use(rows[0], None), _most_gpus(use, rows[0].owner_id)
    for at, row in enumerate(rows):
        found = PersonUse(found.bookings, found.gpus + _gpus(row))
        if found.gpus > most:
            return rows[:at], _too_many_gpus(use, gpus, most, found, row)
    return rows, None


def _refused_in_tier(rows: Mapping[UUID, Booking], use: TierUse) -> dict[UUID, Refused]:
    first = next(iter(rows.values()))
    limits = use.limits
    if limits.most_open.value is None and limits.most_gpus.value is None:
        return {}
    found = _open_use(first, use.booking)
    refused = {}
    for key, row in rows.items():
        after = PersonUse(found.bookings + 1, found.gpus + _gpus(row))
        problem = _over_limit(use, found, after, row)
        if problem is None:
            found = after
        else:
            refused[key] = problem
    return refused


def _over_limit(use: TierUse, found: PersonUse, after: PersonUse, row: Booking) -> Refused | None:
    """Exceptions are read only where the limits alone refuse the request."""
    most, gpus, person_id = use.limits.most_open, use.limits.most_gpus, row.owner_id
    if most.value is not None and after.bookings > most.value:
        more = _more(Override.Kind.OPEN_BOOKINGS, use, person_id)
        limit = _with(most.value, more, use.limits.bounds.most_open)
        if after.bookings > limit:
            return _too_many(use, most, limit, found)
    if gpus.value is not None and after.gpus > gpus.value:
        limit = _most_gpus(use, person_id)
        if after.gpus > limit:
            return _too_many_gpus(use, gpus, limit, after, row)
    return None


def _more(kind: str, use: TierUse, person_id: int) -> MoreOfPerson:
    return more_of_person(kind, use.project, use.tier, person_id, use.now)


def _with(limit: int, more: MoreOfPerson, bound: int | None) -> int:
    """The limit with what admins add inside the operator's bound, and what operators add."""
    limit += more.by_admins
    return (limit if bound is None else min(limit, bound)) + more.by_operators


def _most_gpus(use: TierUse, person_id: int) -> int:
    more = _more(Override.Kind.OPEN_GPUS, use, person_id)
    return _with(use.limits.most_gpus.value or 0, more, use.limits.bounds.most_gpus)


def _too_many_gpus(use: TierUse, most: Limit, limit: int, after: PersonUse, row: Booking) -> Refused:
    ask = AskDocument.from_json(row.ask)
    left = limit - (after.gpus - _gpus(row))
    fewer = int(left * ask.count / _gpus(row)) if not ask.groups else 0
    facts = {"limit": limit, "asked": f"{after.gpus.normalize():f}"}
    sentence = refusal_text("too_many_gpus", tier=use.tier.name, **facts)
    return refusal(
        "too_many_gpus",
        sentence,
        "quota",
        "request",
        owner=most.owner,
        numbers=facts,
        alternatives=[{"count": fewer}] if fewer > 0 else [],
        more={
            "kind": "open_gpus",
            "amount": str(math.ceil(after.gpus - limit)),
            "tier": use.tier.slug,
            "project": use.project.slug,
        },
    )


def _too_many(use: TierUse, most: Limit, limit: int, found: PersonUse) -> Refused:
    facts = {"limit": limit, "found": found.bookings}
    return refusal(
        "too_many_open",
        refusal_text("too_many_open", tier=use.tier.name, **facts),
        "quota",
        "request",
        owner=most.owner,
        numbers=facts,
        more={
            "kind": "open_bookings",
            "amount": "1",
            "tier": use.tier.slug,
            "project": use.project.slug,
        },
    )


def person_lock(tenant_id: UUID, person_id: int) -> None:
    """Locks what a person books in a tenant until the end of the transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"tier limits {tenant_id} {person_id}"],
        )


def _open_use(booking: Booking, without: Booking | None) -> PersonUse:
    """What the owner of a booking has in its tier; locks the owner."""
    person_lock(booking.tenant_id, booking.owner_id)
    rows = Booking.objects.filter(
        tenant_id=booking.tenant_id, owner=booking.owner_id, tier=booking.tier_id
    ).exclude(state__in=TERMINAL)
    return _person_use(rows if without is None else rows.exclude(id=without.id))


def _person_use(rows: Iterable[Booking]) -> PersonUse:
    """The elements of an array are one booking; their GPUs all count."""
    rows = list(rows)
    arrays = {row.array_id for row in rows if row.array_id is not None}
    alone = [row for row in rows if row.array_id is None]
    return PersonUse(len(alone) + len(arrays), sum(map(_gpus, rows), Decimal(0)))


def _gpus(booking: Booking) -> Decimal:
    units = ask_units(AskDocument.from_json(booking.ask))
    return Decimal(units_at_once(booking.ask, units)) / UNITS_PER_GPU
