"""The bookings of the demo's people, deterministic for a day and an instant."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import Parsed, parse_ask
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.bookings.requests import BookingRequest
from billing.rules import midnight
from devtools.demo.history import TimedAction
from devtools.demo.nodes import Label
from tenants.access import Actor, actor_by_id
from tenants.models import User

NAMESPACE = UUID("0d9f2f7e-7c1d-5b53-9d55-5d6f3c1d8b2e")
ZONE = "Europe/Berlin"
PER_PAST_DAY = 9
PER_COMING_DAY = 5
FOLDING = ("helix", "protein-folding")
CRYO = ("helix", "cryo-em")
WORDS = ("helix", "language-models")
CLIMATE = ("northlab", "climate")


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job that somebody books repeatedly; `hours` is the shortest and longest."""

    name: str
    owner: str
    project: tuple[str, str]
    tier: str
    what: str
    hours: tuple[int, int]


JOB_KINDS = (
    JobKind("protein-fold", "mara", FOLDING, "standard", "4 h100 nvlink", (4, 9)),
    JobKind("ablation", "mara", FOLDING, "spot", "2 h100 nvlink", (2, 6)),
    JobKind("folding-eval", "jonas", FOLDING, "standard", "1 h100", (2, 6)),
    JobKind("msa-build", "mara", FOLDING, "standard", "1 3g.40gb h100", (3, 8)),
    JobKind("relax", "jonas", FOLDING, "spot", "2 a100 nvlink", (2, 8)),
    JobKind("notebook", "mara", FOLDING, "standard", "1 1g.10gb h100", (4, 9)),
    JobKind("refinement", "ines", CRYO, "assured", "2 a100 nvlink", (3, 8)),
    JobKind("particle-picking", "ines", CRYO, "standard", "1 3g.20gb a100-40", (2, 6)),
    JobKind("3d-classes", "tomas", CRYO, "spot", "2 a100-40 nvlink", (3, 9)),
    JobKind("ctf-check", "ines", CRYO, "standard", "2 1g.5gb a100-40", (1, 4)),
    JobKind("motion-correction", "tomas", CRYO, "standard", "1 2g.20gb a100", (2, 6)),
    JobKind("pretrain-7b", "tomas", WORDS, "assured", "2 h100 nvlink", (6, 12)),
    JobKind("finetune-lora", "mara", WORDS, "standard", "1 a100", (3, 8)),
    JobKind("eval-suite", "tomas", WORDS, "spot", "1 l40s", (2, 6)),
    JobKind("serve-test", "mara", WORDS, "standard", "1 2g.20gb h100", (2, 5)),
    JobKind("distil", "tomas", WORDS, "standard", "3 a100 nvlink", (4, 8)),
    JobKind("rain-ensemble", "nils", CLIMATE, "standard", "2 h100 nvlink", (3, 8)),
    JobKind("downscaling", "nils", CLIMATE, "spot", "1 a100", (3, 9)),
    JobKind("reanalysis", "freya", CLIMATE, "assured", "2 a100 nvlink", (4, 8)),
    JobKind("emulator", "nils", CLIMATE, "standard", "2 1g.20gb h100", (3, 8)),
)
# The campaign that a job is charged to.
CAMPAIGNS = {
    "protein-fold": "complex-prediction",
    "finetune-lora": "ablation-study",
    "eval-suite": "ablation-study",
}
# Indexes in JOB_KINDS of the jobs that start with the demo.
STARTING = (0, 3, 5, 6, 8, 12, 13, 14, 17, 19)


@dataclass(frozen=True, slots=True)
class BookingText:
    """A booking as the text that its owner types."""

    id: UUID
    name: str
    owner: str
    project: tuple[str, str]
    tier: str
    text: str


@dataclass(frozen=True, slots=True)
class People:
    """Books through the services; `no_shows` collects the bookings that nobody uses."""

    no_shows: set[Label]

    def book(self, line: BookingText, now: datetime, *, starts_program: bool = True) -> None:
        """Books the text as its owner would; a second call does nothing."""
        if Booking.objects.filter(id=line.id).exists():
            return
        tenant, project = line.project
        document = text_parsed(line.text, now).document()
        request = BookingRequest(
            project,
            line.tier,
            document,
            line.name,
            ZONE,
            line.text,
            campaign=CAMPAIGNS.get(line.name.rpartition("-")[0], ""),
        )
        actor = person(line.owner, tenant)
        booking = booking_request(actor=actor, request=request, now=now, booking_id=line.id)
        if not starts_program:
            self.no_shows.add((tenant, booking.label))


