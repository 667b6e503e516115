"""A portal without a database: the services' rules over plain rows, for simulated schedules.

Solver, wire and the fence against old reports are the real ones. What the services do in SQL is
said here again, step by step and in their order; test_conformance.py runs the same schedules on
the real services and compares every row and every document.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import wire
from allocation.rules.nodes.fencing import STARTED
from allocation.rules.nodes.leases import LeaseWatch, LongLeases
from allocation.rules.nodes.unreachable import AnswerWatch
from solver import LEFT, Order, Plan, Policy, Relocation, Snapshot, solve
from solver.cycle.compaction import propose
from tests.simulation.model import (
    healing,
    inbox,
    lifecycle,
    pausing,
    planning,
    replacing,
    unreachable,
)
from tests.simulation.model.documents import lease_of, order_document
from tests.simulation.model.snapshots import snapshot_take
from tests.simulation.model.suspended_work import suspended_work_forget
from tests.simulation.requests import arrays, changes, waitlist
from tests.simulation.requests.tables import ArrayRow, Edit, Repeats, Waits
from tests.simulation.tables import accounts
from tests.simulation.tables.acts import Act, Acts
from tests.simulation.tables.people import UserRequest
from tests.simulation.tables.rows import (
    OVER,
    Booking,
    GpuRow,
    MaintenanceRow,
    NodeRow,
    Site,
    Tables,
)

TUNABLES: dict[str, Any] = {"notice_margin": 5, "cool_down": 60}
# Of a turn; the next one holds all.
MOST_LOOKS = 2
POLICY = Policy(version=1, **TUNABLES)


class ModelPortal:
    """`row_id` and `pause_id` give the ids of allocations and pauses, in hex; `write(node, raw)`
    and `grant(node, raw)` stand for Redis."""

    def __init__(
        self,
        site: Site,
        *,
        row_id: Callable[[], str],
        pause_id: Callable[[], str],
        write: Callable[[str, bytes], None],
        grant: Callable[[str, bytes], None],
    ) -> None:
        self.site = site
        self._writer = planning.Writer(row_id, pause_id)
        self._write, self._grant = write, grant
        # Plans that could not be written, and requests that were postponed, with the reason.
        self.dropped: list[str] = []
        # Parts of plans that were not written, by why; see SolverState.withheld_cycles.
        self.withheld: Counter[str] = Counter()
        self.is_behind = False
        self._undecided: dict[str, int] = {}
        self.reader_restarts()
        self.tables = Tables(
            epoch=site.epoch,
            node_of=site.node_of,
            drivers=site.drivers,
            nodes={node: NodeRow() for node in site.keys},
            gpus={uuid: GpuRow() for uuid in site.uuids.values()},
        )

    # What people do.

    def request(
        self, identifier: str, requested: UserRequest, now: float, waits: Waits | None = None
    ) -> None:
        """Admission is not a schedule's subject: every request is admitted."""
        booking = self.tables.bookings[identifier] = Booking(
            id=identifier,
            number=self._number(requested),
            requested=requested,
            duration=requested.duration,
            bought=requested.duration,
            not_before=int(now) if requested.starts is None else requested.starts,
            submitted=int(now),
        )
        if waits is not None:
            self.tables.entries[identifier] = waitlist.entry_make(booking, waits)
            booking.state = "waitlisted" if waits.mode == "offer" else "requested"

    def _number(self, requested: UserRequest) -> int:
        slug = self.site.parties[requested.who].slug
        self.tables.counted[slug] = self.tables.counted.get(slug, 0) + 1
        return self.tables.counted[slug]

    def array(self, identifier: str, requested: UserRequest, repeats: Repeats, now: float) -> None:
        """See array_request."""
        array = self.tables.arrays[identifier] = ArrayRow(
            id=identifier,
            number=self._number(requested),
            requested=requested,
            count=repeats.count,
            parallel=repeats.parallel,
            not_before=int(now),
        )
        arrays.array_advance(self.tables, array, now)

    def array_cancel(self, identifier: str, now: float) -> None:
        """See array_cancel, of all elements."""
        array = self.tables.arrays[identifier]
        array.following = array.count + 1
        own = [b.id for b in self.tables.bookings.values() if b.array == identifier]
        for name in sorted(own, key=lambda each: self.tables.bookings[each].index):
            self.cancel(name, now)

    def change(self, identifier: str, edit: Edit, name: str, now: float) -> None:
        """See booking_patch."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            changes.change(self.tables, booking, edit, name, now)

    def change_withdraw(self, identifier: str, now: float) -> None:
        """See change_withdraw."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            changes.replace_open(self.tables, booking)

    def answer(self, identifier: str, now: float, *, accepts: bool) -> None:
        """See offer_accept and offer_decline."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            (waitlist.accept if accepts else waitlist.decline)(self.tables, booking, now)

    def cancel(self, identifier: str, now: float) -> None:
        """See booking_cancel."""
        booking = self.tables.bookings.get(identifier)
        if booking is None or booking.state in ("ending", *OVER):
            return
        if booking.state in (*STARTED, "pausing"):
            self._give_back(booking, "cancelled", now)
            return
        if self.tables.is_awaited(booking):
            party = self.site.parties[booking.requested.who]
            places = [row.place for row in self.tables.of(booking, "planned")] or booking.places
            name = next(gpu.gpu_class for gpu in self.site.gpus if gpu.id == places[0].gpu)
            self.tables.cooling[party.tenant, party.owner_id, name] = now + POLICY.cool_down
        self._take_back(booking, "cancelled", "cancelled", now)

    def release(self, identifier: str, now: float) -> None:
        """See booking_release."""
        booking = self.tables.bookings.get(identifier)
        if booking is None:
            return
        if booking.state == "paused":
            self._take_back(booking, "ended", "released", now)
        elif booking.state in (*STARTED, "pausing"):
            self._give_back(booking, "released", now)

    def extend(self, identifier: str, until: int, now: float) -> None:
        """See booking_extend."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None and booking.state in STARTED and until > (booking.ends or until):
            changes.replace_open(self.tables, booking)
            booking.extension, booking.extension_requested = until, int(now)

    def saved(self, identifier: str, now: float) -> None:
        """See booking_saved."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            pausing.saved(self.tables, booking, now)

    def more_time(self, identifier: str, now: float) -> None:
        """See more_time_ask."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            pausing.more_time_request(self.tables, booking, now)

    def maintenance_plan(self, row: MaintenanceRow, now: float) -> None:
        """See blackout_plan."""
        self.tables.maintenance[row.id] = dataclasses.replace(row)

    def maintenance_end(self, identifier: str, now: float) -> None:
        """See blackout_end."""
        row = self.tables.maintenance.get(identifier)
        if row is not None and row.ended_at is None and row.ends > now:
            row.ended_at = now

    def gpu_return(self, uuid: str, now: float) -> None:
        """See gpu_return."""
        healing.returned(self.tables, uuid)

    def outage_begin(self, until: float, now: float) -> None:
        """See outage_begin."""
        self.tables.outage_until = until

    def freeze_begin(self, until: float | None, now: float) -> None:
        """See freeze_begin."""
        self.tables.frozen_since, self.tables.frozen_until = now, until

    def outage_end(self, now: float) -> None:
        """See mode_end; one that is over stays as it is."""
        if self.tables.outage_until is not None and self.tables.outage_until > now:
            self.tables.outage_until = None

    def freeze_end(self, now: float) -> None:
        """See mode_end."""
        self.tables.frozen_since = self.tables.frozen_until = None

    def order(self, identifier: str, now: float) -> bool:
        """See compaction_order; the best of what is proposed, if anything is."""
        snapshot = snapshot_take(self.tables, self.site, now)
        proposals = propose(snapshot, solve(snapshot, POLICY), POLICY)
        ordered = {each.beneficiary for each in self.tables.orders.values()}
        fresh = [each for each in proposals if each.beneficiary not in ordered]
        if fresh:
            moves = tuple(Relocation(m.booking, m.source, m.target) for m in fresh[0].moves)
            self.tables.orders[identifier] = Order(
                identifier, fresh[0].beneficiary, fresh[0].gpu_class, fresh[0].places, moves
            )
        return bool(fresh)

    def _give_back(self, booking: Booking, outcome: str, now: float) -> None:
        booking.state, booking.outcome = "ending", outcome
        booking.released_at = now if booking.ends is None else min(now, booking.ends)
        booking.extension = None

    def _take_back(self, booking: Booking, state: str, outcome: str, now: float) -> None:
        self.tables.supersede(booking)
        waitlist.leave(self.tables, booking)
        booking.state, booking.outcome = state, outcome
        booking.extension, booking.places = None, ()
        accounts.pause_end(self.tables, booking, now)

    # What the processes do.

    def cycle(self, now: float, *, publishes: bool = True, acts: Acts = ()) -> None:
        """One turn; without `publishes` it is one that was killed after it had decided. `acts` come
        between its looks and what is written of them."""
        is_frozen = self._is_frozen(now)
        changes.calendar_cut(self.tables, self.site)
        lifecycle.ends_due(self.tables, now)
        healing.hardware_vacate(self.tables, self.site, now, is_frozen=is_frozen)
        waitlist.offers_expire(self.tables, now)
        waitlist.entries_expire(self.tables, now)
        if is_frozen:
            if publishes:
                self.publish()
            return
        pausing.pauses_due(self.tables, now)
        changes.changes_sweep(self.tables, now)
        arrays.arrays_advance(self.tables, now)
        if planning.is_anything_undecided(self.tables):
            self._look_twice(now, acts)
        lifecycle.starts_due(self.tables, now)
        if publishes:
            self.publish()

    def _is_frozen(self, now: float) -> bool:
        return self.tables.is_frozen(now)

    def _look_twice(self, now: float, acts: Acts) -> None:
        is_held, left = self.is_behind, list(acts)
        self.is_behind = self._decide(now, left, is_held=is_held, is_last=is_held)
        if self.is_behind and is_held:
            self.dropped.append("a turn that held every booking did not write all")
        if self.is_behind:
            lifecycle.ends_due(self.tables, now)
            self.is_behind = self._decide(now, left, is_held=False, is_last=True)

    def _decide(self, now: float, acts: list[tuple[Act, ...]], *, is_held: bool, is_last: bool) -> bool:
        """Whether a remaining request has no answer. No act happens while all rows are locked."""
        snapshot = snapshot_take(self.tables, self.site, now)
        plan = solve(snapshot, POLICY)
        news = planning.news_of(self.tables, plan, now)
        # While all is held, whoever acts waits until the turn is over.
        if not is_held and acts:
            for act in acts.pop(0):
                act.on(self, now)
        is_behind = self._written(news, snapshot, now, is_last=is_last)
        self._undecided_note({each.booking for each in snapshot.requests})
        return is_behind

    def _written(self, news: Plan, snapshot: Snapshot, now: float, *, is_last: bool) -> bool:
        try:
            self.tables, withheld = planning.plan_apply(
                self.tables, news, snapshot, now, self._writer, is_last=is_last
            )
        except planning.PlanStale as stale:
            withheld = stale.withheld
            if not withheld:
                self.dropped.append(str(stale))
                return True
        else:
            self._writer.offers(self.tables, news)
        self.withheld.update(withheld.values())
        return any(why != LEFT for why in withheld.values())

    def _undecided_note(self, seen: set[str]) -> None:
        """The third look, which holds all, decides at the latest."""
        waiting = {n for n in seen if self.tables.bookings[n].state == "requested"}
        self._undecided = {name: self._undecided.get(name, 0) + 1 for name in waiting}
        late = sorted(name for name, looks in self._undecided.items() if looks > MOST_LOOKS)
        self.dropped += [f"{name} was not decided in {MOST_LOOKS} looks" for name in late]

    def replace_lost(self, now: float) -> None:
        """See Reader: what silent nodes hold on lease begins anew elsewhere."""
        beats = replacing.leased_heartbeats(self.tables)
        for name, seq in self._silent_on_lease(beats, now).items():
            replacing.node_bookings_requeue(self.tables, self.site, name, seq, now)

    def _silent_on_lease(self, beats: dict[str, int], now: float) -> dict[str, int]:
        nodes = self.tables.nodes
        long = {
            n: (r.outage_lease_seq, r.outage_lease_seconds)
            for n, r in nodes.items()
            if r.outage_lease_seconds
        }
        over = self._long.over(long, now)
        for name in over:
            nodes[name].outage_lease_seconds = 0
        found = self._watch.expired(beats, now)
        return {name: seq for name, seq in found.items() if name not in long or name in over}

    def reader_restarts(self) -> None:
        """Another one knows of no silence yet."""
        self._long: LongLeases[str] = LongLeases()
        self._watch: LeaseWatch[str] = LeaseWatch()
        self._answers: AnswerWatch[str] = AnswerWatch()

    def mark_silent(self, now: float) -> None:
        """See Reader: who does not answer gets nothing new."""
        unreachable.mark(self.tables, self._answers, now)

    def publish(self) -> None:
        """See publish_due."""
        suspended_work_forget(self.tables)
        for name, node in self.tables.nodes.items():
            if node.published < node.generation:
                self._publish(name)

    def republish(self) -> None:
        """See republish_all."""
        for name in self.tables.nodes:
            self._publish(name)

    def _publish(self, name: str) -> None:
        self._write(name, order_document(self.tables, self.site, name).to_json())
        self.tables.nodes[name].published = self.tables.nodes[name].generation

    # What nodes say.

    def inventory(self, name: str, message: wire.Inventory, now: float) -> None:
        """As it is taken at enrolment."""
        inbox.inventory_apply(self.tables, self.site, name, message, now)

    def receive(self, name: str, envelope: wire.Envelope, now: float) -> str:
        """See message_apply, and lease_grant."""
        message = inbox.message_of(self.site, name, envelope)
        if message is None:
            return "refused"
        said = inbox.message_apply(self.tables, self.site, name, message, now)
        partitioned = self.tables.nodes[name].partitioned
        if said == "applied" and isinstance(message, wire.Heartbeat) and not partitioned:
            seconds = inbox.lease_length(self.tables, now)
            lease = lease_of(self.tables, self.site, name, message.seq, seconds)
            self._grant(name, lease.to_json())
        return said

    # After a disaster.

    def backup(self) -> Tables:
        """Everything, as it is now."""
        return self.tables.copy()

    def restore(self, saved: Tables, now: float) -> None:
        """An older backup comes back, and the operator raises the epoch."""
        self.tables = saved.copy()
        self.tables.epoch = max(self.tables.epoch + 1, int(now))
        for node in self.tables.nodes.values():
            node.generation += 1
        self.republish()
