"""The model and the real services: every step on both, and any difference is an error."""

import contextlib
import dataclasses
import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from unittest import mock
from uuid import UUID

from django.db import connection, transaction

import wire
from agent.state.enrol import Identity
from allocation.models import (
    Booking,
    Gpu,
    Maintenance,
    Node,
    SolverState,
)
from allocation.rules.nodes.leases import LeaseWatch, LongLeases
from allocation.rules.nodes.unreachable import AnswerWatch
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide import cycle as cycles
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.inbox.apply import message_apply
from allocation.services.inbox.heartbeats import signs_read, unreachable_mark
from allocation.services.nodes.fleet import (
    enrolment_token_create,
    node_enrol,
    node_key,
    node_policy,
)
from allocation.services.nodes.leases import leased_heartbeats, long_leases, long_leases_end
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.operate.drain import gpu_return
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    maintenance_end,
    maintenance_plan,
)
from allocation.services.operate.portal_modes import freeze_begin, mode_end, outage_begin
from allocation.services.plans import assignments, pauses
from allocation.services.plans.plan_diff import Changes, changes_of
from allocation.services.publish.publish import publish_due, republish_all
from allocation.services.runs.lost_runs import node_bookings_requeue
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from allocation.services.snapshot import quota_rows
from allocation.services.snapshot import snapshot as snapshots
from solver import Plan, Snapshot, digest
from tenants.access import Actor
from tenants.models import Project, User
from tenants.platform.errors import Refused
from tests.builders import a_user
from tests.roles import as_system
from tests.simulation.model.portal import ModelPortal
from tests.simulation.model.snapshots import snapshot_take as model_snapshot
from tests.simulation.requests.tables import Edit, Repeats, Waits
from tests.simulation.schedules.world import World
from tests.simulation.services.real_requests import (
    array_ask,
    array_end,
    booking_edit,
    offer_answer,
    request_of,
    when,
)
from tests.simulation.services.real_rows import (
    pause_facts,
    real_bookings,
    real_gpus,
    real_nodes,
    real_pauses,
    real_rows,
)
from tests.simulation.tables.acts import Act, Acts
from tests.simulation.tables.people import Party, UserRequest
from tests.simulation.tables.rows import GpuRow, MaintenanceRow, NodeRow, Site, Tables

_SERVICES: dict[str, Callable[..., Any]] = {
    "cancel": booking_cancel,
    "release": booking_release,
    "extend": booking_extend,
    "saved": booking_saved,
    "more_time": more_time_request,
}
_NAMESPACE = uuid.UUID("d7f6f9bb-9a3f-5a3e-8b1e-5a4de0a3b7c1")


def names(kind: str = "") -> Callable[[], UUID]:
    """Ids of allocations or pauses, the same for both."""
    numbers = itertools.count(1)
    return lambda: uuid.uuid5(_NAMESPACE, f"{kind}{next(numbers)}")


