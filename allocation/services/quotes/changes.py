"""Quotes of changes: price, start and place in the queue, before anything is changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import transaction

from allocation.models import Approval, Booking, BookingChange, PolicyVersion
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength
from allocation.rules.states import EXTENDABLE
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.checks.lengths import extension_check
from allocation.services.bookings.price_lock import price_lock
from allocation.services.bookings.requests import BookingRequest
from allocation.services.policy.policies import policy_of
from allocation.services.quotes.moves import Delay, delays_of_change, delays_seen
from allocation.services.quotes.quote_options import QuoteOption
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.costs import cancellation_cost
from allocation.services.record.terms import Terms, terms_of
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import (
    asked_changes_read,
    extensions_read,
    instant,
    seconds,
)
from allocation.words.reasons import sentence
from billing.services.holds import more_money_refusal
from solver import Availability
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.platform.rows import rows_in_turn
from tenants.services.policy_hooks.live import hook_decides
from tenants.services.policy_hooks.questions import hook_unasked

STEPS = tuple(timedelta(hours=hours) for hours in (1, 2, 6, 24))
SHORTEST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ChangeQuote:
    """What a change would do. `option` is the start that a stronger one would get now; without one
    `blocking` says why not. A change that is no `stronger` one takes effect at once. By `rules` it
    needs an approval first; by `asks_hook` the organisation's policy hook decides. `delays` are the
    bookings of the organisation that start later for it; None: they are not known."""

    strength: Strength
    before: Terms
    after: Terms
    until: datetime | None = None
    option: QuoteOption | None = None
    blocking: str = ""
    rules: tuple[str, ...] = ()
    late_fee: Decimal = Decimal(0)
    lock: str = ""
    delays: tuple[Delay, ...] | None = None
    asks_hook: bool = False

    @property
    def difference(self) -> Decimal:
        """What the booking would cost more, or less, at most."""
        return self.after.hold_amount - self.before.hold_amount


def change_quote(
    *, actor: Actor, booking: Booking, patch: Patch, revision: int | None, now: datetime
) -> ChangeQuote:
    """Returns what the change would do; nothing is written. Run inside the tenant's transaction.

    Raises:
        Refused: as `booking_patch`.
    """
    before = terms_of(booking)
    # Quotes ask no policy hook: they are made often, and nothing comes of them.
    with transaction.atomic(), rows_in_turn(), hook_unasked():
        fees = booking.late_fees
        changed = booking_patch(actor=actor, booking=booking, patch=patch, revision=revision, now=now)
        fee = changed.late_fees - fees
        change = (
            BookingChange.objects.filter(booking=booking, asked_at=now)
            .exclude(state=BookingChange.State.REPLACED)
            .order_by("-base_revision")
            .first()
        )
        rules, only = _rules_of(change), frozenset((booking.id,))
        asked = asked_changes_read(now, only), extensions_read(now, only)
        transaction.set_rollback(True)
    if change is None:
        return ChangeQuote(Strength.WORD, before, before)
    strength, after = Strength(change.strength), Terms.from_json(change.target)
    if strength is not Strength.STRONGER:
        return ChangeQuote(strength, before, after, late_fee=fee)
    found = delays_of_change(booking, *asked, now)
    delays = None if found is None else delays_seen(actor, found)
    quote = ChangeQuote(
        strength, before, after, rules=rules, delays=delays, asks_hook=hook_decides(actor.tenant_id)
    )
    if change.until is not None:
        blocking = _why_not_longer(booking, change.until, now)
        return replace(quote, until=change.until, blocking=blocking)
    option, blocking = _start_of(actor, booking, after, now)
    lock = price_lock(patch.priced_at or now)
    return replace(quote, option=option, blocking=blocking, late_fee=change.late_fee, lock=lock)


def ending_quote(
    *, actor: Actor, booking: Booking, end: Callable[..., Booking], now: datetime
) -> tuple[Decimal, Decimal]:
    """Returns what cancelling or releasing the booking now charges in all, and the late fee in it.
    Nothing is written.

    Raises:
        Refused: as `end`.
    """
    with transaction.atomic(), rows_in_turn():
        ended = end(actor=actor, booking=booking, now=now)
        charged, fee = cancellation_cost(ended, now), ended.late_fees - booking.late_fees
        transaction.set_rollback(True)
    return charged, fee


def _rules_of(change: BookingChange | None) -> tuple[str, ...]:
    """The names of the rules by which the change needs an approval."""
    if change is None:
        return ()
    asked = Approval.objects.filter(booking=change.booking_id, state=Approval.State.OPEN).first()
    return tuple(rule["name"] for rule in asked.rules) if asked is not None else ()


def _start_of(actor: Actor, booking: Booking, after: Terms, now: datetime) -> tuple[QuoteOption | None, str]:
    """The start as asked, or why there is none."""
    request = BookingRequest(
        project=booking.project.slug,
        tier=after.tier,
        ask=AskDocument.from_json(after.ask),
        name=after.name,
        zone=booking.zone,
        campaign=booking.campaign.slug if booking.campaign else "",
    )
    quote = quote_make(actor=actor, request=request, now=now, without=booking)
    found = (o for o in quote.options if (o.kind, o.tier) == ("as_asked", after.tier))
    return next(found, None), quote.blocking or ""


def _why_not_longer(booking: Booking, until: datetime, now: datetime) -> str:
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    site = Availability(published_snapshot(now, policy), policy)
    why = site.why_not_longer(str(booking.id), seconds(until))
    return sentence(why) if why else ""


@dataclass(frozen=True, slots=True)
class LaterEnds:
    """The possible ends in order, and why there is none, or no later one."""

    ends: tuple[datetime, ...]
    limit: str


def later_ends(*, actor: Actor, booking: Booking, now: datetime) -> LaterEnds:
    """Returns the usual steps that are possible, and the latest end before the first that is not.

    Nothing is reserved: the next cycle decides. Run inside the tenant's transaction.
    """
    ends = booking.planned_ends
    is_asked = booking.extension_until is not None or is_change_open(booking)
    if booking.state not in EXTENDABLE or ends is None or is_asked:
        return LaterEnds((), "")
    stopped = more_money_refusal(booking.project, booking.owner_id, booking.campaign_id, ends)
    if stopped is not None:
        return LaterEnds((), stopped.sentence)
    trial = _Trial(actor, booking, _site(now), now)
    found: list[datetime] = []
    for until in (ends + step for step in STEPS):
        limit, shorter = trial.limit(until)
        if not limit:
            found.append(until)
            continue
        least = (found[-1] if found else ends) + SHORTEST
        minutes = (each.replace(second=0) for each in shorter)
        best = max((each for each in minutes if least <= each < until), default=None)
        if best is not None and not trial.limit(best)[0]:
            found.append(best)
        return LaterEnds(tuple(found), limit)
    return LaterEnds(tuple(found), "")


@dataclass(frozen=True, slots=True)
class _Trial:
    actor: Actor
    booking: Booking
    site: Availability
    now: datetime

    def limit(self, until: datetime) -> tuple[str, Iterable[datetime]]:
        """Returns why the end is not possible, empty if it is, and earlier ends that may be."""
        try:
            extension_check(self.actor, self.booking, until, self.now)
        except Refused as refused:
            untils = (each["until"] for each in refused.alternatives if "until" in each)
            return refused.sentence, tuple(map(datetime.fromisoformat, untils))
        why = self.site.why_not_longer(str(self.booking.id), seconds(until))
        if why is None:
            return "", ()
        return sentence(why), tuple(self._shorter(dict(why.numbers)))

    def _shorter(self, numbers: Mapping[str, int | str]) -> Iterator[datetime]:
        """The end of the free room, and that of the longest window for which its tier borrows."""
        if "possible_until" in numbers:
            yield instant(int(numbers["possible_until"]))
        starts = self.booking.planned_starts
        if "borrow_seconds" in numbers and starts is not None:
            yield starts + timedelta(seconds=int(numbers["borrow_seconds"]))


def _site(now: datetime) -> Availability:
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    return Availability(published_snapshot(now, policy), policy)
