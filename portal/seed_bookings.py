"""The demo's bookings: a week behind us, some that start now, a week to come.

Every random choice of a day follows from its date, so that two sites show the same days.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid5

from django.db import transaction

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.changes import reason_data
from allocation.services.costs import booking_cost
from allocation.solver import Reason
from billing.rules import midnight, money_text
from billing.services import hold_release, hold_settle
from portal.seed_calendar import Calendar, Spot, Window
from portal.seed_rows import (
    Event,
    PlaceTaken,
    Site,
    Work,
    allocations_save,
    booking_hold,
    booking_new,
    booking_save,
    nothing_charged,
)
from tenants.audit import audit_record
from tenants.errors import Refused
from tenants.models import AuditEntry, Tenant

NAMESPACE = UUID("0d9f2f7e-7c1d-5b53-9d55-5d6f3c1d8b2e")
PER_PAST_DAY = 9
PER_COMING_DAY = 5
MARK = "demo.filled"
FOLDING = ("helix", "protein-folding")
CRYO = ("helix", "cryo-em")
WORDS = ("helix", "language-models")
CLIMATE = ("northlab", "climate")
WORKS = (
    Work("protein-fold", "mara", FOLDING, "standard", "h100", 4, None, (4, 9)),
    Work("ablation", "mara", FOLDING, "spot", "h100", 2, None, (2, 6)),
    Work("folding-eval", "jonas", FOLDING, "standard", "h100", 1, None, (2, 6)),
    Work("msa-build", "mara", FOLDING, "standard", "h100", 1, "3g.40gb", (3, 8)),
    Work("relax", "jonas", FOLDING, "spot", "a100", 2, None, (2, 8)),
    Work("notebook", "mara", FOLDING, "standard", "h100", 1, "1g.10gb", (4, 9)),
    Work("refinement", "ines", CRYO, "assured", "a100", 2, None, (3, 8)),
    Work("particle-picking", "ines", CRYO, "standard", "a100-40", 1, "3g.20gb", (2, 6)),
    Work("3d-classes", "tomas", CRYO, "spot", "a100-40", 2, None, (3, 9)),
    Work("ctf-check", "ines", CRYO, "standard", "a100-40", 2, "1g.5gb", (1, 4)),
    Work("motion-correction", "tomas", CRYO, "standard", "a100", 1, "2g.20gb", (2, 6)),
    Work("pretrain-7b", "tomas", WORDS, "assured", "h100", 2, None, (6, 12)),
    Work("finetune-lora", "mara", WORDS, "standard", "a100", 1, None, (3, 8)),
    Work("eval-suite", "tomas", WORDS, "spot", "l40s", 1, None, (2, 6)),
    Work("serve-test", "mara", WORDS, "standard", "h100", 1, "2g.20gb", (2, 5)),
    Work("distil", "tomas", WORDS, "standard", "a100", 3, None, (4, 8)),
    Work("rain-ensemble", "nils", CLIMATE, "standard", "h100", 2, None, (3, 8)),
    Work("downscaling", "nils", CLIMATE, "spot", "a100", 1, None, (3, 9)),
    Work("reanalysis", "freya", CLIMATE, "assured", "a100", 2, None, (4, 8)),
    Work("emulator", "nils", CLIMATE, "standard", "h100", 2, "1g.20gb", (3, 8)),
)
# By place in WORKS: what begins when the demo does.
STARTING = (0, 3, 5, 6, 8, 12, 13, 14, 17, 19)
# (place in WORKS, GPUs, hours, hours until the deadline or None): they wait for their turn.
WAITING = ((11, 4, 8, None), (0, 5, 6, 72), (15, 4, 10, None))


ENDINGS = {
    "completed": "Its time is over; being cleared.",
    "released": "Given back early; the device is being cleared.",
    "no_show": "Nobody used it for 30 minutes; being cleared.",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One booking that the demo wants to have had."""

    id: UUID
    name: str
    work: Work
    window: Window
    submitted: datetime
    outcome: str


@dataclass(frozen=True, slots=True)
class Demo:
    """What is there already, and the present instant."""

    site: Site
    calendar: Calendar
    now: datetime

    @classmethod
    def read(cls, now: datetime) -> "Demo":
        """The demo as the database has it."""
        return cls(Site.read(), Calendar(), now)


def day_seed(demo: Demo, day: date) -> int:
    """Fills a UTC day once; returns how many bookings it got."""
    if _is_marked("day", day):
        return 0
    dice = random.Random(f"demo {day}")  # noqa: S311 (not for secrets)
    wanted = PER_PAST_DAY if midnight(day) < demo.now else PER_COMING_DAY
    made = 0
    for plan in _plans(demo, day, dice):
        if made == wanted:
            break
        made += _book(demo, plan)
    _mark("day", day, made, demo.now)
    return made