class BothPortals:
    """A `world.Portal`; the schedule looks at the model, which is held to the database."""

    def __init__(self, world: World, actors: Sequence[tuple[Project, Actor]]) -> None:
        """`actors` are the people who book, each with the project that they book in."""
        self._world, self._actors = world, actors
        with as_system():
            for node in world.nodes:
                self._enrol(node.name, node.inventory())
            self.site = _site(actors, world.now)
        own, own_pauses = names(), names("pause ")
        self._model = ModelPortal(
            self.site,
            row_id=lambda: own().hex,
            pause_id=lambda: own_pauses().hex,
            write=world.server.write,
            grant=world.server.grant,
        )
        self._ids, self._pause_ids = names(), names("pause ")
        self._watch: LeaseWatch[UUID] = LeaseWatch()
        self._answers: AnswerWatch[UUID] = AnswerWatch()
        self._long: LongLeases[UUID] = LongLeases()
        self._operator = a_user("olga", is_staff=True)
        self._upkeep: dict[str, Maintenance] = {}
        self._adopt()
        for node in world.nodes:
            keys = {self.site.key_version: self.site.keys[node.name]}
            node.enrolled(Identity(node.name, keys, self.site.epoch, "redis://127.0.0.1:1/0"))
        self.republish()

    @property
    def tables(self) -> Tables:
        """The model's."""
        return self._model.tables

    @property
    def dropped(self) -> list[str]:
        """The model's."""
        return self._model.dropped

    @property
    def withheld(self) -> Counter[str]:
        """The model's."""
        return self._model.withheld

    def _enrol(self, name: str, inventory: wire.Inventory) -> None:
        now = when(self._world.now)
        token = enrolment_token_create(node_name=name, rack_name="a1", now=now)
        sent = json.loads(json.dumps(wire.inventory_to_plain(inventory)))
        node_enrol(token=token, inventory=sent, now=now)

    def _adopt(self) -> None:
        """The model begins where the database is."""
        for row in Node.objects.all():
            self.tables.nodes[row.name] = NodeRow(generation=row.generation)
        for gpu in Gpu.objects.all():
            self.tables.gpus[gpu.uuid] = GpuRow(mode=gpu.mode, health=gpu.health)

    # Every step, on both.

    def request(
        self, identifier: str, requested: UserRequest, now: float, waits: Waits | None = None
    ) -> None:
        """A request that the real services refuse does not reach the model."""
        if self._requested(identifier, requested, now, waits):
            self._model.request(identifier, requested, now, waits)
            self._compare()

    def _requested(
        self, identifier: str, requested: UserRequest, now: float, waits: Waits | None = None
    ) -> bool:
        project, actor = self._actors[requested.who]
        request = request_of(project, requested, waits)
        try:
            with as_system():
                booking_request(actor=actor, request=request, now=when(now), booking_id=UUID(identifier))
        except Refused:
            return False
        return True

    def array(self, identifier: str, requested: UserRequest, repeats: Repeats, now: float) -> None:
        project, actor = self._actors[requested.who]
        if array_ask(project, actor, identifier, (requested, repeats), now):
            self._model.array(identifier, requested, repeats, now)
            self._compare()

    def array_cancel(self, identifier: str, now: float) -> None:
        _, actor = self._actors[self.tables.arrays[identifier].requested.who]
        array_end(actor, identifier, now)
        self._model.array_cancel(identifier, now)
        self._compare()

    def change(self, identifier: str, edit: Edit, name: str, now: float) -> None:
        """Changes of what is or was paused are not asked of the services."""
        _, actor = self._actors[self.tables.bookings[identifier].requested.who]
        if booking_edit(actor, identifier, edit, name, now):
            self._model.change(identifier, edit, name, now)
        self._compare()

    def change_withdraw(self, identifier: str, now: float) -> None:
        self._person(change_withdraw, identifier, now=when(now))
        self._model.change_withdraw(identifier, now)
        self._compare()

    def answer(self, identifier: str, now: float, *, accepts: bool) -> None:
        _, actor = self._actors[self.tables.bookings[identifier].requested.who]
        offer_answer(actor, identifier, now, accepts=accepts)
        self._model.answer(identifier, now, accepts=accepts)
        self._compare()

    def cancel(self, identifier: str, now: float) -> None:
        self._person(booking_cancel, identifier, now=when(now))
        self._model.cancel(identifier, now)
        self._compare()

    def release(self, identifier: str, now: float) -> None:
        self._person(booking_release, identifier, now=when(now))
        self._model.release(identifier, now)
        self._compare()

    def extend(self, identifier: str, until: int, now: float) -> None:
        # A booking that has not begun is exchanged as a whole, which the model does not know.
        with as_system():
            begun = Booking.objects.filter(id=identifier, state__in=("starting", "active"))
            may_extend = begun.exists()
        if may_extend:
            self._person(booking_extend, identifier, until=when(until), now=when(now))
        self._model.extend(identifier, until, now)
        self._compare()

    def saved(self, identifier: str, now: float) -> None:
        self._person(booking_saved, identifier, now=when(now))
        self._model.saved(identifier, now)
        self._compare()

    def more_time(self, identifier: str, now: float) -> None:
        self._person(more_time_request, identifier, now=when(now))
        self._model.more_time(identifier, now)
        self._compare()

    def order(self, identifier: str, now: float) -> bool:
        raise NotImplementedError("a schedule of the real services orders no moves")

    def _person(self, service: Callable[..., Any], identifier: str, **named: Any) -> bool:  # noqa: ANN401
        """Whether the services did it."""
        with as_system():
            booking = Booking.objects.get(id=identifier)
            _, actor = self._actors[self.tables.bookings[identifier].requested.who]
            try:
                service(actor=actor, booking=booking, **named)
            except Refused:
                return False
        return True

    def maintenance_plan(self, row: MaintenanceRow, now: float) -> None:
        """A date that is past is no date for the model either."""
        requested = MaintenanceTerms(
            *(when(row.starts), when(row.ends), "new fans"),
            node=row.node,
            gpu=row.gpu,
            drain_by=when(row.drain_by),
        )
        with as_system():
            made = maintenance_plan(operator=self._operator, terms=requested, now=when(now))
        self._upkeep[row.id] = made
        self._model.maintenance_plan(row, now)
        self._compare()

    def maintenance_end(self, identifier: str, now: float) -> None:
        with as_system(), transaction.atomic(), contextlib.suppress(Refused):
            blackout = self._upkeep[identifier]
            maintenance_end(operator=self._operator, maintenance=blackout, now=when(now))
        self._model.maintenance_end(identifier, now)
        self._compare()

    def gpu_return(self, uuid: str, now: float) -> None:
        with as_system(), transaction.atomic(), contextlib.suppress(Refused):
            gpu = Gpu.objects.get(uuid=uuid)
            gpu_return(operator=self._operator, gpu=gpu, note="looked at", now=when(now))
        self._model.gpu_return(uuid, now)
        self._compare()

    def outage_begin(self, until: float, now: float) -> None:
        with as_system():
            length = when(until) - when(now)
            outage_begin(operator=self._operator, length=length, reason="new fans", now=when(now))
        self._model.outage_begin(until, now)

    def freeze_begin(self, until: float | None, now: float) -> None:
        length = None if until is None else when(until) - when(now)
        with as_system():
            freeze_begin(operator=self._operator, reason="a look", length=length, now=when(now))
        self._model.freeze_begin(until, now)

    def outage_end(self, now: float) -> None:
        self._mode_end("outage", now)
        self._model.outage_end(now)

    def freeze_end(self, now: float) -> None:
        self._mode_end("freeze", now)
        self._model.freeze_end(now)

    def _mode_end(self, kind: str, now: float) -> None:
        with as_system(), contextlib.suppress(Refused):
            mode_end(kind=kind, operator=self._operator, now=when(now))

    def mark_silent(self, now: float) -> None:
        with as_system():
            verdict = self._answers.turn(signs_read(), now, node_policy())
            unreachable_mark(verdict, when(now))
        self._model.mark_silent(now)
        self._compare()

    def replace_lost(self, now: float) -> None:
        with as_system():
            long = long_leases()
            over = self._long.over(long, now)
            long_leases_end(over)
            for node, seq in self._watch.expired(leased_heartbeats(), now).items():
                if node not in long or node in over:
                    node_bookings_requeue(node_id=node, seq=seq, now=when(now))
        self._model.replace_lost(now)
        self._compare()

    def reader_restarts(self) -> None:
        self._watch, self._answers, self._long = LeaseWatch(), AnswerWatch(), LongLeases()
        self._model.reader_restarts()

    def cycle(self, now: float, *, publishes: bool = True, acts: Acts = ()) -> None:
        publish = publish_due if publishes else lambda _: 0
        left, done = list(acts), list[tuple[Act, ...]]()

        def between(plan: Plan, at: datetime) -> Changes:
            found = changes_of(plan, at)
            # While all is held, whoever acts waits until the turn is over.
            if left and not connection.in_atomic_block:
                done.append(tuple(act for act in left.pop(0) if self._acted(act, now)))
            return found

        with (
            as_system(),
            mock.patch.object(cycles, "publish_due", publish),
            mock.patch.object(cycles, "changes_of", between),
            # How long solving takes on this machine is nothing that a model could know.
            mock.patch.object(cycles, "MAX_LOCKED_SOLVE_MS", 600_000),
            mock.patch.object(assignments, "uuid4", self._ids),
            mock.patch.object(pauses, "uuid4", self._pause_ids),
            mock.patch.object(snapshots, "used_read", return_value=()),
            mock.patch.object(quota_rows, "stretches_read", return_value=[]),
        ):
            cycle_run(when(now))
            real = snapshots.snapshot_take(when(now))
            behind = SolverState.objects.filter(withheld_cycles__gt=0).exists()
        self._model.cycle(now, publishes=publishes, acts=tuple(done))
        assert behind == self._model.is_behind
        modelled = model_snapshot(self.tables, self.site, now)
        assert digest(_ranked(real)) == digest(_ranked(modelled)), _difference(real, modelled)
        self._compare()

    def _acted(self, act: Act, now: float) -> bool:
        """Does it on the real services; what is refused there is not asked of the model."""
        if act.kind == "request":
            assert act.requested is not None
            return self._requested(act.booking, act.requested, now)
        service = _SERVICES[act.kind]
        named = {"until": when(act.until)} if act.kind == "extend" else {}
        self._person(service, act.booking, now=when(now), **named)
        return True

    def publish(self) -> None:
        with as_system():
            publish_due(when(self._world.now))
        self._model.publish()
        self._compare()

    def republish(self) -> None:
        with as_system():
            republish_all(when(self._world.now))
        self._model.republish()
        self._compare()

    def receive(self, name: str, envelope: wire.Envelope, now: float) -> str:
        with as_system():
            said = message_apply(node_name=name, envelope=envelope, now=when(now))
        assert said == self._model.receive(name, envelope, now)
        self._compare()
        return said

    def backup(self) -> Tables:
        raise NotImplementedError("a schedule of the real services restores no backups")

    def restore(self, saved: Tables, now: float) -> None:
        raise NotImplementedError("a schedule of the real services restores no backups")

    # The comparison.

    def _compare(self) -> None:
        with as_system():
            assert real_bookings() == {
                b.id: (
                    *(b.state, b.outcome, b.starts, b.ends, b.extension, b.ready_at),
                    *(b.released_at, b.notified_at, b.saved_at, b.lost_at),
                    *(b.duration, b.used_seconds, b.replaced, b.pause_count),
                )
                for b in self.tables.bookings.values()
            }
            pauses = {p.id: pause_facts(p) for p in self.tables.pauses.values()}
            assert real_pauses() == pauses
            assert real_rows() == {
                r.id: (
                    r.booking,
                    r.place.start,
                    r.starts,
                    r.ends,
                    r.state,
                    list(r.devices),
                    r.occupied,
                    r.left,
                    *(r.leased, r.suspended, r.saved_at, r.place.share),
                )
                for r in self.tables.rows.values()
            }
            assert real_nodes() == {
                name: (
                    *(n.generation, n.published, n.observed, n.seq, n.takes_work),
                    *(n.unreachable_since, n.long_unreachable),
                    *(n.reported_lease_seconds, n.outage_lease_seconds),
                )
                for name, n in self.tables.nodes.items()
            }
            assert real_gpus(self.tables.gpus) == self.tables.gpus
        for name, raw in self._world.server.documents.items():
            assert agents_redis().get(wire.desired_key(name)) == raw
        for name, raw in self._world.server.leases.items():
            assert agents_redis().get(wire.lease_key(name)) == raw


