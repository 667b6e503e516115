"""A portal without a database: the services' rules over plain rows, for simulated schedules.

Solver, wire and the fence against old reports are the real ones. What the services do in SQL is
said here again, step by step and in their order; test_conformance.py runs the same schedules on
the real services and compares every row and every document.
"""

import dataclasses
from collections.abc import Callable

from allocation import wire
from allocation.rules.fencing import STARTED
from allocation.rules.leases import LeaseWatch
from allocation.rules.silence import SilenceWatch
from allocation.solver import Policy, solve
from tests.simulation import (
    accounts,
    healing,
    hearing,
    lifecycle,
    pausing,
    planning,
    replacing,
    silence,
)
from tests.simulation.documents import document_of, lease_of
from tests.simulation.frozen import frozen_forget
from tests.simulation.people import Wish
from tests.simulation.rows import OVER, Booking, GpuRow, NodeRow, Site, Tables, Upkeep
from tests.simulation.snapshots import snapshot_take

TUNABLES = {"notice_margin": 5, "cool_down": 60}
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
        self._ids = {"row_id": row_id, "pause_id": pause_id}
        self._write, self._grant = write, grant
        # Plans that could not be written, with why. Nobody else writes here, so there is no excuse.
        self.dropped: list[str] = []
        self.reader_restarts()
        self.tables = Tables(
            epoch=site.epoch,
            node_of=site.node_of,
            nodes={node: NodeRow() for node in site.keys},
            gpus={uuid: GpuRow() for uuid in site.uuids.values()},
        )

    # What people do.

    def request(self, identifier: str, wish: Wish, now: float) -> None:
        """Admission is not a schedule's subject: every wish is taken in."""
        slug = self.site.parties[wish.who].slug
        self.tables.counted[slug] = self.tables.counted.get(slug, 0) + 1
        self.tables.bookings[identifier] = Booking(
            id=identifier,
            number=self.tables.counted[slug],
            wish=wish,
            duration=wish.duration,
            bought=wish.duration,
            not_before=int(now) if wish.starts is None else wish.starts,
            submitted=int(now),
        )

    def cancel(self, identifier: str, now: float) -> None:
        """See booking_cancel."""
        booking = self.tables.bookings.get(identifier)
        if booking is None or booking.state in ("ending", *OVER):
            return
        if booking.state in (*STARTED, "pausing"):
            self._give_back(booking, "cancelled", now)
            return
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
        if (
            booking is not None
            and booking.state in planning.EXTENDABLE
            and booking.extension is None
            and until > (booking.ends or until)
        ):
            booking.extension = until

    def saved(self, identifier: str, now: float) -> None:
        """See booking_saved."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            pausing.saved(self.tables, booking, now)

    def more_time(self, identifier: str, now: float) -> None:
        """See more_time_ask."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None:
            pausing.more_time_ask(self.tables, booking, now)

    def plan_upkeep(self, wanted: Upkeep, now: float) -> None:
        """See blackout_plan."""
        self.tables.upkeep[wanted.id] = dataclasses.replace(wanted)

    def end_upkeep(self, identifier: str, now: float) -> None:
        """See blackout_end."""
        wanted = self.tables.upkeep.get(identifier)
        if wanted is not None and wanted.ended_at is None and wanted.ends > now:
            wanted.ended_at = now

    def gpu_return(self, uuid: str, now: float) -> None:
        """See gpu_return."""
        healing.returned(self.tables, uuid)

    def _give_back(self, booking: Booking, outcome: str, now: float) -> None:
        booking.state, booking.outcome = "ending", outcome
        booking.released_at = now if booking.ends is None else min(now, booking.ends)
        booking.extension = None

    def _take_back(self, booking: Booking, state: str, outcome: str, now: float) -> None:
        self.tables.supersede(booking)
        booking.state, booking.outcome = state, outcome
        accounts.pause_over(self.tables, booking, now)

    # What the processes do.

    def cycle(self, now: float, *, publishes: bool = True) -> None:
        """One turn; without `publishes` it is one that was killed after it had decided."""
        lifecycle.ends_due(self.tables, now)
        healing.hardware_clear(self.tables, self.site, now)
        pausing.pauses_due(self.tables, now)
        if planning.is_anyone_waiting(self.tables) and not self._decide(now):
            self._decide(now)
        lifecycle.starts_due(self.tables, now)
        if publishes:
            self.publish()

    def _decide(self, now: float) -> bool:
        plan = solve(snapshot_take(self.tables, self.site, now), POLICY)
        before = self.tables.copy()
        try:
            planning.plan_apply(self.tables, plan, now, **self._ids)
        except planning.PlanStale as stale:
            self.tables = before
            self.dropped.append(str(stale))
            return False
        return True

    def replace_lost(self, now: float) -> None:
        """See Reader: what silent nodes hold on lease begins anew elsewhere."""
        beats = replacing.beats_of_leased(self.tables)
        for name, seq in self._watch.silent(beats, now).items():
            replacing.node_replace(self.tables, self.site, name, seq, now)

    def reader_restarts(self) -> None:
        """Another one knows of no silence yet."""
        self._watch: LeaseWatch[str] = LeaseWatch()
        self._silence: SilenceWatch[str] = SilenceWatch()

    def mark_silent(self, now: float) -> None:
        """See Reader: who does not answer gets nothing new."""
        silence.mark(self.tables, self._silence, now)

    def publish(self) -> None:
        """See publish_due."""
        frozen_forget(self.tables)
        for name, node in self.tables.nodes.items():
            if node.published < node.generation:
                self._publish(name)

    def republish(self) -> None:
        """See republish_all."""
        for name in self.tables.nodes:
            self._publish(name)

    def _publish(self, name: str) -> None:
        self._write(name, document_of(self.tables, self.site, name).to_json())
        self.tables.nodes[name].published = self.tables.nodes[name].generation

    # What nodes say.

    def inventory(self, name: str, message: wire.Inventory, now: float) -> None:
        """As it is taken at enrolment."""
        hearing.inventory_apply(self.tables, self.site, name, message, now)

    def hear(self, name: str, envelope: wire.Envelope, now: float) -> str:
        """See message_apply, and lease_grant."""
        message = hearing.message_of(self.site, name, envelope)
        if message is None:
            return "refused"
        said = hearing.message_apply(self.tables, self.site, name, message, now)
        cut_off = self.tables.nodes[name].cut_off
        if said == "applied" and isinstance(message, wire.Heartbeat) and not cut_off:
            self._grant(name, lease_of(self.tables, self.site, name, message.seq).to_json())
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
