"""Changes of a booking by people: at once, or asked for and decided by the next cycle.

A weaker change takes nothing from anybody, so it takes effect at once and keeps the booking's place
in line. A stronger one is decided; until then, and if it is not granted, the booking keeps what it
has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.models import Booking
from allocation.points.bookings import CHANGES_BY_STATE
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, Target, strength_of
from allocation.rules.charging import Granted
from allocation.rules.states import BEFORE_RUN, EXTENDABLE, RUNNING, State
from allocation.services.bookings.approval.changes import (
    approval_keep,
    approval_needed,
    approval_replace,
    dates_lock,
)
from allocation.services.bookings.approval.requests import rules_in_force
from allocation.services.bookings.change.calendar_cuts import is_awaited, plan_cut
from allocation.services.bookings.change.give_back import gpus_give_back, rest_shorten
from allocation.services.bookings.change.refusals import (
    change_awaited,
    not_changeable,
    revision_moved,
    tier_begun,
    too_dear,
)
from allocation.services.bookings.change.sooner import Sooner, approval_refuse, sooner_accept
from allocation.services.bookings.change.waiting import change_wait_check
from allocation.services.bookings.change.writer import (
    ChangeWriter,
    labels_change,
    open_changes_follow,
)
from allocation.services.bookings.change_rows import (
    NO_BOUNDS,
    Accept,
    restores_of,
)
from allocation.services.bookings.checks.affordable import with_lesser
from allocation.services.bookings.checks.lengths import length_check, planned_end_of
from allocation.services.bookings.checks.policy_hook import change_ask
from allocation.services.bookings.checks.terms import (
    hold_of,
    longer_terms,
    shorter_terms,
    stronger_terms,
    target_of,
    weaker_terms,
)
from allocation.services.bookings.departures import growth_check
from allocation.services.record.history import events_add
from allocation.services.record.terms import Terms, terms_of
from allocation.services.record.workloads import has_run
from allocation.services.runs.late_shares import (
    granted_as,
    late_fee,
    late_fee_most,
    late_fee_take,
)
from allocation.services.runs.transition import booking_lock
from allocation.words.refusals import refusal_text
from billing.services import HoldRequest
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid

# A start that is so near is not exchanged any more: its GPUs are kept, and only the end can change.
SOON = timedelta(minutes=2)
# A later end is waited for until so long before the end that the booking has.
LAST_EXTENSION = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Patch:
    """A change as a person asked for it; None: that part stays as it is. Changes of one `group`
    are made all or none, unless they are `is_partial`. One that `waits` stays open until there is
    room for it; `sooner` waits for any earlier start."""

    ask: AskDocument | None = None
    tier: str | None = None
    name: str | None = None
    labels: Mapping[str, str] | None = None
    external_ref: str | None = None
    request_text: str | None = None
    accept: Accept = NO_BOUNDS
    group: UUID | None = None
    is_partial: bool = False
    give_back: tuple[str, ...] = ()
    waits: bool = False
    sooner: Sooner | None = None
    priced_at: datetime | None = None


def booking_patch(
    *, actor: Actor, booking: Booking, patch: Patch, revision: int | None, now: datetime
) -> Booking:
    """Changes the booking, or asks for the change. `revision` is the one that the asker has seen;
    None: any.

    Raises:
        Refused: `revision_moved`, `not_changeable`, `change_awaited`, `running_fixed`,
            `tier_begun`, `extension_while_paused`, `cost_above`, `owner_left`, `not_allowed`, or
            any rule of a request. Nothing is lost then.
    """
    try:
        return _patched(actor, booking, patch, revision, now)
    except Refused as refused:
        is_alone = patch.group is None and patch.sooner is None
        raise (_with_lesser(refused, actor, booking, patch, now) if is_alone else refused) from refused


def _patched(actor: Actor, booking: Booking, patch: Patch, revision: int | None, now: datetime) -> Booking:
    with transaction.atomic():
        dates_lock(booking)
        booking = booking_lock(booking.id, "project", "tier", "owner", "campaign")
        if revision is not None and revision != booking.revision:
            raise revision_moved(booking)
        labels_change(actor, booking, patch.labels, patch.external_ref, now)
        old = target_of(booking)
        if patch.sooner is not None:
            ask = patch.sooner.ask(booking, old, now)
            patch = replace(patch, ask=ask, waits=True, accept=sooner_accept(patch.accept, old))
        new = Target(
            patch.ask or old.ask,
            old.tier if patch.tier is None else patch.tier,
            old.name if patch.name is None else patch.name,
        )
        if patch.give_back:
            if old != new:
                raise invalid("give_back_alone", refusal_text("give_back_alone"), "give_back")
            return gpus_give_back(actor, booking, old, patch.give_back, now)
        hook = None
        # A group of dates is asked about as a whole.
        if patch.group is None and strength_of(old, new) is Strength.STRONGER:
            new, hook = change_ask(actor, booking, new, now)
        changed = _Asked(actor, booking, old, new, patch, now).apply()
        if hook is not None:
            events_add([hook.row(changed, now)])
        return changed


def _with_lesser(refused: Refused, actor: Actor, booking: Booking, patch: Patch, now: datetime) -> Refused:
    """The refusal with the lesser changes that the money is enough for: each is made and undone."""
    booking = Booking.objects.get(id=booking.id)
    old = target_of(booking)
    new = Target(patch.ask or old.ask, old.tier if patch.tier is None else patch.tier, old.name)

    def try_it(target: Target) -> None:
        with transaction.atomic():
            locked = booking_lock(booking.id, "project", "tier", "owner", "campaign")
            _Asked(actor, locked, old, target, patch, now).apply()
            transaction.set_rollback(True)

    return with_lesser(refused, old, new, try_it)


def booking_extend(*, actor: Actor, booking: Booking, until: datetime, now: datetime) -> Booking:
    """Asks for a later end, in whole seconds: the same as a change of the length.

    Raises:
        Refused: `not_extendable`, `extension_while_paused`, `end_not_later`, or as `booking_patch`.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner", "campaign")
        if booking.state not in (*EXTENDABLE, State.PAUSING, State.PAUSED):
            state = booking.get_state_display().lower()
            sentence = refusal_text("not_extendable", label=booking.label, state=state)
            raise Refused("not_extendable", sentence)
        ends = planned_end_of(booking)
        seconds = int((until.replace(microsecond=0) - ends).total_seconds())
        if seconds <= 0:
            clock = actor.clock(ends, now)
            sentence = refusal_text("end_not_later", label=booking.label, ends=clock)
            raise invalid("end_not_later", sentence, "until")
        ask = target_of(booking).ask
        patch = Patch(ask=replace(ask, duration=ask.duration + seconds))
        try:
            return booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=now)
        except Refused as refused:
            lengths = [each["duration"] - ask.duration for each in refused.alternatives if "duration" in each]
            longer = (timedelta(seconds=more) for more in lengths if more > 0)
            untils = [{"until": (ends + more).isoformat()} for more in longer]
            others = [each for each in refused.alternatives if "until" in each]
            raise replace(refused, alternatives=untils or others) from refused