def holds() -> bool:
    """Whether `manage.py invariants` has nothing to say."""
    with as_system():
        return invariants_check() == []


def _site(actors: Iterable[tuple[Project, Actor]], now: float) -> Site:
    """As the database has it after enrolment."""
    seen = snapshots.snapshot_take(when(now))
    nodes = list(Node.objects.order_by("name"))
    (version,) = {node.key_version for node in nodes}
    return Site(
        models=seen.models,
        gpus=seen.gpus,
        uuids={str(gpu.id): gpu.uuid for gpu in Gpu.objects.all()},
        drivers={node.name: node.driver for node in nodes},
        hosts=seen.hosts,
        limits=seen.limits,
        tiers=seen.tiers,
        parties=tuple(
            Party(
                tenant=str(project.tenant_id),
                project=str(project.id),
                slug=project.tenant.slug,
                owner=User.objects.get(id=actor.user_id).username,
                owner_id=str(actor.user_id),
            )
            for project, actor in actors
        ),
        keys={node.name: node_key(node) for node in nodes},
        key_version=version,
        epoch=1,
    )


def _difference(real: Snapshot, modelled: Snapshot) -> str:
    """The rows that one of them has and the other has not, by section."""
    found = []
    for each in dataclasses.fields(Snapshot):
        one, other = (getattr(_ranked(seen), each.name) for seen in (real, modelled))
        if one != other and isinstance(one, tuple):
            found.append(f"{each.name}: real {[r for r in one if r not in other]}")
            found.append(f"{each.name}: model {[r for r in other if r not in one]}")
    return "\n".join(found)


def _ranked(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its grants in their order: the two portals number decisions differently."""
    grants = sorted({row.granted for row in snapshot.held if row.granted is not None})
    held = tuple(
        row if row.granted is None else dataclasses.replace(row, granted=(0, grants.index(row.granted)))
        for row in snapshot.held
    )
    return dataclasses.replace(snapshot, held=held)