def start_seed(demo: Demo) -> int:
    """Once a day: what begins at this instant, and what waits for it; returns how many."""
    day = demo.now.astimezone(UTC).date()
    if _is_marked("start", day):
        return 0
    made = sum(_book(demo, plan) for plan in _starting_plans(demo, day))
    made += sum(_wait(demo, number, day) for number in range(len(WAITING)))
    _mark("start", day, made, demo.now)
    return made


def _is_marked(kind: str, day: date) -> bool:
    return AuditEntry.objects.filter(
        action=MARK, object_kind=kind, object_id=day.isoformat()
    ).exists()


def _mark(kind: str, day: date, made: int, now: datetime) -> None:
    audit_record(
        tenant_id=Tenant.objects.get(slug="helix").id,
        actor_id=None,
        action=MARK,
        target=(kind, day.isoformat()),
        now=now,
        detail={"bookings": made},
    )


def _plans(demo: Demo, day: date, dice: random.Random) -> Iterator[Plan]:
    """More wishes for the day than fit, none of them over the present instant."""
    now = demo.now
    for number in range(6 * PER_PAST_DAY):
        work = dice.choice(WORKS)
        starts = midnight(day) + timedelta(minutes=15 * dice.randrange(5 * 4, 21 * 4))
        ends = starts + timedelta(hours=dice.randint(*work.hours))
        early = timedelta(minutes=dice.randrange(20, 30 * 60))
        submitted = min(starts, now) - early
        outcome = dice.choices(
            ("completed", "released", "cancelled", "no_show", "refused"), (74, 10, 7, 5, 4)
        )[0]
        name = f"{work.name}-{dice.randrange(1, 60)}"
        if ends <= now - timedelta(minutes=10) or starts >= now + timedelta(minutes=45):
            yield Plan(
                id=uuid5(NAMESPACE, f"{day}/{number}"),
                name=name,
                work=work,
                window=_window(demo, work, starts, ends),
                submitted=submitted,
                outcome=outcome,
            )


def _starting_plans(demo: Demo, day: date) -> Iterator[Plan]:
    now = demo.now
    for number in STARTING:
        work = WORKS[number]
        yield Plan(
            id=uuid5(NAMESPACE, f"{day}/now/{number}"),
            name=f"{work.name}-{day:%d%m}",
            work=work,
            window=_window(demo, work, now, now + timedelta(hours=work.hours[0] + number % 3)),
            submitted=now - timedelta(minutes=7 * number + 5),
            outcome="",
        )


def _window(demo: Demo, work: Work, starts: datetime, ends: datetime) -> Window:
    project = demo.site.projects[work.project]
    return Window(project.tenant_id, project.id, work.tier, starts, ends)


def _book(demo: Demo, plan: Plan) -> int:
    """1 when the booking was made, 0 where there is no room or no money for it."""
    is_past = plan.window.ends <= demo.now
    work = plan.work
    needs_place = not is_past or plan.outcome not in ("cancelled", "refused")
    spots: list[Spot] | None = []
    if needs_place:
        spots = demo.calendar.take(plan.window, work.gpu_class, work.count, work.profile)
    if spots is None:
        return 0
    try:
        with transaction.atomic():
            booking = _booking(demo, plan, is_past=is_past)
            if is_past:
                _past(booking, plan, spots)
            else:
                _coming(booking, plan, spots)
    except (Refused, PlaceTaken):
        return 0
    return 1


def _booking(demo: Demo, plan: Plan, *, is_past: bool) -> Booking:
    """The row with its money held, not saved yet."""
    work, window = plan.work, plan.window
    duration = int((window.ends - window.starts).total_seconds())
    ask = _ask(work, work.count, duration, starts=window.starts)
    booking = booking_new(
        site=demo.site,
        booking_id=plan.id,
        name=plan.name,
        work=work,
        ask=ask,
        submitted=plan.submitted,
    )
    booking.starts = booking.not_before = window.starts
    booking.request_text = f"{work.text} {duration // 3600}h"
    booking.state = State.ENDED if is_past else State.SCHEDULED
    booking.planned_class = work.gpu_class
    booking.planned_starts, booking.planned_ends = window.starts, window.ends
    booking_hold(booking, plan.submitted)
    return booking


def _past(booking: Booking, plan: Plan, spots: list[Spot]) -> None:
    if plan.outcome == "refused":
        _refused(booking, plan)
    elif plan.outcome == "cancelled":
        _cancelled(booking, plan)
    else:
        _used(booking, plan, spots)