def person(username: str, tenant: str) -> Actor:
    """The person as a member of the tenant."""
    return actor_by_id(User.objects.only("pk").get(username=username).pk, tenant)


def text_parsed(text: str, now: datetime) -> Parsed:
    """The parsed text."""
    return parse_ask(text, catalogue=ask_catalogue(), now=now, zone=ZoneInfo(ZONE))


@dataclass(frozen=True, slots=True)
class Plan:
    """A booking with its request time, its window, and its fate if it is not simply used."""

    line: BookingText
    asked: datetime
    starts: datetime
    ends: datetime
    fate: str = ""


def day_plans(day: date, edge: datetime) -> Iterator[Plan]:
    """Yields the bookings of a UTC day, without those that would run at `edge`."""
    dice = random.Random(f"demo {day}")  # noqa: S311 (not for secrets)
    for number in range(PER_PAST_DAY if midnight(day) < edge else PER_COMING_DAY):
        job = dice.choice(JOB_KINDS)
        starts = midnight(day) + timedelta(minutes=30 * dice.randrange(5 * 2, 21 * 2))
        hours = dice.randint(*job.hours)
        ends = starts + timedelta(hours=hours)
        asked = min(starts, edge) - timedelta(minutes=30 * dice.randrange(1, 30 * 2))
        (fate,) = dice.choices(("", "released", "cancelled", "absent"), (79, 11, 8, 2))
        name = f"{job.name}-{dice.randrange(1, 60)}"
        if ends <= edge - timedelta(minutes=10) or starts >= edge + timedelta(minutes=45):
            line = _line(job, uuid5(NAMESPACE, f"{day}/{number}"), name, starts, hours)
            yield Plan(line, asked, starts, ends, fate)


def opening_plans(edge: datetime) -> Iterator[Plan]:
    """Yields bookings that start at `edge` and were requested in the hours before."""
    day = edge.astimezone(UTC).date()
    for number in STARTING:
        job = JOB_KINDS[number]
        hours = job.hours[0] + number % 3
        key = uuid5(NAMESPACE, f"{day}/now/{number}")
        line = _line(job, key, f"{job.name}-{day:%d%m}", edge, hours)
        asked = edge - timedelta(minutes=7 * number + 5)
        yield Plan(line, asked, edge, edge + timedelta(hours=hours))


def booking_actions(people: People, plans: Iterable[Plan]) -> Iterator[TimedAction]:
    """Yields the actions of each booking: its request, and its release or cancellation."""
    for plan in plans:
        key = plan.line.id
        yield TimedAction(plan.asked, partial(people.book, plan.line, starts_program=plan.fate != "absent"))
        if plan.fate == "released":
            used = (plan.ends - plan.starts) * 3 // 5
            yield TimedAction(plan.starts + used, owner_does(booking_release, key))
        if plan.fate == "cancelled":
            yield TimedAction(plan.asked + (plan.starts - plan.asked) // 2, owner_does(booking_cancel, key))


def _line(job: JobKind, key: UUID, name: str, starts: datetime, hours: int) -> BookingText:
    local = starts.astimezone(ZoneInfo(ZONE))
    text = f"{job.what} {hours}h at {local:%H:%M} on {local:%Y-%m-%d}"
    return BookingText(key, name, job.owner, job.project, job.tier, text)


def owner_does(service: Callable[..., object], key: UUID) -> Callable[[datetime], object]:
    """Returns an action that calls the service as the booking's owner, if the booking exists."""

    def do(now: datetime) -> None:
        booking = Booking.objects.select_related("owner", "tenant").filter(id=key).first()
        if booking is not None:
            actor = person(booking.owner.username, booking.tenant.slug)
            service(actor=actor, booking=booking, now=now)

    return do
