"""Workloads of the demo's past, one of each kind that advice and the order of classes are about: they run on
each class for three nights, and then on the one on which a step costs least. `devtools.demo.uses` says what
their readings show."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from uuid import uuid5

from allocation.features.workloads.diversion import DiversionTerms, diversion_set
from allocation.features.workloads.models import Diversion
from billing.rules import midnight
from devtools.demo.history import TimedAction
from devtools.demo.week import CRYO, FOLDING, NAMESPACE, WORDS, BookingText, People, person

# The nights of the past week in which they run, at an hour at which GPUs are free: first on each class,
# and then on the class on which a step costs least.
LEARNT, DIVERTED = range(-5, -2), range(-2, 0)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Booked:
    """A workload of a project, what its owner books first and else, for how many hours, and at which time of
    the night. `lead` lets the portal order its classes by cost; empty: nobody does."""

    name: str
    owner: str
    project: tuple[str, str]
    whats: tuple[str, str]
    hours: int = 1
    at: str = "01:30"
    more: str = ""
    lead: str = ""

    @property
    def either(self) -> str:
        """A request that allows both classes, the first one first."""
        return f"{self.whats[0]} or {self.whats[1].split()[1]}"


# Two GPUs are free on each class when the work of the hour before is done, on whatever day of the week.
BOOKED = (
    Booked("augment-train", "ines", CRYO, ("1 a100", "1 a100-40"), more=" 2 cores", lead="ines"),
    Booked("llm-decode", "tomas", WORDS, ("1 l40s", "1 a100"), lead="tomas"),
    Booked("sweep-notebook", "mara", FOLDING, ("1 h100", "1 l40s"), hours=2, lead="jonas"),
    Booked("embed-small", "jonas", FOLDING, ("1 h100", "1 l40s"), lead="jonas"),
    Booked("tensor-parallel", "tomas", WORDS, ("2 h100", "2 a100"), at="02:30", lead="tomas"),
    Booked("docking", "mara", WORDS, ("1 h100", "1 a100")),
)


def workload_actions(people: People, today: date, learn: Callable[[datetime], None]) -> Iterator[TimedAction]:
    """Yields the requests of the workloads in the evening before the night in which they run. When both
    classes are learnt, leads let the portal order them; `learn` keeps what programs have said by then."""
    chosen = today + timedelta(days=DIVERTED[0] - 1)
    for night in LEARNT:
        learnt = [(each, what) for each in BOOKED for what in each.whats]
        for number, (each, what) in enumerate(learnt):
            day = today + timedelta(days=night)
            text = f"{what} {each.hours}h at {each.at} on {day}{each.more}"
            yield TimedAction(midnight(day) - 2 * HOUR, partial(people.book, _line(each, day, number, text)))
    yield TimedAction(midnight(chosen) + 12 * HOUR, learn)
    for number, each in enumerate([each for each in BOOKED if each.lead]):
        yield TimedAction(midnight(chosen) + 12 * HOUR, partial(_by_cost, each))
        for night in DIVERTED:
            day = today + timedelta(days=night)
            line = _line(each, day, number, f"{each.either} {each.hours}h{each.more}")
            yield TimedAction(midnight(day) + 1.5 * HOUR, partial(people.book, line))


def _line(each: Booked, day: date, number: int, text: str) -> BookingText:
    key = uuid5(NAMESPACE, f"{day}/workload/{number}")
    return BookingText(key, f"{each.name}-{day:%d}{number}", each.owner, each.project, "standard", text)


def _by_cost(each: Booked, now: datetime) -> None:
    """Lets the portal order the classes of a workload, as its lead would."""
    terms = DiversionTerms(mode=Diversion.Mode.AUTOMATIC, workload=each.name)
    tenant, project = each.project
    diversion_set(actor=person(each.lead, tenant), project=project, terms=terms, now=now)