@dataclass(frozen=True, slots=True)
class _Asked:
    """One change of a locked booking."""

    actor: Actor
    booking: Booking
    old: Target
    new: Target
    patch: Patch
    now: datetime

    @property
    def _writer(self) -> ChangeWriter:
        patch, what = self.patch, (self.booking, self.old, self.new, self.now)
        return ChangeWriter(self.actor, *what, patch.accept, group=patch.group, is_partial=patch.is_partial)

    def apply(self) -> Booking:
        state, strength = State(self.booking.state), strength_of(self.old, self.new)
        if strength is Strength.WORD:
            return self._word()
        if strength is Strength.STRONGER or self.patch.sooner is not None:
            growth_check(self.booking)
        if self.booking.awaits_parents:
            sentence = refusal_text("depends_change", label=self.booking.label)
            raise Refused("depends_change", sentence)
        if self.new.tier != self.old.tier and state in (*RUNNING, State.PAUSING, State.PAUSED):
            raise tier_begun(self.booking, self.new.tier, self.now)
        if state in (State.PAUSING, State.PAUSED):
            return rest_shorten(self._writer, strength, self._text())
        if (change := CHANGES_BY_STATE.get(state)) is not None:
            changed: Booking = change(self._writer, self._text())
            return changed
        if state in RUNNING or self._is_about_to_begin():
            return self._running()
        return self._planned(state, strength)

    def _planned(self, state: State, strength: Strength) -> Booking:
        """A change before the first run."""
        if state not in BEFORE_RUN or has_run(self.booking):
            raise not_changeable(self.booking)
        is_weaker = strength is Strength.WEAKER and self._keeps_class()
        if state is State.AWAITING_APPROVAL:
            return self._unapproved(is_weaker=is_weaker)
        if is_weaker:
            return self._weaker()
        return self._stronger()

    def _is_about_to_begin(self) -> bool:
        """Whether only the end of a booking that has its GPUs is to be later: it keeps them."""
        booking, soon = self.booking, self.now + SOON
        if booking.state != State.SCHEDULED or booking.planned_starts is None:
            return False
        is_longer = self.new.ask.duration > self.old.ask.duration
        is_only_end = self.old.differences(self.new).keys() <= {"duration", "name"}
        is_bound = has_run(booking) or booking.planned_starts <= soon
        return is_longer and is_only_end and is_bound

    def _keeps_class(self) -> bool:
        planned = self.booking.planned_class
        return not planned or planned in self.new.ask.classes

    def _word(self) -> Booking:
        booking, name = self.booking, self.new.name
        if name == self.old.name:
            return booking
        open_changes_follow(booking, name)
        self._writer.store(replace(terms_of(booking), name=name), Strength.WORD)
        return booking

    def _weaker(self) -> Booking:
        self._writer.replace_open()
        restores = restores_of(self.booking)
        late_fee_take(self.booking, late_fee(self.booking, self._kept(), self.now), self.now)
        terms = weaker_terms(self.booking, self.new, self._text())
        change = self._writer.row(terms, Strength.WEAKER)
        change.restores = restores
        plan_cut(self.booking, terms, self.now)
        self._writer.store(terms, Strength.WEAKER, change)
        self._writer.exchange(hold_of(self.booking, terms))
        task_request("allocation.cycle")
        return self.booking

    def _kept(self) -> Granted | None:
        """What the booking keeps of its time on the calendar with a change of its window or number;
        None: all of it is given up, or where it starts is not known yet."""
        booking, ask = self.booking, self.new.ask
        starts = ask.starts or booking.planned_starts
        old = self.old.ask
        is_same = (old.classes, old.shape, old.groups) == (ask.classes, ask.shape, ask.groups)
        is_moved = ask.starts is None and not self._is_weaker()
        if starts is None or is_moved or not is_same:
            return None
        if ask.not_before is not None and ask.not_before > starts:
            return None
        return granted_as(booking, starts, starts + timedelta(seconds=ask.duration), ask.count)

    def _is_weaker(self) -> bool:
        return strength_of(self.old, self.new) is Strength.WEAKER

    def _unapproved(self, *, is_weaker: bool) -> Booking:
        """Replaces a request that waits for its approval. A smaller one stays with its approvers;
        for any other the approval is asked for anew."""
        booking = self.booking
        if is_weaker:
            terms, facts = weaker_terms(booking, self.new, self._text()), {}
            if terms.hold_amount <= booking.hold_amount:
                self._replace(terms, Strength.WEAKER)
                approval_keep(booking, self.now)
                return booking
        else:
            terms, facts = self._stronger_terms(), {"ranked_at": self.now}
        needed = approval_needed(self.actor, booking, terms, self.now)
        self._replace(terms, Strength.WEAKER if is_weaker else Strength.STRONGER, **facts)
        if needed is not None and self.patch.group is None:
            approval_replace(self.actor, booking, needed, self.now)
        return booking

    def _stronger(self) -> Booking:
        """Replaces a request that no cycle has decided, and asks for the change of any other."""
        booking = self.booking
        if is_awaited(booking):
            raise change_awaited(booking)
        terms = self._stronger_terms()
        # A group that is all or none asks for one approval at its end, if it needs one.
        is_whole = self.patch.group is not None and not self.patch.is_partial
        needed = None
        if not is_whole:
            needed = approval_needed(self.actor, booking, terms, self.now)
        has_rules = is_whole and bool(rules_in_force(self.actor, booking.project_id))
        if booking.state == State.REQUESTED and needed is None and not has_rules:
            self._replace(terms, Strength.STRONGER, ranked_at=self.now)
            return booking
        change = self._writer.row(terms, Strength.STRONGER)
        if self.patch.sooner is not None:
            approval_refuse(needed)
            change.is_sooner = True
        most = late_fee if needed is None else late_fee_most
        change.late_fee = most(booking, self._kept(), self.now)
        if self.patch.waits:
            last = terms.starts or change.start_by
            change_wait_check(self.actor, change, last, self.now)
        return self._writer.ask(change, hold_of(booking, terms), needed)

    def _replace(self, terms: Terms, strength: Strength, **facts: object) -> None:
        """Replaces a request that has nothing yet; a stronger one ranks as asked for now."""
        self._writer.replace_open()
        change, request = self._writer.row(terms, strength), hold_of(self.booking, terms)
        self._writer.hold_delta(change, request)
        self._writer.store(terms, strength, change, **facts)
        self._writer.exchange(request, change)
        task_request("allocation.cycle")

    def _running(self) -> Booking:
        """Ends a running booking earlier, or asks for a later end."""
        booking, now = self.booking, self.now
        fixed = [n for n in self.old.differences(self.new) if n not in ("duration", "name")]
        if fixed:
            sentence = refusal_text("running_fixed", label=booking.label)
            raise Refused("running_fixed", sentence, param=fixed[0])
        ends = booking.planned_ends
        if ends is None:
            raise not_changeable(booking)
        seconds = self.new.ask.duration - self.old.ask.duration
        until = ends + timedelta(seconds=seconds)
        if seconds > 0 and booking.state == State.SCHEDULED and is_awaited(booking):
            raise change_awaited(booking)
        if seconds > 0:
            return self._extend(until, longer_terms(booking, seconds, now))
        if until <= now:
            raise invalid("end_past", refusal_text("end_past", label=booking.label), "duration")
        self._writer.replace_open()
        begins = booking.ready_at or booking.planned_starts or now
        kept = granted_as(booking, begins, until, booking.ask["count"])
        fee, restores = late_fee(booking, kept, now), restores_of(booking)
        late_fee_take(booking, fee, now)
        shorter = shorter_terms(booking, -seconds)
        terms = replace(
            shorter,
            hold_amount=shorter.hold_amount + fee,
            name=self.new.name,
            request_text=self._text(),
        )
        change = self._writer.row(terms, Strength.WEAKER)
        change.restores = restores
        self._writer.store(terms, Strength.WEAKER, change, planned_ends=until)
        self._writer.exchange(self._hold_of_run(terms, until))
        task_request("allocation.cycle")
        return booking

    def _extend(self, until: datetime, terms: Terms) -> Booking:
        booking = self.booking
        length_check(self.actor, booking, until, self.now)
        needed = approval_needed(self.actor, booking, terms, self.now)
        terms = replace(terms, name=self.new.name, request_text=self._text())
        change = self._writer.row(terms, Strength.STRONGER)
        change.until = until
        if self.patch.waits:
            last = (booking.planned_ends or self.now) - LAST_EXTENSION
            change_wait_check(self.actor, change, last, self.now)
        return self._writer.ask(change, self._hold_of_run(terms, until), needed)

    def _hold_of_run(self, terms: Terms, until: datetime) -> HoldRequest:
        begun = self.booking.planned_starts or self.now
        return replace(hold_of(self.booking, terms), starts=min(begun, self.now), ends=until)

    def _stronger_terms(self) -> Terms:
        patch = self.patch
        zone = self.actor.time_zone
        terms = stronger_terms(self.booking, self.new, self._text(), self.now, patch.priced_at, zone)
        most = patch.accept.cost_at_most
        if most is not None and terms.hold_amount > most:
            raise too_dear(terms, most)
        return terms

    def _text(self) -> str:
        """The request as it was typed; a field that was changed makes it outdated."""
        is_same = self.old.ask == self.new.ask
        typed = self.patch.request_text
        return typed if typed is not None else self.booking.request_text if is_same else ""
