"""A portal without a database: the services' rules over plain rows, for simulated schedules.

Solver, wire and the fence against old reports are the real ones. What the services do in SQL is
said here again, step by step and in their order; test_conformance.py runs the same schedules on
the real services and compares every row and every document.
"""

from collections.abc import Callable

from allocation import wire
from allocation.rules.clocks import clock_is_wrong
from allocation.rules.fencing import STARTED, Known, is_ahead, is_news, is_proof, is_stale
from allocation.solver import Policy, solve
from tests.simulation import healing, lifecycle, planning
from tests.simulation.documents import document_of
from tests.simulation.rows import OVER, Booking, GpuRow, NodeRow, Site, Tables, Wish

POLICY = Policy(version=1)


class ModelPortal:
    """`new_id` gives the ids of allocations, in hex; `write(node, raw)` stands for Redis."""

    def __init__(
        self, site: Site, new_id: Callable[[], str], write: Callable[[str, bytes], None]
    ) -> None:
        self.site = site
        self._new_id = new_id
        self._write = write
        self.tables = Tables(
            epoch=site.epoch,
            node_of=site.node_of,
            nodes={node: NodeRow() for node in site.keys},
            gpus={uuid: GpuRow() for uuid in site.uuids.values()},
        )

    # What people do.

    def request(self, identifier: str, wish: Wish, now: float) -> None:
        """Admission is not a schedule's subject: every wish is taken in."""
        self.tables.counted += 1
        self.tables.bookings[identifier] = Booking(
            id=identifier,
            number=self.tables.counted,
            wish=wish,
            duration=wish.duration,
            not_before=int(now) if wish.starts is None else wish.starts,
            submitted=int(now),
        )

    def cancel(self, identifier: str, now: float) -> None:
        """See booking_cancel."""
        booking = self.tables.bookings.get(identifier)
        if booking is None or booking.state in ("ending", *OVER):
            return
        if booking.state in STARTED:
            self._give_back(booking, "cancelled", now)
            return
        lifecycle.supersede(self.tables, booking)
        booking.state = booking.outcome = "cancelled"

    def release(self, identifier: str, now: float) -> None:
        """See booking_release."""
        booking = self.tables.bookings.get(identifier)
        if booking is not None and booking.state in STARTED:
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

    def _give_back(self, booking: Booking, outcome: str, now: float) -> None:
        booking.state, booking.outcome = "ending", outcome
        booking.released_at = now if booking.ends is None else min(now, booking.ends)
        booking.extension = None

    # What the processes do.

    def cycle(self, now: float, *, publishes: bool = True) -> None:
        """One turn; without `publishes` it is one that was killed after it had decided."""
        lifecycle.ends_due(self.tables, now)
        healing.hardware_clear(self.tables, self.site, now)
        if planning.is_anyone_waiting(self.tables) and not self._decide(now):
            self._decide(now)
        lifecycle.starts_due(self.tables, now)
        if publishes:
            self.publish()

    def _decide(self, now: float) -> bool:
        plan = solve(planning.snapshot_take(self.tables, self.site, now), POLICY)
        before = self.tables.copy()
        try:
            planning.plan_apply(self.tables, plan, self._new_id)
        except planning.PlanStale:
            self.tables = before
            return False
        return True

    def publish(self) -> None:
        """See publish_due."""
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

    def hear(self, name: str, envelope: wire.Envelope, now: float) -> str:
        """See message_apply."""
        try:
            message = wire.open_report(envelope, {self.site.key_version: self.site.keys[name]})
        except wire.WireError:
            return "refused"
        match message:
            case wire.Report():
                return self._report(name, message, now)
            case wire.Heartbeat():
                return self._heartbeat(name, message, now)
            case wire.Telemetry():
                return self._numbered(name, "telemetry_seq", message.seq)
            case wire.Inventory():
                said = self._numbered(name, "inventory_seq", message.seq)
                if said == "applied":
                    self.inventory(name, message, now)
                return said

    def _numbered(self, name: str, field: str, seq: int) -> str:
        node = self.tables.nodes[name]
        if seq <= getattr(node, field):
            return "stale"
        setattr(node, field, seq)
        return "applied"

    def _heartbeat(self, name: str, message: wire.Heartbeat, now: float) -> str:
        node = self.tables.nodes[name]
        skew = message.sent_at - int(now)
        wrong = clock_is_wrong(skew=skew, before=node.skew, was_wrong=node.clock_wrong)
        said = self._numbered(name, "heartbeat_seq", message.seq)
        if said == "applied":
            node.skew, node.clock_wrong = skew, wrong
        return said

    def inventory(self, name: str, message: wire.Inventory, now: float) -> None:
        """See inventory_apply."""
        gpus = {self.site.uuids[g.id]: self.tables.gpus[self.site.uuids[g.id]]
                for g in self.site.gpus if g.node == name}  # fmt: skip
        found = {item.uuid: item for item in message.gpus}
        modes = {uuid: gpu.mode for uuid, gpu in gpus.items()}
        for uuid, gpu in gpus.items():
            if uuid in found:
                gpu.health, gpu.drain_by, gpu.mode = "ok", None, found[uuid].mode
        if modes != {uuid: gpu.mode for uuid, gpu in gpus.items()}:
            self.tables.nodes[name].generation += 1
        healing.gpus_lost(self.tables, gpus.keys() - found.keys(), now)

    def _report(self, name: str, report: wire.Report, now: float) -> str:
        node, rows = self.tables.nodes[name], self.tables.rows
        known = Known(self.tables.epoch, node.generation, node.seq)
        if is_stale(report, known):
            node.ahead = report.epoch if is_ahead(report, known) else node.ahead
            return "stale"
        excused = healing.gone(self.tables, self.site, name, report, now)
        own = {
            item.id
            for item in report.allocations
            if item.id in rows
            and self.site.node_of[rows[item.id].place.gpu] == name
            and is_news(item.state, rows[item.id].state)
            and not (item.state == "failed" and item.id in excused)
        }
        for item in report.allocations:
            if item.id in own and (item.state != "empty" or is_proof(report, known)):
                self._word(item, now)
        changed = [gpu for gpu in report.gpus if self.tables.gpus[gpu.uuid].mode != gpu.mode]
        for gpu in changed:
            self.tables.gpus[gpu.uuid].mode = gpu.mode
        node.generation += bool(changed)
        node.seq, node.observed, node.ahead = report.seq, report.observed_generation, None
        return "applied"

    def _word(self, item: wire.ReportedAllocation, now: float) -> None:
        row = self.tables.rows[item.id]
        match item.state:
            case "ready":
                lifecycle.ready(self.tables, row, item.devices, now)
            case "empty":
                lifecycle.empty(self.tables, row, now)
            case "failed":
                lifecycle.failed(self.tables, row, now)

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