def _used(booking: Booking, plan: Plan, spots: list[Spot]) -> None:
    starts, ends = plan.window.starts, plan.window.ends
    length = int((ends - starts).total_seconds())
    used = {"released": length * 3 // 5, "no_show": 1800}.get(plan.outcome, length)
    # Handing over and clearing take longer for more GPUs.
    ready = starts + timedelta(seconds=15 + 7 * len(spots))
    released = starts + timedelta(seconds=used)
    over = released + timedelta(seconds=8 + 3 * len(spots))
    seconds = int((released - ready).total_seconds())
    charged = hold_settle(
        tenant_id=booking.tenant_id,
        reference=booking.id,
        amount=min(booking.held, booking_cost(booking, seconds)),
        now=over,
    )
    booking.ready_at, booking.released_at, booking.ended_at = ready, released, over
    booking.outcome, booking.charged = plan.outcome, charged
    if plan.outcome != "no_show":
        booking.checked_in_at = ready + timedelta(minutes=2)
    paid = money_text(charged, booking.currency)
    freed = money_text(booking.held - charged, booking.currency)
    booking_save(
        booking,
        [
            _scheduled(plan, spots),
            Event(starts, "starting", "starting", "The node was told to start it."),
            Event(ready, "started", "active", "Ready: the devices are handed over."),
            Event(released, "ending", "ending", ENDINGS[plan.outcome]),
            Event(
                over,
                "ended",
                "ended",
                f"The device is proven empty. {paid} charged, {freed} free again.",
            ),
        ],
    )
    allocations_save(booking, spots, (starts, released), "ended")


def _coming(booking: Booking, plan: Plan, spots: list[Spot]) -> None:
    booking_save(booking, [_scheduled(plan, spots)])
    allocations_save(booking, spots, (plan.window.starts, plan.window.ends), "planned")


def _cancelled(booking: Booking, plan: Plan) -> None:
    at = (plan.submitted + (plan.window.starts - plan.submitted) / 2).replace(microsecond=0)
    booking.state, booking.outcome = State.CANCELLED, "cancelled"
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=at)
    nothing_charged(booking, at)
    free = f"Cancelled by its owner; {money_text(booking.held, booking.currency)} is free again."
    booking_save(booking, [_scheduled(plan, ()), Event(at, "cancelled", State.CANCELLED, free)])


def _refused(booking: Booking, plan: Plan) -> None:
    at = plan.submitted + timedelta(seconds=4)
    sentence = f"Not enough {plan.work.gpu_class} are free together for the whole time."
    booking.state, booking.outcome = State.REFUSED, "refused"
    booking.planned_starts = booking.planned_ends = None
    booking.planned_class = ""
    booking.reasons = [reason_data(Reason("R18", "window_busy", "together", sentence))]
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=at)
    nothing_charged(booking, at)
    booking_save(booking, [Event(at, "refused", State.REFUSED, sentence)])


def _scheduled(plan: Plan, spots: Sequence[Spot]) -> Event:
    where = f" on {spots[0].gpu.node.name}" if spots else ""
    return Event(
        plan.submitted + timedelta(seconds=4),
        "scheduled",
        "scheduled",
        f"Scheduled{where} from {plan.window.starts:%d %b %H:%M} UTC.",
    )


def _wait(demo: Demo, number: int, day: date) -> int:
    """A flexible booking that waits; the first cycle says from when it can run."""
    place, count, hours, deadline = WAITING[number]
    work, now = WORKS[place], demo.now
    last = now + timedelta(hours=deadline) if deadline else None
    booking = booking_new(
        site=demo.site,
        booking_id=uuid5(NAMESPACE, f"{day}/wait/{number}"),
        name=f"{work.name}-big",
        work=work,
        ask=_ask(work, count, hours * 3600, deadline=last),
        submitted=now,
    )
    booking.not_before, booking.deadline = now, last
    booking.request_text = f"{count} {work.gpu_class} {hours}h"
    try:
        with transaction.atomic():
            booking_hold(booking, now)
            booking_save(booking, [])
    except Refused:
        return 0
    return 1


def _ask(
    work: Work,
    count: int,
    duration: int,
    *,
    starts: datetime | None = None,
    deadline: datetime | None = None,
) -> AskDocument:
    is_gang = count > 1 and work.profile is None
    return AskDocument(
        count=count,
        classes=(work.gpu_class,),
        profile=work.profile,
        together="domain" if is_gang else "any",
        required=is_gang,
        duration=duration,
        starts=starts,
        deadline=deadline,
    )
