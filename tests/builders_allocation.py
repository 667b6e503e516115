"""Makers of hardware, money and bookings for tests of the services, at a clock of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, product
from uuid import UUID, uuid4

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import (
    Allocation,
    Booking,
    Gpu,
    GpuModel,
    MigPlacement,
    Node,
    Occupancy,
    PolicyVersion,
    Rack,
    SolverState,
)
from allocation.rules.ask import AskDocument, Together
from allocation.rules.states import State
from allocation.services.bookings.requests import BookingRequest
from billing.models import Budget, Price, PriceBook
from billing.rules import Period, month_after, month_of
from billing.services import budget_set, hold_place
from tenants.access import Actor
from tenants.models import GpuClass, Project, Tenant, Tier
from tests.builders import (
    UNITS_PER_GPU,
    a_gpu_class,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tier,
    an_actor,
)
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
H100 = "NVIDIA H100 80GB HBM3"
PRICE = Decimal("4.80")
# profile: (id, compute, size, starts), as NVML lists them for an H100 of 80 GB.
H100_PROFILES: dict[str, tuple[int, int, int, Sequence[int]]] = {
    "1g.10gb": (19, 1, 1, range(7)),
    "2g.20gb": (14, 2, 2, (0, 2, 4)),
    "3g.40gb": (9, 3, 4, (0, 4)),
    "7g.80gb": (0, 7, 8, (0,)),
}
# Where our hand-made bookings' numbers begin, far from those that services give.
_numbers = count(9001)


def a_model(slug: str = "h100-80gb", *, product: str = H100, enrolled: bool = True) -> GpuModel:
    """The model of class `h100`, made unless it is there; its geometry too when `enrolled`."""
    gpu_class = a_gpu_class(slug.partition("-")[0])
    with as_system():
        model, is_new = GpuModel.objects.get_or_create(
            slug=slug,
            defaults={"product_name": product, "gpu_class": gpu_class, "memory_mb": 81_559},
        )
        if is_new and enrolled:
            MigPlacement.objects.bulk_create(
                MigPlacement(
                    model=model,
                    profile=profile,
                    profile_id=number,
                    start=start,
                    size=size,
                    compute=compute,
                    limit=len(starts),
                )
                for profile, (number, compute, size, starts) in H100_PROFILES.items()
                for start in starts
            )
    return model


def a_node(name: str = "gpu-a1-01", *, gpus: int = 1, state: str = Node.State.READY) -> Node:
    """A node of rack `a1` with that many H100 in one NVLink domain."""
    with as_system():
        rack, _ = Rack.objects.get_or_create(name="a1")
        node = Node.objects.create(name=name, rack=rack, state=state)
    for index in range(gpus):
        a_gpu(node, index=index)
    return node


def a_gpu(node: Node, *, index: int = 0) -> Gpu:
    """A healthy H100 with the next free number."""
    model = a_model()
    with as_system():
        return Gpu.objects.create(
            number=Gpu.objects.count(),
            node=node,
            index=index,
            uuid=f"GPU-{node.name}-{index}",
            model=model,
            gpu_class=model.gpu_class,
            domain=0,
        )


def a_policy(**tunables: int | dict[str, int]) -> PolicyVersion:
    """The live policy, a new version if it says anything else, and the fence of the cycle."""
    with as_system():
        SolverState.objects.get_or_create(id=1)
        live = PolicyVersion.objects.filter(state="live").first()
        if live is not None and live.document == tunables:
            return live
        PolicyVersion.objects.filter(state="live").update(state="retired")
        number = PolicyVersion.objects.count() + 1
        return PolicyVersion.objects.create(number=number, document=tunables, state="live", created=NOW)


def a_price_book(per_hour: Decimal = PRICE, *, valid_from: datetime = NOW, currency: str = "") -> None:
    """One price for an h100 in the tier `standard`, in euros or in another currency."""
    a_gpu_class()
    a_tier()
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=valid_from,
            prices={("h100", "standard"): per_hour},
            currency=currency,
            now=valid_from,
        )


def a_budget(
    project: Project,
    amount: str = "1000",
    *,
    now: datetime = NOW,
) -> Budget:
    """A budget of this month and the next."""
    month = month_of(now.date())
    with as_system():
        return budget_set(
            actor_id=None,
            project=project,
            period=Period(month.starts, month_after(month.ends)),
            amount=Decimal(amount),
            now=now,
        )


def an_ask(
    count: int = 1,
    *,
    profile: str | None = None,
    hours: float = 2,
    starts: datetime | None = None,
    not_before: datetime | None = None,
    deadline: datetime | None = None,
    together: Together = "any",
    required: bool = False,
    classes: tuple[str, ...] = ("h100",),
    share: int | None = None,
    cores: int = 0,
    memory: int = 0,
) -> AskDocument:
    """Whole GPUs for two hours as soon as possible, unless said otherwise."""
    return AskDocument(
        count=count,
        classes=classes,
        profile=profile,
        together=together,
        required=required,
        duration=int(hours * 3600),
        starts=starts,
        not_before=not_before,
        deadline=deadline,
        share=share,
        cores=cores,
        memory=memory,
    )


def a_booking_request(
    project: Project, ask: AskDocument | None = None, *, tier: str = "standard"
) -> BookingRequest:
    """A request in the project."""
    return BookingRequest(project=project.slug, tier=tier, ask=ask or an_ask(), request_text="2h on an h100")


def a_booking(
    project: Project,
    owner_id: int,
    *,
    state: str = State.REQUESTED,
    hours: float = 2,
    starts: datetime = NOW,
    held: str = "9.60",
    ask: AskDocument | None = None,
    now: datetime = NOW,
) -> Booking:
    """A booking straight into a state, with its place planned and its money held.

    Terminal states hold nothing. Rows on hardware are `an_allocation`'s.
    """
    ends = starts + timedelta(hours=hours)
    ask = ask or an_ask(hours=hours)
    is_planned = state in PLANNED
    with as_system():
        booking = Booking.objects.create(
            tenant_id=project.tenant_id,
            project=project,
            owner_id=owner_id,
            number=next(_numbers),
            tier=a_tier(),
            ask=ask.to_json(),
            duration_seconds=ask.duration,
            not_before=starts,
            state=state,
            submitted=now,
            planned_starts=starts if is_planned else None,
            planned_ends=ends if is_planned else None,
            planned_class="h100" if is_planned else "",
            currency="EUR",
            price_version=1,
            price_per_hour=PRICE,
            hold_amount=Decimal(held),
            ready_at=starts if state in (State.ACTIVE, State.ENDING) else None,
        )
        if state not in TERMINAL_STATES:
            hold_place(
                tenant_id=project.tenant_id,
                project_id=project.id,
                reference=booking.id,
                amount=booking.hold_amount,
                starts=starts,
                ends=ends,
                now=now,
            )
    return booking


PLANNED = (State.SCHEDULED, State.STARTING, State.ACTIVE, State.PAUSING, State.ENDING)
TERMINAL_STATES = (
    State.ENDED,
    State.REFUSED,
    State.REJECTED,
    State.EXPIRED,
    State.CANCELLED,
    State.FAILED,
)


def a_row(
    booking: Booking,
    gpu: Gpu,
    *,
    profile: str | None = None,
    start: int = 0,
    starts: datetime = NOW,
    ends: datetime | None = None,
    state: str = Allocation.State.PLANNED,
) -> Allocation:
    """An allocation that is not saved: the whole GPU, or a slice from memory slot `start`.

    `a_share_row` makes one of a share.
    """
    compute, size = (7, 8) if profile is None else H100_PROFILES[profile][1:3]
    return Allocation(
        id=uuid4(),
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        booking=booking,
        gpu=gpu,
        gpu_number=gpu.number,
        model_id=gpu.model_id,
        mode=Gpu.Mode.WHOLE if profile is None else Gpu.Mode.SLICED,
        profile=profile,
        start=start,
        size=size,
        units=max(compute * UNITS_PER_GPU // 7, size * UNITS_PER_GPU // 8),
        period=DateTimeTZRange(starts, ends or starts + 2 * HOUR),
        state=state,
    )


def a_share_row(
    booking: Booking,
    gpu: Gpu,
    share: int,
    *,
    starts: datetime = NOW,
    ends: datetime | None = None,
) -> Allocation:
    """An allocation that is not saved: so many thousandths of the GPU."""
    row = a_row(booking, gpu, starts=starts, ends=ends)
    row.mode, row.share, row.units = Gpu.Mode.SHARED, share, share * 56
    return row


def an_allocation(
    booking: Booking,
    gpu: Gpu,
    *,
    profile: str | None = None,
    start: int = 0,
    starts: datetime = NOW,
    ends: datetime | None = None,
    state: str = Allocation.State.PLANNED,
) -> Allocation:
    """`a_row`, saved; from `starting` on with an open occupancy."""
    row = a_row(booking, gpu, profile=profile, start=start, starts=starts, ends=ends, state=state)
    with as_system():
        row.save(force_insert=True)
        row.refresh_from_db()
        if state in (Allocation.State.STARTING, Allocation.State.ACTIVE, "releasing"):
            Occupancy.objects.create(
                allocation=row,
                gpu=gpu,
                slots=row.slots,
                share=row.share,
                opened=row.period.lower,
            )
    return row


@dataclass(frozen=True)
class Lab:
    """A tenant with a project, a researcher, money, prices, quota and a live policy."""

    tenant: Tenant
    project: Project
    actor: Actor
    budget: Budget

    @property
    def tenant_id(self) -> UUID:
        return self.tenant.id


def a_lab(slug: str = "", *, money: str = "1000", limit: int = 8, gpus: int = 1, now: datetime = NOW) -> Lab:
    """A lab, and the first time a node with `gpus` H100 and everything cycles need."""
    with as_system():
        a_model()
        a_tier()
        if not PriceBook.objects.exists():
            a_policy()
            a_price_book(valid_from=now)
            if gpus:
                a_node(gpus=gpus)
        tenant = a_tenant(slug)
        project = a_project(tenant)
        a_quota(tenant, guaranteed=limit, limit=limit)
        actor = an_actor(a_member(project))
        return Lab(tenant, project, actor, a_budget(project, money, now=now))


def all_priced() -> None:
    """The newest price book has a price for every class in every tier, too."""
    with as_owner():
        book = PriceBook.objects.latest("valid_from")
        known = set(Price.objects.filter(book=book).values_list("gpu_class_id", "tier_id"))
        pairs = product(
            GpuClass.objects.values_list("slug", flat=True), Tier.objects.values_list("slug", flat=True)
        )
        Price.objects.bulk_create(
            Price(book=book, gpu_class_id=gpu_class, tier_id=tier, per_gpu_hour=PRICE)
            for gpu_class, tier in pairs
            if (gpu_class, tier) not in known
        )
