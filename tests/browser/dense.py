"""A fleet as full as a timeline ever gets: 112 GPUs, 2,000 bookings of all lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random

from allocation.models import Allocation, Booking, Gpu, Node, Rack
from allocation.rules.states import State
from tenants.models import Membership, Tier
from tests.builders import a_member, a_project, a_tenant, a_tier
from tests.builders_allocation import a_model, a_row, a_share_row, an_ask
from tests.roles import as_system

NODES = 14
GPUS = 8
DAYS = 15
MINUTES = (10, 30, 60, 120, 240, 480, 1440, 2880)
"""Most are shorter than a pixel column of two weeks."""
PAUSES = (0, 0, 5, 720, 1440, 2880)
SLICED, SHARED = 6, 5
"""The GPUs of each node from which on there are slices, and the one that is shared."""
PROFILES = (("3g.40gb", 0, 4), ("1g.10gb", 4, 1), ("1g.10gb", 5, 1), ("1g.10gb", 6, 1))


@dataclass
class Dense:
    """A world in the making: at most one booking at a time on any slot of any GPU."""

    now: datetime
    owners: Sequence[Membership]
    tier: Tier
    random: Random
    bookings: list[Booking] = field(default_factory=list)
    rows: list[Allocation] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(20_001))

    def booking(self, starts: datetime, ends: datetime, **ask: object) -> Booking:
        """One of anybody's, with its time planned."""
        owner = self.random.choice(self.owners)
        project = owner.project
        assert project is not None
        number = next(self.numbers)
        booking = Booking(
            tenant_id=owner.tenant_id,
            project=project,
            owner_id=owner.user_id,
            number=number,
            name=self.random.choice(("", f"train-{number}", "a-name-of-forty-characters-to-be-cut-off")),
            tier=self.tier,
            ask=an_ask(hours=1).to_json(),
            duration_seconds=int((ends - starts).total_seconds()),
            not_before=starts,
            state=State.SCHEDULED,
            submitted=self.now,
            planned_starts=starts,
            planned_ends=ends,
            planned_class="h100",
            currency="EUR",
            price_version=1,
            price_per_hour="4.80",
            hold_amount="0",
        )
        self.bookings.append(booking)
        return booking

    def stretches(self) -> Iterator[tuple[datetime, datetime]]:
        """Times one after the other over two weeks, back to back or with gaps."""
        at = self.now - timedelta(hours=20) + timedelta(minutes=self.random.randrange(60))
        while at < self.now + timedelta(days=DAYS):
            ends = at + timedelta(minutes=self.random.choice(MINUTES))
            yield at, ends
            at = ends + timedelta(minutes=self.random.choice(PAUSES))

    def whole(self, gpus: Sequence[Gpu]) -> None:
        """Bookings of 1, 2 or all of these GPUs."""
        for starts, ends in self.stretches():
            first = self.random.randrange(len(gpus))
            taken = gpus[first : first + self.random.choice((1, 2, len(gpus)))]
            booking = self.booking(starts, ends)
            self.rows += [a_row(booking, gpu, starts=starts, ends=ends) for gpu in taken]

    def sliced(self, gpu: Gpu) -> None:
        """Slices, each at its own place."""
        for profile, start, _ in PROFILES:
            for starts, ends in self.stretches():
                booking = self.booking(starts, ends)
                self.rows.append(a_row(booking, gpu, profile=profile, start=start, starts=starts, ends=ends))

    def shared(self, gpu: Gpu) -> None:
        """Two shares on one GPU."""
        for _ in range(2):
            for starts, ends in self.stretches():
                booking = self.booking(starts, ends)
                self.rows.append(a_share_row(booking, gpu, 400, starts=starts, ends=ends))


def a_dense_fleet(now: datetime, *, seed: int = 1) -> Membership:
    """Fills the fleet with the bookings of a reader, of a colleague and of another tenant."""
    project = a_project(slug="folding", name="Protein folding")
    owners = (a_member(project), a_member(project), a_member(a_project(a_tenant())))
    world = Dense(now, owners, a_tier(), Random(seed))  # noqa: S311 (a world, not a secret)
    gpus = _fleet()
    for node in range(NODES):
        mine = gpus[node * GPUS : (node + 1) * GPUS]
        world.whole(mine[:SHARED])
        world.shared(mine[SHARED])
        for gpu in mine[SLICED:]:
            world.sliced(gpu)
    with as_system():
        Booking.objects.bulk_create(world.bookings, batch_size=500)
        Allocation.objects.bulk_create(world.rows, batch_size=500)
    return owners[0]


def _fleet() -> list[Gpu]:
    model = a_model()
    with as_system():
        racks = [Rack.objects.create(name=f"a{number}") for number in range(2)]
        nodes = Node.objects.bulk_create(
            Node(name=f"gpu-a{number % 2}-{number:02}", rack=racks[number % 2], state="ready")
            for number in range(NODES)
        )
        return Gpu.objects.bulk_create(
            Gpu(
                number=place * GPUS + index,
                node=node,
                index=index,
                uuid=f"GPU-{node.name}-{index}",
                model=model,
                gpu_class=model.gpu_class,
                domain=0,
                mode=Gpu.Mode.SLICED if index >= SLICED else Gpu.Mode.WHOLE,
            )
            for place, node in enumerate(nodes)
            for index in range(GPUS)
        )
