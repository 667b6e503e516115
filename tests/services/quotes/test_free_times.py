"""One answer to "what is free when": pages, REST, quotes and refusals are asked for the same time.

Random dense sites: whole and sliced GPUs, GPUs that are fixed to slices, running work, work that is
late, planned and promised starts, maintenance, nodes that drain, are quarantined or do not answer.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from django.utils import timezone

from allocation.models import Booking, Gpu, GpuModel, Maintenance, Node
from allocation.queries.bookings.timelines.rows import Window
from allocation.queries.bookings.timelines.timeline import timeline_read
from allocation.queries.fleet.fleet import fleet_now, totals_of
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.quotes.free_times import MIN_FREE_TIME, FreeTimes, free_times_read
from allocation.services.quotes.quotes import Quote, quote_make
from billing.models import PriceBook
from tenants.models import Quota
from tenants.platform.wall import operator_tx, tenant_tx
from tests.api.builders import Api, a_token, said
from tests.builders import UNITS_PER_GPU, a_gpu_class, a_quota, a_user
from tests.builders_allocation import HOUR, Lab, a_booking, a_booking_request, a_lab, a_row, an_ask
from tests.prices import price_add
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
NODE_STATES = ("ready", "ready", "ready", "draining", "quarantined", "silent", "clock")


class World:
    """Ten H100 on three nodes and four A100, two of them in slices."""

    def __init__(self, seed: int, now: datetime) -> None:
        self.chance, self.now = Random(seed), now  # noqa: S311  made-up sites
        self.mine, self.other = a_lab("mine", gpus=4), a_lab("other")
        self.operator = a_user("otto", is_staff=True)
        with as_system():
            h100 = Gpu.objects.select_related("node__rack", "model").first()
            assert h100 is not None
            for name, count in (("n2", 3), ("n3", 3)):
                self._gpus(self._node(name, h100), h100.model, count)
            self._gpus(self._node("n4", h100), self._a100(h100.model), 4)
            # One is in slices and can be reset, one is pinned to them.
            Gpu.objects.filter(node__name="n4", index=2).update(mode="sliced")
            Gpu.objects.filter(node__name="n4", index=3).update(mode="sliced", mode_pinned="sliced")
            Quota.objects.update(guaranteed_units=50 * UNITS_PER_GPU)
            book = PriceBook.objects.get()
            price_add(book=book, gpu_class_id="a100", tier_id="standard", per_gpu_hour=3)
        for lab in (self.mine, self.other):
            a_quota(lab.tenant, a_gpu_class("a100"), guaranteed=50, limit=50)
        with as_system():
            gpus = list(Gpu.objects.select_related("node").order_by("number"))
        for gpu in gpus:
            self._fill(gpu)

    def _node(self, name: str, like: Gpu) -> Node:
        state = self.chance.choice(NODE_STATES)
        return Node.objects.create(
            name=name,
            rack=like.node.rack,
            state=state if state in ("draining", "quarantined") else "ready",
            unreachable_since=self.now - HOUR if state == "silent" else None,
            clock_wrong=state == "clock",
        )

    def _a100(self, like: GpuModel) -> GpuModel:
        gpu_class = a_gpu_class("a100")
        return GpuModel.objects.create(
            slug="a100-40gb",
            product_name="A100",
            gpu_class=gpu_class,
            memory_mb=40_000,
            mode_switch="reset",
            switch_seconds=30,
        )

    def _gpus(self, node: Node, model: GpuModel, count: int) -> None:
        for index in range(count):
            Gpu.objects.create(
                number=Gpu.objects.count(),
                node=node,
                index=index,
                uuid=f"GPU-{node.name}-{index}",
                model=model,
                gpu_class=model.gpu_class,
                health="lost" if self.chance.random() < 0.1 else "ok",
            )

    def _fill(self, gpu: Gpu) -> None:
        kinds = ["idle", "idle", "runs", "late", "own", "planned", "promised", "away"]
        if gpu.gpu_class_id == "h100":
            kinds.append("slice")
        kind, hours = self.chance.choice(kinds), self.chance.choice((0.5, 2, 5))
        lab = self.mine if kind == "own" or self.chance.random() < 0.2 else self.other
        now, later = self.now, self.now + timedelta(hours=self.chance.choice((0.25, 1.5, 4)))
        ends = now + timedelta(hours=hours)
        if kind in ("runs", "own"):
            self._row(lab, gpu, now - HOUR, ends)
        elif kind == "late":
            self._row(lab, gpu, now - 2 * HOUR, now - 10 * MINUTE)
        elif kind == "slice":
            self._row(lab, gpu, now - HOUR, ends, "3g.40gb")
        elif kind == "planned":
            self._row(self.other, gpu, later, later + HOUR)
        elif kind == "promised":
            self._planned_start(gpu, later)
        elif kind == "away":
            with as_system():
                Maintenance.objects.create(
                    gpu=gpu,
                    starts=later,
                    ends=later + HOUR,
                    drain_by=later,
                    reason="power",
                    created=now,
                    created_by=self.operator,
                )

    def _row(self, lab: Lab, gpu: Gpu, starts: datetime, ends: datetime, profile: str | None = None) -> None:
        begun = starts <= self.now
        state = State.ACTIVE if begun else State.SCHEDULED
        booking = a_booking(lab.project, lab.actor.user_id, state=state, starts=starts)
        row = a_row(
            booking,
            gpu,
            profile=profile,
            starts=starts,
            ends=ends,
            state="active" if begun else "planned",
        )
        with as_system():
            row.save()

    def _planned_start(self, gpu: Gpu, starts: datetime) -> None:
        lab = self.other
        ask = an_ask(hours=1, classes=(gpu.gpu_class_id,))
        booking = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED, hours=1, ask=ask)
        with as_system():
            Booking.objects.filter(id=booking.id).update(
                planned_starts=starts,
                planned_ends=starts + HOUR,
                planned_class=gpu.gpu_class_id,
                planned_places=[{"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8}],
            )

    # What each of them says is free for all of a window.

    def free_times(self, starts: datetime, ends: datetime) -> FreeTimes:
        with tenant_tx(self.mine.tenant_id):
            return free_times_read(is_operator=False, since=starts, until=ends, now=self.now)

    def operators(self, starts: datetime, ends: datetime) -> frozenset[UUID]:
        with operator_tx():
            found = free_times_read(is_operator=True, since=starts, until=ends, now=self.now)
        return found.during(starts, ends)

    def timeline(self, starts: datetime, ends: datetime) -> set[UUID]:
        window = Window(self.now, self.now + 24 * HOUR)
        with tenant_tx(self.mine.tenant_id):
            free = free_times_read(is_operator=False, since=window.starts, until=window.ends, now=self.now)
            timeline = timeline_read(
                actor=self.mine.actor, window=window, gpu_class="", now=self.now, free=free.by_gpu
            )
        gpus = (gpu for group in timeline.groups for node in group.nodes for gpu in node.gpus)
        return {gpu.id for gpu in gpus if gpu.is_free(starts, ends)}

    def fleet(self) -> int:
        with tenant_tx(self.mine.tenant_id):
            nodes = fleet_now(tenant_id=self.mine.tenant_id, now=self.now)
        return totals_of(
            nodes,
            self.free_times(self.now, self.now + MIN_FREE_TIME).during(self.now, self.now + MIN_FREE_TIME),
        ).free_whole

    def rest(self, gpu_class: str, starts: datetime, ends: datetime) -> set[UUID]:
        api = Api(a_token(self.mine.actor))
        answer = said(
            api.get(
                "availability",
                gpu_class=gpu_class,
                **{"from": starts.isoformat(), "until": ends.isoformat()},
            )
        )
        steps, gpus = answer["free"], answer["gpus"]
        found = {UUID(gpu["id"]) for gpu in gpus if gpu["free"] and _spans(gpu["free"][0], (starts, ends))}
        assert all(step["whole_gpus"] >= len(found) for step in steps)
        for step in steps:
            at = datetime.fromisoformat(step["starts"])
            assert step["whole_gpus"] == sum(
                datetime.fromisoformat(free["starts"]) <= at < datetime.fromisoformat(free["ends"])
                for gpu in gpus
                for free in gpu["free"]
            )
        return found

    def quote(self, ask: AskDocument) -> Quote:
        with tenant_tx(self.mine.tenant_id):
            request = a_booking_request(self.mine.project, ask)
            return quote_make(actor=self.mine.actor, request=request, now=self.now)


def _spans(free: dict[str, str], window: tuple[datetime, datetime]) -> bool:
    starts, ends = (datetime.fromisoformat(free[key]) for key in ("starts", "ends"))
    return starts <= window[0] and window[1] <= ends


def _as_asked(quote: Quote, starts: datetime) -> bool:
    return any(
        (option.kind, option.tier, option.starts, option.pauses) == ("as_asked", "standard", starts, 0)
        for option in quote.options
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_pages_rest_quotes_and_refusals_say_the_same_is_free(real_db: Servers, seed: int) -> None:
    now = timezone.now().replace(microsecond=0)
    world = World(seed, now)
    classes = dict(Gpu.objects.values_list("id", "gpu_class_id"))
    seen: list[int] = []
    for starts in (now + MINUTE, now + HOUR, now + 3 * HOUR):
        ends = starts + HOUR
        free = world.free_times(starts, ends).during(starts, ends)
        assert world.operators(starts, ends) == free
        assert world.timeline(starts, ends) == free
        for gpu_class in ("h100", "a100"):
            count = sum(classes[gpu] == gpu_class for gpu in free)
            seen.append(count)
            assert world.rest(gpu_class, starts, ends) == {gpu for gpu in free if classes[gpu] == gpu_class}
            ask = an_ask(hours=1, starts=starts, classes=(gpu_class,))
            if count:
                assert _as_asked(world.quote(replace(ask, count=count)), starts)
            _one_too_many(world, replace(ask, count=count + 1), count)
    assert world.fleet() == len(world.free_times(now, now + HOUR).during(now, now + HOUR))
    assert max(seen) > min(seen)


def _one_too_many(world: World, ask: AskDocument, free: int) -> None:
    """It is not offered then, and what is said of the number is the number."""
    assert ask.starts is not None
    quote = world.quote(ask)
    assert not _as_asked(quote, ask.starts)
    said = quote.blocking or ""
    if "free for that long" in said:
        assert said.startswith(f"{free} ")
        assert said.endswith(f"; {ask.count} are needed." if ask.count > 1 else "; 1 is needed.")


def test_a_planned_start_for_which_others_leave_is_not_free_after_them(db: None) -> None:
    """Nobody says here who may pause which work: limits, tiers and use are not read."""
    now = timezone.now().replace(microsecond=0)
    lab = a_lab("mine")
    gpu = Gpu.objects.get()
    runs = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE, starts=now - HOUR)
    claims = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED, hours=3, ask=an_ask(hours=3))
    with as_system():
        a_row(runs, gpu, starts=now - HOUR, ends=now + 2 * HOUR, state="active").save()
        Booking.objects.filter(id=claims.id).update(
            planned_starts=now + HOUR,
            planned_ends=now + 4 * HOUR,
            planned_class=gpu.gpu_class_id,
            planned_places=[{"gpu": str(gpu.id), "profile": None, "start": 0, "size": 8}],
        )
    until = now + 6 * HOUR
    with tenant_tx(lab.tenant_id):
        mine = free_times_read(is_operator=False, since=now, until=until, now=now)
    with operator_tx():
        all_of_site = free_times_read(is_operator=True, since=now, until=until, now=now)
    assert mine.by_gpu == all_of_site.by_gpu == {gpu.id: ((now + 4 * HOUR, until),)}
