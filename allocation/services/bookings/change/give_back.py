"""What bookings give back: GPUs of a running one, whose rest runs on, and time of a paused one.

What a paused booking has to repeat stays in the rest: else it would keep the credit without
repeating it. A fixed window ends earlier, so its length counts from its start, and the pause in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Max

from allocation.models import Allocation, Booking, BookingChange, GpuSample, Pause
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.rules.ask.words.times import duration_words
from allocation.rules.changes import Strength, Target
from allocation.rules.states import State
from allocation.services.bookings.change.calendar_cuts import plan_cut, resume_cut
from allocation.services.bookings.change.refusals import while_paused
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.checks.terms import hold_of, rest_terms, weaker_terms
from allocation.services.record.costs import (
    granted_seconds,
    price_lines_of,
    rate_of,
    run_time,
    used_time,
)
from allocation.services.record.open_pauses import pause_open
from allocation.services.record.terms import Terms, terms_of
from allocation.services.runs.late_shares import granted_as, late_fee, late_fee_take
from allocation.services.runs.transition import booking_change
from allocation.words.refusals import refusal_text
from billing.price_lines import line_cost, lines_cut, lines_data
from billing.rules import ledger_amount
from billing.services import Charge, hold_settle_partially
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

PARAM = "give_back"
# The word for all GPUs on which no process was seen for `QUIET`.
UNUSED = "unused"
QUIET = timedelta(minutes=2)
_LEAST = timedelta(seconds=MIN_DURATION_SECONDS)


def gpus_give_back(
    actor: Actor, booking: Booking, old: Target, names: Sequence[str], now: datetime
) -> Booking:
    """Ends the named GPUs of a locked booking (`n0003/2`), or those of `unused`, and releases the
    money of their rest. The next turn clears them.

    Raises:
        Refused: `give_back_early` before it runs, `give_back_mixed` for one with several groups,
            `not_its_gpu`, `none_unused`, `give_back_all`.
    """
    if booking.state != State.ACTIVE or booking.planned_ends is None:
        state = booking.get_state_display().lower()
        sentence = refusal_text("give_back_early", label=booking.label, state=state)
        raise Refused("give_back_early", sentence, param=PARAM)
    if booking.ask.get("groups"):
        raise invalid("give_back_mixed", refusal_text("give_back_mixed"), PARAM)
    rows = list(
        booking.allocations.filter(state__in=Allocation.LIVE, abandoned=False)
        .exclude(id__in=given_back_already(booking))
        .select_related("gpu__node")
        .order_by("gpu_number", "start")
    )
    gone = _unused(rows, now) if list(names) == [UNUSED] else _named(booking, rows, names)
    if len(gone) >= len(rows):
        sentence = refusal_text("give_back_all", label=booking.label)
        raise Refused("give_back_all", sentence, param=PARAM)
    count = len(rows) - len(gone)
    return _GivenBack(actor, booking, old, count, now).apply(gone)


def given_back_already(booking: Booking) -> list[str]:
    """Allocations that were given back and that the next turn takes off the calendar."""
    due = BookingChange.objects.filter(booking=booking, calendar_due=True)
    return [row for change in due for row in change.gives_back]


def _named(booking: Booking, rows: Sequence[Allocation], names: Sequence[str]) -> list[Allocation]:
    places = {f"{row.gpu.node.name}/{row.gpu.index}": row.gpu_id for row in rows}
    for name in names:
        if name not in places:
            its = ", ".join(places)
            sentence = refusal_text("not_its_gpu", gpu=name[:40], label=booking.label, its=its)
            raise invalid("not_its_gpu", sentence, PARAM)
    ids = {places[name] for name in names}
    return [row for row in rows if row.gpu_id in ids]


def _unused(rows: Sequence[Allocation], now: datetime) -> list[Allocation]:
    """The rows that were read lately, and never with a process."""
    read = GpuSample.objects.filter(allocation_id__in=[row.id for row in rows], at__gt=now - QUIET)
    most = dict(read.values_list("allocation_id").annotate(Max("processes")))
    found = [row for row in rows if most.get(row.id) == 0]
    if not found:
        raise Refused("none_unused", refusal_text("none_unused"), param=PARAM)
    return found


@dataclass(frozen=True, slots=True)
class _GivenBack:
    """A running booking that has `count` GPUs from now on."""

    actor: Actor
    booking: Booking
    old: Target
    count: int
    now: datetime

    def apply(self, gone: Sequence[Allocation]) -> Booking:
        booking, now = self.booking, self.now
        writer = ChangeWriter(
            self.actor,
            booking,
            self.old,
            replace(self.old, ask=replace(self.old.ask, count=self.count)),
            now,
        )
        writer.replace_open()
        ends = booking.planned_ends or now
        kept = granted_as(booking, booking.ready_at or now, ends, self.count)
        fee = late_fee(booking, kept, now)
        late_fee_take(booking, fee, now)
        terms = self._terms(fee)
        change = writer.row(terms, Strength.WEAKER)
        # Their work is gone, so this can't be undone.
        change.restores, change.gives_back = {}, [str(row.id) for row in gone]
        writer.store(terms, Strength.WEAKER, change)
        begun = booking.planned_starts or now
        request = hold_of(booking, terms)
        writer.exchange(replace(request, starts=min(begun, now), ends=ends))
        task_request("allocation.cycle")
        return booking

    def _terms(self, fee: Decimal) -> Terms:
        """The rest costs less; the past keeps its price."""
        booking, old = self.booking, terms_of(self.booking)
        ask = AskDocument.from_json(booking.ask)
        new = replace(ask, count=self.count)
        name = booking.planned_class
        was, will = (ask_units(each)[name] for each in (ask, new))
        spent, granted = used_time(booking) + run_time(booking, self.now), granted_seconds(booking)
        before = price_lines_of(booking)
        lines = lines_cut(before, spent.seconds, granted, will, was)
        surcharge = ledger_amount(booking.peak_surcharge * will / was)
        self._charge_peaks(booking.peak_surcharge - surcharge)
        freed = line_cost(before, granted) - line_cost(lines, granted)
        freed += self._peaks_freed(booking.peak_surcharge - surcharge)
        held = max(booking.settled, old.hold_amount + fee - freed)
        return replace(
            old,
            ask=new.to_json(),
            request_text="",
            price_per_hour=lines[0].per_hour,
            price_lines=lines_data(lines),
            peak_surcharge=surcharge,
            hold_amount=held,
        )

    def _charge_peaks(self, less: Decimal) -> None:
        """Charges the surcharge of past peak hours that the lower one does not cover any more."""
        booking = self.booking
        peak = (used_time(booking) + run_time(booking, self.now)).peak
        amount = ledger_amount(less * peak / 3600)
        if not amount:
            return
        hold_settle_partially(
            tenant_id=booking.tenant_id,
            reference=booking.id,
            amount=Charge(amount, amount),
            keep=booking.hold_amount - booking.settled - amount,
            now=self.now,
        )
        booking_change(booking, now=self.now, settled=booking.settled + amount)

    def _peaks_freed(self, less: Decimal) -> Decimal:
        booking, rate = self.booking, rate_of(self.booking)
        if booking.planned_ends is None or not less:
            return Decimal(0)
        peak = rate.between(self.now, booking.planned_ends).peak
        return ledger_amount(less * peak / 3600)


def rest_shorten(writer: ChangeWriter, strength: Strength, text: str) -> Booking:
    """Shortens the rest of a locked paused booking. `text`: the request as it was typed.

    Raises:
        Refused: `extension_while_paused`, `redo_left`, `rest_too_short`.
    """
    booking, new, now = writer.booking, writer.new, writer.now
    pause = pause_open(booking)
    is_only_length = writer.old.differences(new).keys() <= {"duration", "name"}
    is_less = booking.state == State.PAUSED and strength is Strength.WEAKER and is_only_length
    if not is_less or pause is None:
        raise while_paused(booking)
    writer.replace_open()
    if booking.starts is None:
        terms = _flexible_rest(writer, pause, text)
        plan_cut(booking, terms, now)
    else:
        until = booking.starts + timedelta(seconds=new.ask.duration)
        terms = _window_rest(writer, pause, until, text)
        resume_cut(booking, until, now)
    pause.save(update_fields=["remaining_seconds", "ends_before"])
    change = writer.row(terms, Strength.WEAKER)
    change.restores = {}
    writer.store(terms, Strength.WEAKER, change)
    writer.exchange(hold_of(booking, terms))
    task_request("allocation.cycle")
    return booking


def _flexible_rest(writer: ChangeWriter, pause: Pause, text: str) -> Terms:
    _redo_check(writer.booking, writer.new.ask.duration)
    terms = weaker_terms(writer.booking, writer.new, text)
    pause.remaining_seconds = terms.duration_seconds
    return terms


def _window_rest(writer: ChangeWriter, pause: Pause, until: datetime, text: str) -> Terms:
    booking, cut = writer.booking, int((pause.ends_before - until).total_seconds())
    earliest = max(writer.now + _LEAST, pause.deadline)
    if until < earliest:
        clock = writer.actor.clock(earliest, writer.now)
        sentence = refusal_text("rest_too_short", label=booking.label, earliest=clock)
        raise invalid("rest_too_short", sentence, "duration")
    rest = max(0, (pause.remaining_seconds or 0) - cut)
    _redo_check(booking, rest)
    pause.remaining_seconds, pause.ends_before = rest, until
    return replace(rest_terms(booking, writer.new, rest, until), request_text=text)


def _redo_check(booking: Booking, rest: int) -> None:
    if rest < booking.redo_seconds:
        redo = duration_words(booking.redo_seconds)
        raise invalid("redo_left", refusal_text("redo_left", redo=redo), "duration")
